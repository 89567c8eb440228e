"""Expands fmod, remainder and floor_div of floats, exactly for any quotient. The printer handles those of integers.

A quotient below 2**22 is truncated and its multiple subtracted, which a fused multiply-add does exactly. A larger one,
up to 2**277 in f32, is first reduced in steps of a few dozen bits.
"""

from __future__ import annotations

from ...ops.scalar_ir import Scalar, binary, cast, compare, const, fma, select
from .float_bits import layout, magnitude, rarely, signed_like, with_sign_of

STEP = 46
"""Bits of a quotient removed by one step: few enough that a quotient by a reciprocal is off by less than 1."""


def fmod(x: Scalar, y: Scalar) -> Scalar:
    size, divisor, parts = magnitude(x), magnitude(y), layout(x)
    is_far = size > divisor * 2.0 ** (parts.mantissa - 1)
    less = rarely(is_far, without_multiples(size, divisor), size)
    rest = fma(-(less / divisor).trunc(), divisor, less)
    # The quotient may have been rounded up to an integer, or `less` may be below zero.
    rest = select(rest < 0.0, rest + divisor, rest)
    # This also covers an infinite y.
    return signed_like(select(size < divisor, size, rest), x)


def without_multiples(x: Scalar, y: Scalar) -> Scalar:
    """x minus a multiple of y, at most 3/4 of y in magnitude."""
    x, y = cast(x, "f64"), cast(y, "f64")
    inverse = const(1.0, "f64") / y
    for step in range(5, -1, -1):
        power = 2.0 ** (STEP * step)
        quotient = (x * (inverse * (1.0 / power))).round()
        x = fma(-quotient, y * power, x)
    return cast(x, "f32")


def remainder(x: Scalar, y: Scalar) -> Scalar:
    rest = fmod(x, y)
    return select(is_opposed(rest, y), rest + y, rest)


def is_opposed(rest: Scalar, y: Scalar) -> Scalar:
    """The remainder is not zero and its sign differs from the divisor's."""
    return compare("ne", rest, 0.0) & binary("xor", rest < 0.0, y < 0.0)


def floor_div(x: Scalar, y: Scalar) -> Scalar:
    """Follows torch step by step, so that results agree to the last bit."""
    rest = fmod(x, y)
    quotient = (x - rest) / y
    quotient = select(is_opposed(rest, y), quotient - 1.0, quotient)
    down = quotient.floor()
    down = select(quotient - down > 0.5, down + 1.0, down)
    plain = x / y
    zero = with_sign_of(const(0.0, x.dtype), plain)
    result = select(compare("eq", quotient, 0.0), zero, down)
    return select(compare("eq", y, 0.0), plain, result)


EXPANSIONS = {"fmod": fmod, "remainder": remainder, "floor_div": floor_div, "copysign": with_sign_of}
