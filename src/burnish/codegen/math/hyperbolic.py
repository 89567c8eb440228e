"""Expands tanh, sinh, cosh and their inverses: exponentials and logarithms, and polynomials where those cancel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar_ir import Scalar, cast, compare, const, fma, select
from .exponentials import TABLES as EXPONENTIALS
from .exponentials import reduced_by_log2
from .float_bits import at_most, bits, from_bits, layout, magnitude, polynomial, shift_left, signed_like, times
from .logarithms import wide_log2_of_1p


@dataclass(frozen=True)
class Table:
    """The constants of one type."""

    one: float
    """tanh is 1 above it."""
    highest: float
    """sinh and cosh are infinite above it."""
    near: float
    """Below it a polynomial is more accurate: programs compute x - tanh(x), and then the last place counts."""
    tanh: tuple[float, ...]
    """(tanh(s) / s - 1) / s**2, a polynomial in s**2, s <= near."""
    sinh: tuple[float, ...]
    """(sinh(s) / s - 1) / s**2, a polynomial in s**2, s <= 1."""
    cosh: tuple[float, ...]
    """(cosh(s) - 1) / s**2, a polynomial in s**2, s <= 1."""
    exp: tuple[float, ...]
    """exp(r), |r| <= log(2) / 2."""


TABLES = {
    "f32": Table(
        one=9.1,
        highest=90.0,
        near=1.0,
        tanh=(-0.33333295583724976, 0.13332347571849823, -0.0538799874484539, 0.021487176418304443,
              -0.007946845144033432, 0.0023018845822662115, -0.0003585958620533347),
        sinh=(0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7822131869470468e-06),
        cosh=(0.5, 0.04166674613952637, 0.001388498698361218, 2.5388631911482662e-05),
        exp=(1.0, 1.0, 0.49999991059303284, 0.1666652113199234, 0.04166889190673828, 0.008368674665689468,
             0.0013789198128506541),
    ),
    "f64": Table(
        one=19.1,
        highest=711.0,
        near=0.65,
        tanh=(-0.33333333333333287, 0.1333333333332569, -0.053968253963885354, 0.021869488411194387,
              -0.008863233433911273, 0.003592105599329036, -0.001455673522583548, 0.0005892348518529224,
              -0.00023642142621747338, 9.054342437255343e-05, -2.918752382428679e-05, 5.61269606073716e-06),
        sinh=(0.16666666666666669, 0.008333333333332912, 0.00019841269841593435, 2.7557319106737474e-06,
              2.505213100393599e-08, 1.6056658575622445e-10, 7.776624214455378e-13),
        cosh=(0.5, 0.04166666666666667, 0.0013888888888888174, 2.480158730200362e-05, 2.7557319102201445e-07,
              2.087677666563345e-09, 1.1468970159528617e-11, 4.862745157944877e-14),
        exp=(1.0, 1.000000000000004, 0.49999999999997025, 0.16666666666577437, 0.041666666668836956,
             0.008333333379775534, 0.0013888888391831965, 0.00019841176163889893, 2.4802021037674733e-05,
             2.7638157077988834e-06, 2.745456477887061e-07),
    ),
}  # fmt: skip


def tanh(x: Scalar) -> Scalar:
    """1 - 2 / (exp(2x) + 1), except for small x."""
    table, parts = TABLES[x.dtype], layout(x)
    size = at_most(magnitude(x), table.one)
    rounder = parts.rounder + parts.bias
    shifted = times(size, 2.0 / math.log(2.0), rounder)
    # One word of log(2) is enough: the larger n is, the less the exponential contributes to the result.
    r = times(shifted - rounder, -math.log(2.0), size + size)
    scale = from_bits(shift_left(bits(shifted), parts.mantissa))
    far = 1.0 - const(2.0, x.dtype) / fma(polynomial(r, table.exp), scale, const(1.0, x.dtype))
    square = size * size
    near = fma(square * size, polynomial(square, table.tanh), size)
    return signed_like(select(size < table.near, near, far), x)


def sinh(x: Scalar) -> Scalar:
    """(exp(x) - exp(-x)) / 2, except for small x."""
    size = magnitude(x)
    quarter = quarter_of_exp(size)
    # Only the sum may overflow, not one of its terms.
    far = times(quarter, 2.0, const(-0.125, x.dtype) / quarter)
    square = size * size
    near = fma(square * size, polynomial(square, TABLES[x.dtype].sinh), size)
    return signed_like(select(size < 1.0, near, far), x)


def cosh(x: Scalar) -> Scalar:
    """(exp(x) + exp(-x)) / 2, except for small x, where two rounding errors would be large beside cosh(x) - 1."""
    size = magnitude(x)
    quarter = quarter_of_exp(size)
    far = times(quarter, 2.0, const(0.125, x.dtype) / quarter)
    square = size * size
    near = fma(square, polynomial(square, TABLES[x.dtype].cosh), const(1.0, x.dtype))
    return select(size < 1.0, near, far)


def quarter_of_exp(x: Scalar) -> Scalar:
    scale, r = reduced_by_log2(at_most(x, TABLES[x.dtype].highest), -2)
    return polynomial(r, EXPONENTIALS[x.dtype].exp_short) * scale


def asinh(x: Scalar) -> Scalar:
    """log(x + sqrt(x**2 + 1)), written as log(1 + ...) for accuracy at small x."""
    size = magnitude(x)
    wide = cast(size, "f64")
    square = wide * wide
    value = scaled_log(wide + square / ((square + 1.0).sqrt() + 1.0), math.log(2.0))
    return signed_like(select(size < math.inf, value, size), x)


def acosh(x: Scalar) -> Scalar:
    above = cast(x, "f64") - 1.0
    value = scaled_log(above + (above * (above + 2.0)).sqrt(), math.log(2.0))
    return select(x < 1.0, math.nan, select(x < math.inf, value, x))


def atanh(x: Scalar) -> Scalar:
    size = magnitude(x)
    wide = cast(size, "f64")
    value = scaled_log((wide + wide) / (1.0 - wide), 0.5 * math.log(2.0))
    edge = select(compare("eq", size, 1.0), const(math.inf, x.dtype), math.nan)
    return signed_like(select(size < 1.0, value, edge), x)


def scaled_log(x: Scalar, factor: float) -> Scalar:
    """factor * log2(1 + x), as f32."""
    return cast(wide_log2_of_1p(x) * factor, "f32")


EXPANSIONS = {"tanh": tanh, "sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh, "atanh": atanh}
