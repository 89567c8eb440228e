"""The joint graph: adds backward to the trace, by running PyTorch's autograd on the tensors of the trace.

    y = aten.mm.default x, w              y = aten.mm.default x, w
    return y                        =>    t = aten.t.default x
                                          mm = aten.mm.default t, tangent
                                          return y, mm

Each output that gradients can flow into gets an input for its gradient, the `tangent`. The gradients of the inputs
become further outputs. The result is one graph for forward and backward, which
`schedule.partition.partition_joint_graph` splits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ...captured_graph.aliased_gradients import is_of_several
from ...captured_graph.graph_autograd_nodes import (
    find_pieces,
    gives_no_gradient,
    is_leaf,
    leaf_of,
    name_of_node,
    saves_anything,
)
from ...concurrency.outside_errors import reraise_from_outside
from ...ir.joint_graph_signature import Gradients
from ...ir.untraceable_graph import Untraceable
from ...tensors.eager_strides import overlaps_itself
from .aten_tracer import AtenTracer
from .backward_per_autograd_node import add_pieces
from .find_aliased_gradients import LeafRecord, bases_of, views_of_tangents
from .run_autograd import UntraceableBackward, derivatives


def add_gradients(tracer: AtenTracer, outputs: list[Any], made: Iterable[Any] = ()) -> list[Any]:
    """The outputs, followed by the gradients. `tracer.traced.gradients` describes which is which. `made` are the values
    of the captured graph."""
    check_inputs(tracer)
    check_outputs(outputs)
    given = [k for k, x in enumerate(tracer.inputs) if is_differentiable(x)]
    flows = [k for k, out in enumerate(outputs) if is_differentiable(out) and not is_shown_input(out, tracer.inputs)]
    input_aliases = tuple(k for k, out in enumerate(outputs) if is_differentiable(out) and k not in flows)
    views = views_among(outputs, flows)
    of_several = tuple(k for k in (*input_aliases, *(view for view, _ in views)) if is_of_several(outputs[k]))
    for k in (*input_aliases, *(view for view, _ in views)):
        check_shown(outputs[k])
    hidden = {id(base): base for _, base in views if not any(base is out for out in outputs)}
    outputs = [*outputs, *hidden.values()]
    place = {id(out): k for k, out in reversed(list(enumerate(outputs)))}
    flows = [k for k in flows if all(k != view for view, _ in views)] + list(
        range(len(outputs) - len(hidden), len(outputs))
    )
    sources = [tracer.inputs[k] for k in given]
    first = len(tracer.graph.inputs)
    aliases = [(k, flows.index(place[id(base)])) for k, base in views]
    aliases += [(k, None) for k in input_aliases if all(outputs[k] is not x for x in tracer.inputs)]
    pieces = find_pieces(tracer.inputs, [outputs[k] for k in flows], [(outputs[k], base) for k, base in aliases])
    if pieces is not None:
        signature = Gradients(
            len(outputs),
            tuple(flows),
            first,
            (),
            input_aliases,
            views=tuple((k, place[id(base)]) for k, base in views),
            hidden=len(hidden),
            unused=tuple(given),
            aliases=tuple(k for k, _ in aliases),
            overwritten=tracer.overwritten,
            of_several=of_several,
        )
        with custom_backwards(tracer):
            return [*outputs, *add_pieces(tracer, pieces, signature, sources, made)]
    frees = saves_anything([outputs[k] for k in flows])
    tangents = {k: tracer.tangent(outputs[k]) for k in flows}
    tracer.is_backward = True
    record = LeafRecord({k: tracer.inputs[k] for k in given}, list(tangents.values()))
    no_backward: dict[int, str] = {}
    try:
        with custom_backwards(tracer):
            found = derivatives([outputs[k] for k in flows], sources, list(tangents.values()))
    except UntraceableBackward:
        no_backward = {k: words for k in flows if (words := why_closed(outputs[k], sources, tangents[k])) is not None}
        left = [k for k in flows if k not in no_backward]
        found = derivatives([outputs[k] for k in left], sources, [tangents[k] for k in left])
    if tracer.then and len(flows) != 1:
        raise Untraceable(
            "a checkpointed function writes to tensors once more where backward reaches it, and backward may "
            "reach it from one output and not from another"
        )
    inputs = tuple(k for k, gradient in zip(given, found, strict=True) if gradient is not None)
    reached = (
        reaching_outputs([outputs[k] for k in flows], [tracer.inputs[k] for k in inputs]) if len(flows) > 1 else ()
    )
    gradients = [x.resolve_conj().resolve_neg() for x in found if x is not None]
    tangent_views = views_of_tangents(gradients, list(tangents.values()))
    gradients, shown_gradients = bases_of(gradients)
    tracer.traced.gradients = Gradients(
        len(outputs),
        tuple(flows),
        first,
        inputs,
        input_aliases,
        tuple(no_backward.items()),
        tuple((k, place[id(base)]) for k, base in views),
        len(hidden),
        tuple(tracer.then),
        reached,
        shown_gradients,
        record.edges(),
        record.held(),
        tangent_views,
        frees,
        # Where no gradient flows at all, the outputs still require gradients.
        tuple(k for k in given if k not in inputs) if inputs and not no_backward else (),
        overwritten=tracer.overwritten,
        of_several=of_several,
    )
    return [*outputs, *gradients]


@contextlib.contextmanager
def custom_backwards(tracer: AtenTracer) -> Iterator[None]:
    """Catches errors of the user's backward formulas, which may raise anything."""
    try:
        yield
    except Untraceable:
        raise
    except Exception as error:
        reraise_from_outside(error)
        if not tracer.has_custom:
            raise
        raise Untraceable(f"a custom backward cannot be traced: {type(error).__name__}: {error}") from error


