"""Expands f32 functions into GPU instructions, in place of the polynomials of `codegen.math`.

    exp of f32      =>      near_exp2(f) * 2**n,   x / log(2) = n + f          9 instructions; 25 by a polynomial

2**x and 1 / sqrt(x) are one instruction each, accurate to about a unit in the last place. They are only used for
arguments that are small, positive or both, and the arithmetic around them is exact, as in eager's exponential on GPUs.
So results are as accurate as eager's. sin and cos are CUDA's, as in eager: CUDA reduces large arguments behind a
branch, but our polynomials would compute the reduction for every element, in f64.
"""

from __future__ import annotations

import math

from ...ops.scalar_ir import Scalar, cast, const, fma, make, select
from ...tensors.dtypes import WIDE
from ..math import error_functions, hyperbolic
from ..math.exponentials import TABLES as EXPONENTIALS
from ..math.float_bits import (
    at_least,
    at_most,
    bits,
    from_bits,
    layout,
    magnitude,
    polynomial,
    shift_left,
    signed_like,
    times,
)

PRINTED = {"near_exp2": "tl.exp2", "near_rsqrt": "tl.rsqrt", "near_sin": "tl.sin", "near_cos": "tl.cos"}
"""Triton's names of operations that only a GPU has. All of them flush denormals to zero."""

LOG2_E = (1.4426950216293335, 1.925963033500979e-08)
"""1 / log(2) is the sum of both."""

LEAST_POWER, MOST_POWER = -126, 127
"""The least and greatest exponents of powers of 2 that are normal numbers."""


def near(op: str, x: Scalar) -> Scalar:
    return make(f"near_{op}", x.dtype, (x,))


def exp(x: Scalar) -> Scalar:
    return scaled_exp(x, 0, LEAST_POWER, MOST_POWER)


def scaled_exp(x: Scalar, offset: int, least: int, most: int) -> Scalar:
    """exp(x) * 2**offset, as 2**f * 2**(n + offset): n is x / log(2), rounded and clamped between two bounds. Beyond
    the bounds, f is the rest, infinite or the logarithm of a denormal, and the product is rounded once."""
    parts = layout(x)
    rounder = parts.rounder + parts.bias + offset
    inside = at_most(at_least(x, least * math.log(2.0)), most * math.log(2.0))
    shifted = times(inside, LOG2_E[0], rounder)
    n = shifted - rounder
    f = times(x, LOG2_E[1], times(x, LOG2_E[0], -n))
    return near("exp2", f) * from_bits(shift_left(bits(shifted), parts.mantissa))


def exp2(x: Scalar) -> Scalar:
    parts = layout(x)
    rounder = parts.rounder + parts.bias
    shifted = at_most(at_least(x, LEAST_POWER), MOST_POWER) + rounder
    return near("exp2", x - (shifted - rounder)) * from_bits(shift_left(bits(shifted), parts.mantissa))


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), with both sides of the fraction scaled down so that exp(-x) does not overflow."""
    half = layout(x).bias // 2
    one = const(0.5**half, x.dtype)
    below = at_most(-x, -EXPONENTIALS["f32"].lowest_sigmoid)
    return inverse(one + scaled_exp(below, -half, LEAST_POWER + half, MOST_POWER + half)) * one


def inverse(x: Scalar) -> Scalar:
    """1 / x for a positive x far from the ends of the range, correct except for the last half of a unit."""
    found = quick_inverse(x)
    return fma(fma(-x, found, const(1.0, x.dtype)), found, found)


def quick_inverse(x: Scalar) -> Scalar:
    """1 / x for a positive x, to two units. There is an instruction for it, but Triton does not expose it."""
    root = near("rsqrt", x)
    return root * root


def tanh(x: Scalar) -> Scalar:
    """1 - 2 / (exp(2x) + 1), except for small x. The larger x is, the less the errors matter, infinity included."""
    table = hyperbolic.TABLES[x.dtype]
    size = magnitude(x)
    far = times(quick_inverse(near("exp2", size * (2.0 / math.log(2.0))) + 1.0), -2.0, 1.0)
    square = size * size
    close = fma(square * size, polynomial(square, table.tanh), size)
    return signed_like(select(size < table.near, close, far), x)


def erf(x: Scalar) -> Scalar:
    """As in `error_functions`: 1 - 2**p(x), except for small x."""
    table = error_functions.TABLES[x.dtype]
    size = at_most(magnitude(x), table.one)
    close = fma(polynomial(size * size, table.near), size, size)
    far = 1.0 - near("exp2", polynomial(size, table.far))
    return signed_like(select(size < 1.0, close, far), x)


def sin(x: Scalar) -> Scalar:
    return select(magnitude(x) < layout(x).smallest, x, near("sin", x))


def cos(x: Scalar) -> Scalar:
    return near("cos", x)


def rough_exp(x: Scalar) -> Scalar:
    """To |x| / 2**23 and two units."""
    return near("exp2", x * sum(LOG2_E))


def rough_sigmoid(x: Scalar) -> Scalar:
    return quick_inverse(near("exp2", x * -sum(LOG2_E)) + 1.0)


ROUGH = {"rough_exp": rough_exp, "rough_sigmoid": rough_sigmoid}
"""For results that are rounded to half precision, see `analysis.find_approximable_results`."""

EXPANSIONS = {"exp": exp, "exp2": exp2, "sigmoid": sigmoid, "tanh": tanh, "erf": erf, "sin": sin, "cos": cos}


def expanded(op: str, dtype: str, args: tuple[Scalar, ...]) -> Scalar | None:
    """The operation in GPU instructions, where that is shorter. f16 and bf16 are computed in f32."""
    if op in ROUGH:
        return ROUGH[op](*args)
    if op not in EXPANSIONS or dtype not in ("f32", *WIDE):
        return None
    return cast(EXPANSIONS[op](*(cast(arg, "f32") for arg in args)), dtype)
