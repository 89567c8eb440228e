"""exp, exp2, expm1, sigmoid: a power of two times a polynomial.

exp(x) = 2**n * exp(r), n the integer nearest to x / log(2). Adding a large constant rounds to n and leaves it in the low
bits of the sum, from where a shift makes it the exponent of a float. The whole range takes care: 2**n is no normal number
where exp(x) is denormal, nor just below the overflow. So exp halves n and multiplies by 2**(n/2) twice, which costs one
more coefficient (r is twice as long) and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar import Scalar, const, fma, select
from .floats import (
    at_least,
    at_most,
    bits,
    from_bits,
    layout,
    magnitude,
    polynomial,
    shift_left,
    times,
)


@dataclass(frozen=True)
class Table:
    """The constants of one type. log(2) is log2[0] + log2[1], the first with zeros at its end."""

    log2: tuple[float, float]
    lowest: float
    """exp is 0 below."""
    highest: float
    """exp is infinite above."""
    lowest_expm1: float
    """expm1 is -1 below."""
    lowest_exp2: float
    highest_exp2: float
    exp: tuple[float, ...]
    """exp(r), |r| <= log(2)."""
    exp_short: tuple[float, ...]
    """exp(r), |r| <= log(2) / 2."""
    exp2: tuple[float, ...]
    """2**r, |r| <= 1/2."""
    expm1: tuple[float, ...]
    """(exp(r) - 1 - r) / r**2, |r| <= log(2) / 2."""


TABLES = {
    "f32": Table(
        log2=(0.693147182464599609375, -1.904654323148236017e-9),
        lowest=-104.0,
        highest=89.0,
        lowest_expm1=-18.0,
        lowest_exp2=-151.0,
        highest_exp2=128.0,
        exp=(1.0, 1.0, 0.5000003576278687, 0.16666631400585175, 0.041661109775304794, 0.008335008285939693,
             0.0014107621973380446, 0.00019767647609114647),
        exp_short=(1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166825860738754, 0.008368670009076595,
                   0.0013821310130879283),
        exp2=(1.0, 0.6931471824645996, 0.24022647738456726, 0.05550359934568405, 0.009618505835533142,
              0.001339081209152937, 0.00015326497668866068),
        expm1=(0.4999999701976776, 0.1666654646396637, 0.04166743904352188, 0.008366258814930916,
               0.0013870220864191651),
    ),
}  # fmt: skip


EXP2_WIDE = (1.0, 0.6931472028779956, 0.2402264790923901, 0.0555033241187247, 0.009618437672314581,
             0.0013398899834203592, 0.00015353331818965789)  # fmt: skip
"""2**r to 2**-28, |r| <= 1/2: for results in f32 computed in f64."""


def exp(x: Scalar) -> Scalar:
    table = TABLES[x.dtype]
    value, scale = scaled_exp(at_most(at_least(x, table.lowest), table.highest))
    return value * scale


def scaled_exp(x: Scalar) -> tuple[Scalar, Scalar]:
    """A normal number and a power of two whose product is exp(x), for an x within the table's bounds."""
    table = TABLES[x.dtype]
    half, r = reduced_by_log2(x, 2.0, 0)
    return polynomial(r, table.exp) * half, half


def reduced_by_log2(x: Scalar, multiple: float, offset: int) -> tuple[Scalar, Scalar]:
    """2**(n + offset), and r = x - n * multiple * log(2), n being the integer that makes r smallest."""
    parts = layout(x)
    high, low = TABLES[x.dtype].log2
    # With the bias inside the constant, the low bits of the sum are those of the exponent, and shifting is enough.
    rounder = parts.rounder + parts.bias + offset
    shifted = times(x, 1.0 / (multiple * math.log(2.0)), rounder)
    n = shifted - rounder
    r = times(n, -multiple * low, times(n, -multiple * high, x))
    return from_bits(shift_left(bits(shifted), parts.mantissa)), r


def exp2(x: Scalar) -> Scalar:
    # Not by halves: where x is an integer, r is to be 0, and the result exact.
    table, parts = TABLES[x.dtype], layout(x)
    x = at_most(at_least(x, table.lowest_exp2), table.highest_exp2)
    rounder = parts.rounder + 2 * parts.bias
    shifted = x + rounder
    r = x - (shifted - rounder)
    exponent = const((1 << (parts.mantissa + 8 if parts.mantissa == 23 else parts.mantissa + 11)) - (1 << parts.mantissa), parts.integer)
    # n is the sum of two halves, one of them rounded down, the other up.
    twice = shift_left(bits(shifted), parts.mantissa - 1)
    down = from_bits(twice & exponent)
    up = from_bits((twice + (1 << (parts.mantissa - 1))) & exponent)
    return polynomial(r, table.exp2) * down * up


def expm1(x: Scalar) -> Scalar:
    table = TABLES[x.dtype]
    # 2**(n - 1), as 2**n overflows a little before the result does.
    half, r = reduced_by_log2(at_most(at_least(x, table.lowest_expm1), table.highest), 1.0, -1)
    grown = fma(half, expm1_near_zero(r), half - 0.5) * 2.0
    # The sign of zero, and the last bit of denormals.
    return select(magnitude(x) < layout(x).smallest * 4.0, x, grown)


def expm1_near_zero(r: Scalar) -> Scalar:
    return fma(r * r, polynomial(r, TABLES[r.dtype].expm1), r)


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), both sides of the fraction so much smaller that exp(-x) does not overflow."""
    table, half = TABLES[x.dtype], layout(x).bias // 2
    # Above the upper bound the sum is 1.
    scale, r = reduced_by_log2(-at_most(at_least(x, table.lowest), -table.lowest_expm1), 1.0, -half)
    one = const(0.5**half, x.dtype)
    # 1 + 2**n is rounded where n is just the length of a mantissa. What is lost goes into the smaller addend.
    most = scale + one
    grown = fma(r * polynomial(r, table.exp_short[1:]), scale, one - (most - scale))
    return one / (most + grown)


def wide_exp2(x: Scalar) -> Scalar:
    """2**x in f64, accurate to 2**-28 of itself, for |x| < 1000."""
    parts = layout(x)
    rounder = parts.rounder + parts.bias
    shifted = x + rounder
    r = x - (shifted - rounder)
    return polynomial(r, EXP2_WIDE) * from_bits(shift_left(bits(shifted), parts.mantissa))


EXPANSIONS = {"exp": exp, "exp2": exp2, "expm1": expm1, "sigmoid": sigmoid}
