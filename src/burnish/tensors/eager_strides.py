"""Eager's strides of element-wise results and of copies, as ATen's TensorIterator computes them.

    >>> elementwise_stride((2, 3), [TensorType.of(torch.empty(3, 2).t())])
    (1, 2)

Element-wise kernels keep the memory order of their operands: TensorIterator sorts dimensions by the operands' strides,
and earlier operands take precedence.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tensor_types import TensorType, contiguous_stride, has_stride


def elementwise_stride(shape: tuple[int, ...], operands: Sequence[TensorType]) -> tuple[int, ...]:
    """The strides of a new element-wise result of `shape`, computed from `operands`."""
    contiguous = contiguous_stride(shape)
    if 0 not in shape and all(operand.stride == contiguous or not operand.shape for operand in operands):
        return contiguous
    if all(operand.shape == shape for operand in operands):
        if all(operand.is_contiguous for operand in operands):
            return contiguous
        if len(shape) == 4 and all(has_stride(operand, channels_last_stride(shape)) for operand in operands):
            return channels_last_stride(shape)
        if len({operand.stride for operand in operands}) == 1 and is_dense(operands[0]):
            return operands[0].stride
    order = _order(shape, [_expanded(operand, shape) for operand in operands])
    return contiguous if order == list(range(len(shape) - 1, -1, -1)) else packed_stride(shape, order)


def preserved_stride(type: TensorType) -> tuple[int, ...]:
    """The strides of a copy with `torch.preserve_format`: the tensor's own if it is dense."""
    return type.stride if is_dense(type) else elementwise_stride(type.shape, [type])


def is_dense(type: TensorType) -> bool:
    """Whether there are no gaps and no overlap, in any order of dimensions."""
    if type.numel == 0:
        return True
    step = 1
    for stride, size in sorted((s, n) for s, n in zip(type.stride, type.shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= size
    return True


def packed_stride(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides for `order`, which lists dimensions from the fastest to the slowest."""
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def packed_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order for which `packed_stride` returns exactly these strides; None if there is none."""
    order = tuple(sorted(range(len(shape)), key=lambda dim: (stride[dim], -dim)))
    return order if 0 not in shape and packed_stride(shape, order) == stride else None


def channels_last_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of [N, C, *spatial] with channels fastest."""
    return packed_stride(shape, [1, *range(len(shape) - 1, 1, -1), 0])


def _expanded(operand: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    missing = len(shape) - operand.ndim
    return (0,) * missing + tuple(
        0 if size == 1 and shape[missing + k] != 1 else stride
        for k, (size, stride) in enumerate(zip(operand.shape, operand.stride, strict=True))
    )


def _order(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> list[int]:
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            verdict = _compare(shape, strides, order[before], order[at])
            if verdict > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif verdict < 0:
                break
    return order


def _compare(shape: tuple[int, ...], strides: list[tuple[int, ...]], a: int, b: int) -> int:
    for stride in strides:
        if stride[a] == 0 or stride[b] == 0:
            continue
        if stride[a] != stride[b]:
            return -1 if stride[a] < stride[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may share an address. In order of stride, each must exceed the reach of those before it."""
    if 0 in shape:
        return False
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
