"""sin, cos, tan: the argument less a multiple of pi, and a polynomial.

Up to a bound the multiple is subtracted word by word, exactly. Beyond it, 1 / (2 pi) is multiplied word by word, and
whole turns are dropped before they are added up (Payne and Hanek). That is long, and both are computed for every
element, as there are no branches here; but the selects that choose say `rare`, so that a printer may jump over it where
no lane asks for it.
"""

from __future__ import annotations

import math

from ...ops.scalar import Scalar, binary, cast, compare, const, fma, select
from .floats import bits, flipped_like, from_bits, layout, magnitude, polynomial, rarely, shift_left, times

HALF_PI_F32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
HALF_PI_F64 = (1.5707963267948966, 6.123233995736766e-17)

TURNS = (0.15915494272485375, 3.6704158115630214e-10, 5.690025167992954e-19, 1.4703036846932608e-27,
         2.5867171752090537e-36, 9.458140970740169e-46)  # fmt: skip
"""1 / (2 pi) in words of 29 bits, whose products with an f32 are exact in f64; the last one is longer."""

LARGE_F32 = 2.0**16
LARGE_TAN_F32 = 2.0**30

SIN_F32 = (-0.16666653752326965, 0.008332106284797192, -0.00019507882825564593)
COS_F32 = (-0.5, 0.04166664555668831, -0.001388730714097619, 2.4431876227026805e-05)
SIN_WIDE = (-0.16666666640774164, 0.00833332930224751, -0.00019839311439758713, 2.7181137314335866e-06)
"""The same in f64 for results in f32, |s| <= pi / 4, and (cos(s) - 1) / s**2 below."""
COS_WIDE = (-0.4999999972490762, 0.041666623300109194, -0.0013886762991048524, 2.439037234145217e-05)


def sin(x: Scalar) -> Scalar:
    # Of the magnitude, as the polynomial of -0 is 0.
    return sine_of_quadrants(magnitude(x), 0, bits(x))


def cos(x: Scalar) -> Scalar:
    return sine_of_quadrants(magnitude(x), 1, None)


def sine_of_quadrants(size: Scalar, ahead: int, sign: Scalar | None) -> Scalar:
    """sin(size + ahead * pi / 2), negated where the top bit of `sign` is set."""
    parts = layout(size)
    shifted = times(size, 2.0 / math.pi, parts.rounder)
    n, r = shifted - parts.rounder, size
    for word in HALF_PI_F32:
        r = times(n, -word, r)
    large_n, large_r = without_turns(cast(size, "f64"))
    is_large = size > LARGE_F32
    r = rarely(is_large, cast(large_r, "f32"), r)
    quadrant = bits(rarely(is_large, cast(large_n, "f32") + parts.rounder, shifted))
    quadrant = quadrant + ahead if ahead else quadrant
    square = r * r
    sine = fma(square * r, polynomial(square, SIN_F32), r)
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
    is_large = magnitude(wide) > LARGE_TAN_F32
    shifted = rarely(is_large, large_n + rounder, shifted)
    r = rarely(is_large, large_r, r)
    square = r * r
    sine = fma(square * r, polynomial(square, SIN_WIDE), r)
    cosine = fma(square, polynomial(square, COS_WIDE), const(1.0, "f64"))
    is_odd = compare("ne", bits(shifted) & const(1, "i64"), 0)
    value = cast(select(is_odd, -cosine, sine) / select(is_odd, sine, cosine), "f32")
    return select(compare("eq", x, 0.0), x, value)


def without_turns(x: Scalar) -> tuple[Scalar, Scalar]:
    """n, less whole turns, and r with x = n * pi / 2 + r, for a large f32 in f64."""
    fractions = []
    for word in TURNS[:-1]:
        product = x * word
        fractions.append(product - product.round())
    fractions.append(x * TURNS[-1])
    total = fractions[0]
    for fraction in fractions[1:]:
        total = total + fraction
    n = (total * 4.0).round()
    # Added up again with the quadrants gone: now the sums are small where the result is, and so are their errors.
    rest = times(n, -0.25, fractions[0])
    for fraction in fractions[1:]:
        rest = rest + fraction
    return n, rest * (2.0 * math.pi)


EXPANSIONS = {"sin": sin, "cos": cos, "tan": tan}
