"""Lazily conjugated and negated tensors stay outside of the compiled graph: among its inputs and its results.

    h = (x * 2).exp()                        h = (x * 2).exp()
    return h.mH                    =>        return h                   then  h.mH

A program computes what such a view shows, since kernels read memory. As a result it must be the view itself, which
shares memory with the tensor that it is a view of. So must what is computed from one by views, such as ``x.mH.mH``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...captured_graph.checkpoint_hooks import MARK
from ...captured_graph.compile_request import copy_request, request_of
from ...captured_graph.lazy_graph_module import graph_module
from ...foundation.torch_private import InferenceMode, set_grad_enabled
from ...runtime.program.restore_inputs_on_error import VIEWS, is_of_torch, name_of
from .. import CompiledFn
from .eager_with_compiled_rng import run_eagerly_with_compiled_rng

CONJ, NEG = torch.ops.aten._conj.default, torch.ops.aten._neg_view.default
Lazy = Mapping[int, tuple[Any, ...]]
"""The positions of lazy inputs, and what makes the tensors in memory of them."""
LAZY = frozenset("conj _conj adjoint mH H _neg_view".split())
MAY_COPY = frozenset("to type float double half bfloat16 long int contiguous resolve_conj data requires_grad_".split())
"""They return a tensor of its own, or change one."""
SHOWS = (VIEWS | LAZY | {"imag", "real"}) - MAY_COPY
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
MODES = (set_grad_enabled, torch.set_grad_enabled, InferenceMode)


def outside_of_program(
    gm: GraphModule, example_inputs: Sequence[Any], compile_graph: Callable[..., CompiledFn]
) -> CompiledFn | None:
    """`gm` compiled without its lazy inputs and results, and with these around it; None if it has none."""
    lazy = {k: turns for k, x in enumerate(example_inputs) if (turns := turns_of(x))}
    if not lazy and not any(called(node) in LAZY for node in gm.graph.nodes) or not can_be_outside(gm, lazy):
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


def can_be_outside(gm: GraphModule, lazy: Lazy) -> bool:
    """Whether views have the same history after the graph as in it. Writes to a lazy input stay eager's."""
    request = request_of(gm)
    return (
        not request.outputs_are_inference
        and not any(k in lazy for k in request.written_inputs)
        and not any(node.target in MODES for node in gm.graph.nodes)
    )


def views_outside(gm: GraphModule, example_inputs: Sequence[Any], lazy: Lazy) -> list[Node]:
    """The calls that make results from lazy tensors by views, in the order of the graph."""
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    numbers = {node for node, x in zip(inputs, example_inputs, strict=True) if not isinstance(x, torch.Tensor)}
    starts = {inputs[k] for k in lazy}
    output = next(node for node in gm.graph.nodes if node.op == "output")
    found = {view for out in output.all_input_nodes for view in views_from_lazy(out, starts, numbers)}
    return [node for node in gm.graph.nodes if node in found]


def views_from_lazy(out: Node, starts: set[Node], numbers: set[Node]) -> list[Node]:
    """The calls that make this result from what was conjugated or negated first; none if it is no such view."""
    views: list[Node] = []
    needed = 0
    while out not in starts:
        if not is_view(out, numbers):
            return views[:needed]
        views.append(out)
        if called(out) in LAZY:
            needed = len(views)
        out = out.args[0]  # type: ignore[assignment]
    return views


def called(node: Node) -> str:
    return getattr(node.target, "torch_attribute", None) or name_of(node)


def is_view(node: Node, numbers: set[Node]) -> bool:
    """Whether it is a view whatever the tensor is, and what else it takes is known when the graph has run."""
    if node.op not in ("call_function", "call_method") or MARK in node.meta or called(node) not in SHOWS:
        return False
    is_of_tensors = node.op == "call_method" or hasattr(node.target, "torch_attribute")
    if not (is_of_tensors or node.target is operator.getitem or is_of_torch(node.target)):
        return False
    first, *others = node.all_input_nodes
    if node.args[:1] != (first,) or not numbers.issuperset(others) or "out" in node.kwargs:
        return False
    return called(node) not in ("getitem", "__getitem__") or is_basic(node.args[1])


def is_basic(index: Any) -> bool:
    """Whether an index selects a view, not copies of elements."""
    if isinstance(index, tuple):
        return all(map(is_basic, index))
    return index is None or index is Ellipsis or isinstance(index, (slice, Node)) or type(index) is int


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
