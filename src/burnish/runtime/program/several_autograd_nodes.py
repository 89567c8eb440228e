"""A compiled graph that autograd sees as several nodes, so that it can do between them what it does in eager.

    h, l = step(x)              l.grad_fn is one node, h.grad_fn the next:      x -> h -> l
    h.retain_grad()
    l.backward()                h.grad is set

One forward program computes everything. Then each piece is applied, from inputs to outputs: it takes the inputs and
ports that gradients leave it for, and returns results that are there already. Its backward is a program of its own.
`captured_graph.graph_autograd_nodes` describes pieces and ports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...captured_graph.aliased_gradients import InputView
from ...captured_graph.graph_autograd_nodes import Edge, Pieces, edge_of, find_pieces
from ...concurrency.first_value_cache import once
from ...foundation.torch_private import current_graph_task_id, execution_engine, set_grad_enabled
from .autograd_function import Compiled, DifferentiableGraph, GradientLayout, check_twice
from .eager_double_backward import apart, at_no_level, needs_gradient, run_again


@dataclass(frozen=True, slots=True)
class PieceLayout:
    """One node of autograd."""

    layout: GradientLayout
    inputs: tuple[int, ...]
    """What it takes: positions of the graph's inputs, and from there on ports."""
    makes: tuple[int, ...]
    """The ports that it returns."""
    places: tuple[int | None, ...]
    """Where these are among forward's results; None for ports that only pass gradients on."""
    devices: tuple[torch.device, ...]
    kept: tuple[int, ...]
    """The positions of the other saved values among forward's results."""


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """The graph's outputs. The fields are those of a `GradientLayout`."""

    outputs: int
    shown: dict[int, InputView]
    views: dict[int, InputView]
    hidden: int
    inputs: int
    aliases: tuple[tuple[int, int], ...]
    """The ports that are views, and their positions among the outputs."""
    computed: int
    """How many of forward's results are outputs; the others are saved values."""
    constant: tuple[int, ...]
    """The positions of those that require no gradients."""


class DifferentiableInPieces(DifferentiableGraph):
    """Several nodes of autograd. Its `layouts` are the pieces, from outputs to inputs, and the outputs."""

    @property
    def pieces(self) -> Sequence[PieceLayout]:
        return self.layouts[0]

    @property
    def layouts_of_nodes(self) -> Sequence[GradientLayout]:
        return [piece.layout for piece in self.pieces]

    @property
    def outputs(self) -> OutputLayout:
        return self.layouts[1]

    @property
    def computed(self) -> int:
        return self.outputs.computed

    def saved_values(self, inputs: Sequence[Any], made: Sequence[Any]) -> list[list[Any]]:
        """What the backward of each piece gets after its tangents, out of the inputs and forward's results. Views of
        None are None."""
        outputs = self.outputs
        taken = list(inputs) + [None] * (sum(len(piece.makes) for piece in self.pieces) + len(outputs.aliases))
        for piece in self.pieces:
            for port, place in zip(piece.makes, piece.places, strict=True):
                taken[len(inputs) + port] = None if place is None else made[place]
        for port, k in outputs.aliases:
            view, viewed = (outputs.shown[k], inputs) if k in outputs.shown else (outputs.views[k], made)
            taken[len(inputs) + port] = None if viewed[view.input] is None else view.of(viewed)
        return [
            [taken[piece.inputs[k]] for k in piece.layout.saved_inputs]
            + [made_by(piece, made, k) for k in piece.layout.saved_outputs]
            + [made[k] for k in piece.kept]
            for piece in self.pieces
        ]

    def differentiated(self, inputs: tuple, forward: Callable, backwards: Sequence[Callable], *layouts: Any) -> tuple:
        pieces, outputs = layouts
        call = CallInPieces(self, inputs, outputs)
        if pieces[0].layout.draws:
            call.drawn = torch.get_rng_state()
        is_on = torch.is_grad_enabled()
        try:  # torch's context managers take microseconds
            set_grad_enabled(False)
            made = list(forward(*inputs))
            set_grad_enabled(True)  # the graph itself may enable gradients
            call.apply(pieces, backwards, made)
        finally:
            set_grad_enabled(is_on)
        return call.returned(made)


