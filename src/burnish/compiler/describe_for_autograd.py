"""Describes the forward and backward graphs of a differentiable graph for autograd.

halves, layout = halved(graph, gradients, constants)              one node of autograd
graphs, pieces, outputs = divided(graph, gradients, constants)    several
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from ..captured_graph.aliased_gradients import InputView
from ..ir.alias_analysis import is_memory_view, storage_of
from ..ir.frozen_values import is_random
from ..ir.graph import Alias, Graph, Value, values_in
from ..ir.joint_graph_signature import GradientPiece, Gradients
from ..ir.untraceable_graph import Untraceable
from ..runtime.program.autograd_function import GradientLayout
from ..runtime.program.several_autograd_nodes import OutputLayout, PieceLayout
from ..schedule.memory.liveness import lies_in_arena
from ..schedule.partition.partition_joint_graph import Halves, partition_joint_graph
from ..schedule.partition.partition_per_autograd_node import PieceBackward, partition_pieces
from ..settings import current
from ..tensors.tensor_types import NumberType
from ..tensors.views.view_maps import view_offset


def split_forward_and_backward(graph: Graph, gradients: Gradients, constants: int) -> tuple[Halves, GradientLayout]:
    """The two graphs, and what autograd needs to know about them. The last `constants` inputs of the graph are
    constants."""
    views = returned_views(graph, gradients)
    halves = partition_joint_graph(graph, gradients, constants, current().memory_budget)
    shown, place = only_computed(halves.forward, gradients, views)
    tangents = graph.inputs[gradients.tangents : gradients.tangents + len(gradients.flows)]
    layout = GradientLayout(
        outputs=gradients.outputs,
        shown=shown,
        flows=tuple(place[k] for k in gradients.flows),
        closed=tuple((place[k], words) for k, words in gradients.no_backward),
        saved_inputs=halves.saved_inputs,
        saved_outputs=tuple(place[k] for k in halves.saved_outputs),
        watched=halves.watched,
        **second_run(graph, gradients),
        views={k: replace(view, input=place[base]) for k, (base, view) in views.items()},
        hidden=gradients.hidden,
        again=gradients.current_inputs,
        unused=gradients.unused,
        **of_backward(gradients, graph.outputs[gradients.outputs :], graph, tangents),
    )
    return halves, layout


def donated_inputs(halves: Halves, constants: int) -> dict[int, int]:
    """Backward's inputs on a GPU that nothing but backward refers to, by position, and their positions among forward's
    extra, saved outputs. On a CPU the arena of both graphs holds what could use their memory."""
    more = halves.forward.outputs[len(halves.forward.outputs) - halves.others :]
    shared = Counter(storage_of(value) for value in more if isinstance(value, Value))
    first = len(halves.backward.inputs) - constants - halves.others
    return {
        first + k: k
        for k, value in enumerate(more)
        if isinstance(value, Value)
        and k not in halves.watched
        and value.node is not None
        and not isinstance(value.type, NumberType)
        and value.type.is_contiguous
        and shared[storage_of(value)] == 1
        and not lies_in_arena(value)
    }


def graphs_of(graph: Graph, gradients: Gradients, constants: int) -> list[Graph]:
    """The graphs of forward and of each part of backward."""
    if gradients.pieces:
        return divided(graph, gradients, constants)[0]
    halves, _ = split_forward_and_backward(graph, gradients, constants)
    return [halves.forward, halves.backward]


def divided(
    graph: Graph, gradients: Gradients, constants: int
) -> tuple[list[Graph], tuple[PieceLayout, ...], OutputLayout]:
    """The graphs of forward and of each piece of backward, and what autograd needs to know about them."""
    views = returned_views(graph, gradients)
    forward, backwards = partition_pieces(graph, gradients, constants, current().memory_budget)
    shown, place = only_computed(forward, gradients, views)
    again = second_run(graph, gradients)
    first, pieces = gradients.outputs, []
    for piece, backward in zip(gradients.pieces, backwards, strict=True):
        results = graph.outputs[first : first + len(piece.gradients.inputs)]
        first += len(results)
        pieces.append(piece_layout(graph, gradients, piece, backward, results, place, again))
    ports = len(gradients.flows) + gradients.inner
    outputs = OutputLayout(
        gradients.outputs,
        shown,
        {k: replace(view, input=place[base]) for k, (base, view) in views.items()},
        gradients.hidden,
        gradients.tangents,
        tuple((ports + at, k) for at, k in enumerate(gradients.aliases)),
        len(place),
        tuple(at for k, at in place.items() if k not in gradients.flows),
    )
    return [forward, *(part.graph for part in backwards)], tuple(pieces), outputs


def piece_layout(
    graph: Graph,
    gradients: Gradients,
    piece: GradientPiece,
    backward: PieceBackward,
    results: Sequence[Any],
    place: dict[int, int],
    again: dict[str, Any],
) -> PieceLayout:
    own, flows = piece.gradients, gradients.flows
    tangents = [graph.inputs[gradients.tangents + port] for port in piece.makes]
    inputs = tuple(dict.fromkeys([*own.inputs, *backward.saved_inputs, *own.unused]))
    at = {k: number for number, k in enumerate(inputs)}
    numbered = replace(
        own,
        tangents=len(inputs),
        inputs=tuple(at[k] for k in own.inputs),
        edges=tuple(at[k] for k in own.edges),
        shared_in_eager=tuple(at[k] for k in own.shared_in_eager),
    )
    places = tuple(place[flows[port]] if port < len(flows) else None for port in piece.makes)
    layout = GradientLayout(
        outputs=len(piece.makes),
        shown={},
        flows=own.flows,
        closed=(),
        saved_inputs=tuple(at[k] for k in backward.saved_inputs),
        saved_outputs=tuple(places.index(place[k]) for k in backward.saved_outputs),
        watched=backward.watched,
        **again,
        **of_backward(numbered, results, backward.graph, backward.graph.inputs[: len(tangents)]),
        unused=tuple(at[k] for k in inputs if k in gradients.unused and k not in (*own.inputs, *own.unused)),
    )
    kept = tuple(
        place[k] if k < gradients.outputs else k - gradients.outputs + len(place) for k in backward.saved_others
    )
    return PieceLayout(layout, inputs, piece.makes, places, tuple(value.type.device for value in tangents), kept)


def returned_views(graph: Graph, gradients: Gradients) -> dict[int, tuple[int, InputView]]:
    """The outputs that are views of other outputs: the base's position, and the view. The graph does not return them
    from now on."""
    if not all(isinstance(graph.outputs[k], Alias) for k in gradients.input_aliases):
        raise Untraceable("an output shows an input in a way that has no form here")
    if any(isinstance(graph.outputs[k], Alias) for k in gradients.flows):
        raise Untraceable("an output shares memory with an input, and autograd does not know it")
    views = {
        k: (base, shown_value(graph.outputs[k], graph.outputs[base], k in gradients.of_several))
        for k, base in gradients.views
    }
    graph.outputs = [None if k in views else out for k, out in enumerate(graph.outputs)]
    return views


def only_computed(
    forward: Graph, gradients: Gradients, views: Container[int]
) -> tuple[dict[int, InputView], dict[int, int]]:
    """Makes forward return only what it computes. Returns the outputs that are inputs or views of them, and the new
    positions of the outputs that are left."""
    outputs = forward.outputs
    shown = {
        k: shown_input(out, forward, k in gradients.of_several)
        for k, out in enumerate(outputs[: gradients.outputs])
        if isinstance(out, Alias)
    }
    forward.outputs = [out for k, out in enumerate(outputs) if not isinstance(out, Alias) and k not in views]
    return shown, {
        k: at for at, k in enumerate(k for k in range(gradients.outputs) if k not in shown and k not in views)
    }


def of_backward(gradients: Gradients, made: Sequence[Any], graph: Graph, tangents: Sequence[Value]) -> dict[str, Any]:
    """What a layout says of the tangents and gradients of a node. `made` are the gradients in the joint graph, and
    `tangents` values of `graph`, which computes them."""
    return {
        "tangents": tuple((value.shape, value.type.stride, value.dtype) for value in tangents),
        "gradients": gradients.inputs,
        "inputs": gradients.tangents,
        "reached": gradients.reached,
        "gradient_views": gradients.gradient_views,
        "of_tangents": gradients.tangent_views,
        "held": held_gradients(gradients, made),
        "order": order_of_inputs(gradients, made),
        "multiplied": multiplied_tangents(graph, tangents),
        "frees": gradients.frees,
    }


def multiplied_tangents(graph: Graph, tangents: Sequence[Value]) -> tuple[int, ...]:
    """Bit masks of the tangents in each operation that combines some with other values. Where those tangents are zeros,
    the result may still be NaN: 0 * inf."""
    flowing = {value: 1 << k for k, value in enumerate(tangents)}
    found = set()
    for node in graph.nodes:
        masks = [flowing.get(value, 0) for value in node.operands]
        mask = functools.reduce(operator.or_, masks, 0)
        if mask:
            flowing.update((value, mask) for value in node.results if value is not None)
            if 0 in masks:
                found.add(mask)
    return tuple(sorted(found)) if len(tangents) > 1 else ()


def held_gradients(gradients: Gradients, made: Sequence[Any]) -> tuple[tuple[int, bool], ...]:
    """The gradients whose memory is also visible elsewhere, so that a leaf copies them; and which are tangents."""
    tangents = {view.at for view in gradients.tangent_views if not view.steps}
    seen = {view.at for view in gradients.tangent_views}
    bases = {made[k] for k, _ in gradients.gradient_views if isinstance(made[k], Value)}
    seen |= {k for k, out in enumerate(made) if isinstance(out, Value) and out in bases}
    return tuple((k, k in tangents) for k in sorted(seen) if gradients.inputs[k] in gradients.shared_in_eager)


def order_of_inputs(gradients: Gradients, made: Sequence[Any]) -> tuple[int, ...]:
    """The order in which autograd's node lists the inputs. It matters if a gradient is shared, else it is empty."""
    identities = [out.input if isinstance(out, Alias) else out for out in made if isinstance(out, (Alias, Value))]
    if len(set(identities)) == len(identities):
        return ()
    rest = [k for k in range(gradients.tangents) if k not in gradients.edges]
    order = (*gradients.edges, *rest)
    return () if list(order) == sorted(order) else order