def reaching_outputs(outputs: list[Any], inputs: list[Any]) -> tuple[int, ...]:
    """For each input, a bit for each output that gives it a gradient."""
    found = {id(x): 0 for x in inputs}
    for bit, out in enumerate(outputs):
        stack, seen = [out.grad_fn], {None}
        while stack:
            node = stack.pop()
            if node not in seen and not gives_no_gradient(node):
                seen.add(node)
                stack += [before for before, _ in node.next_functions]
                key = id(leaf_of(node))
                if key in found:
                    found[key] |= 1 << bit
    return tuple(found[id(x)] for x in inputs)


def why_closed(out: Any, inputs: list[Any], tangent: Any) -> str | None:
    try:
        derivatives([out], inputs, [tangent])
    except UntraceableBackward as error:
        return error.words
    return None


def is_differentiable(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def is_shown_input(out: torch.Tensor, inputs: list[Any]) -> bool:
    """Whether it is an input or a view of one: such a view is made in each call, with autograd's own formula."""
    return any(out is x or out._base is x for x in inputs)


def check_inputs(tracer: AtenTracer) -> None:
    """Autograd itself must handle it if the graph writes values with gradients into an input."""
    for tensor, value in zip(tracer.inputs, tracer.graph.inputs, strict=True):
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            raise Untraceable(f"it writes to {value}, an input, what gradients flow through")


def check_shown(out: torch.Tensor) -> None:
    """A view is recomputed with autograd's formula for as_strided(), which must be that of the view. It distributes the
    gradient of an address among all elements there."""
    if out._base is not None and overlaps_itself(out._base.shape, out._base.stride()):
        raise Untraceable("gradients flow into a view of an input that overlaps itself")
    node, end = out.grad_fn, None if out._base is None else out._base.grad_fn
    while node is not None and node is not end:
        before = node.next_functions[0][0] if node.next_functions else None
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise Untraceable("a custom function returns one of its arguments, and that leaves the graph")
        if name_of_node(node) == "AsStridedBackward0" and before is not end and not is_leaf(before):
            raise Untraceable(
                "gradients through as_strided() of a part of a tensor go to that part alone, and the "
                "whole leaves the graph as well"
            )
        node = before


def check_outputs(outputs: list[Any]) -> None:
    """Views from a function that returns several cannot be used after a write to their base: eager says so at a use."""
    for out in outputs:
        try:
            isinstance(out, torch.Tensor) and out.grad_fn  # noqa: B018  # asks for it
        except RuntimeError as error:
            reraise_from_outside(error)
            raise Untraceable(str(error)) from error


def views_among(outputs: list[Any], flows: list[int]) -> list[tuple[int, Any]]:
    """The positions of outputs that are views of one tensor, and that tensor. A write to one of two views changes the
    gradient of the other, which only autograd tracks. So these views are made of their base in each call, and so is one
    that may not be written to."""
    groups: dict[int, list[int]] = {}
    for k in flows:
        base = outputs[k] if outputs[k]._base is None else outputs[k]._base
        groups.setdefault(id(base), []).append(k)
    found = []
    for group in groups.values():
        if len({id(outputs[k]) for k in group}) > 1 or is_of_several(outputs[group[0]]):
            found += [(k, outputs[k]._base) for k in group if outputs[k]._base is not None]
    if not all(base.requires_grad for _, base in found):
        raise Untraceable("two of its outputs share memory, and gradients flow into both")
    return found
