"""Building blocks of all expansions: float layouts, bits, signs, bounds, polynomials.

The functions return expressions of base operations only. Bounds are selects, not `min` and `max`, because of NaN: a
comparison with NaN is false, so the bounded value stays NaN, and this form is one instruction on most machines.

    >>> x = load("f32", Access(0, 0, (1,)))
    >>> print(at_most(x, 2.0))
    select(gt(b0[i0], 2.0.f32), 2.0.f32, b0[i0])
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ...ops.scalar_ir import Scalar, binary, bitcast, cast, const, fma, make, select, unary


@dataclass(frozen=True)
class FloatLayout:
    """The bit layout of a float type. `mantissa` counts the stored bits."""

    integer: str
    mantissa: int
    bias: int
    smallest: float
    """The smallest normal number."""
    tiniest: float
    """The smallest number above 0."""

    @property
    def rounder(self) -> float:
        """Adding it to a small float rounds to an integer, which is then in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def sign(self) -> int:
        return -(1 << (31 if self.integer == "i32" else 63))


LAYOUTS = {
    "f32": FloatLayout("i32", 23, 127, 2.0**-126, 2.0**-149),
    "f64": FloatLayout("i64", 52, 1023, 2.0**-1022, 2.0**-1074),
}


def layout(x: Scalar) -> FloatLayout:
    return LAYOUTS[x.dtype]


def bits(x: Scalar) -> Scalar:
    return bitcast(x, layout(x).integer)


def from_bits(x: Scalar) -> Scalar:
    return bitcast(x, "f32" if x.dtype == "i32" else "f64")


def shift_left(x: Scalar, by: int) -> Scalar:
    return binary("shl", x, by)


def shift_right(x: Scalar, by: int) -> Scalar:
    """An arithmetic shift: keeps the sign."""
    return binary("shr", x, by)


def magnitude(x: Scalar) -> Scalar:
    return unary("abs", x)


def with_sign_of(x: Scalar, y: Scalar) -> Scalar:
    """The magnitude of x, the sign bit of y."""
    sign = layout(x).sign
    return from_bits((bits(x) & const(~sign, layout(x).integer)) | (bits(y) & const(sign, layout(x).integer)))


def signed_like(x: Scalar, y: Scalar) -> Scalar:
    """Like `with_sign_of`, for an x whose sign bit is known to be 0."""
    sign = const(layout(x).sign, layout(x).integer)
    return from_bits(bits(x) | (bits(y) & sign))


def flipped_like(x: Scalar, y: Scalar) -> Scalar:
    """x, negated where the sign bit of y is set."""
    sign = const(layout(x).sign, layout(x).integer)
    return from_bits(binary("xor", bits(x), bits(y) & sign))


def at_most(x: Scalar, bound: float) -> Scalar:
    return select(x > bound, bound, x)


def at_least(x: Scalar, bound: float) -> Scalar:
    return select(x < bound, bound, x)


def rarely(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """A select whose first value is rarely needed: a printer may branch around what only that value needs.

    The payload "rare" marks it. A printer that ignores the payload computes both values, as for any select.
    """
    return make("select", x.dtype, (condition, x, y), "rare")


def ldexp(x: Scalar, n: Scalar) -> Scalar:
    """x * 2**n, rounded once, for a whole n."""
    return binary("ldexp", x, n)


def times(x: Scalar, factor: float, plus: Scalar | float) -> Scalar:
    """x * factor + plus, rounded once."""
    return fma(x, const(factor, x.dtype), plus if isinstance(plus, Scalar) else const(plus, x.dtype))


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """sum(c * x**k for k, c in enumerate(coefficients)), by Horner's rule, with the fewest operations."""
    total = const(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, const(coefficient, x.dtype))
    return total


def by_powers_of_two(x: Scalar, n: Scalar) -> Scalar:
    """ldexp(x, n) as a product of three factors. 2**n may not be a normal number where the result is normal, nor where
    it is denormal. The exponents of the two powers are half of n, one rounded down and the other up."""
    parts = layout(x)
    twice = shift_left(bits(n + (parts.rounder + 2 * parts.bias)), parts.mantissa - 1)
    exponent = const((2 * parts.bias + 1) << parts.mantissa, parts.integer)
    down, up = from_bits(twice & exponent), from_bits((twice + (1 << (parts.mantissa - 1))) & exponent)
    return select(n > 1.5 * parts.bias, const(math.inf, x.dtype), x * down * up)


def integer_to_float(n: Scalar) -> Scalar:
    """Converts a small integer. f64 avoids a cast, for which many machines have no vector instruction."""
    if n.dtype == "i32":
        return cast(n, "f32")
    rounder = LAYOUTS["f64"].rounder
    return from_bits(n + struct.unpack("<q", struct.pack("<d", rounder))[0]) - rounder
