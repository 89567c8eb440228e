"""The graph builder: makes the FX graph of a segment from its recorded calls.

mul(input 0, 2), cat([call 0, input 1])   ->   mul = x * 2;  cat = torch.cat([mul, y]);  return cat
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import UninitializedTensorMixin

from ...captured_graph.checkpoint_hooks import GIVEN, MARK, Mark
from ...captured_graph.compile_request import INPUT, UNBACKED, UNSTRIDED, InputFacts
from ...captured_graph.lazy_graph_module import graph_module
from ..guards.object_sources import is_module_state
from ..guards.tensor_metadata import TENSOR_TYPES, WithoutRules, has_no_strides
from ..numbers import live_scalars
from ..pytorch import torch_call_roles
from .torch_call_records import Handle, TorchCall

if TYPE_CHECKING:
    from .graph_recorder import Recorder


GRAPH_NAME = "name of the graph"
"""The key, in the ``meta`` of a graph inside a graph, of the name for the attribute that holds it."""


def build_graph(recorder: Recorder, outputs: list[Handle]) -> torch.fx.GraphModule:
    return GraphBuilder(recorder).build(outputs)


class GraphBuilder:
    """``nodes``: by ("input", index), index of the call, (call, path in its result) or ("clone", number)."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self.nodes: dict[Any, torch.fx.Node] = {}
        self.last_item: dict[torch.fx.Node, torch.fx.Node] = {}
        self.constants: dict[int, Any] = {}

    def build(self, outputs: list[Handle]) -> torch.fx.GraphModule:
        self.add_inputs()
        self.constants = settled_inputs(self.recorder)
        marks = self.region_marks()
        unbacked = self.recorder.tracer.unbacked_sizes.calls_of_unknown_size()
        calls = self.recorder.calls
        for i, call in enumerate(calls):
            self.add_clones(i)
            node = self.nodes[i] = self.add_call(call)
            if i in unbacked:
                node.meta[UNBACKED] = True
            if i in self.recorder.unstrided:
                node.meta[UNSTRIDED] = True
            if i in marks:
                mark_region(node, *marks[i])
        self.add_clones(len(calls))
        self.mark_arguments_of_regions()
        self.graph.output(tuple(self.node_of(handle) for handle in outputs))
        self.erase_unused_sizes()
        return graph_module(self.root, self.graph, "Segment")

    def erase_unused_sizes(self) -> None:
        """Python asked for the shape, and did not use a size that depends on data."""
        for at in self.recorder.tracer.unbacked_sizes.reads:
            if not self.nodes[at].users:
                self.graph.erase_node(self.nodes[at])

    def add_inputs(self) -> None:
        taken: set[str] = set()
        for i, handle in enumerate(self.recorder.inputs):
            words = handle.source.words() if hasattr(handle.source, "words") else str(handle.source)
            name = torch_call_roles.identifier(words, i)
            if name in taken:
                name = f"{name}_{i}"
            taken.add(name)
            node = self.nodes[("input", i)] = self.graph.placeholder(name)
            facts: tuple[Any, ...] = ()
            example = self.recorder.examples[i]
            with WithoutRules():
                if (
                    isinstance(example, torch.Tensor)
                    and not (example.is_sparse or example.is_nested)
                    and not isinstance(example, UninitializedTensorMixin)
                ):
                    facts = example.dtype, tuple(example.shape)
                if type(example) in TENSOR_TYPES and has_no_strides(example):
                    node.meta[UNSTRIDED] = True
            node.meta[INPUT] = InputFacts(is_module_state(handle.source), *facts)

    def add_call(self, call: TorchCall) -> torch.fx.Node:
        args = tuple(map(self.argument, call.args))
        kwargs = {k: self.argument(v) for k, v in call.kwargs.items()}
        # The arguments are set afterwards: creating a node with them searches them for symbolic numbers.
        node = self.graph.create_node("call_method" if isinstance(call.target, str) else "call_function", call.target)
        if args:
            node.args = args
        if kwargs:
            node.kwargs = kwargs
        if call.line:
            node.meta["stack_trace"] = call.line
        return node

    def add_clones(self, position: int) -> None:
        for number, handle in self.recorder.clones.get(position, ()):
            self.nodes[("clone", number)] = self.graph.call_method("clone", (self.node_of(handle),))

    def argument(self, value: Any) -> Any:
        """A recorded argument with nodes in place of handles."""
        if isinstance(value, Handle):
            is_constant = value.call is None and value.key in self.constants
            return self.constants[value.key] if is_constant else self.node_of(value)
        if type(value) in (tuple, list):
            return type(value)(self.argument(part) for part in value)
        if type(value) is dict:
            return {k: self.argument(part) for k, part in value.items()}
        if type(value) is slice:
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if isinstance(value, torch.fx.GraphModule):
            kind = value.meta.get(GRAPH_NAME, "graph")
            name = f"{kind}_{sum(other.startswith(f'{kind}_') for other in self.root._modules)}"
            self.root.add_module(name, value)
            return self.graph.get_attr(name)
        return value

    def node_of(self, handle: Handle) -> torch.fx.Node:
        if handle.call is None:
            return self.nodes[("input", handle.key)]
        node = self.nodes[handle.call]
        for i in range(len(handle.path)):
            key = (handle.call, handle.path[: i + 1])
            if key not in self.nodes:
                self.nodes[key] = self.add_item(node, handle.path[i])
            node = self.nodes[key]
        return node

    def add_item(self, node: torch.fx.Node, key: Any) -> torch.fx.Node:
        """Take a tensor out of a list directly after the call that returns it, so that no cut is between them."""
        with self.graph.inserting_after(self.last_item.get(node, node)):
            item = self.last_item[node] = self.graph.call_function(operator.getitem, (node, key))
        for mark in (MARK, UNBACKED, UNSTRIDED):
            if mark in node.meta:
                item.meta[mark] = node.meta[mark]
        return item

    # ---- checkpointed regions

    def region_marks(self) -> dict[int, tuple[Mark, bool]]:
        """For the calls of checkpointed regions: the mark, and whether it is the region's first call."""
        return {
            i: (Mark(number, draws), i == start)
            for number, (start, end, draws, _) in enumerate(self.recorder.regions)
            for i in range(start, end)
        }

    def mark_arguments_of_regions(self) -> None:
        for number, (_, _, _, given) in enumerate(self.recorder.regions):
            for handle in given:
                if handle.call is None:
                    key: Any = ("input", handle.key)
                else:
                    key = (handle.call, handle.path) if handle.path else handle.call
                node = self.nodes.get(key)
                if node is not None:
                    node.meta[GIVEN] = (*node.meta.get(GIVEN, ()), number)


def settled_inputs(recorder: Recorder) -> dict[int, Any]:
    """The numbers among the inputs whose value was guarded after a call took them: constants, by position."""
    numbers = {k: x for k, x in enumerate(recorder.examples) if type(x) in live_scalars.KINDS}
    if not numbers:
        return {}
    guards = recorder.tracer.heap.guards
    fixed = {id(g.source) for g in guards if g.kind == "equal" and type(g.expected) in live_scalars.KINDS}
    sources = {k: recorder.inputs[k].source for k in numbers}
    return {
        k: numbers[k]
        for k, source in sources.items()  # an operand of a graph inside a graph has no expression
        if isinstance(source, live_scalars.Expression) and live_scalars.is_arithmetic_on(fixed, source)
    }


def mark_region(node: torch.fx.Node, mark: Mark, is_first: bool) -> None:
    """Nodes inserted between the calls (getitem of a result, for example) belong to the region as well."""
    while not is_first and MARK not in node.meta:
        node.meta[MARK] = mark
        node = node.prev
    node.meta[MARK] = mark
