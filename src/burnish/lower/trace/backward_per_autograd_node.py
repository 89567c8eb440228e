"""Adds backward to the trace in pieces, where autograd gets several nodes (`captured_graph.graph_autograd_nodes`).

    h = aten.tanh.default x            h   = aten.tanh.default x
    l = aten.exp.default h             l   = aten.exp.default h
    return h, l                  =>    mul = aten.mul.Tensor l_tangent, l             piece 0
                                       n   = aten.tanh_backward.default h_tangent, h  piece 1
                                       return h, l, mul, n

PyTorch's autograd runs once. Where a gradient leaves a piece, a hook takes it out, and what comes after gets a tangent
of its own.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from ...captured_graph.graph_autograd_nodes import Edge, GradientTarget, Pieces, edge_of, ports_reaching
from ...concurrency.outside_errors import Suppressing
from ...ir.joint_graph_signature import GradientPiece, Gradients
from ...ir.untraceable_graph import Untraceable
from ...tensors.tensor_types import TensorType
from .aten_tracer import AtenTracer
from .find_aliased_gradients import LeafRecord, bases_of, views_of_tangents
from .run_autograd import derivatives
from .trace_tensor import TraceTensor, gradient_type

Taken = dict[tuple[int, GradientTarget], Any]
"""Gradients that hooks have taken out, by the number of the piece and where it leaves."""


def add_pieces(
    tracer: AtenTracer, pieces: Pieces, signature: Gradients, sources: list[Any], made: Iterable[Any]
) -> list[Any]:
    """The gradients, piece by piece. `made` are tensors of the trace: some are intermediate results between pieces."""
    there = tensors_at(set(pieces.inner), made)
    if tracer.is_local and len(there) < len(set(pieces.inner)):
        raise Untraceable("backward may run from each of several outputs, whose gradients meet at a DTensor")
    tangents = [tracer.tangent(x) for x in pieces.flows]
    tangents += [tangent_at(tracer, edge, there.get(edge)) for edge in pieces.inner]
    tracer.is_backward = True
    positions = {k: x for k, x in enumerate(tracer.inputs) if any(x is source for source in sources)}
    record = LeafRecord(positions, tangents)
    several = Counter(target for piece in pieces.pieces for target in piece.targets())
    outputs = [*pieces.flows, *(torch.autograd.graph.GradientEdge(*edge) for edge in pieces.inner)]
    taken: Taken = {}

    def is_taken(target: GradientTarget) -> bool:
        return target.port is not None or several[target] > 1

    with hooks(pieces, is_taken, taken):
        found = dict(zip(positions, derivatives(outputs, sources, tangents), strict=True))
    if tracer.then:
        raise Untraceable(
            "a checkpointed function writes to tensors once more where backward reaches it, and backward may "
            "reach it from one output and not from another"
        )
    edges, gradients, parts = pieces.edges(), list[Any](), list[GradientPiece]()
    held = set(record.held())
    for number, piece in enumerate(pieces.pieces):
        mine = {
            target: taken.get((number, target)) if is_taken(target) else found.get(target.input)
            for target in sorted(
                piece.targets(), key=lambda target: (target.port is not None, target.port, target.input)
            )
            if target.port is not None or target.input is not None
        }
        mine = {target: x.resolve_conj().resolve_neg() for target, x in mine.items() if x is not None}
        alone = {target.input for target in mine if not is_taken(target)}
        reached = ports_reaching(piece, edges)
        own = [tangents[port] for port in piece.makes]
        tangent_views = views_of_tangents(list(mine.values()), own)
        bases, shown = bases_of(list(mine.values()))
        gradients += bases
        parts.append(
            GradientPiece(
                tuple(piece.makes),
                Gradients(
                    len(piece.makes),
                    tuple(range(len(piece.makes))),
                    signature.tangents,
                    tuple(place_of(target, signature.tangents) for target in mine),
                    reached=tuple(reached[target] for target in mine) if len(piece.makes) > 1 else (),
                    gradient_views=shown,
                    edges=tuple(k for k in record.edges() if k in alone),
                    shared_in_eager=tuple(k for k in alone if k in held),
                    tangent_views=tangent_views,
                    frees=piece.saves,
                    # Where no gradient leaves the piece, as from `x.norm(0)`, its results still require gradients.
                    unused=() if mine else tuple(place_of(x, signature.tangents) for x in piece.targets()),
                ),
            )
        )
    tracer.traced.gradients = replace(signature, pieces=tuple(parts), inner=len(pieces.inner))
    return gradients


def place_of(target: GradientTarget, inputs: int) -> int:
    return inputs + target.port if target.port is not None else target.input  # type: ignore[return-value]


def tensors_at(edges: set[Edge], made: Iterable[Any]) -> dict[Edge, Any]:
    """The tensors of the trace that autograd has at these edges."""
    found: dict[Edge, Any] = {}
    stack = list(made) if edges else []
    while stack:
        x = stack.pop()
        if isinstance(x, (tuple, list)):
            stack += x
        elif isinstance(x, TraceTensor) and x.requires_grad:
            with Suppressing(RuntimeError):  # a view that was written to in a way that autograd forbids
                if edge_of(x) in edges:
                    found[edge_of(x)] = x
    return found


def tangent_at(tracer: AtenTracer, edge: Edge, there: Any) -> Any:
    if there is not None:
        return tracer.tangent(there)
    of = edge[0]._input_metadata[edge[1]]
    type = gradient_type(TensorType.contiguous(tuple(of.shape), of.dtype, of.device))
    return TraceTensor.make(tracer.graph.input(type, "inner_tangent"))


@contextlib.contextmanager
def hooks(pieces: Pieces, is_taken: Callable[[GradientTarget], bool], taken: Taken) -> Iterator[None]:
    handles = []
    try:
        for number, piece in enumerate(pieces.pieces):
            for node, edges in piece.leaving.items():
                out = {k: target for k, target in edges.items() if is_taken(target)}
                if out:
                    handles.append(node.register_hook(taker(number, out, taken)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def taker(number: int, out: dict[int, GradientTarget], taken: Taken) -> Callable[..., Any]:
    """A hook that takes a node's gradients for these edges."""

    def take(gradients: tuple, tangents: tuple) -> tuple:
        left = list(gradients)
        for k, target in out.items():
            if left[k] is not None:
                before = taken.get((number, target))
                taken[number, target] = left[k] if before is None else before + left[k]
                left[k] = None
        return tuple(left)

    return take
