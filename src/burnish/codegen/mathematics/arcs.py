"""asin, acos, atan, atan2: one polynomial each, the rest of the range by the angle's complement.

pi / 2 is needed more exactly than one word holds it, but not as a word of its own: it is the product of two, inside a
fused multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.scalar import Scalar, binary, compare, const, fma, select
from .floats import (
    at_least,
    bits,
    flipped_like,
    layout,
    magnitude,
    polynomial,
    signed_like,
    times,
)


@dataclass(frozen=True)
class Table:
    half_pi: tuple[float, float]
    """Two factors of pi / 2."""
    asin: tuple[float, ...]
    """(asin(s) / s - 1) / s**2 of s**2, s <= 1/2."""
    atan: tuple[float, ...]
    """(atan(s) / s - 1) / s**2 of s**2, s <= 1."""


TABLES = {
    "f32": Table(
        half_pi=(0.9331894516944885, 1.6832555532455444),
        asin=(0.16666752099990845, 0.074953094124794, 0.04546914994716644, 0.024184780195355415, 0.04215829819440842),
        atan=(-0.33333152532577515, 0.19993767142295837, -0.14211001992225647, 0.10665769875049591,
              -0.07551664113998413, 0.04320479929447174, -0.016363244503736496, 0.0029194375965744257),
    ),
}  # fmt: skip


def asin(x: Scalar) -> Scalar:
    table = TABLES[x.dtype]
    size, is_far, near = small_asin(x)
    far = fma(const(table.half_pi[0], x.dtype), const(table.half_pi[1], x.dtype), near * -2.0)
    return signed_like(select(is_far, far, near), x)


def acos(x: Scalar) -> Scalar:
    """pi/2 - asin(x) for small x, else 2 asin(sqrt((1 - x) / 2)), or pi less that of -x."""
    table = TABLES[x.dtype]
    _, is_far, near = small_asin(x)
    angle = flipped_like(near, x) * select(is_far, const(2.0, x.dtype), -1.0)
    first = select(x < 0.0, const(2.0 * table.half_pi[0], x.dtype), 0.0)
    first = select(is_far, first, table.half_pi[0])
    return times(first, table.half_pi[1], angle)


def small_asin(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """|x|, whether it is over 1/2, and asin(|x|), or there, asin(sqrt((1 - |x|) / 2))."""
    size = magnitude(x)
    is_far = size > 0.5
    square = select(is_far, times(size, -0.5, 0.5), size * size)
    root = select(is_far, square.sqrt(), size)
    return size, is_far, fma(root * square, polynomial(square, TABLES[x.dtype].asin), root)


def atan(x: Scalar) -> Scalar:
    table = TABLES[x.dtype]
    size = magnitude(x)
    is_far = size > 1.0
    near = small_atan(select(is_far, const(1.0, x.dtype) / size, size))
    far = fma(const(table.half_pi[0], x.dtype), const(table.half_pi[1], x.dtype), -near)
    return signed_like(select(is_far, far, near), x)


def small_atan(x: Scalar) -> Scalar:
    square = x * x
    return fma(square * x, polynomial(square, TABLES[x.dtype].atan), x)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle within an eighth of a turn, then mirrored at the diagonal, the vertical and the horizontal axis."""
    table = TABLES[x.dtype]
    across, up = magnitude(x), magnitude(y)
    is_steep = up > across
    less, more = select(is_steep, across, up), select(is_steep, up, across)
    # 0 / 0 is to be 0, infinity by infinity 1.
    more = at_least(more, layout(x).tiniest)
    tangent = select(compare("eq", less, more), 1.0, less / more)
    angle = small_atan(tangent)
    is_left = bits(x) < 0
    first = select(is_left, const(2.0 * table.half_pi[0], x.dtype), 0.0)
    first = select(is_steep, table.half_pi[0], first)
    angle = select(binary("xor", is_steep, is_left), -angle, angle)
    return signed_like(times(first, table.half_pi[1], angle), y)


EXPANSIONS = {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2}
