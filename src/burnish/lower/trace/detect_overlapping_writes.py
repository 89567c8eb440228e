"""Overlap of operands: operators that read memory which they also write, where the kernel's order of elements counts.

    v = x[::2];  v[1:].copy_(v[:-1])      an element gets either the new or the old value of the one before it
    x.masked_scatter_(mask, x)            the same
    torch.mm(a, b, out=a)                 zeros, or a product of something else

Eager raises an error where it detects a partial overlap. It does not check memory with gaps, and not every operator
checks. A graph reads only the old values, so such a call is left to eager's kernel.

    y.mul_(y);  y.add_(y, alpha=2)        element-wise, each is read before it is written: no difference
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tensors.tensor_types import TensorType

MOST_STEPS = 10_000
"""Limit of the search: beyond it, tensors are assumed to overlap."""


def share_elements(a: TensorType, a_offset: int, b: TensorType, b_offset: int) -> bool:
    """Whether two tensors in one storage have an element in common."""
    if 0 in a.shape or 0 in b.shape:
        return False
    # a_offset + i * a.stride == b_offset + j * b.stride, with equal strides combined: i - j.
    least: dict[int, int] = {}
    most: dict[int, int] = {}
    for type, sign in ((a, 1), (b, -1)):
        for size, stride in zip(type.shape, type.stride, strict=True):
            if size > 1 and stride:
                bounds = most if sign > 0 else least
                bounds[stride] = bounds.get(stride, 0) + sign * (size - 1)
    strides = sorted({*least, *most}, reverse=True)
    return is_reached(b_offset - a_offset, [(s, least.get(s, 0), most.get(s, 0)) for s in strides])


def is_reached(distance: int, steps: Sequence[tuple[int, int, int]]) -> bool:
    """Whether a distance is a sum of strides, each with a factor between its least and its most."""
    below, above = [0], [0]
    for stride, least, most in reversed(steps):
        below.append(below[-1] + stride * least)
        above.append(above[-1] + stride * most)
    below.reverse()
    above.reverse()
    left, stack = MOST_STEPS, [(distance, 0)]
    while stack:
        rest, at = stack.pop()
        left -= 1
        if left < 0:
            return True
        if at == len(steps):
            if not rest:
                return True
            continue
        stride, least, most = steps[at]
        # Only factors that leave a rest within reach of the remaining strides.
        first = max(least, -((above[at + 1] - rest) // stride))
        last = min(most, (rest - below[at + 1]) // stride)
        stack += [(rest - stride * k, at + 1) for k in range(first, last + 1)]
    return False
