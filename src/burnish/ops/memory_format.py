"""Memory formats (contiguous, channels last 2d and 3d): the format that eager infers from a tensor's strides.

    >>> suggested(TensorType.of(torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last)))
    torch.channels_last
    >>> formatted(like, (2, 8, 4, 4), torch.channels_last)
    f32[2, 8, 4, 4]{128, 1, 32, 8}

Convolutions, pooling and norms return results in the format of their inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tensors.eager_strides import channels_last_stride, preserved_stride
from ..tensors.tensor_types import TensorType, contiguous_stride

CONTIGUOUS = torch.contiguous_format
CHANNELS_LAST = torch.channels_last
CHANNELS_LAST_3D = torch.channels_last_3d
FORMATS = CONTIGUOUS, CHANNELS_LAST, CHANNELS_LAST_3D


def suggested(x: TensorType) -> torch.memory_format:
    """As `Tensor::suggest_memory_format`. If the strides fit both formats, contiguous wins."""
    if x.ndim == 4 and _like_channels_last(x.shape, x.stride, (1, 3, 2, 0)):
        return CHANNELS_LAST
    if x.ndim == 5 and _like_channels_last(x.shape, x.stride, (1, 4, 3, 2, 0)):
        return CHANNELS_LAST_3D
    return CONTIGUOUS


def _like_channels_last(shape: tuple[int, ...], stride: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Like c10's is_channels_last_strides: gaps between elements are allowed, ambiguous strides are not."""
    if stride[1] == 0:
        return False
    least = 0
    for dim in order:
        if shape[dim] == 0 or stride[dim] < least or (dim == 0 and least == stride[1]):
            return False
        least = stride[dim] * max(shape[dim], 1)
    return True


def is_contiguous_as(x: TensorType, format: torch.memory_format) -> bool:
    """Whether the tensor is dense in this format. Strides of size-1 dimensions are ignored."""
    if format is CONTIGUOUS:
        return x.is_contiguous
    if x.ndim != (4 if format is CHANNELS_LAST else 5):
        return False
    step = 1
    for dim in (1, *range(x.ndim - 1, 1, -1), 0):
        if x.shape[dim] != 1:
            if x.stride[dim] != step:
                return False
            step *= x.shape[dim]
    return True


def dense_format(x: TensorType) -> torch.memory_format:
    """The first format that the tensor is dense in; if there is none, the `suggested` one."""
    return next((format for format in FORMATS if is_contiguous_as(x, format)), suggested(x))


def format_stride(shape: tuple[int, ...], format: torch.memory_format | None) -> tuple[int, ...]:
    """The dense strides of a format."""
    if format is None or format is CONTIGUOUS:
        return contiguous_stride(shape)
    return channels_last_stride(shape)


def formatted(
    like: TensorType, shape: Sequence[int], format: torch.memory_format | None, dtype: torch.dtype | None = None
) -> TensorType:
    """A new tensor of this shape and format on the same device."""
    shape = tuple(shape)
    return TensorType(shape, format_stride(shape, format), dtype or like.dtype, like.device)


def copied(
    x: TensorType, dtype: torch.dtype | None = None, format: torch.memory_format | None = torch.preserve_format
) -> TensorType:
    """The type that `empty_like` and `clone` return: preserve_format keeps the strides of a dense tensor."""
    if format is None or format is torch.preserve_format:
        return TensorType(x.shape, preserved_stride(x), dtype or x.dtype, x.device)
    return formatted(x, x.shape, format, dtype)
