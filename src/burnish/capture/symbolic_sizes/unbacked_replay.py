"""Unbacked replay: repeats the calls of a trace with other sizes in place of those that depend on data.

    y = x[mask]              f32[5]      f32[29]      f32[53]      f32[0]      f32[1]
    z = y @ w                f32[5, 3]   ...                                   its second size is the same: a constant

Sizes that are found in this way only tell something if they follow the sizes from data steadily. A slice, and a number
that the program computes, may return the same for a few values and something else for others. So a dimension that
depends on one of those counts as unknown, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...runtime.argument_trees import tensors_in
from ...tensors.fit_size_formulas import NoFormula
from ..engine.torch_call_records import Handle
from ..pytorch import torch_call_roles
from .meta_shape_replay import ShapeReplay

FURTHER = 24
"""How much larger the sizes from data are at other points. A multiple of many numbers: some programs divide a size."""

SAME, FAR, APART, EMPTY, ONE = range(5)
"""The points: the sizes of this run, others, others that differ from each other, nothing, and one element."""

WITH_MASK = ("__getitem__",)
"""Calls whose result has as many rows as a mask has elements that are True."""

TAKE_SIZES = frozenset(
    """
    zeros ones empty full rand randn randint arange linspace eye randperm new_zeros new_ones new_empty new_full view
    reshape expand repeat tile broadcast_to narrow select roll __getitem__ topk