class CallInPieces:
    """One call: hands the results to autograd, and computes gradients by eager where compiled code cannot."""

    def __init__(self, step: DifferentiableInPieces, inputs: tuple, outputs: OutputLayout):
        self.step, self.inputs, self.outputs = step, inputs, outputs
        self.ports: dict[int, Any] | None = {}
        self.drawn: torch.Tensor | None = None
        """Torch's random state before the call, if it draws."""
        self.again: tuple[int, EagerPieces] | None = None
        """The eager run for the backward under way, and its number."""

    def apply(self, pieces: Sequence[PieceLayout], backwards: Sequence[Callable], made: list[Any]) -> None:
        """Applies the pieces. Replaces the results in `made` by those that autograd knows."""
        inputs, outputs, ports = self.inputs, self.outputs, dict[int, Any]()
        count, computed = len(inputs), outputs.computed
        waiting = dict(outputs.aliases)
        for port, k in outputs.aliases:
            if k in outputs.shown:
                ports[port] = outputs.shown[k].of(inputs)
                del waiting[port]
        if outputs.constant:
            separate(made, outputs.constant, computed)
        for number in range(len(pieces) - 1, -1, -1):
            piece = pieces[number]
            layout = piece.layout
            given: Sequence[Any] = [inputs[k] if k < count else ports[k - count] for k in piece.inputs]
            if layout.unused:
                given = [x.detach() if k in layout.unused else x for k, x in enumerate(given)]
            results = [
                stand_in(*layout.tangents[k], piece.devices[k]) if place is None else made[place]
                for k, place in enumerate(piece.places)
            ]
            # An output that another piece makes must not be referenced from here: that would be a cycle.
            results += [made[k].detach() if k < computed else made[k] for k in piece.kept]
            if layout.order:
                given = layout.ordered(given)
            known = Compiled.apply(
                PieceOfCall(self, number), layout, lambda *_, results=results: results, backwards[number], *given
            )
            for port, place, x in zip(piece.makes, piece.places, known, strict=True):
                ports[port] = x
                if place is not None:
                    made[place] = x
            for port, k in list(waiting.items()) if waiting else ():
                if outputs.views[k].input in piece.places:
                    ports[port] = outputs.views[k].of(made)
                    del waiting[port]
        self.ports = ports

    def returned(self, made: Sequence[Any]) -> tuple:
        outputs, ports = self.outputs, self.ports
        assert ports is not None
        self.ports = None  # they reference the nodes that reference this call
        if not outputs.shown and not outputs.views:
            return tuple(made[: outputs.outputs - outputs.hidden])
        there = {k: ports[port] for port, k in outputs.aliases}
        rest = iter(made)
        found = []
        for k in range(outputs.outputs - outputs.hidden):
            if k in there:
                found.append(there[k])
            elif k in outputs.shown:
                found.append(outputs.shown[k].of(self.inputs))
            else:
                found.append(outputs.views[k].of(made) if k in outputs.views else next(rest))
        return tuple(found)

    # ---- by eager

    def gradients(
        self, number: int, layout: GradientLayout, tangents: Sequence[Any], kind: str, create_graph: bool
    ) -> dict[int, Any]:
        """The gradients of a piece, by position among inputs and ports."""
        check_twice(layout, kind)
        task = current_graph_task_id()
        if self.again is None or self.again[0] != task:
            self.again = task, EagerPieces(self.step, self.inputs, self.outputs, layout.written, self.drawn)
            execution_engine.queue_callback(self.forget)
        return self.again[1].gradients(number, tangents, create_graph)

    def forget(self) -> None:
        self.again = None


class PieceOfCall:
    """What the autograd function of a piece refers to."""

    __slots__ = ("call", "number")

    def __init__(self, call: CallInPieces, number: int):
        self.call, self.number = call, number

    def gradients_by_eager(
        self, inputs: Sequence[Any], tangents: Sequence[Any], kind: str, create_graph: bool, drawn: Any
    ) -> list[Any]:
        piece = self.call.step.pieces[self.number]
        found = self.call.gradients(self.number, piece.layout, tangents, kind, create_graph)
        return [found.get(k) for k in piece.inputs]


