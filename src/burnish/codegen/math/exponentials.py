"""Expands exp, exp2, expm1, sigmoid: a power of two times a polynomial.

exp(x) = 2**n * exp(r), where n is the integer nearest to x / log(2). Adding a large constant rounds to n and leaves it
in the low bits of the sum; a shift makes it the exponent of a float. The ends of the range need care: 2**n is not a
normal number where exp(x) is denormal, nor just below the overflow. `ldexp` is right there; it is one instruction or
two products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar_ir import Scalar, const, fma, select
from .float_bits import at_least, at_most, bits, from_bits, layout, ldexp, magnitude, polynomial, shift_left, times


@dataclass(frozen=True)
class Table:
    """The constants of one type."""

    log2: tuple[float, float]
    """log(2) is the sum of both."""
    lowest: float
    """exp underflows to 0 well above it. A result just under the smallest float takes processors ten times as long as
    one far under it. Masked attention has many of them."""
    lowest_sigmoid: float
    lowest_exp2: float
    """The same for sigmoid and exp2."""
    highest: float
    """expm1 is infinite above it."""
    lowest_expm1: float
    """expm1 is -1 below it."""
    highest_exp2: float
    exp: tuple[float, ...]
    """(exp(r) - 1 - r) / r**2, |r| <= log(2) / 2. The number of coefficients is odd."""
    exp_short: tuple[float, ...]
    """exp(r), |r| <= log(2) / 2."""
    exp2: tuple[float, ...]
    """2**r, |r| <= 1/2."""
    expm1: tuple[float, ...]
    """(exp(r) - 1 - r) / r**2, for expm1."""


TABLES = {
    "f32": Table(
        log2=(0.6931471824645996, -1.904654323148236e-09),
        lowest=-176.0,
        lowest_sigmoid=-130.0,
        lowest_exp2=-250.0,
        highest=89.0,
        lowest_expm1=-18.0,
        highest_exp2=128.0,
        exp=(0.49999991059303284, 0.1666652113199234, 0.04166889190673828, 0.008368674665689468,
             0.0013789198128506541),
        exp_short=(1.0, 1.0, 0.49999991059303284, 0.1666652113199234, 0.04166889190673828, 0.008368674665689468,
                   0.0013789198128506541),
        exp2=(1.0, 0.6931471824645996, 0.24022647738456726, 0.05550359934568405, 0.009618505835533142,
              0.001339081209152937, 0.00015326497668866068),
        expm1=(0.5, 0.1666666567325592, 0.04166649281978607, 0.008333547040820122, 0.001393231563270092,
               0.00019760997383855283),
    ),
    "f64": Table(
        log2=(0.6931471805599453, 2.3190468138462996e-17),
        lowest=-1418.0,
        lowest_sigmoid=-1000.0,
        lowest_exp2=-2000.0,
        highest=710.0,
        lowest_expm1=-38.0,
        highest_exp2=1024.0,
        exp=(0.5, 0.16666666666666677, 0.04166666666666669, 0.00833333333332178, 0.0013888888888887215,
             0.0001984126988533982, 2.48015872936048e-05, 2.755724520388736e-06, 2.7557317003433203e-07,
             2.5108654181976607e-08, 2.0897610980192275e-09),
        exp_short=(1.0, 1.0, 0.5000000000000008, 0.16666666666666302, 0.041666666666548835, 0.008333333333557996,
                   0.0013888888939554969, 0.0001984126938066974, 2.480149674250673e-05, 2.7557690688822513e-06,
                   2.7629097923883836e-07, 2.4969115844910068e-08),
        exp2=(1.0, 0.6931471805599453, 0.24022650695910108, 0.05550410866482172, 0.009618129107601583,
              0.001333355814654647, 0.00015403530449080617, 1.5252733633820993e-05, 1.3215438807110345e-06,
              1.0178160083640109e-07, 7.0732389215732185e-09, 4.4388630837791713e-10),
        expm1=(0.5, 0.16666666666666677, 0.04166666666666669, 0.00833333333332178, 0.0013888888888887215,
               0.0001984126988533982, 2.48015872936048e-05, 2.755724520388736e-06, 2.7557317003433203e-07,
               2.5108654181976607e-08, 2.0897610980192275e-09),
    ),
}  # fmt: skip

EXP2_WIDE = (1.0, 0.6931472028758076, 0.24022647909580858, 0.055503324170441015, 0.009618437684291615,
             0.0013398898212243805, 0.0001535332220525803)  # fmt: skip
"""2**r to 2**-28, |r| <= 1/2: for results in f32 that are computed in f64."""


def exp(x: Scalar) -> Scalar:
    """2**n * (1 + r + r**2 * p(r)), summed from small to large, so that only the last sum is rounded to the result's
    precision. r is the sum of two numbers; the rounding error of 1 + the higher one joins the remaining terms."""
    table, rounder = TABLES[x.dtype], layout(x).rounder
    # No upper bound: there n is huge or infinite and the polynomial, of even degree, is above 0; or the result is NaN.
    x = at_least(x, table.lowest)
    n = times(x, 1.0 / math.log(2.0), rounder) - rounder
    # Exact: unless n is 0, x and the high word of log(2) are multiples of half a unit of r.
    high = times(n, -table.log2[0], x)
    r = times(n, -table.log2[1], high)
    one = high + 1.0
    lost = high - (one - 1.0)
    rest = fma(r, r * polynomial(r, table.exp), times(n, -table.log2[1], lost))
    return ldexp(one + rest, n)


def reduced_by_log2(x: Scalar, offset: int) -> tuple[Scalar, Scalar]:
    """2**(n + offset), and r = x - n * log(2), with the integer n that makes |r| smallest."""
    power, n = power_of_2_near(x, offset)
    high, low = TABLES[x.dtype].log2
    return power, times(n, -low, times(n, -high, x))


def power_of_2_near(x: Scalar, offset: int) -> tuple[Scalar, Scalar]:
    """2**(n + offset) and n, the integer nearest to x / log(2)."""
    parts = layout(x)
    # The constant includes the bias, so the low bits of the sum are those of the exponent, and a shift is enough.
    rounder = parts.rounder + parts.bias + offset
    shifted = times(x, 1.0 / math.log(2.0), rounder)
    return from_bits(shift_left(bits(shifted), parts.mantissa)), shifted - rounder


def exp2(x: Scalar) -> Scalar:
    # Differs from exp: where x is an integer, r must be 0, and the result exact.
    table, rounder = TABLES[x.dtype], layout(x).rounder
    x = at_most(at_least(x, table.lowest_exp2), table.highest_exp2)
    n = (x + rounder) - rounder
    return ldexp(polynomial(x - n, table.exp2), n)


def expm1(x: Scalar) -> Scalar:
    """(2**n - 1) + 2**n * r + 2**n * r**2 * p(r), summed as in `exp`: the first two are exact, their sum is not."""
    table = TABLES[x.dtype]
    x_near = at_most(at_least(x, table.lowest_expm1), table.highest)
    # 2**(n - 1), as 2**n overflows a little before the result does.
    half, n = power_of_2_near(x_near, -1)
    high, low = times(n, -table.log2[0], x_near), n * -table.log2[1]
    r = high + low
    first, second = half - 0.5, half * high
    most = first + second
    lost = second - (most - first)
    rest = fma(half, fma(r, r * polynomial(r, table.expm1), low), lost)
    # Keeps the sign of zero, and the last bit of denormals.
    return select(magnitude(x) < layout(x).smallest * 4.0, x, (most + rest) * 2.0)


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), with both sides of the fraction scaled down so that exp(-x) does not overflow."""
    table, half = TABLES[x.dtype], layout(x).bias // 2
    # Above the upper bound the sum is 1.
    scale, r = reduced_by_log2(-at_most(at_least(x, table.lowest_sigmoid), -table.lowest_expm1), -half)
    one = const(0.5**half, x.dtype)
    # 1 + 2**n is rounded where n is about the mantissa's length. The lost part joins the smaller addend.
    most = scale + one
    grown = fma(r * polynomial(r, table.exp_short[1:]), scale, one - (most - scale))
    return one / (most + grown)


def wide_exp2(x: Scalar) -> Scalar:
    """2**x in f64 with a relative error of 2**-28, for |x| < 1000."""
    parts = layout(x)
    rounder = parts.rounder + parts.bias
    shifted = x + rounder
    r = x - (shifted - rounder)
    return polynomial(r, EXP2_WIDE) * from_bits(shift_left(bits(shifted), parts.mantissa))


EXPANSIONS = {"exp": exp, "exp2": exp2, "expm1": expm1, "sigmoid": sigmoid}
