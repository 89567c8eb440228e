"""Memory of CUDA graphs: copies inputs in before a replay and results out after it.

    place = place_of(x)                     memory for x, with its strides
    copy([place], [x])
    outcome = Outcome(result, places)       how results are made from the graph's memory, computed once
    outcome.handed_out(inputs)              the results, as the program would return them for these inputs

Results are copies in their own memory. A result that is an input, or a view of one, is that of the actual input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...foundation.torch_private import foreach_copy_
from ...tensors.tensor_types import span
from .cuda_graph_recording import RecordingRefused


def place_of(x: torch.Tensor) -> torch.Tensor:
    """An ordinary tensor that is written to in every mode: by a call under `inference_mode` and by the next one
    outside."""
    if x.is_conj() or x.is_neg():
        raise RecordingRefused("a conjugate or negative among its inputs has not been computed")
    with torch.inference_mode(False):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def copy(into: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> None:
    """All in one call: models have hundreds of gradients."""
    if into:
        foreach_copy_([drop_expanded_dims(x) for x in into], [drop_expanded_dims(x) for x in given])


def drop_expanded_dims(x: torch.Tensor) -> torch.Tensor:
    """An expanded tensor without its repeated elements; they share one address."""
    if 0 not in x.stride():
        return x
    return x.as_strided(
        [1 if step == 0 and size else size for size, step in zip(x.shape, x.stride(), strict=True)],
        x.stride(),
        x.storage_offset(),
    )


class InputResult(NamedTuple):
    """An input itself."""

    input: int


class ViewOfMemory(NamedTuple):
    """A view of an input, or of another result."""

    of: int
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    """In elements, from the base's start."""

    def shown(self, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not x.requires_grad):
            return x.as_strided(self.shape, self.stride, x.storage_offset() + self.offset)


class Copied(NamedTuple):
    copy: int


class PartOfCopy(NamedTuple):
    part: ViewOfMemory


class Constant(NamedTuple):
    """A number, None, or a value that stays in the graph's memory."""

    value: Any


class Outcome:
    """The first `count` results, or all, are copied out of the graph's memory. The others stay there, unless they share
    memory with a tensor that the user sees: then they share it with that tensor of this call."""

    def __init__(self, result: Sequence[Any], places: Sequence[Any], device: torch.device, count: int | None = None):
        self.device = device
        self.copied: list[torch.Tensor] = []
        self.rules: list[Any] = []
        self.places = {storage_of(x): k for k, x in enumerate(places) if isinstance(x, torch.Tensor) and storage_of(x)}
        count = len(result) if count is None else count
        for x in result[:count]:
            self.rules.append(self.rule_of(x, places))
        for x in result[count:]:
            self.rules.append(self.rule_of_kept(x, places))

    def rule_of(self, x: Any, places: Sequence[Any]) -> Any:
        if isinstance(x, (list, tuple)):
            raise RecordingRefused("it gives lists of tensors")
        if not isinstance(x, torch.Tensor):
            return Constant(x)
        if x.device != self.device:
            raise RecordingRefused(f"a result is on {x.device}: the GPU would have to be waited for")
        source = self.places.get(storage_of(x))
        if source is not None:
            same = next((k for k, place in enumerate(places) if place is x), None)
            return InputResult(same) if same is not None else part_of(x, source, places[source])
        for k, other in enumerate(self.copied):
            if other is x:
                return Copied(k)
            if storage_of(other) == storage_of(x) != 0:
                raise RecordingRefused("two results share their memory")
        self.copied.append(x)
        return Copied(len(self.copied) - 1)

    def rule_of_kept(self, x: Any, places: Sequence[Any]) -> Any:
        if not isinstance(x, torch.Tensor) or storage_of(x) == 0:
            return Constant(x)
        source = self.places.get(storage_of(x))
        if source is not None:
            return part_of(x, source, places[source])
        for k, other in enumerate(self.copied):
            if storage_of(other) == storage_of(x):
                if not lies_within(x, other):
                    raise RecordingRefused("what it saves shares memory with a result, and reaches further")
                return PartOfCopy(part_of(x, k, other))
        return Constant(x)

    def home(self, k: int, places: Mapping[int, torch.Tensor]) -> Any:
        """Where the graph stores the kth result; None where it is in an input that stays in place."""
        match self.rules[k]:
            case Copied(at):
                return self.copied[at]
            case PartOfCopy(part):
                return part.shown(self.copied[part.of])
            case ViewOfMemory(at) as part:
                return part.shown(places[at]) if at in places else None
            case Constant(value):
                return value

    def handed_out(self, inputs: Sequence[Any]) -> tuple:
        copies = copies_of(self.copied)
        found = []
        for rule in self.rules:
            match rule:
                case Copied(k):
                    found.append(copies[k])
                case Constant(value):
                    found.append(value)
                case InputResult(k):
                    found.append(inputs[k])
                case ViewOfMemory(k):
                    found.append(rule.shown(inputs[k]))
                case PartOfCopy(part):
                    # Detached, so that it does not reference the autograd node that references it.
                    found.append(part.shown(copies[part.of].detach()))
        return tuple(found)


def copies_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    made = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in tensors]
    copy(made, tensors)
    return made


def storage_of(x: torch.Tensor) -> int:
    """The address of its storage; 0 where it has no elements."""
    return x.untyped_storage().data_ptr() if x.numel() else 0


def part_of(x: torch.Tensor, k: int, base: torch.Tensor) -> ViewOfMemory:
    if x.dtype != base.dtype or x.is_conj() != base.is_conj() or x.is_neg() != base.is_neg():
        raise RecordingRefused("a result shows the memory of an input as something else")
    return ViewOfMemory(k, x.shape, x.stride(), x.storage_offset() - base.storage_offset())


def lies_within(x: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether each element of `x` is also an element of `base`, which is contiguous in memory."""
    begin = x.storage_offset() - base.storage_offset()
    return (
        x.dtype == base.dtype
        and span(base.shape, base.stride()) == base.numel()
        and begin >= 0
        and begin + span(x.shape, x.stride()) <= base.numel()
    )
