"""Expands asin, acos, atan, atan2: one polynomial each, and the complementary angle for the rest of the range.

pi / 2 is needed with more digits than one word holds. Instead of a second word it is the product of two, inside a fused
multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.scalar_ir import Scalar, binary, compare, const, fma, select
from .float_bits import at_least, bits, flipped_like, layout, magnitude, polynomial, signed_like, times


@dataclass(frozen=True)
class Table:
    """The constants of one type."""

    half_pi: tuple[float, float]
    """Their product is pi / 2, to one and a half times the digits."""
    asin: tuple[float, ...]
    """(asin(s) / s - 1) / s**2, a polynomial in s**2, s <= 0.55."""
    atan: tuple[float, ...]
    """(atan(s) / s - 1) / s**2, a polynomial in s**2, s <= 1."""


TABLES = {
    "f32": Table(
        half_pi=(0.9331894516944885, 1.6832555532455444),
        asin=(0.1666693091392517, 0.07488120347261429, 0.046353455632925034, 0.019946681335568428,
              0.049101077020168304),
        atan=(-0.33333152532577515, 0.19993767142295837, -0.14211004972457886, 0.10665801167488098,
              -0.07551783323287964, 0.04320688918232918, -0.016364959999918938, 0.0029199724085628986),
    ),
    "f64": Table(
        half_pi=(0.9855849665846633, 1.5937705830052986),
        asin=(0.16666666666666505, 0.07500000000047753, 0.04464285709356876, 0.030381947011821352, 0.02237207997161592,
              0.017354337858393947, 0.013943585270980928, 0.011752884734041584, 0.008410553849097464,
              0.01484218161228225, -0.014257489955856772, 0.05504357232612779, -0.06216836475271868,
              0.0528337474913773),
        atan=(-0.3333333333333307, 0.19999999999951748, -0.14285714282587814, 0.11111111007328614,
              -0.09090907007478631, 0.07692279884338021, -0.06666404380066067, 0.05880529520877047,
              -0.05253525390930452, 0.04722343325560047, -0.04219229686771497, 0.03664286532534088,
              -0.029905264703094934, 0.021986468112154385, -0.013901988956887655, 0.007197458050909655,
              -0.002885384309927408, 0.0008314783552843917, -0.00015219322337506997, 1.3228178164610107e-05),
    ),
}  # fmt: skip


def asin(x: Scalar) -> Scalar:
    is_far, angle = small_asin(x)
    first, second = TABLES[x.dtype].half_pi
    far = times(const(first, x.dtype), second, angle * -2.0)
    return signed_like(select(is_far, far, angle), x)


def acos(x: Scalar) -> Scalar:
    """pi/2 - asin(x) for small x, else 2 asin(sqrt((1 - x) / 2)), or pi minus that of -x."""
    is_far, angle = small_asin(x)
    angle = flipped_like(angle, x) * select(is_far, const(2.0, x.dtype), -1.0)
    first, second = TABLES[x.dtype].half_pi
    first = select(is_far, select(x < 0.0, const(2.0 * first, x.dtype), 0.0), first)
    return times(first, second, angle)


def small_asin(x: Scalar) -> tuple[Scalar, Scalar]:
    """Whether |x| is over 0.55, and asin(|x|), or asin(sqrt((1 - |x|) / 2)) where it is."""
    size = magnitude(x)
    is_far = size > 0.55
    square = select(is_far, times(size, -0.5, 0.5), size * size)
    root = select(is_far, square.sqrt(), size)
    return is_far, fma(root * square, polynomial(square, TABLES[x.dtype].asin), root)


def atan(x: Scalar) -> Scalar:
    size = magnitude(x)
    is_far = size > 1.0
    angle = small_atan(select(is_far, const(1.0, x.dtype) / size, size))
    first, second = TABLES[x.dtype].half_pi
    return signed_like(select(is_far, times(const(first, x.dtype), second, -angle), angle), x)


def small_atan(x: Scalar) -> Scalar:
    square = x * x
    return fma(square * x, polynomial(square, TABLES[x.dtype].atan), x)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle within an eighth of a turn, then mirrored at the diagonal, the vertical and the horizontal axis."""
    across, up = magnitude(x), magnitude(y)
    is_steep, is_left = up > across, bits(x) < 0
    less, more = select(is_steep, across, up), select(is_steep, up, across)
    # 0 / 0 must give 0, and infinity / infinity 1. A NaN is in one of the two, whatever the comparisons returned.
    more = at_least(more, layout(x).tiniest)
    angle = small_atan(select(compare("eq", less, more), 1.0, less / more))
    angle = select(binary("xor", is_steep, is_left), -angle, angle)
    first, second = TABLES[x.dtype].half_pi
    first = select(is_steep, first, select(is_left, const(2.0 * first, x.dtype), 0.0))
    return signed_like(times(first, second, angle), y)


EXPANSIONS = {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2}
