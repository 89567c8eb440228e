"""Graphs with `DTensor`s are compiled as graphs of local tensors, with the `DTensor`s around them.

    y = compiled(x)            =>        local = compiled(x._local_tensor)
                                         y = DTensor(local, spec)              placed as in the trace

Torch's own rules for `DTensor`s are part of the trace (`captured_graph.distributed_tensor_nodes`). So it computes on
local tensors and communicates, forward and backward. It holds for the placements and sizes that it was traced with:
each combination of them is compiled separately.

Backward is traced for one placement of the gradient of each result. The program decides about it, after the graph. So
the first calls run eagerly until backward has come, if a result with gradients is a `DTensor`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.fx import Graph, GraphModule, Node

from ... import events
from ...captured_graph.compile_request import copy_request, request_of
from ...captured_graph.distributed_tensor_nodes import (
    Enter,
    Leave,
    Placed,
    Shape,
    Written,
    api,
    carrier,
    is_distributed,
    local_of,
    made_of,
    waited,
)
from ...captured_graph.lazy_graph_module import graph_module
from ...concurrency import thread_locks
from ...foundation.torch_private import DisableTorchFunctionSubclass
from .. import CompiledFn
from .eager_with_compiled_rng import run_eagerly_with_compiled_rng
from .specialize_numbers import LIMIT, own_copy

CompileGraph = Callable[[GraphModule, list[Any]], CompiledFn]
WAITS = 2
"""How many calls wait for their backward."""


def local_program(gm: GraphModule, example_inputs: Sequence[Any], compile_graph: CompileGraph) -> CompiledFn | None:
    """`gm` compiled for local tensors, with its `DTensor`s around it. None if it has none."""
    if api() is None or request_of(gm).is_local or not has_distributed_tensors(gm, example_inputs):
        return None
    made = LocalPrograms(gm, compile_graph)
    return made if made.program_for(example_inputs) is not None else made.eager


def has_distributed_tensors(gm: GraphModule, example_inputs: Sequence[Any]) -> bool:
    return any(map(is_distributed, example_inputs)) or any(
        getattr(node.target, "of_distributed_tensors", False) is True for node in gm.graph.nodes
    )


class LocalPrograms:
    """A graph, compiled for the placements and sizes of its inputs as they come."""

    def __init__(self, gm: GraphModule, compile_graph: CompileGraph):
        self.gm, self.compile_graph = gm, compile_graph
        self.eager = run_eagerly_with_compiled_rng(gm)
        self.made: dict[tuple, LocalProgram | None] = {}
        self.lock = thread_locks.rlock()

    def __call__(self, *inputs: Any) -> Any:
        with DisableTorchFunctionSubclass():
            program = self.program_for(inputs)
            if program is None:
                return self.eager(*inputs)
            return observed(self.eager(*inputs), program) if program.is_waiting else program(*inputs)

    def program_for(self, inputs: Sequence[Any]) -> LocalProgram | None:
        key = tuple(map(key_of, inputs))
        found = self.made.get(key, self)
        if found is self or found is not None and found.is_stale():
            with self.lock:
                if key in self.made or len(self.made) < LIMIT:
                    found = self.made[key] = self.compiled(inputs, found if isinstance(found, LocalProgram) else None)
                else:
                    return None
        return found  # type: ignore[return-value]

    def compiled(self, inputs: Sequence[Any], before: LocalProgram | None) -> LocalProgram | None:
        """None, with an event, if it runs eagerly. `before`: a program for other gradients."""
        gm = own_copy(self.gm)
        why = why_not_local(inputs)
        program = None
        if why is not None:
            events.emit("lower.refused", text=f"runs eagerly: {why}", graph_module=gm, fallback="refused")
        else:
            program = compiled_for(gm, inputs, before, self.compile_graph)
        request_of(self.gm).is_refused = program is None
        return program


def key_of(value: Any) -> Any:
    """What compiled code relies on."""
    if is_distributed(value):
        local, spec = value._local_tensor, value._spec
        return spec, id(spec.mesh), local.shape, local.stride(), value.requires_grad
    if isinstance(value, torch.Tensor):
        return type(value), value.shape, value.stride(), value.dtype, value.requires_grad
    return type(value)


def why_not_local(inputs: Sequence[Any]) -> str | None:
    for value in inputs:
        if is_distributed(value):
            if type(waited(value._local_tensor)) is not torch.Tensor:
                return f"a DTensor of a {type(value._local_tensor).__qualname__}"
            if not value.device_mesh._is_current_rank_part_of_mesh():
                return "a DTensor that other processes share"
            if value._is_view():
                return "a view of a DTensor"
    return None


def compiled_for(
    gm: GraphModule, inputs: Sequence[Any], before: LocalProgram | None, compile_graph: CompileGraph
) -> LocalProgram | None:
    """Compiles again with carriers, if the first trace finds that some are needed."""
    expected = {} if before is None else before.expected | before.seen
    carries: dict[int, Shape] = {}
    while True:
        inner, program = with_ends(gm, inputs, carries, expected)
        request = request_of(inner)
        request.is_local, request.symbolic_inputs = True, None
        for enter in program.enters.values():
            enter.is_final = bool(carries)
        program.compiled = compile_graph(inner, program.examples(inputs))
        if request.is_refused:
            return None
        more = {k: enter.wanted for k, enter in program.enters.items() if enter.wanted is not None}
        if not more:
            break
        carries = more
    for enter in program.enters.values():
        enter.is_final = True
    program.waits = WAITS * (before is None and any(leave.requires_grad for leave in program.results()))
    program.expected = expected
    program.changes = 0 if before is None else before.changes + 1
    return program


def with_ends(
    gm: GraphModule, inputs: Sequence[Any], carries: dict[int, Shape], expected: dict[int, tuple[Placed, Shape]]
) -> tuple[GraphModule, LocalProgram]:
    """The graph with local tensors as inputs and results."""
    graph, env = Graph(), {}
    holders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node in holders:
        env[node] = graph.node_copy(node, env.__getitem__)
    carriers = {k: (graph.placeholder(f"{holders[k].name}_gradient"),) for k in carries}
    enters = {k: Enter(value._spec, carries.get(k)) for k, value in enumerate(inputs) if is_distributed(value)}
    for k, enter in enters.items():
        env[holders[k]] = graph.call_function(enter, (env[holders[k]], *carriers.get(k, ())))
    leaves: list[Leave | int] = []
    outputs: list[Any] = []
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            env[node] = graph.node_copy(node, env.__getitem__)
    for at, out in enumerate(next(node for node in gm.graph.nodes if node.op == "output").args[0]):
        if not isinstance(out, Node):
            leaves.append(Leave())
            outputs.append(out)
        elif out in holders and holders.index(out) in enters:
            leaves.append(holders.index(out))
        else:
            placed, shape = expected.get(at, (None, None))
            leave = Leave(placed, None if placed is None or placed.shape == shape else placed.shape)
            leaves.append(leave)
            made = graph.call_function(leave, (env[out],))
            parts = (0, 1) if leave.carries is not None else ()
            outputs += [graph.call_function(operator.getitem, (made, part)) for part in parts] or [made]
    for k in request_of(gm).written_inputs:
        if k in enters:
            graph.call_function(Written(), (env[holders[k]],))
    graph.output(tuple(outputs))
    made = graph_module(gm, graph)
    made.meta.update(gm.meta)
    copy_request(gm, made)
    return made, LocalProgram(enters, leaves, request_of(gm).written_inputs)


class LocalProgram:
    """A compiled graph of local tensors. `leaves` has the position of an input where a result is one of the `DTensor`s
    among these."""

    def __init__(self, enters: dict[int, Enter], leaves: list[Leave | int], written: Sequence[int]):
        self.enters, self.leaves = enters, leaves
        self.written = [k for k in written if k in enters]
        self.compiled: CompiledFn
        self.waits = self.changes = 0
        self.expected: dict[int, tuple[Placed, Shape]] = {}
        self.seen: dict[int, tuple[Placed, Shape]] = {}
        """The gradients of results that were placed differently from what was expected, and the shapes of the results,
        by their positions."""
        self.has_seen = False

    @property
    def is_waiting(self) -> bool:
        return self.waits > 0

    def is_stale(self) -> bool:
        """Whether the gradients of results are placed in another way than those that backward was compiled for."""
        if self.has_seen:
            self.waits = 0
        return bool(self.seen) and self.changes < LIMIT

    def results(self) -> list[Leave]:
        return [leave for leave in self.leaves if isinstance(leave, Leave)]

    def examples(self, inputs: Sequence[Any]) -> list[Any]:
        found, carriers = list(inputs), []
        for k, enter in self.enters.items():
            local, flows = local_of(inputs[k]).detach(), inputs[k].requires_grad
            found[k] = local.requires_grad_(flows and enter.carries is None)
            if enter.carries is not None:
                carriers.append(carrier(local, enter.carries).requires_grad_(flows))
        return found + carriers

    def __call__(self, *inputs: Any) -> Any:
        given, carriers = list(inputs), []
        flowing = {k: inputs[k] for k in self.enters if inputs[k].requires_grad and torch.is_grad_enabled()}
        differentiable = iter(
            LocalTensors.apply([self.enters[k] for k in flowing], *flowing.values()) if flowing else ()
        )
        for k, enter in self.enters.items():
            made = next(differentiable) if k in flowing else None
            given[k] = local_of(inputs[k]) if made is None or enter.carries is not None else made
            if enter.carries is not None:
                carriers.append(carrier(given[k], enter.carries) if made is None else made)
        made = iter(self.compiled(*given, *carriers))
        if self.written:
            increment_version([inputs[k] for k in self.written])
        return tuple(
            [
                inputs[leave] if isinstance(leave, int) else self.result(next(made), leave, at, made)
                for at, leave in enumerate(self.leaves)
            ]
        )

    def result(self, local: Any, leave: Leave, at: int, others: Any) -> Any:
        if leave.spec is None:
            return local
        carried = None if leave.carries is None else next(others)
        flows = local.requires_grad if carried is None else carried.requires_grad
        if flows and torch.is_grad_enabled():
            found = DistributedResult.apply(local, carried, leave, self, at)
        else:
            found = made_of(local, leave.spec)
        return torch.ops.aten.alias.default(found) if leave.is_view else found

    def note(self, at: int, gradient: Any, shape: Shape) -> None:
        leave = self.leaves[at]
        assert isinstance(leave, Leave)
        self.has_seen = True
        if gradient.placements != leave.tangent.placements:
            self.seen[at] = Placed(gradient._spec, tuple(gradient._local_tensor.shape)), tuple(shape)


class LocalTensors(torch.autograd.Function):
    """The local tensors of `DTensor`s. Their gradients are placed as the trace has found."""

    @staticmethod
    def forward(ctx: Any, enters: list[Enter], *values: Any) -> tuple[torch.Tensor, ...]:
        ctx.enters = enters
        ctx.set_materialize_grads(False)
        return tuple(
            [
                local.view_as(local) if enter.carries is None else carrier(local, enter.carries)
                for enter, local in zip(enters, map(local_of, values), strict=True)
            ]
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *[
            None if gradient is None else made_of(gradient, enter.gradient)
            for gradient, enter in zip(gradients, ctx.enters, strict=True)
        ]


class DistributedResult(torch.autograd.Function):
    """A `DTensor` of a local result. Its gradient is brought to the placements that backward was traced for."""

    @staticmethod
    def forward(
        ctx: Any, local: torch.Tensor, carried: torch.Tensor | None, leave: Leave, program: LocalProgram, at: int
    ) -> Any:
        ctx.leave, ctx.program, ctx.at, ctx.shape, ctx.is_carried = leave, program, at, local.shape, carried is not None
        ctx.set_materialize_grads(False)
        return made_of(local.view_as(local), leave.spec, True)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        local = None
        if gradient is not None:
            ctx.program.note(ctx.at, gradient, ctx.shape)
            if gradient.placements != ctx.leave.tangent.placements:
                gradient = gradient.redistribute(placements=ctx.leave.tangent.placements)
            local = local_of(gradient)
        return (None, local, None, None, None) if ctx.is_carried else (local, None, None, None, None)


class ObservedResult(torch.autograd.Function):
    """A result of eager, whose gradient shows what backward has to be traced for."""

    @staticmethod
    def forward(ctx: Any, value: Any, program: LocalProgram, at: int) -> Any:
        ctx.program, ctx.at, ctx.shape = program, at, value._local_tensor.shape
        ctx.set_materialize_grads(False)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        if gradient is not None:
            ctx.program.note(ctx.at, gradient, ctx.shape)
        return gradient, None, None


def observed(made: Sequence[Any], program: LocalProgram) -> tuple[Any, ...]:
    program.waits -= 1
    return tuple(
        [
            ObservedResult.apply(value, program, at)
            if isinstance(leave, Leave) and leave.requires_grad and is_distributed(value) and value.requires_grad
            else value
            for at, (value, leave) in enumerate(zip(made, program.leaves, strict=True))
        ]
    )