""".split()
)
"""Calls that take graph numbers as sizes and positions, on which neither rank nor type of their result depends."""

FIRST_SIZE = dict.fromkeys("zeros ones empty full rand randn".split(), 0) | dict.fromkeys(
    "new_zeros new_ones new_empty new_full view reshape expand broadcast_to".split(), 1
)
"""Where the sizes of the result begin among the arguments."""
ONE_ARGUMENT = ("full", "new_full")
"""Calls with the sizes in one argument, and another one behind it."""


class UncomputedCall:
    """A call whose result is not computed by replay. Those with equal keys return results of the same size."""

    __slots__ = ("is_sequence", "key", "name", "observed")

    def __init__(self, key: tuple, name: str, observed: Any, is_sequence: bool):
        self.key, self.name, self.observed, self.is_sequence = key, name, observed, is_sequence


class Points:
    """In place of ``Symbols``, for a replay of this kind."""

    changes = 0

    def points(self) -> tuple[int, ...]:
        return SAME, FAR, APART, EMPTY, ONE

    def values(self, expression: Any) -> None:
        return None


class UnbackedReplay(ShapeReplay):
    def __init__(self, recorder: Any, sources: dict[int, UncomputedCall]):
        super().__init__(Points(), recorder, {})  # type: ignore[arg-type]
        self.sources = sources

    def depends_on_point(self, call: int) -> bool:
        return call in self.sources

    def result(self, call: int, number: int) -> Any:
        source = self.sources.get(call)
        if source is not None:
            return self.result_of_source(source, call, number)
        made = self.recorder.calls[call]
        name = torch_call_roles.name_of(made.target)
        if name == "__getitem__":
            if not self.takes_tensors(made.args[1]):
                return self.part_of_tensor(made.args, number)
            return self.loosened(super().result(call, number), call, number)
        if number != SAME and self.is_of_computed_size(call):
            return self.of_computed_size(call, name, number)
        return super().result(call, number)

    def result_of_source(self, source: UncomputedCall, call: int, number: int) -> Any:
        if source.name == "item":
            return source.observed if type(source.observed) is not int else self.moved(source, source.observed, number)
        if source.name in WITH_MASK:
            container, key = self.filled(self.recorder.calls[call].args, number)
            count = self.moved(source, source.observed, number)
            made = self.perform("__getitem__", (container, self.without_masks(key, count)), {})
            return self.loosened(made, call, number)
        made = []
        for shape, dims, dtype, device in source.observed:
            sizes = [self.moved(source, size, number) if k in dims else size for k, size in enumerate(shape)]
            made.append(self.tensor(torch.empty((), dtype=dtype, device=device), sizes))
        return tuple(made) if source.is_sequence else made[0]

    def tensor(self, example: torch.Tensor, sizes: list[int]) -> Any:
        return self.probe.input(example, sizes, tuple(reversed(range(len(sizes)))))  # type: ignore[union-attr]

    def without_masks(self, key: Any, count: int) -> Any:
        return without_masks(key, lambda example: self.tensor(example, [count]))

    def moved(self, source: UncomputedCall, size: int, number: int) -> int:
        """The size at a point."""
        if number in (EMPTY, ONE):
            return 0 if number == EMPTY else 1
        if number == APART:
            keys = list(dict.fromkeys(other.key for other in self.sources.values()))
            return size + FURTHER * (2 + keys.index(source.key))
        return size + FURTHER * number

    # ---- sizes that need not follow steadily

    def is_number(self, handle: Handle) -> bool:
        """Whether a handle stands for a number that the graph computes."""
        return handle.call is not None and type(self.at(handle, SAME)) in (int, float)

    def takes_tensors(self, key: Any) -> bool:
        return any(isinstance(self.filled(part, SAME), (torch.Tensor, tuple, list)) for part in parts_of(key))

    def loosened(self, made: Any, call: int, number: int) -> Any:
        """The result of indexing with tensors: if a slice beside them limits an unknown size, no size is known."""
        container, key = self.recorder.calls[call].args
        slices = [part for part in parts_of(key) if type(part) is slice and part != slice(None)]
        if number == SAME or not slices:
            return made
        if not any(isinstance(limit, Handle) for part in slices for limit in (part.start, part.stop, part.step)):
            shapes = [tuple(self.filled(container, at).shape) for at in (SAME, number)]
            if shapes[0] == shapes[1]:
                return made
        return self.tensor(self.example_of(made), [size + FURTHER * (1 + number) for size in made.shape])

    def part_of_tensor(self, args: tuple, number: int) -> Any:
        """``x[key]`` without tensors in the key. A position that the graph computes is replaced by the first one."""
        container, key = self.filled(args[0], number), []
        for part in parts_of(args[1]):
            is_computed = isinstance(part, Handle) and self.is_number(part)
            key.append(0 if is_computed and number != SAME else self.filled(part, number))
        made = self.perform("__getitem__", (container, tuple(key)), {})
        if number == SAME:
            return made
        usual, sizes = tuple(self.filled(args[0], SAME).shape), list(made.shape)
        for place, dim, part in places_of(parts_of(args[1]), len(usual)):
            is_computed = any(isinstance(limit, Handle) for limit in (part.start, part.stop, part.step))
            if part != slice(None) and (is_computed or container.shape[dim] != usual[dim]):
                sizes[place] += FURTHER * (1 + number)
        return made if sizes == list(made.shape) else self.tensor(self.example_of(made), sizes)

    def example_of(self, made: Any) -> torch.Tensor:
        return torch.empty((), dtype=made.dtype, device=made.value.type.device)

    def is_of_computed_size(self, call: int) -> bool:
        """Whether a call takes a number that the graph computes as a size or position."""
        name = torch_call_roles.name_of(self.recorder.calls[call].target)
        return name in TAKE_SIZES and any(map(self.is_number, self.given_to(call)))

    def of_computed_size(self, call: int, name: str, number: int) -> Any:
        """The result of a call with numbers that the graph computes: only the other sizes are known."""
        usual, made = self.at(Handle(call), SAME), self.recorder.calls[call]
        first = FIRST_SIZE.get(name)
        given: tuple = () if first is None else made.args[first:]
        sizes = parts_of(given[0]) if given and (len(given) == 1 or name in ONE_ARGUMENT) else given
        if isinstance(usual, tuple):  # of values and indices
            return tuple([self.of_other_sizes(part, (None,) * part.ndim, number) for part in usual])
        return self.of_other_sizes(usual, sizes if len(sizes) == usual.ndim else (None,) * usual.ndim, number)

    def of_other_sizes(self, usual: torch.Tensor, sizes: Sequence[Any], number: int) -> torch.Tensor:
        """A tensor like a usual one, with others in place of the sizes that are not known."""
        return self.tensor(
            self.example_of(usual),
            [
                size if type(given) is int and given == size else size + FURTHER * (1 + number)
                for given, size in zip(sizes, usual.shape, strict=True)
            ],
        )

    # ---- queries

    def values(self, handle: Handle, with_one: bool = False) -> list[Any] | None:
        """The values at the points that decide; None if they cannot be determined. A program that does not support
        empty tensors is asked about one element."""
        found = []
        for number in (SAME, FAR, APART, EMPTY, ONE):
            try:
                found.append(self.at(handle, number))
            except NoFormula:
                if number != EMPTY:
                    return None
                continue
            if number == EMPTY and not with_one:
                break
        return found

    def unknown_dims(self, handle: Handle, tensor: torch.Tensor) -> set[int]:
        values = self.values(handle)
        if values is None or tuple(values[0].shape) != tuple(tensor.shape):
            return set(range(tensor.ndim))
        return {k for k, size in enumerate(tensor.shape) if any(value.shape[k] != size for value in values)}

    def has_one_structure(self, handle: Handle) -> bool:
        values = self.values(handle, with_one=True)
        return values is not None and len({structure(value) for value in values}) == 1

    def may_have_unknown_size(self, handle: Handle) -> bool:
        values = self.values(handle)
        return values is None or len({tuple(x.shape for x in tensors_in(value)) for value in values}) > 1


class ReplayBesideUnbacked(ShapeReplay):
    """The replay that finds how shapes depend on symbols: sizes that depend on data are those of this run."""

    def result(self, call: int, number: int) -> Any:
        made = self.recorder.tracer.unbacked_sizes.repeatable(call)
        return self.perform(made.target, self.filled(made.args, number), self.filled(made.kwargs, number))


class ObservedSizes:
    """In place of a call with sizes that depend on data: its result has those of this run. Its other sizes are those of
    its arguments."""

    def __init__(self, source: UncomputedCall):
        self.source = source

    def without_data(self, call: Callable, *args: Any, **kwargs: Any) -> Any:
        if self.source.name in WITH_MASK:
            count = self.source.observed
            key = without_masks(
                args[1], lambda x: call(torch.empty, ((count,),), {"dtype": x.dtype, "device": x.device})
            )
            return call("__getitem__", (args[0], key), {})
        made = [
            call(torch.empty, (shape,), {"dtype": dtype, "device": device})
            for shape, _, dtype, device in self.source.observed
        ]
        return tuple(made) if self.source.is_sequence else made[0]


OF_NO_OTHER_SIZE = ("nonzero", "argwhere", "masked_select", "where", "bincount")
"""Calls whose results have no size of an argument."""


def without_masks(key: Any, positions: Callable[[torch.Tensor], Any]) -> tuple[Any, ...]:
    """An index with positions in place of each mask."""
    found: list[Any] = []
    for part in parts_of(key):
        if is_mask(part):
            example = torch.empty((), dtype=torch.int64, device=part.device)
            found += [positions(example) for _ in range(part.ndim)]
        else:
            found.append(part)
    return tuple(found)


def places_of(key: tuple, rank: int) -> Any:
    """For each slice of a key without tensors: its dimension in the result and in the container, and the slice."""
    place = dim = 0
    consumed = sum(part is not None and part is not Ellipsis for part in key)
    for part in key:
        if part is None:
            place += 1
        elif part is Ellipsis:
            place, dim = place + rank - consumed, dim + rank - consumed
        elif type(part) is slice:
            yield place, dim, part
            place, dim = place + 1, dim + 1
        else:
            dim += 1


def parts_of(key: Any) -> tuple[Any, ...]:
    return tuple(key) if type(key) in (tuple, list, torch.Size) else (key,)


def is_mask(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def structure(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.ndim
    return tuple(map(structure, value)) if isinstance(value, (tuple, list)) else None