def made_by(piece: PieceLayout, made: Sequence[Any], k: int) -> Any:
    place = piece.places[k]
    return None if place is None else made[place]


def separate(made: list[Any], constant: Sequence[int], computed: int) -> None:
    """Makes the outputs that require no gradients other tensors than those that do: `return loss, loss.detach()`."""
    flowing = {id(x) for k, x in enumerate(made[:computed]) if k not in constant}
    for k in constant:
        x = made[k]
        if isinstance(x, torch.Tensor) and (x._is_view() or id(x) in flowing):
            made[k] = x.detach()


def stand_in(shape: tuple[int, ...], stride: tuple, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor without memory of its own, for a port that only passes a gradient on."""
    return nothing(dtype, device).expand(shape)


@once
def nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=dtype, device=device)


class EagerPieces:
    """A second, eager run of a graph, whose gradients are computed in the same pieces."""

    def __init__(
        self,
        step: DifferentiableInPieces,
        inputs: Sequence[Any],
        outputs: OutputLayout,
        written: Sequence[int],
        drawn: torch.Tensor | None,
    ):
        with torch.enable_grad(), at_no_level():
            self.inputs = apart(inputs)
            made = run_again(step.eager, self.inputs, written, drawn)
        bases = {view.input: made[k]._base for k, view in outputs.views.items()}
        places = [k for k in range(outputs.outputs) if k not in outputs.shown and k not in outputs.views]
        computed = [made[k] if k < len(made) else bases[at] for at, k in enumerate(places)]
        flow_of = {
            port: place
            for piece in step.pieces
            for port, place in zip(piece.makes, piece.places, strict=True)
            if place is not None
        }
        flows = [computed[flow_of[port]] for port in range(len(flow_of))]
        port_of = {place: port for port, place in flow_of.items()}
        aliases = [
            (made[k], port_of[outputs.views[k].input] if k in outputs.views else None) for _, k in outputs.aliases
        ]
        found = find_pieces(self.inputs, flows, aliases)
        if found is None or [piece.makes for piece in found.pieces] != [list(piece.makes) for piece in step.pieces]:
            raise RuntimeError(
                "Gradients of gradients, or many at once, through compiled code that returns an intermediate result: "
                "eager computes it in other steps. Keep it out of compilation with burnish.disable(function)."
            )
        self.pieces: Pieces = found

    def gradients(self, number: int, tangents: Sequence[Any], create_graph: bool) -> dict[int, Any]:
        piece, edges = self.pieces.pieces[number], self.pieces.edges()
        edges += map(edge_of, self.pieces.aliases)
        left = {target.port: edges[target.port] for target in piece.targets() if target.port is not None}
        wanted = [k for k, x in enumerate(self.inputs) if needs_gradient(x)]
        taken: dict[int, Any] = {}
        handles = [edge[0].register_prehook(taker(port, edge, taken)) for port, edge in left.items()]
        try:
            flowing = [(edges[port], x) for port, x in zip(piece.makes, tangents, strict=True) if x is not None]
            found = torch.autograd.grad(
                [torch.autograd.graph.GradientEdge(*edge) for edge, _ in flowing],
                [self.inputs[k] for k in wanted],
                [x for _, x in flowing],
                allow_unused=True,
                create_graph=create_graph,
                retain_graph=True,
            )
        finally:
            for handle in handles:
                handle.remove()
        taken = {len(self.inputs) + port: x for port, x in taken.items()}
        return dict(zip(wanted, found, strict=True)) | taken


def taker(port: int, edge: Edge, taken: dict[int, Any]) -> Callable[[tuple], tuple]:
    """A hook that takes the gradient at an edge, so that it goes no further."""

    def take(gradients: tuple) -> tuple:
        taken[port] = gradients[edge[1]]
        return tuple(None if k == edge[1] else x for k, x in enumerate(gradients))

    return take
