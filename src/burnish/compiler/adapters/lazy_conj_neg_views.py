"""Lazily conjugated and negated tensors stay outside of the compiled graph: among its inputs and its results.

    h = (x * 2).exp()                        h = (x * 2).exp()
    return h.mH                    =>        return h                   then  h.mH

A program computes what such a view shows, since kernels read memory. As a result it must be the view itself, which
shares memory with the tensor that it is a view of. So must what is computed from one by views, such as ``x.mH.mH``.

The views are made when the graph has run, so nothing may be written in it: a copy that eager takes before a write would
be taken after it. A graph that writes, and takes or may return such a view, runs eagerly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ... import events
from ...captured_graph.checkpoint_hooks import MARK
from ...captured_graph.compile_request import copy_request, request_of
from ...captured_graph.lazy_graph_module import graph_module
from ...foundation.torch_private import InferenceMode, OpOverload, set_grad_enabled
from ...runtime.program.restore_inputs_on_error import STATISTICS, VIEWS, is_of_torch, name_of
from .. import CompiledFn
from .eager_with_compiled_rng import run_eagerly_with_compiled_rng
from .write_back_inputs import is_in_place

CONJ, NEG = torch.ops.aten._conj.default, torch.ops.aten._neg_view.default
Lazy = Mapping[int, tuple[Any, ...]]
"""The positions of lazy inputs, and what makes the tensors in memory of them."""
LAZY = frozenset("conj _conj adjoint mH H _neg_view".split())
MAY_COPY = frozenset(
    """
    to type float double half bfloat16 long int contiguous resolve_conj data requires_grad_ reshape reshape_as flatten
    ravel
""".split()
)
"""They may return a tensor of its own, or change one."""
SHOWS = (VIEWS | LAZY | {"imag", "real"}) - MAY_COPY
COMPUTES = frozenset(
    """
    add radd sub rsub mul rmul div truediv rtruediv pow rpow neg abs angle square sqrt rsqrt reciprocal exp log sin
    cos tan sinh cosh tanh sigmoid relu softmax matmul rmatmul mm bmm mv dot vdot outer linear addmm baddbmm addmv
    sum mean prod var std max min amax amin argmax argmin eq ne lt le gt ge cat stack clone conj_physical zeros_like
    ones_like empty_like size dim numel
