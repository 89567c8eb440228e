"""Channels-last strides, and the test by which torch recognizes channels-last tensors.

>>> channels_last_stride((1, 64, 28, 28))
(50176, 1, 1792, 64)
"""

from __future__ import annotations

from dataclasses import replace

from ...tensors.tensor_types import TensorType, contiguous_stride


def channels_last_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of [N, C, …] in channels-last memory."""
    batch, *sizes, channels = contiguous_stride((shape[0], *shape[2:], shape[1]))
    return batch, channels, *sizes


def is_channels_last(type: TensorType) -> bool:
    """Whether torch's `suggest_memory_format` says channels-last: strides grow from the channels over the last
    dimension to the first. A tensor that is also contiguous counts as contiguous. Gaps are allowed."""
    if type.ndim not in (4, 5) or 0 in type.shape or type.stride[1] == 0:
        return False
    least = 0
    for axis in (1, *range(type.ndim - 1, 1, -1), 0):
        size, step = type.shape[axis], type.stride[axis]
        if step < least or (axis == 0 and least == type.stride[1]):
            return False
        least = step * size if size > 1 else step
    return True


def with_axis(type: TensorType) -> TensorType:
    """[N, C, L] as [N, C, 1, L], with the strides of `unsqueeze`."""
    (n, c, size), (step_n, step_c, step) = type.shape, type.stride
    return replace(type, shape=(n, c, 1, size), stride=(step_n, step_c, size * step, step))
