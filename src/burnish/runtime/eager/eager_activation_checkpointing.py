"""Activation checkpointing of regions that run eagerly: save the inputs, recompute the region in backward.

    region = Steps(...)                            calls in order; arguments refer to earlier values
    y = checkpointed(forward, region, x, weight)   `forward` makes these calls; none of its values is saved for backward

The second run draws the same random numbers. Writes of a region (running statistics) happen again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import get_device_states, set_device_states

from ...captured_graph.checkpoint_hooks import AutocastState, Recomputation
from ...foundation.torch_private import SavedTensor as TorchSavedTensor
from ...foundation.torch_private import make_saved_tensor
from ..argument_trees import mapped


class RandomState:
    """Torch's random state, including that of the devices of some tensors."""

    def __init__(self, tensors: Sequence[Any] = ()):
        self.cpu = torch.get_rng_state()
        self.devices: list[int] = []
        self.states: list[torch.Tensor] = []
        away = [x for x in tensors if isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "meta")]
        self.kind = away[0].device.type if away else "cpu"
        if away:
            self.devices, self.states = get_device_states(*away)

    def put_back(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.devices:
            set_device_states(self.devices, self.states, device_type=self.kind)

    def has_changed(self) -> bool:
        """Whether random numbers were drawn since."""
        return not torch.equal(self.cpu, torch.get_rng_state()) or any(
            not torch.equal(state, getattr(torch, self.kind).get_rng_state(device))
            for device, state in zip(self.devices, self.states, strict=True)
        )

    @contextlib.contextmanager
    def again(self, tensors: Sequence[Any] = ()) -> Iterator[None]:
        """Draws inside give the same numbers again; afterwards the previous state is restored."""
        before = RandomState(tensors)
        self.put_back()
        try:
            yield
        finally:
            before.put_back()


# ---- calls in order


@dataclass(frozen=True, slots=True)
class StepValue:
    """A value among those of `RecordedCalls`, or a part of it."""

    at: int
    path: tuple = ()


class RecordedCall(NamedTuple):
    function: Callable
    args: tuple
    kwargs: dict[str, Any]
    over: tuple[int, ...]
    """Values that are not read after this step."""


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """Calls that make one value each: the inputs come first, followed by the results."""

    inputs: int
    steps: tuple[RecordedCall, ...]
    draws: bool = False
    saves: tuple[bool, ...] = ()
    """For each input: whether it is saved as autograd saves tensors. Others are read as they are in backward."""

    def run(self, inputs: Sequence[Any], is_done: Callable[[], bool]) -> None:
        values: dict[int, Any] = dict(enumerate(inputs))

        def value_of(place: StepValue) -> Any:
            found = values[place.at]
            for key in place.path:
                found = found[key]
            return found

        for at, step in enumerate(self.steps, self.inputs):
            values[at] = step.function(
                *mapped(step.args, StepValue, value_of), **mapped(step.kwargs, StepValue, value_of)
            )
            for place in step.over:
                values.pop(place, None)
            if is_done():
                return


def steps_of(
    inputs: int, calls: Sequence[tuple[Callable, tuple, dict]], draws: bool, saves: tuple[bool, ...]
) -> RecordedCalls:
    """Made from calls whose arguments contain `StepValue`s."""
    last: dict[int, int] = {}

    def note(at: int) -> Callable[[StepValue], Any]:
        return lambda place: last.__setitem__(place.at, at)

    for at, (_, args, kwargs) in enumerate(calls):
        mapped((args, kwargs), StepValue, note(at))
    over: dict[int, list[int]] = {}
    for place, at in last.items():
        over.setdefault(at, []).append(place)
    return RecordedCalls(
        inputs,
        tuple(
            RecordedCall(function, args, kwargs, tuple(over.get(at, ())))
            for at, (function, args, kwargs) in enumerate(calls)
        ),
        draws,
        saves,
    )


class Saver(torch.autograd.Function):
    """An autograd function that only saves a tensor; its node returns it."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
        ctx.save_for_backward(*tensors)  # in a list, so that no gradients flow to them from here
        return anchor.detach()


class SavedByNode:
    """`torch._C._autograd.SavedTensor` where torch (2.11, for example) cannot make one from a tensor alone."""

    def __init__(self, x: torch.Tensor):
        with torch.enable_grad():
            self.saver = Saver.apply(torch.empty(0, requires_grad=True), [x])

    def unpack(self) -> torch.Tensor:
        return self.saver.grad_fn.saved_tensors[0]


def saved_by_torch(x: torch.Tensor) -> Any:
    return make_saved_tensor(x, is_output=False)


SavedTensor = SavedByNode if make_saved_tensor is None else TorchSavedTensor
saved_tensor = SavedByNode if make_saved_tensor is None else saved_by_torch


class RegionInputs:
    """The inputs of a region, for its recomputation."""

    def __init__(self, inputs: Sequence[Any], saves: Sequence[bool]):
        self.inputs = [
            saved_tensor(x) if saved and isinstance(x, torch.Tensor) else x
            for x, saved in zip(inputs, saves, strict=True)
        ]

    def get(self) -> list[Any]:
        return [x.unpack() if isinstance(x, SavedTensor) else x for x in self.inputs]


def checkpointed(forward: Callable[..., Any], steps: RecordedCalls, *inputs: Any) -> Any:
    """`forward(*inputs)`, which makes the calls in `steps`. None of its values is saved for backward."""
    if not torch.is_grad_enabled():
        return forward(*inputs)
    recomputation = Recomputation(again_of(steps, inputs))
    with recomputation.saving():
        return forward(*inputs)


def again_of(steps: RecordedCalls, inputs: Sequence[Any], random: RandomState | None = None) -> Callable:
    """Recomputes a region that is about to run, or has run from that random state."""
    kept = RegionInputs(inputs, steps.saves)
    autocast = AutocastState(("cpu", *{x.device.type for x in inputs if isinstance(x, torch.Tensor)} - {"cpu", "meta"}))
    if random is None and steps.draws:
        random = RandomState(inputs)

    def again(is_done: Callable[[], bool]) -> None:
        given = kept.get()
        with random.again(given) if random is not None else contextlib.nullcontext(), autocast.restored():
            steps.run(given, is_done)

    return again
