"""Exact values of functions, in higher precision than the result, and errors in units in the last place.

    last_places(exp_of_f32, EXACT["exp"](x.astype(float64)), "f32")     errors in units in the last place

For results in f32 the reference is computed in float64, for results in f64 with mpmath, as a sum of two float64.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import scipy.special
import torch
from mpmath import mp

EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    # exp(-x) overflows on one side, and 1 is lost on the other.
    "sigmoid": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}

MPMATH = {
    "exp2": lambda x: mp.mpf(2) ** x,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "log2": lambda x: mp.log(x, 2),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}


def exact(op: str, x: np.ndarray) -> np.ndarray:
    """In float64, for an f32."""
    with np.errstate(all="ignore"):
        return EXACT[op](x.astype(np.float64))


def exact_in_f64(op: str, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """High and low word, for f64. Operands are finite and within the function's domain."""
    function = MPMATH.get(op) or getattr(mp, op)
    high, low = np.empty(len(operands[0])), np.empty(len(operands[0]))
    # 2100 bits hold every f64, but only sums of the largest and the smallest would need them.
    with mp.workprec(200):
        for k, values in enumerate(zip(*(operand.tolist() for operand in operands), strict=True)):
            value = function(*map(mp.mpf, values))
            high[k] = as_float(value)
            low[k] = as_float(value - high[k]) if np.isfinite(high[k]) else 0.0
    return high, low


def as_float(value: mpmath.mpf) -> float:
    """Rounded once. float() rounds to 53 bits first, and again where the result is denormal."""
    if value == 0 or abs(value) >= mp.mpf(2) ** -1022:
        return float(value) if abs(value) < mp.mpf(2) ** 1024 - mp.mpf(2) ** 970 else float(mp.sign(value)) * np.inf
    return float(mp.nint(value * mp.mpf(2) ** 1074)) * 2.0**-1074


def last_places(found: np.ndarray, right: np.ndarray, dtype: str, low: np.ndarray | float = 0.0) -> np.ndarray:
    """|found - (right + low)| in units in the last place of `right`. Infinity where one alone is NaN."""
    digits, smallest, largest = (24, -126, 128) if dtype == "f32" else (53, -1022, 1024)
    if dtype == "f32":
        # Values beyond the largest float may be rounded to infinity: infinity counts as the next power of two.
        with np.errstate(invalid="ignore"):
            found = np.clip(found.astype(np.float64), -(2.0**largest), 2.0**largest)
        right = np.clip(right, -(2.0**largest), 2.0**largest)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(np.where(np.isfinite(right), right, 1.0))[1] - 1, smallest, largest - 1)
        # In two steps: the unit itself may be denormal.
        difference = np.where(found == right, 0.0, found - right) - low
        error = np.abs(np.ldexp(np.ldexp(difference, -(exponent // 2)), digits - 1 - exponent + exponent // 2))
    both, one = np.isnan(found) & np.isnan(right), np.isnan(found) != np.isnan(right)
    return np.where(both, 0.0, np.where(one, np.inf, error))


def eager(op: str, *operands: np.ndarray) -> np.ndarray:
    function = {"floor_div": torch.floor_divide}.get(op) or getattr(torch, op)
    return function(*(torch.from_numpy(operand) for operand in operands)).numpy()
