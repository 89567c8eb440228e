"""Activation checkpointing in the trace: a region's nodes are added a second time, to recompute values for backward.

    region 0:   y = aten.sin.default x             y  = aten.sin.default x
                z = aten.cos.default y       =>    z  = aten.cos.default y
    backward:   n = aten.sin.default y             x1 = again x
                                                   y1 = aten.sin.default x1
                                                   n  = aten.sin.default y1

Autograd saves nothing while the nodes of a region run (`captured_graph/checkpoint_hooks.py`). When backward needs a
value, they run again. `again` is the identity: it keeps equal nodes apart until `lower.passes.drop_recompute_barriers`.
In a program with both forward and backward, recomputation must also wait until backward has reached the region: that is
the second operand of `again`. Random numbers are drawn once. The seed is saved or, with eager's own generator, the
numbers.

A region's writes, such as running statistics, are repeated. Where backward is a separate program, which runs later, it
gets those inputs in their state at that time: `Gradients.current_inputs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ...captured_graph.checkpoint_hooks import GIVEN, MARK, AutocastState, Mark, Recomputation
from ...captured_graph.compile_request import facts_of_input
from ...ir.graph import Graph, Value
from ...ir.untraceable_graph import Untraceable
from ...ops.burnish_primitives import RECOMPUTE_BARRIER
from ...ops.functional_overloads import functional_form
from ...ops.operator_record import NoRule, Op, lookup
from ...ops.random_numbers import OPERATORS, SEED
from .aten_tracer import AtenTracer
from .run_captured_node import run_node

CLONE = torch.ops.aten.clone.default


class Regions:
    """The checkpointed regions of a graph that is being traced."""

    def __init__(self, tracer: AtenTracer, gm: GraphModule, env: dict[Node, Any]):
        self.tracer, self.env = tracer, env
        self.current: TracedRegion | None = None
        self.nodes: dict[int, list[Node]] = {}
        for node in gm.graph.nodes:
            if MARK in node.meta:
                self.nodes.setdefault(node.meta[MARK].number, []).append(node)

    def before(self, node: Node) -> None:
        """Called before each node: enters or leaves a region."""
        mark: Mark | None = node.meta.get(MARK)
        now = None if self.current is None else self.current.number
        if now == (None if mark is None else mark.number):
            return
        self.leave()
        if mark is not None and torch.is_grad_enabled() and self.tracer.gradients:
            self.current = TracedRegion(self, mark.number, self.nodes[mark.number])
            self.tracer.region = self.current
            self.current.hooks.__enter__()

    def leave(self) -> None:
        if self.current is not None:
            self.current.hooks.__exit__(None, None, None)
            self.current = self.tracer.region = None


class TracedRegion:
    """One region, and its recomputations."""

    def __init__(self, regions: Regions, number: int, nodes: list[Node]):
        self.regions, self.tracer, self.number, self.nodes = regions, regions.tracer, number, nodes
        inside = set(nodes)
        self.inputs = list(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside))
        self.versions = [version_of(regions.env[n]) if number in n.meta.get(GIVEN, ()) else None for n in self.inputs]
        self.autocast = AutocastState()
        self.drawn: list[Any] = []
        """Seeds, and numbers from eager's generator, in order."""
        self.at: int | None = None
        """How many of them the recomputation has used; None during the first run."""
        self.after: Value | None = None
        """The last value before a recomputation, where backward is part of the same program."""
        self.recomputation = Recomputation(self.again)
        self.hooks = self.recomputation.saving()

    def again(self, is_done: Callable[[], bool]) -> None:
        tracer, env = self.tracer, self.regions.env
        for n, version in zip(self.inputs, self.versions, strict=True):
            if version_of(env[n]) != version and version is not None:
                raise Untraceable("what a checkpointed function was given is written to before backward")
        self.after = None if tracer.is_backward else latest(tracer.graph)
        waiting = self.waiting()
        values = {n: self.given(env[n], n in waiting) for n in self.inputs}
        before, tracer.region, self.at = tracer.region, self, 0
        line = tracer.line
        try:
            with self.autocast.restored():
                for node in self.nodes:
                    values[node] = run_node(tracer, node, values)
                    if is_done():
                        break
        finally:
            tracer.region, self.at, tracer.line = before, None, line

    def waiting(self) -> set[Node]:
        """The inputs that must wait until backward has reached the region: parameters only if there are no others."""
        kinds = (
            [n for n in self.inputs if n.op != "placeholder"],
            [n for n in self.inputs if not facts_of_input(n).is_module_state],
            self.inputs,
        )
        return set(next(filter(None, kinds), ()))

    def given(self, x: Any, waits: bool) -> Any:
        """An input of the region, for the recomputation."""
        if isinstance(x, (tuple, list)):
            return type(x)(self.given(part, waits) for part in x)
        tracer = self.tracer
        if not isinstance(x, torch.Tensor) or not hasattr(x, "value"):
            return x
        if id(x) in tracer.written:
            return tracer.as_it_is_then(x)
        made = self.behind_barrier(x, waits)
        return made.requires_grad_() if x.requires_grad else made

    def behind_barrier(self, x: Any, waits: bool) -> Any:
        tracer = self.tracer
        value = tracer.graph.add(
            RECOMPUTE_BARRIER, (x.value, self.after if waits else None), {}, x.value.type, tracer.line
        )
        return tracer.tensor(value, x.storage_offset())

    # ---- random numbers

    def draw(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Traces an operator that draws random numbers."""
        written = [a for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        functional = functional_form(func) if written else func
        op = None if functional is None else lookup(functional)
        if (
            op is not None
            and op.name in OPERATORS
            and op.decompose is not None
            and len(written) < 2
            and not (written and written[0].name in kwargs)
        ):
            try:
                made = self.tracer.again(op.decompose, (Drawing(self), *args), kwargs)
            except NoRule:
                pass
            else:
                return self.tracer.again(args[0].copy_, (made,), {}) if written else made
        if written and (len(written) > 1 or written[0].name in kwargs):
            raise Untraceable(f"{func} in a checkpointed function draws into a tensor from eager's stream")
        if written:
            return self.draw_into(func, args, kwargs)
        if self.at is None:
            made = self.tracer.perform(func, args, kwargs)
            self.drawn.append([self.kept(x) for x in parts(made)])
            return made
        copies = [self.kept(x) for x in self.next()]
        return copies[0] if len(copies) == 1 else tuple(copies)

    def draw_into(self, func: Any, args: tuple, kwargs: dict) -> Any:
        if self.at is not None:
            return self.tracer.again(args[0].copy_, (self.next(),), {})
        made = self.tracer.perform(func, args, kwargs)
        self.drawn.append(self.kept(args[0]))
        return made

    def kept(self, x: Any) -> Any:
        """A copy, because drawn tensors may be written to. A number is returned unchanged."""
        return x if not isinstance(x, torch.Tensor) else self.tracer.perform(CLONE, (x,), {})

    def seed(self, args: tuple) -> Any:
        if self.at is None:
            self.drawn.append(self.tracer.apply(SEED, args))
            return self.drawn[-1]
        return self.behind_barrier(self.next(), waits=True)

    def next(self) -> Any:
        assert self.at is not None
        self.at += 1
        return self.drawn[self.at - 1]


class Drawing:
    """The builder of a decomposition, in the trace."""

    def __init__(self, region: TracedRegion):
        self.region = region

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        packet, _, overload = name.partition(".")
        return getattr(getattr(torch.ops.aten, packet), overload or "default")(*args, **kwargs)

    def apply(self, op: Op, args: tuple) -> Any:
        return self.region.seed(args) if op is SEED else self.region.tracer.apply(op, args)

    def convert(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype)


def latest(graph: Graph) -> Value | None:
    return next((value for node in reversed(graph.nodes) for value in node.results if value is not None), None)


def parts(made: Any) -> tuple:
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def version_of(x: Any) -> int | None:
    return x._version if isinstance(x, torch.Tensor) else None
