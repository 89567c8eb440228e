"""Handles in-place writes to differentiable inputs: the graph returns the new values, autograd copies them back.

    x.mul_(2)                         clone = x.clone()
    return x.sin()          =>        mul_ = clone.mul_(2)                     then  x.copy_(mul_)
                                      return clone.sin(), clone

Only autograd can change the history of a tensor that the caller holds: a leaf, a view, or a result of other code.
Results that are views of such an input are made of it again, after it has its new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...captured_graph.compile_request import copy_request, request_of
from ...captured_graph.lazy_graph_module import graph_module
from ...foundation.torch_private import InferenceMode, set_grad_enabled
from ...runtime.program.input_alias_check import AliasCheckedProgram
from ...runtime.program.restore_inputs_on_error import DATA, VIEWS, half_done, name_of
from ...tensors.eager_strides import is_dense
from ...tensors.in_place_names import is_in_place_name
from ...tensors.tensor_types import TensorType, is_leaf, span
from .. import CompiledFn
from .eager_with_compiled_rng import run_eagerly_with_compiled_rng

GRAD_MODES = (set_grad_enabled, torch.set_grad_enabled)
OF_ANOTHER_TYPE = ("get_real", "get_imag", "view_as_real", "view_as_complex", "get_data", "data", "type")
"""Views that are not the same elements of the same type, or that have a version of their own."""
CONSTANT = frozenset(
    "detach get_data data eq ne lt le gt ge argmax argmin zeros_like ones_like empty_like rand_like randn_like".split()
)
"""Calls that no gradient flows through."""


def inputs_to_write_back(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the inputs that gradients flow through and that are written to; none if one of them, or a
    result that shows it, cannot be handled."""
    if not any(map(is_in_place, gm.graph.nodes)):
        return ()
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    flowing = written_with_gradients(gm, inputs, example_inputs)
    found = tuple(k for k, node in enumerate(inputs) if node in flowing)
    written = [example_inputs[k] for k in found]
    has_gaps = not all(x.layout is torch.strided and is_dense(TensorType.of(x)) for x in written)
    return () if has_gaps or are_seen_otherwise(gm, {inputs[k] for k in found}) else found


def is_floating(x: Any) -> bool:
    return type(x) in (torch.Tensor, torch.nn.Parameter) and (x.is_floating_point() or x.is_complex())


def written_with_gradients(gm: GraphModule, inputs: Sequence[Node], example_inputs: Sequence[Any]) -> set[Node]:
    """The inputs that have a history, or get one: values that require gradients are written to them."""
    given_to = dict(zip(inputs, example_inputs, strict=True))
    flows = {x for x, given in given_to.items() if is_floating(given) and given.requires_grad}
    leaves = {x for x in flows if is_leaf(given_to[x])}
    base = {x: x for x in inputs}
    is_on, found, modes = torch.is_grad_enabled(), set[Node](), set[Any]()
    for node in gm.graph.nodes:
        if node.target in GRAD_MODES:
            is_on = node.args[0] is True
        if node.target is InferenceMode and node.args == (True,):
            modes.add(node)
        elif node.target == "__exit__":
            modes.discard(node.args[0])
        if node.op not in ("call_function", "call_method") or not is_on or modes:
            continue
        name = name_of(node)
        given = node.all_input_nodes
        reaches = name.strip("_") not in CONSTANT and any(x in flows for x in given)
        first = base.get(given[0]) if given else None
        if first is not None and is_in_place(node):
            if reaches and first not in leaves:
                found.add(first)
                flows.add(first)
            base[node] = first
        elif first is not None and name in VIEWS and name not in ("get_data", "data"):  # they have no history
            base[node] = first
        if reaches:
            flows.add(node)
    return {x for x in found if is_floating(example_inputs[inputs.index(x)])}


