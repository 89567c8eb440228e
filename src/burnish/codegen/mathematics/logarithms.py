"""log, log2, log10, log1p: the exponent and a polynomial of the mantissa."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar import Scalar, compare, const, fma, select
from .floats import at_least, bits, from_bits, integer_to_float, layout, polynomial, shift_left, shift_right, times


@dataclass(frozen=True)
class Table:
    start: int
    """The bits of the smallest mantissa, about 2/3: mantissas lie from there to twice as much."""
    log1p: tuple[float, ...]
    """(log(1 + f) - f) / f**2, -1/3 <= f <= 1/3."""
    log2_1p: tuple[float, ...]
    """log2(1 + f) / f."""
    log10_1p: tuple[float, ...]
    log10_2: tuple[float, float]


TABLES = {
    "f32": Table(
        start=0x3F2AAAAB,
        log1p=(-0.49999937415122986, 0.33333200216293335, -0.250077486038208, 0.20011071860790253,
               -0.16417032480239868, 0.13997146487236023, -0.153835728764534, 0.14020603895187378),
        log2_1p=(1.4426950216293335, -0.7213468551635742, 0.4808981120586395, -0.36077266931533813, 0.2886529266834259, -0.23704670369625092, 0.20242711901664734, -0.22100883722305298, 0.20046012103557587),
        log10_1p=(0.4342944920063019, -0.2171470820903778, 0.1447635143995285, -0.10860093683004379, 0.08692283183336258, -0.07139771431684494, 0.060656916350126266, -0.06634152680635452, 0.06126123294234276),
        log10_2=(0.301025390625, 4.605038981e-06),
    ),
}  # fmt: skip


LOG2_WIDE = (1.4426950408923302, -0.7213475195696688, 0.4808983439612651, -0.3606739785448756, 0.2885394417866638,
             -0.24043366404514036, 0.20607597163831856, -0.1808059900676932, 0.16089124995225912,
             -0.13746174316296653, 0.12356272622558064, -0.16610328325140486, 0.157541763812217)  # fmt: skip
"""log2(1 + f) / f to 2**-35, -1/3 <= f <= 1/3: for results in f32 computed in f64."""


def log(x: Scalar) -> Scalar:
    exponent, f = mantissa_and_exponent(x)
    table = TABLES[x.dtype]
    value = times(exponent, math.log(2.0), fma(f * f, polynomial(f, table.log1p), f))
    return with_edges(value, x)


def log2(x: Scalar) -> Scalar:
    exponent, f = mantissa_and_exponent(x)
    value = fma(f, polynomial(f, TABLES[x.dtype].log2_1p), exponent)
    return with_edges(value, x)


def log10(x: Scalar) -> Scalar:
    exponent, f = mantissa_and_exponent(x)
    table = TABLES[x.dtype]
    low = fma(f, polynomial(f, table.log10_1p), exponent * table.log10_2[1])
    return with_edges(times(exponent, table.log10_2[0], low), x)


def log1p(x: Scalar) -> Scalar:
    """As log, of 1 + x, but the mantissa less one comes from x, without the rounding of 1 + x."""
    parts, table = layout(x), TABLES[x.dtype]
    pattern = bits(at_least(x, -1.0) + 1.0) - table.start
    k = shift_right(pattern, parts.mantissa)
    # 2**(2-k): the exponent of 4, k less. 2**-k need not be a normal number.
    scale = from_bits(const((parts.bias + 2) << parts.mantissa, parts.integer) - shift_left(k, parts.mantissa))
    # -(1 - s) instead of s - 1: then it is -0 where k is 0, and x may be -0.
    f = fma(x, scale, -(4.0 - scale)) * 0.25
    # 0 - k, so that the product is -0 where k is 0, and the sign of a zero remains.
    value = times(integer_to_float(const(0, parts.integer) - k), -math.log(2.0), fma(f * f, polynomial(f, table.log1p), f))
    value = select(x < math.inf, value, x)
    value = select(compare("eq", x, -1.0), -math.inf, value)
    return select(x < -1.0, math.nan, value)


def wide_log2_of_1p(x: Scalar) -> Scalar:
    """log2(1 + x) in f64, accurate to 2**-35 of itself, for a finite x > -1."""
    pattern = bits(x + 1.0) - 0x3FE5555555555555
    k = shift_right(pattern, 52)
    scale = from_bits(const(1023 << 52, "i64") - shift_left(k, 52))
    f = fma(x, scale, scale - 1.0)
    return fma(f, polynomial(f, LOG2_WIDE), integer_to_float(k))


def mantissa_and_exponent(x: Scalar) -> tuple[Scalar, Scalar]:
    """k (as a float) and f with x = 2**k * (1 + f), for a positive finite x."""
    parts, table = layout(x), TABLES[x.dtype]
    is_denormal = x < parts.smallest
    up = parts.mantissa + 1
    pattern = bits(select(is_denormal, x * 2.0**up, x))
    start = table.start
    k = shift_right(pattern - start, parts.mantissa)
    f = from_bits(pattern - shift_left(k, parts.mantissa)) - 1.0
    return integer_to_float(k) - select(is_denormal, const(up, x.dtype), 0.0), f


def with_edges(value: Scalar, x: Scalar) -> Scalar:
    """A logarithm where x is infinite, zero or negative."""
    value = select(x < math.inf, value, x)
    value = select(compare("eq", x, 0.0), -math.inf, value)
    return select(x < 0.0, math.nan, value)


EXPANSIONS = {"log": log, "log2": log2, "log10": log10, "log1p": log1p}
