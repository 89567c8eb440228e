"""tanh, and the hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar import Scalar, cast, compare, const, fma, select
from .exponentials import TABLES as EXP_TABLES
from .exponentials import reduced_by_log2
from .floats import at_most, bits, from_bits, layout, magnitude, polynomial, shift_left, signed_like, times
from .logarithms import wide_log2_of_1p


@dataclass(frozen=True)
class Table:
    one: float
    """tanh is 1 above."""
    near: float
    """Below, a polynomial is tanh."""
    tanh: tuple[float, ...]
    """(tanh(s) / s - 1) / s**2 of s**2, s <= near."""
    sinh: tuple[float, ...]
    """(sinh(s) / s - 1) / s**2 of s**2, s <= 1."""
    highest: float
    """sinh and cosh are infinite above."""
    exp: tuple[float, ...]
    """exp(r), |r| <= log(2) / 2, somewhat shorter than exp's own."""


TABLES = {
    "f32": Table(
        one=9.1,
        near=0.55,
        tanh=(-0.3333294689655304, 0.1332072913646698, -0.05267200618982315, 0.016437865793704987),
        sinh=(0.1666671633720398, 0.008330270648002625, 0.00020373340521473438),
        highest=90.0,
        exp=(1.0, 0.9999997019767761, 0.4999915063381195, 0.16667647659778595, 0.04189785569906235,
             0.008289728313684464),
    ),
}  # fmt: skip


def tanh(x: Scalar) -> Scalar:
    """1 - 2 / (exp(2x) + 1), but for small x, where that loses digits."""
    table, parts = TABLES[x.dtype], layout(x)
    size = at_most(magnitude(x), table.one)
    # The error of log(2) / 2 in one word times n is below what 1 - ... shows.
    rounder = parts.rounder + parts.bias
    shifted = times(size, 2.0 / math.log(2.0), rounder)
    n = shifted - rounder
    r = times(n, -math.log(2.0), size + size)
    scale = from_bits(shift_left(bits(shifted), parts.mantissa))
    far = 1.0 - const(2.0, x.dtype) / fma(polynomial(r, table.exp), scale, const(1.0, x.dtype))
    square = size * size
    near = fma(square * size, polynomial(square, table.tanh), size)
    return signed_like(select(size < table.near, near, far), x)


def sinh(x: Scalar) -> Scalar:
    """(exp(x) - exp(-x)) / 2, but for small x."""
    size = magnitude(x)
    quarter = quarter_of_exp(size)
    # The sum is what may overflow, not one of its parts.
    far = times(quarter, 2.0, const(-0.125, x.dtype) / quarter)
    square = size * size
    near = fma(square * size, polynomial(square, TABLES[x.dtype].sinh), size)
    return signed_like(select(size < 1.0, near, far), x)


def cosh(x: Scalar) -> Scalar:
    quarter = quarter_of_exp(magnitude(x))
    return times(quarter, 2.0, const(0.125, x.dtype) / quarter)


def quarter_of_exp(x: Scalar) -> Scalar:
    scale, r = reduced_by_log2(at_most(x, TABLES[x.dtype].highest), 1.0, -2)
    return polynomial(r, EXP_TABLES[x.dtype].exp_short) * scale


def asinh(x: Scalar) -> Scalar:
    """log(x + sqrt(x * x + 1)), as log(1 + ...) for small x."""
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
    return cast(wide_log2_of_1p(x) * factor, "f32")


EXPANSIONS = {"tanh": tanh, "sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh, "atanh": atanh}
