"""Types of values: `TensorType` (shape, strides, dtype, device) and `NumberType` for live scalars.

    >>> TensorType.of(torch.empty(2, 3).t())
    f32[3, 2]{1, 3}

Strides are printed unless they are the contiguous ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..concurrency.outside_errors import reraise_from_outside
from .device_facts import CPU, DeviceFacts, facts_of
from .dtypes import NAMES


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, strides (in elements), dtype and device of a strided tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device = CPU

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorType:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    @classmethod
    def contiguous(cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device = CPU) -> TensorType:
        return cls(shape, contiguous_stride(shape), dtype, device)

    @property
    def device_facts(self) -> DeviceFacts:
        return facts_of(self.device)

    @property
    def is_on_host(self) -> bool:
        return facts_of(self.device).is_host

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        product = 1
        for size in self.shape:
            product *= size
        return product

    @property
    def bytes(self) -> int:
        """Of memory, with the gaps between elements."""
        count = self.numel
        return max(count, span(self.shape, self.stride)) * self.dtype.itemsize if count else 0

    @property
    def is_contiguous(self) -> bool:
        return has_stride(self, contiguous_stride(self.shape))

    def __repr__(self) -> str:
        name = NAMES.get(self.dtype, str(self.dtype).removeprefix("torch."))
        strides = "" if self.stride == contiguous_stride(self.shape) else f"{{{', '.join(map(str, self.stride))}}}"
        device = "" if self.is_on_host else f"@{self.device}"
        return f"{name}[{', '.join(map(str, self.shape))}]{strides}{device}"


@dataclass(frozen=True, slots=True)
class NumberType:
    """The type of a live scalar: a Python number that may differ in each call, like a learning rate or `item()`.

    Type promotion treats it as a Python number. In a kernel it is one element of `dtype`.
    """

    dtype: torch.dtype
    example: int | float = field(compare=False)
    """Its value when the graph was traced."""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: torch.device = CPU

    @classmethod
    def of(cls, example: int | float) -> NumberType:
        return cls(torch.float64 if isinstance(example, float) else torch.int64, example)

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize

    @property
    def numel(self) -> int:
        return 1

    @property
    def ndim(self) -> int:
        return 0

    @property
    def is_on_host(self) -> bool:
        return True

    @property
    def is_contiguous(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"number {NAMES[self.dtype]}"


@functools.lru_cache(4096)
def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides as in torch: a size of 0 counts as 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of memory a tensor without a size of 0 reaches over, gaps included."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def same_layout(a: TensorType, b: TensorType) -> bool:
    """Equality that ignores the strides of size-1 dimensions."""
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device) and has_stride(a, b.stride)


def has_stride(type: TensorType, stride: tuple[int, ...]) -> bool:
    """Whether `stride` describes the same memory layout. Strides of size-1 dimensions are ignored."""
    if 0 in type.shape:
        return True
    return all(size == 1 or a == b for size, a, b in zip(type.shape, type.stride, stride, strict=True))


def is_leaf(t: torch.Tensor) -> bool:
    """``t.is_leaf``, also for a view with a base that was written to: torch refuses to return the history of those."""
    try:
        return t.is_leaf
    except RuntimeError as error:
        reraise_from_outside(error)
        return False  # it has a history
