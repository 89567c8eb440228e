"""CUDA graphs for training: forward and its backwards are captured together and replayed separately.

    call = CudaGraphTrainingProgram(step, fixed, written, engine, name)       step: differentiable, perhaps in pieces
    y = call(x, w)              replays forward, if no backward still needs what the last replay saved
    y.sum().backward()          replays backward

Saved values stay in the graph's memory, where backward reads them. So the next replay of forward is not allowed
until they are no longer needed. A `ForwardReplay` tracks that: autograd's node references it, since it runs backward,
and releases it when backward is finished or the node is freed. While a turn exists, calls and their backwards run
without graphs, in their own memory. The backward of a turn may be replayed twice (`retain_graph=True`), or run
without a graph.

    loss = call(x, w); call(x2, w)              the second one runs as it is: the first may still run backward
    loss.backward()                             now it cannot any more

They have memory that no other graph uses: graphs of other programs may be replayed before backward runs.

Autograd checks the saved tensors that the user can see as usual: the user has copies, and autograd saves those. But
he may have written to them in ways autograd does not see (`y.data`). So backward gets them and the inputs again, as
a backward without a graph would: parameters stay in place, others are copied in.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..program.autograd_function import Differentiable, autograd_is_watched, is_last_backward
from ..program.several_autograd_nodes import DifferentiableInPieces
from .cuda_graph_memory import copies_of, copy, place_of
from .cuda_graph_recording import Engine, RecordingRefused
from .cuda_graph_replay import CudaGraphProgram, Recorded, first_of, recorded

WAITS = "an earlier call's backward is still to come, and what it saved is where this call would save"


@dataclass(slots=True)
class RecordedBackward:
    replay: Callable[[], None]
    places: dict[int, torch.Tensor]
    """Where the graph reads its arguments; the addresses of the others are the same in each call."""
    addresses: dict[int, int]
    gradients: list[Any]

    def fits(self, given: Sequence[Any]) -> bool:
        return all(given[k].data_ptr() == address for k, address in self.addresses.items())

    def replayed(self, given: list[Any]) -> tuple:
        # Values that forward left in the graph's memory are in place already.
        moved = [k for k, place in self.places.items() if given[k].data_ptr() != place.data_ptr()]
        copy([self.places[k] for k in moved], [given[k] for k in moved])
        given.clear()
        self.replay()
        return handed_out(self.gradients)


def handed_out(gradients: Sequence[Any]) -> tuple:
    """Copies of all gradients, since autograd may take a gradient as `.grad` itself. A gradient of two inputs stays one
    tensor."""
    originals = {id(x): x for x in gradients if isinstance(x, torch.Tensor)}
    copies = dict(zip(originals, copies_of(list(originals.values())), strict=True))
    return tuple([copies.get(id(x), x) for x in gradients])


@dataclass(eq=False)
class CapturedNode:
    """One node of autograd. Its backward is captured after its first call."""

    number: int
    saved: list[Any]
    """Where the graph stores the saved inputs, outputs and other values; None for an input that stays in place."""
    begun: int | None = None
    """The thread that has run backward without a graph."""
    backward: RecordedBackward | None = None


@dataclass(eq=False)
class Captured:
    """Forward and backwards, captured for one set of parameters."""

    forward: Recorded
    stream: int
    memory: Any
    nodes: list[CapturedNode]
    turn: weakref.ref[ForwardReplay] | None = None

    def is_waiting(self) -> bool:
        return self.turn is not None and self.turn() is not None


class ForwardReplay:
    """One replay of forward, and the functions that run its backwards."""

    def __init__(self, training: CudaGraphTrainingProgram, captured: Captured, made: tuple):
        self.training, self.captured, self.made = training, captured, made
        captured.turn = weakref.ref(self)

    def forward(self, *inputs: Any) -> tuple:
        """Returns the results of the replay to autograd, as forward."""
        made, self.made = self.made, ()
        return made

    def backwards(self) -> list[Callable]:
        return [functools.partial(self.gradients, node) for node in self.captured.nodes]

    def gradients(self, node: CapturedNode, given: list[Any]) -> tuple:
        return self.training.gradients(self.captured, node, given)


class CudaGraphTrainingProgram(CudaGraphProgram):
    """`program` is differentiable, or an AliasCheckedProgram of such a program. `written` are the inputs that forward
    writes to."""

    takes_gradients = True

    def __init__(self, program: Any, fixed: Collection[int], written: Sequence[int], engine: Engine, name: str):
        super().__init__(program, fixed, written, engine, name)
        self.step: Differentiable | DifferentiableInPieces = getattr(program, "program", program)
        self.has_told = False

    def __call__(self, *inputs: Any) -> Any:
        graphs, step = self.graphs, self.step
        if graphs.why_not is not None or autograd_is_watched():
            return self.program(*inputs)
        is_first, turn, captured = False, None, None
        with graphs.alone() as is_alone:
            if is_alone and self.has_no_overlap(inputs):
                key = graphs.key_of(inputs)
                is_first = key not in graphs.recorded and graphs.is_first(key)
                if not is_first:
                    captured = graphs.found(key, lambda: self.recorded(inputs))
                    if captured is not None and not captured.is_waiting():
                        with torch.no_grad():
                            turn = ForwardReplay(self, captured, captured.forward.replayed(inputs))
        if turn is not None:
            return step.called(inputs, turn.forward, turn.backwards())
        if is_first:
            return step.called(inputs, lambda *some: graphs.looked_at(step.forward, some), step.backwards)
        if captured is not None and not self.has_told:
            self.has_told = True
            graphs.tell(WAITS)
        return self.program(*inputs)

    def recorded(self, inputs: Sequence[Any]) -> Captured:
        step, engine = self.step, self.graphs.engine
        memory = engine.new_memory()
        forward = recorded(step.forward, inputs, self.graphs, self.written, step.computed, memory)
        outcome = forward.outcome
        made = [outcome.home(k, forward.places) for k in range(len(outcome.rules))]
        saved = step.saved_values([forward.places.get(k) for k in range(len(inputs))], made)
        return Captured(forward, engine.stream(), memory, [CapturedNode(k, values) for k, values in enumerate(saved)])

    def gradients(self, captured: Captured, node: CapturedNode, given: list[Any]) -> tuple:
        """The backward of a node, in a call whose forward has been replayed."""
        graphs, backward, is_first = self.graphs, self.step.backwards[node.number], False
        with graphs.alone() as is_alone:
            if is_alone:
                if captured.stream != graphs.engine.stream():
                    # It could still read when the next replay of forward writes.
                    raise RecordingRefused("its backward runs in another stream than its forward")
                if node.backward is None:
                    is_first, node.begun = node.begun != threading.get_ident(), threading.get_ident()
                    if not is_first:
                        node.backward = self.recorded_backward(captured, node, given)
                layout = self.step.layouts_of_nodes[node.number]
                # A replay overwrites saved values in their place, which another backward of this forward would read.
                is_safe = not layout.overwritten or is_last_backward(layout)
                if node.backward is not None and is_safe and node.backward.fits(given):
                    return node.backward.replayed(given)
        found: tuple = graphs.looked_at(backward, [given]) if is_first else backward(given)
        return found

    def recorded_backward(self, captured: Captured, node: CapturedNode, given: Sequence[Any]) -> RecordedBackward:
        engine, places, backward = self.graphs.engine, list(given), self.step.backwards[node.number]
        tangents = len(self.step.layouts_of_nodes[node.number].tangents)
        try:
            places[:tangents] = [place_of(x) for x in given[:tangents]]
            places[tangents:] = [
                home if home is not None else x.detach() if isinstance(x, torch.Tensor) else x
                for x, home in zip(given[tangents:], node.saved, strict=True)
            ]
            replay, gradients = engine.capture(lambda: backward(list(places)), captured.memory)
        except RuntimeError as error:
            raise RecordingRefused(f"its backward could not be recorded: {first_of(error)}") from error
        far = [x.device for x in gradients if isinstance(x, torch.Tensor) and x.device != engine.device]
        if far:
            raise RecordingRefused(f"a gradient is on {far[0]}: the GPU would have to be waited for")
        staying = [
            k for k, home in enumerate(node.saved, tangents) if home is None and isinstance(given[k], torch.Tensor)
        ]  # numbers are part of the graph's key
        return RecordedBackward(
            replay,
            {k: x for k, x in enumerate(places) if k not in staying and isinstance(x, torch.Tensor)},
            {k: given[k].data_ptr() for k in staying},
            list(gradients),
        )