def is_in_place(node: Node) -> bool:
    """By its name, or as `relu(x, inplace=True)`."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = name_of(node)
    return is_in_place_name(name) or node.kwargs.get("inplace") is True


def are_seen_otherwise(gm: GraphModule, written: set[Node]) -> bool:
    """Whether the graph returns one of these inputs in a form that `as_strided` cannot make."""
    shown = dict.fromkeys(written, True)
    for node in gm.graph.nodes:
        if node.op == "output":
            return not all(shown.get(x, True) for x in node.all_input_nodes)
        name = name_of(node) if node.op != "placeholder" else ""
        first = node.args[0] if node.args and isinstance(node.args[0], Node) else None
        if first in shown and (is_in_place(node) or name in VIEWS or name in DATA):
            changes_type = name in ("view", "to") and any(isinstance(x, torch.dtype) for x in node.args)
            shown[node] = shown[first] and not (changes_type or name in OF_ANOTHER_TYPE)
    return False


def with_results(gm: GraphModule, positions: Sequence[int]) -> GraphModule:
    """The graph on copies of these inputs, which it returns as its last results."""
    graph, copies = Graph(), dict[Node, Node]()
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node in inputs:
        copies[node] = graph.node_copy(node)
    given = [inputs[k] for k in positions]
    for x in given:
        copies[x] = graph.call_method("clone", (copies[x],))
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output((*(copies.get(out, out) for out in node.args[0]), *(copies[x] for x in given)))
        elif node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    made = graph_module(gm, graph)
    made.meta.update(gm.meta)
    copy_request(gm, made)
    request = request_of(made)
    request.written_inputs = tuple(k for k in request.written_inputs if k not in positions)
    request.overwritten_inputs = tuple(positions)
    modes = request.outputs_are_inference
    request.outputs_are_inference = (*modes, *(False for _ in positions)) if modes else ()
    return made


def writing_back(
    gm: GraphModule, example_inputs: Sequence[Any], positions: Sequence[int], compile_graph: Callable[..., CompiledFn]
) -> CompiledFn:
    """`gm` compiled, with autograd's own writes to these inputs."""
    eager = run_eagerly_with_compiled_rng(gm)
    copy = with_results(gm, positions)
    pure = compile_graph(copy, list(example_inputs))
    if request_of(copy).is_refused:
        return eager
    reaches = {k: reach_of(x) for k, x in enumerate(example_inputs) if isinstance(x, torch.Tensor) and x.numel()}
    symbolic = () if request_of(gm).symbolic_inputs is None else tuple(request_of(gm).symbolic_inputs.shapes)
    views = [k for k in positions if example_inputs[k]._is_view()]
    made = WritesBack(pure, eager, positions, views, may_show_other_parts(gm), bool(request_of(copy).written_inputs))
    return AliasCheckedProgram(made, eager, positions, reaches, symbolic)


def may_show_other_parts(gm: GraphModule) -> bool:
    """Whether the offset of a view depends on a size or a number, which may be another one in the next call."""
    given = request_of(gm).symbolic_inputs
    if given is not None and (given.shapes or given.numbers):
        return True
    nodes = (node for node in gm.graph.nodes if node.op in ("call_function", "call_method"))
    return any(len(node.all_input_nodes) > 1 for node in nodes if name_of(node) in VIEWS)


def reach_of(x: torch.Tensor) -> int:
    return span(x.shape, x.stride()) * x.itemsize


class WritesBack:
    """`pure` returns the program's results, then the new values of the inputs at `positions`. `eager` is the graph that
    writes to them. `views`: those of them that are views. `varies`: a result may show another part in each call.
    `writes_others`: `pure` writes to other inputs."""

    takes_gradients = True

    def __init__(
        self,
        pure: Any,
        eager: CompiledFn,
        positions: Sequence[int],
        views: Sequence[int],
        varies: bool,
        writes_others: bool,
    ):
        self.pure, self.eager, self.positions, self.views = pure, eager, tuple(positions), tuple(views)
        self.varies, self.writes_others = varies, writes_others
        self.shown: list[tuple[int, int, int]] | None = None
        """The results that are views of such an input: their positions, the input's, and the first element."""

    @property
    def source(self) -> str:
        return getattr(self.pure, "source", "")

    def __call__(self, *inputs: Any) -> tuple:
        if any(inputs[k]._backward_hooks for k in self.views):
            return self.eager(*inputs)  # a write to a view takes its hooks out of the way of later gradients
        decided = getattr(self.pure, "decided", None)
        if decided is not None and decided is getattr(self.pure, "eager", None):
            return self.eager(*inputs)  # it was faster, and this is the same without copies
        made = self.pure(*inputs)
        count = len(made) - len(self.positions)
        results, values = made[:count], made[count:]
        has_written = self.writes_others
        try:
            if self.shown is None or self.varies:
                self.shown = list(views_among(results, values, self.positions))
            for k, value in zip(self.positions, values, strict=True):
                with torch.set_grad_enabled(torch.is_grad_enabled() or value.requires_grad):
                    inputs[k].copy_(value)
                has_written = True
            if not self.shown:
                return results
            found = list(results)
            for at, k, offset in self.shown:
                found[at] = view_of(inputs[k], results[at], offset)
        except BaseException as error:
            if has_written:
                half_done(error)
            raise
        return tuple(found)


def view_of(x: torch.Tensor, out: torch.Tensor, offset: int) -> torch.Tensor:
    """The part of an input that a result shows, which begins at `offset` there."""
    if not out.requires_grad:
        base = x.detach()
        if out.shape == x.shape and out.stride() == x.stride():
            return base
        return base.as_strided(out.shape, out.stride(), x.storage_offset() + offset)
    with torch.enable_grad():
        return x.as_strided(out.shape, out.stride(), x.storage_offset() + offset)


def views_among(
    results: Sequence[Any], values: Sequence[Any], positions: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    for at, out in enumerate(results):
        if isinstance(out, torch.Tensor) and out.numel():
            for value, k in zip(values, positions, strict=True):
                start = value.data_ptr()
                if start <= out.data_ptr() < start + reach_of(value):
                    yield at, k, (out.data_ptr() - start) // out.itemsize