def shown_input(out: Alias, graph: Graph, is_of_several: bool) -> InputView:
    if out.type is None:
        return InputView(out.input)
    offset = view_offset(out.maps, graph.inputs[out.input].type)
    return InputView(out.input, out.type.shape, out.type.stride, offset, out.is_detached, is_of_several)


def shown_value(out: Any, base: Any, is_of_several: bool) -> InputView:
    """The view of the base's memory that a value is."""
    (source, offset), (storage, begin) = map(place_of, (out, base))
    if source is not storage or not isinstance(source, Value):
        raise Untraceable("two of its outputs share memory, and gradients flow into both")
    return InputView(0, out.shape, out.type.stride, offset - begin, False, is_of_several)


def place_of(value: Any) -> tuple[Any, int]:
    """The value that owns the memory of a value, and its first element there."""
    if isinstance(value, Value) and is_memory_view(value):
        source, maps = value.node.args  # type: ignore[union-attr]
        return source, view_offset(maps, source.type)
    return value, 0


def second_run(graph: Graph, gradients: Gradients) -> dict[str, Any]:
    """What a layout says of a second run of forward, for gradients of gradients. Random numbers can be drawn again on a
    CPU. What forward overwrites is lost: no result with a gradient may depend on it."""
    first = gradients.tangents
    written = tuple(write.input for write in graph.writes if write.input < first)
    forward = values_before([graph.outputs[k] for k in gradients.flows])
    draws = any(is_random(node) for node in graph.nodes)
    why = None
    if gradients.overwritten or any(graph.inputs[k] in forward for k in written):
        why = "writes to its inputs"
    elif draws and any(not value.type.is_on_host for value in graph.inputs[:first]):
        why = "draws random numbers"
    return {"why_not_twice": why, "draws": draws and why is None, "written": written}


def values_before(outputs: Sequence[Any]) -> set[Value]:
    """The values that outputs are computed from, and these."""
    found, stack = set[Value](), values_in(tuple(outputs))
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack += value.node.operands if value.node is not None else ()
    return found
