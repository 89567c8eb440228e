"""Expands sin, cos, tan: range reduction by multiples of pi / 2, then a polynomial.

Up to a bound the multiple is subtracted word by word, exactly. Beyond it, x is multiplied by 1 / (2 pi) word by word,
and whole turns are dropped before the products are summed (Payne and Hanek). That takes twice as long as all the rest.
Expressions have no branches, but the select between the two is marked `rare`.
"""

from __future__ import annotations

import math

from ...ops.scalar_ir import Scalar, binary, cast, compare, const, fma, select
from .float_bits import bits, flipped_like, from_bits, layout, magnitude, polynomial, rarely, shift_left, times

HALF_PI_F32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
HALF_PI_F64 = (1.5707963267948966, 6.123233995736766e-17)
"""pi / 2 in words, the most significant first."""

TURNS = (0.15915494272485375, 3.6704158115630214e-10, 5.690025167992954e-19, 1.4703036846932608e-27,
         2.5867171752090537e-36, 9.458140970740169e-46)  # fmt: skip
"""1 / (2 pi) in words of 29 bits, whose products with an f32 are exact in f64; the last one is longer."""

LARGE = 2.0**16
LARGE_WIDE = 2.0**30
"""Above these bounds whole turns are dropped first, in f32 and in f64."""

SIN_F32 = (-0.16666653752326965, 0.008332106284797192, -0.00019507882825564593)
"""(sin(s) / s - 1) / s**2, a polynomial in s**2, |s| <= pi / 4."""
COS_F32 = (-0.5, 0.04166664555668831, -0.001388730714097619, 2.4431876227026805e-05)
"""(cos(s) - 1) / s**2, a polynomial in s**2."""
SIN_WIDE = (-0.16666666640165903, 0.008333329231441377, -0.00019839288605526205, 2.7178956295223444e-06)
COS_WIDE = (-0.4999999968687814, 0.04166661949992481, -0.0013886654605071718, 2.438102659287845e-05)
"""The same to 2**-33, for results in f32 that are computed in f64."""


def sin(x: Scalar) -> Scalar:
    # Uses the magnitude, because the polynomial of -0 is 0.
    return sine_of_quadrants(magnitude(x), 0, bits(x))


def cos(x: Scalar) -> Scalar:
    return sine_of_quadrants(magnitude(x), 1, None)


def sine_of_quadrants(size: Scalar, ahead: int, sign: Scalar | None) -> Scalar:
    """sin(size + ahead * pi / 2), negated where the top bit of `sign` is set."""
    rounder = layout(size).rounder
    shifted = times(size, 2.0 / math.pi, rounder)
    n = shifted - rounder
    high = times(n, -HALF_PI_F32[0], size)
    # Not one fma: the rounding error of a difference of two numbers can be computed exactly.
    r = high - n * HALF_PI_F32[1]
    lost = times(n, -HALF_PI_F32[2], times(n, -HALF_PI_F32[1], high - r))
    value = sine_of_reduced(r, lost, bits(shifted), ahead, sign)
    large_n, large_r = without_turns(cast(size, "f64"))
    r = cast(large_r, "f32")
    lost = cast(large_r - cast(r, "f64"), "f32")
    large_value = sine_of_reduced(r, lost, bits(cast(large_n, "f32") + rounder), ahead, sign)
    return rarely(size > LARGE, large_value, value)


def sine_of_reduced(r: Scalar, lost: Scalar, quadrant: Scalar, ahead: int, sign: Scalar | None) -> Scalar:
    """sin(r + lost + (quadrant + ahead) * pi / 2) for a small r, and a `lost` that is tiny beside it. Only the last
    two bits of the quadrant count."""
    quadrant = quadrant + ahead if ahead else quadrant
    square = r * r
    sine = r + fma(square * r, polynomial(square, SIN_F32), lost)
    cosine = fma(square, polynomial(square, COS_F32), const(1.0, "f32"))
    value = select(compare("ne", quadrant & const(1, "i32"), 0), cosine, sine)
    flips = shift_left(quadrant, 30)
    flips = flips if sign is None else binary("xor", flips, sign)
    return flipped_like(value, from_bits(flips))


def tan(x: Scalar) -> Scalar:
    """The quotient of sine and cosine, computed in f64."""
    wide = cast(x, "f64")
    rounder = layout(wide).rounder
    shifted = times(wide, 2.0 / math.pi, rounder)
    n = shifted - rounder
    r = times(n, -HALF_PI_F64[1], times(n, -HALF_PI_F64[0], wide))
    large_n, large_r = without_turns(wide)
    value = rarely(
        magnitude(x) > LARGE_WIDE,
        tangent_of_reduced(large_r, bits(large_n + rounder)),
        tangent_of_reduced(r, bits(shifted)),
    )
    return select(compare("eq", x, 0.0), x, value)


def tangent_of_reduced(r: Scalar, quadrant: Scalar) -> Scalar:
    square = r * r
    sine = fma(square * r, polynomial(square, SIN_WIDE), r)
    cosine = fma(square, polynomial(square, COS_WIDE), const(1.0, "f64"))
    is_odd = compare("ne", quadrant & const(1, "i64"), 0)
    return cast(select(is_odd, -cosine, sine) / select(is_odd, sine, cosine), "f32")


def without_turns(x: Scalar) -> tuple[Scalar, Scalar]:
    """n, without whole turns, and r with x = n * pi / 2 + r, for a large f32 given in f64."""
    fractions = []
    for word in TURNS[:-1]:
        product = x * word
        fractions.append(product - product.round())
    fractions.append(x * TURNS[-1])
    total = fractions[0]
    for fraction in fractions[1:]:
        total = total + fraction
    n = (total * 4.0).round()
    # Summed again without the quadrants: now the sums are small where the result is, and so are their errors.
    rest = times(n, -0.25, fractions[0])
    for fraction in fractions[1:]:
        rest = rest + fraction
    return n, rest * (2.0 * math.pi)


EXPANSIONS = {"sin": sin, "cos": cos, "tan": tan}