""".split()
)
"""They never return a view of what they take."""
OF_SIZE = frozenset(("view_as", "expand_as"))
"""Views that take no more than the shape of another tensor."""
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
MODES = (set_grad_enabled, torch.set_grad_enabled, InferenceMode)


def outside_of_program(
    gm: GraphModule, example_inputs: Sequence[Any], compile_graph: Callable[..., CompiledFn]
) -> CompiledFn | None:
    """`gm` compiled without its lazy inputs and results, and with these around it; None if it has none."""
    lazy = {k: turns for k, x in enumerate(example_inputs) if (turns := turns_of(x))}
    if not lazy and not any(called(node) in LAZY for node in gm.graph.nodes):
        return None
    if request_of(gm).written_inputs or any(map(may_write, gm.graph.nodes)):
        return refused(gm) if lazy or may_return_lazy(gm) else None
    if not can_be_outside(gm):
        return None
    views = views_outside(gm, example_inputs, lazy)
    if not views and not lazy:
        return None
    eager = run_eagerly_with_compiled_rng(gm)
    inner, made = without_views(gm, views, lazy)
    if all(node.op in ("placeholder", "output") for node in inner.graph.nodes):
        return eager  # it makes nothing but views
    compiled = compile_graph(inner, in_memory(example_inputs, lazy))
    if request_of(inner).is_refused:
        request_of(gm).is_refused = True
        return eager
    return LazyViewsOutside(compiled, run_eagerly_with_compiled_rng(views_alone(gm, views, made)), lazy)


def turns_of(x: Any) -> tuple[Any, ...]:
    """The operators that make the tensor in memory of a lazy one, and the lazy one of that."""
    if type(x) not in PLAIN or x.layout is not torch.strided:
        return ()
    return (*((CONJ,) if x.is_conj() else ()), *((NEG,) if x.is_neg() else ()))


def in_memory(inputs: Sequence[Any], lazy: Lazy) -> list[Any]:
    """The inputs, with the tensors in memory in place of the lazy ones."""
    found = list(inputs)
    for k, turns in lazy.items():
        for turn in turns:
            found[k] = turn(found[k])
    return found


def may_write(node: Node) -> bool:
    """Whether a call writes to a tensor, or may do so because only its author knows what it does."""
    if node.op not in ("call_function", "call_method"):
        return node.op == "call_module"
    if is_in_place(node) or node.kwargs.get("out") is not None or name_of(node) in STATISTICS:
        return True
    if is_of_library(node):
        return False
    return not isinstance(node.target, OpOverload) or node.target._schema.is_mutable


def may_return_lazy(gm: GraphModule) -> bool:
    """Whether a result may be a view that was conjugated or negated. A call that is not known may return a view."""
    found: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op == "output":
            return not found.isdisjoint(node.all_input_nodes)
        if is_in_place(node):
            first = shown_by(node)
            if called(node).startswith("set_"):  # it may become any view
                return True
            is_lazy = isinstance(first, Node) and first in found
        else:
            computes = is_of_library(node) and called(node).strip("_") in COMPUTES
            is_lazy = not computes and not found.isdisjoint(node.all_input_nodes)
        if is_lazy or called(node) in LAZY:
            found.add(node)
    return False


def is_of_library(node: Node) -> bool:
    if node.op != "call_function":
        return node.op == "call_method"
    return hasattr(node.target, "torch_attribute") or is_of_torch(node.target)


def refused(gm: GraphModule) -> CompiledFn:
    request_of(gm).is_refused = True
    text = "runs eagerly: it writes to tensors, and an input or a result is lazily conjugated"
    events.emit("lower.refused", text=text, graph_module=gm, fallback="refused")
    return run_eagerly_with_compiled_rng(gm)


def can_be_outside(gm: GraphModule) -> bool:
    """Whether views have the same history after the graph as in it."""
    return not request_of(gm).outputs_are_inference and not any(node.target in MODES for node in gm.graph.nodes)


def views_outside(gm: GraphModule, example_inputs: Sequence[Any], lazy: Lazy) -> list[Node]:
    """The calls that make results from lazy tensors by views, in the order of the graph."""
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    numbers = {node: not isinstance(x, torch.Tensor) for node, x in zip(inputs, example_inputs, strict=True)}
    starts = {inputs[k] for k in lazy}
    output = next(node for node in gm.graph.nodes if node.op == "output")
    found = {view for out in output.all_input_nodes for view in views_from_lazy(out, starts, numbers)}
    return [node for node in gm.graph.nodes if node in found]


def views_from_lazy(out: Node, starts: set[Node], numbers: Mapping[Node, bool]) -> list[Node]:
    """The calls that make this result from what was conjugated or negated first; none if it is no such view."""
    views: list[Node] = []
    needed = 0
    while out not in starts:
        if not is_view(out, numbers):
            return views[:needed]
        views.append(out)
        if called(out) in LAZY:
            needed = len(views)
        out = shown_by(out)  # type: ignore[assignment]
    return views


def called(node: Node) -> str:
    return getattr(node.target, "torch_attribute", None) or name_of(node)


def shown_by(node: Node) -> Any:
    """What a view is a view of. It may be given by name: ``torch.conj(input=x)``."""
    return node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("self"))


def is_view(node: Node, numbers: Mapping[Node, bool]) -> bool:
    """Whether it is a view whatever the tensor is, and what else it takes is known when the graph has run. `numbers`:
    the inputs, and whether they are numbers."""
    if node.op not in ("call_function", "call_method") or MARK in node.meta or called(node) not in SHOWS:
        return False
    if not (is_of_library(node) or node.target is operator.getitem) or "out" in node.kwargs:
        return False
    first = shown_by(node)
    others = [each for each in node.all_input_nodes if each is not first]
    takes_shape = called(node) in OF_SIZE
    if not isinstance(first, Node) or not all(numbers.get(each) or takes_shape and each in numbers for each in others):
        return False
    return called(node) not in ("getitem", "__getitem__") or is_basic(node.args[1], numbers)


def is_basic(index: Any, numbers: Mapping[Node, bool]) -> bool:
    """Whether an index selects a view, not copies of elements."""
    if isinstance(index, tuple):
        return all(is_basic(each, numbers) for each in index)
    if isinstance(index, Node):
        return numbers.get(index, False)
    return index is None or index is Ellipsis or isinstance(index, slice) or type(index) is int


def without_views(gm: GraphModule, views: Sequence[Node], lazy: Lazy) -> tuple[GraphModule, list[Node]]:
    """The graph on the tensors in memory, which returns what the views are made of; and all that it returns."""
    graph, copies = Graph(), dict[Node, Node]()
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    output = next(node for node in gm.graph.nodes if node.op == "output")
    for node in inputs:
        copies[node] = graph.node_copy(node)
    turned: list[Node] = []
    for k, turns in lazy.items():
        for turn in turns:
            copies[inputs[k]] = graph.call_function(turn, (copies[inputs[k]],))
            turned.append(copies[inputs[k]])
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    ends = dict.fromkeys(each for node in (*views, output) for each in node.all_input_nodes)
    made = [node for node in ends if node not in views and node.op != "placeholder"]
    graph.output(tuple(copies[node] for node in made))
    for node in (*(copies[view] for view in reversed(views)), *reversed(turned)):
        if not node.users:
            graph.erase_node(node)
    inner = graph_module(gm, graph)
    inner.meta.update(gm.meta)
    copy_request(gm, inner)
    return inner, made


def views_alone(gm: GraphModule, views: Sequence[Node], made: Sequence[Node]) -> GraphModule:
    """The graph that takes the inputs and what the compiled graph returns, and returns what `gm` does."""
    graph, copies = Graph(), dict[Node, Node]()
    for node in (*(node for node in gm.graph.nodes if node.op == "placeholder"), *made):
        copies[node] = graph.placeholder(node.name)
    for node in views:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    output = next(node for node in gm.graph.nodes if node.op == "output")
    graph.node_copy(output, copies.__getitem__)
    return graph_module(gm, graph)


class LazyViewsOutside:
    """`after` takes the inputs and the results of `compiled`. `lazy`: which inputs are lazy, and by what."""

    takes_gradients = True

    def __init__(self, compiled: Any, after: CompiledFn, lazy: Lazy):
        self.compiled, self.after, self.lazy = compiled, after, lazy

    @property
    def source(self) -> str:
        return getattr(self.compiled, "source", "")

    def __call__(self, *inputs: Any) -> Any:
        given = in_memory(inputs, self.lazy) if self.lazy else inputs
        return self.after(*inputs, *self.compiled(*given))
