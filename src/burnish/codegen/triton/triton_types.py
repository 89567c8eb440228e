"""Dtypes of the scalar IR in Triton, and numbers as Triton literals.

    type_of("bf16")              tl.bfloat16
    signature_type("f32")        fp32, and *fp32 for a buffer
    literal(0.1, "f32")          0.1
    literal(0.1, "f64")          tl.full((), 0.1, tl.float64)

A plain number in Triton takes its type from the other operand in arithmetic, but not in `where`. A float that f32 holds
is f32 there, so any other type must be explicit.
"""

from __future__ import annotations

import math

FAR = 1 << 31
"""From this many elements on, positions are numbers of 64 bits."""

LONG_LINE = 100
"""An expression with a longer text gets a line and a name of its own."""

FULL_NAMES = {"u": "uint", "i": "int", "f": "float", "bf": "bfloat"}
SHORT_NAMES = {"b8": "i1", "f16": "fp16", "f32": "fp32", "f64": "fp64"}
"""The names of types in a kernel's signature that differ from ours."""

SMALLEST_NORMAL = 2.0**-126


def type_of(dtype: str) -> str:
    letters = dtype.rstrip("0123456789")
    return "tl.int1" if dtype == "b8" else f"tl.{FULL_NAMES[letters]}{dtype.removeprefix(letters)}"


def signature_type(dtype: str, is_number: bool = False) -> str:
    """Of a buffer, or of a number that is passed by value."""
    return ("" if is_number else "*") + SHORT_NAMES.get(dtype, dtype)


def literal(value: bool | int | float, dtype: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        text = "float('nan')" if math.isnan(value) else "float('inf')" if value > 0 else "float('-inf')"
    else:
        text = repr(value)
    is_plain = dtype == "f32" and (value == 0 or not math.isfinite(value) or abs(value) >= SMALLEST_NORMAL)
    return text if is_plain else f"tl.full((), {text}, {type_of(dtype)})"
