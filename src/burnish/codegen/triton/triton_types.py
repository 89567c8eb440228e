"""Dtypes of the scalar IR in Triton, and numbers as Triton literals.

    TYPES["bf16"]                tl.bfloat16
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

TYPES = {
    "b8": "tl.int1",
    "u8": "tl.uint8",
    "i8": "tl.int8",
    "i16": "tl.int16",
    "i32": "tl.int32",
    "i64": "tl.int64",
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "f64": "tl.float64",
}

POINTERS = {
    "b8": "*i1",
    "u8": "*u8",
    "i8": "*i8",
    "i16": "*i16",
    "i32": "*i32",
    "i64": "*i64",
    "f16": "*fp16",
    "bf16": "*bf16",
    "f32": "*fp32",
    "f64": "*fp64",
}
"""The types of buffers in a kernel's signature."""

NUMBERS = {"f64": "fp64", "i64": "i64"}
"""The types of numbers passed by value in a kernel's signature."""

SMALLEST_NORMAL = 2.0**-126


def literal(value: bool | int | float, dtype: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        text = "float('nan')" if math.isnan(value) else "float('inf')" if value > 0 else "float('-inf')"
    else:
        text = repr(value)
    is_plain = dtype == "f32" and (value == 0 or not math.isfinite(value) or abs(value) >= SMALLEST_NORMAL)
    return text if is_plain else f"tl.full((), {text}, {TYPES[dtype]})"
