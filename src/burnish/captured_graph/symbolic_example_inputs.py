"""What a backend is told of a graph with symbolic sizes: its inputs at any sizes.

inputs.examples((64, 2))        a tensor for each, without data, where the symbols have these values
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..concurrency.outside_errors import reraise_from_outside
from ..foundation.torch_private import construct_storage_from_data_pointer
from ..tensors.device_facts import is_host
from ..tensors.eager_strides import packed_stride
from ..tensors.fit_size_formulas import FollowedSize, Formula, GivenSize, NoFormula, Point, Space


class Like(NamedTuple):
    """The properties of a tensor that its example must have. Does not keep the tensor alive."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    offset: int
    is_inference: bool

    @classmethod
    def of(cls, x: torch.Tensor) -> Like:
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, x.storage_offset(), x.is_inference())

    def made(self) -> torch.Tensor:
        """Made of untouched memory, which costs nothing on a CPU. On a GPU it has no memory."""
        with torch.inference_mode(self.is_inference):
            if not is_host(self.device) and self.device.type != "meta":
                x = hollow(self)
            elif not self.offset:
                x = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
            else:
                far = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)) + 1
                x = torch.empty(self.offset + max(far, 0), dtype=self.dtype, device=self.device).as_strided(
                    self.shape, self.stride, self.offset
                )
        return x.requires_grad_() if self.requires_grad else x


def hollow(like: Like) -> torch.Tensor:
    """A tensor without memory; its data must not be read. Examples far from the observed size may not fit on a GPU."""
    far = sum(max(size - 1, 0) * step for size, step in zip(like.shape, like.stride, strict=True)) + 1
    storage = construct_storage_from_data_pointer(NOWHERE, like.device, (like.offset + far) * like.dtype.itemsize)
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(storage, like.offset, like.shape, like.stride)


NOWHERE = 64
"""An address without memory behind it."""


@dataclass(frozen=True, slots=True)
class SymbolicExampleInputs:
    """Information for a backend about a graph with symbolic sizes: the possible examples besides the observed one."""

    space: Space
    given: Sequence[Any]
    """The original inputs: a Like for each plain tensor, and numbers. Any other tensor is stored itself, and the
    backend must not ask for examples of other sizes."""
    shapes: Mapping[int, Sequence[int | Formula]]
    """For the inputs that are tensors with symbolic dimensions."""
    orders: Mapping[int, tuple[int, ...]]
    """The order of their dimensions in memory, from the fastest to the slowest."""
    numbers: Mapping[int, Callable[[Point], Any]]
    """For the inputs that are numbers computed from the sizes: the computation."""
    followed: Mapping[int, Formula] = field(default_factory=dict)
    """The formulas of those that are known to follow one wherever the graph runs. Other sizes may have another value:
    ``p & 31`` is ``p`` as far as 31."""
    piecewise: Container[int] = ()
    """The integers that have no formula at the points, as a remainder: programs are checked at every size."""

    def examples(self, point: Point) -> list[Any]:
        """The inputs for these sizes."""
        made: list[Any] = []
        for k, like in enumerate(self.given):
            if k in self.shapes:
                sizes = tuple([size if isinstance(size, int) else size.at(point) for size in self.shapes[k]])
                like = like._replace(shape=sizes, stride=packed_stride(sizes, self.orders[k]))
            if isinstance(like, Like):
                try:
                    made.append(like.made())
                except (RuntimeError, MemoryError) as error:
                    reraise_from_outside(error)
                    raise NoFormula(f"no example of other sizes: {error}") from error
            else:
                made.append(self.number(k, point) if k in self.numbers else like)
        return made

    def number(self, k: int, point: Point) -> Any:
        if k in self.followed:
            return FollowedSize(self.followed[k].at(point))
        number = self.numbers[k](point)
        return GivenSize(number) if type(number) is int else number

    def equal(self, places: Sequence[int]) -> list[tuple[Callable[[Point], Any], Callable[[Point], Any]]]:
        """The numbers, and the formulas that they have to follow, as functions of a point that has the symbols at
        `places`."""

        def of_whole(function: Callable[[Point], Any]) -> Callable[[Point], Any]:
            return lambda point: function(tuple([point[place] for place in places]))

        return [(of_whole(self.numbers[k]), of_whole(formula.at)) for k, formula in self.followed.items()]
