"""Expands reciprocal, rsqrt, pow.

pow of f32 is 2**(y * log2(x)) in f64, which has digits enough for exponents in the hundreds. pow of integers is
repeated squaring, one squaring for each bit of the exponent.
"""

from __future__ import annotations

import math

from ...ops.scalar_ir import Scalar, cast, compare, const, fma, select
from ...tensors.dtypes import BITS, INTEGERS, UNSIGNED
from .exponentials import wide_exp2
from .float_bits import at_least, at_most, bits, magnitude, polynomial, shift_right
from .logarithms import LOG2_WIDE, TABLES, split


def reciprocal(x: Scalar) -> Scalar:
    return const(1.0, x.dtype) / x


def rsqrt(x: Scalar) -> Scalar:
    return const(1.0, x.dtype) / x.sqrt()


def pow(x: Scalar, y: Scalar) -> Scalar | None:
    if x.dtype in INTEGERS:
        return integer_power(x, y)
    simple = constant_power(x, y.payload) if y.op == "const" else None
    if simple is None and x.dtype == "f32":
        return float_power(x, y)
    return simple


def constant_power(x: Scalar, exponent: float) -> Scalar | None:
    """The exponents that torch computes as products, with the same roundings. Where torch takes a root, the operator's
    rule has already done so, because pow differs from a root at zeros and infinities."""
    match exponent:
        case 0.0:
            return const(1.0, x.dtype)
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case -1.0:
            return reciprocal(x)
        case -2.0:
            return reciprocal(x * x)
    return None


def float_power(x: Scalar, y: Scalar) -> Scalar:
    size = magnitude(x)
    exponent = log2_of_positive(cast(size, "f64")) * cast(y, "f64")
    # 1 to any power is 1, and anything to the power of 0 is 1, NaN and infinities included.
    exponent = select(compare("eq", size, 1.0) | compare("eq", y, 0.0), 0.0, exponent)
    value = cast(wide_exp2(at_most(at_least(exponent, -200.0), 200.0)), "f32")
    half = y * 0.5
    is_whole = compare("eq", y.round(), y)
    is_odd = is_whole & compare("ne", half.round(), half)
    value = select((bits(x) < 0) & is_odd, -value, value)
    return select((x < 0.0) & (x > -math.inf) & ~is_whole, math.nan, value)


def log2_of_positive(x: Scalar) -> Scalar:
    """log2 of an f32 given in f64, where it is a normal number, with a relative error of 2**-35."""
    k, mantissa = split(x, TABLES["f64"].start)
    f = mantissa - 1.0
    value = fma(f, polynomial(f, LOG2_WIDE), k)
    value = select(x < math.inf, value, x)
    return select(compare("eq", x, 0.0), -math.inf, value)


def integer_power(x: Scalar, y: Scalar) -> Scalar:
    """Wraps around. A negative power is 0 except for bases 1 and -1."""
    value = const(1, x.dtype)
    if y.op == "const" and y.payload >= 0:
        exponent, square = y.payload, x
        while exponent:
            value = value * square if exponent & 1 else value
            square, exponent = square * square, exponent >> 1
        return value
    square, exponent, one = x, y, const(1, x.dtype)
    # The sign bit is handled below.
    count = BITS[x.dtype] - (x.dtype not in UNSIGNED)
    for step in range(count):
        value = select(compare("ne", exponent & one, 0), value * square, value)
        if step + 1 < count:
            square, exponent = square * square, shift_right(exponent, 1)
    if x.dtype in UNSIGNED:
        return value
    is_odd = compare("ne", y & one, 0)
    negative = select(compare("eq", x, -1), select(is_odd, const(-1, x.dtype), 1), 0)
    return select(y < 0, select(compare("eq", x, 1), 1, negative), value)


EXPANSIONS = {"reciprocal": reciprocal, "rsqrt": rsqrt, "pow": pow}
