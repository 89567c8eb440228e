"""Remembers the arguments of a call that ran eagerly: whatever differs in the next call is dynamic.

with burnish.set_stance("eager_then_compile"):
    fn(torch.ones(4, 8))     # plain Python; the shape is noted
    fn(torch.ones(5, 8))     # compiled, with the first size symbolic
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .changing_numbers import NUMBERS
from .object_sources import Source, Sources
from .tensor_metadata import TENSOR_TYPES

LEAST = 2
"""Sizes below are compiled separately."""


class EagerCallArguments:
    """The shapes of tensors, and the numbers, among the arguments of a call."""

    def __init__(self, slots: list):
        self.shapes: dict[tuple, tuple[int, ...]] = {}
        self.numbers: dict[tuple, Any] = {}
        for source, value in arguments(slots):
            if type(value) in TENSOR_TYPES:
                self.shapes[source.path()] = tuple(value.shape)
            elif type(value) in NUMBERS:
                self.numbers[source.path()] = value

    def changed_sizes(self, now: EagerCallArguments) -> dict[tuple[tuple, int], tuple[int, int]]:
        """The dimensions that have another size now, as path and dimension, with both sizes."""
        found: dict[tuple[tuple, int], tuple[int, int]] = {}
        for path, shape in self.shapes.items():
            other = now.shapes.get(path, ())
            if len(shape) != len(other):
                continue
            for dim, (before, size) in enumerate(zip(shape, other, strict=True)):
                if before != size and before >= LEAST <= size:
                    found[path, dim] = before, size
        return found

    def changed_numbers(self, now: EagerCallArguments) -> dict[tuple, tuple[Any, Any]]:
        """The numbers that are others now, of the same type, by their paths: before, and now."""
        pairs = [(path, value, now.numbers.get(path)) for path, value in self.numbers.items()]
        return {path: (value, other) for path, value, other in pairs if type(value) is type(other) and value != other}


def arguments(slots: list) -> Iterator[tuple[Source, Any]]:
    """The slots, and the arguments in them: a module is entered with a tuple and a dictionary of these."""
    sources = Sources()
    for i, value in enumerate(slots):
        source = sources.slot(i, "")
        if type(value) is tuple:
            yield from ((source.item(k), part) for k, part in enumerate(value))
        elif type(value) is dict:  # keys of other kinds may have a hash with effects
            yield from ((source.item(key), part) for key, part in value.items() if type(key) is str)
        else:
            yield source, value


def values_in(slots: list) -> Iterator[Any]:
    """The same without their places."""
    for value in slots:
        if type(value) is tuple:
            yield from value
        elif type(value) is dict:
            yield from value.values()
        else:
            yield value


def has_tensor(slots: list) -> bool:
    """Whether a call has a tensor, or a module, among its arguments."""
    return any(issubclass(type(value), (torch.Tensor, torch.nn.Module)) for value in values_in(slots))
