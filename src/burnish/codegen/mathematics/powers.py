"""Powers and roots: rsqrt, reciprocal, pow."""

from __future__ import annotations

import math

from ...ops.scalar import Scalar, cast, compare, const, fma, select
from .exponentials import wide_exp2
from .floats import at_least, at_most, bits, from_bits, integer_to_float, magnitude, polynomial, shift_left, shift_right
from .logarithms import LOG2_WIDE


def reciprocal(x: Scalar) -> Scalar:
    return const(1.0, x.dtype) / x


def rsqrt(x: Scalar) -> Scalar:
    return const(1.0, x.dtype) / x.sqrt()


def pow(x: Scalar, y: Scalar) -> Scalar:
    simple = constant_power(x, y.payload) if y.op == "const" else None
    return simple if simple is not None else general_power(x, y)


def constant_power(x: Scalar, exponent: float) -> Scalar | None:
    """The exponents torch itself treats as products and roots."""
    match exponent:
        case 0.0:
            return const(1.0, x.dtype)
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            return x.sqrt()
        case -0.5:
            return rsqrt(x)
        case -1.0:
            return reciprocal(x)
        case -2.0:
            return reciprocal(x * x)
    return None


def general_power(x: Scalar, y: Scalar) -> Scalar:
    size = magnitude(x)
    exponent = power_exponent(cast(size, "f64"), cast(y, "f64"))
    # 1 to any power is 1, anything to the power of 0 too: NaN and infinities included.
    exponent = select(compare("eq", size, 1.0) | compare("eq", y, 0.0), 0.0, exponent)
    value = cast(wide_exp2(at_most(at_least(exponent, -200.0), 200.0)), "f32")
    half = y * 0.5
    is_integer = compare("eq", y.round(), y)
    is_odd = is_integer & compare("ne", half.round(), half)
    negative = bits(x) < 0
    value = select(negative & is_odd, -value, value)
    return select((x < 0.0) & (x > -math.inf) & ~is_integer, math.nan, value)


def power_exponent(x: Scalar, y: Scalar) -> Scalar:
    """y * log2(x) for a positive x, accurate to 2**-35 of it."""
    pattern = bits(x)
    start = 0x3FE5555555555555
    k = shift_right(pattern - start, 52)
    f = from_bits(pattern - shift_left(k, 52)) - 1.0
    log = fma(f, polynomial(f, LOG2_WIDE), integer_to_float(k))
    log = select(x < math.inf, log, x)
    log = select(compare("eq", x, 0.0), -math.inf, log)
    return log * y


EXPANSIONS = {"reciprocal": reciprocal, "rsqrt": rsqrt, "pow": pow}
