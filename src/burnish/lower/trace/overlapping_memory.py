"""Operators that read memory which they also write: what comes out depends on the kernel's order of elements.

    v = x[::2];  v[1:].copy_(v[:-1])      each element is what was written to the one before it, or what it was
    x.masked_scatter_(mask, x)            the same
    torch.mm(a, b, out=a)                 zeros, or a product of something else

Eager raises an error where it sees that memory is shared in part. It does not look at memory with gaps, nor does each
operator look. A graph computes of what was there before; so such a call is left to eager's kernel.

    y.mul_(y);  y.add_(y, alpha=2)        element by element, each read before it is written: no difference
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tensors.tensor_types import TensorType

MOST_STEPS = 10_000
"""Of the search: what takes more is taken to overlap."""


def share_elements(a: TensorType, a_offset: int, b: TensorType, b_offset: int) -> bool:
    """Whether two tensors of one memory have an element in common."""
    if 0 in a.shape or 0 in b.shape:
        return False
    # a_offset + i * a.stride == b_offset + j * b.stride, with steps of one stride taken together: i - j.
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
    """Whether a distance is a sum of strides, each taken so many times: at least, at most."""
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
        # What the further ones cannot reach is no choice here.
        first = max(least, -((above[at + 1] - rest) // stride))
        last = min(most, (rest - below[at + 1]) // stride)
        stack += [(rest - stride * k, at + 1) for k in range(first, last + 1)]
    return False


__all__ = ["share_elements"]
