"""LLVM types of the scalar IR's dtypes, in registers and in memory.

    >>> register("f32", 16), register("b8", 16), memory("b8", 16)
    ('<16 x float>', '<16 x i1>', '<16 x i8>')

bf16 is held as its 16 bits. Arithmetic on it is done in float, and LLVM's own type would add library calls on machines
without instructions for it. The types follow from the records in `tensors.dtypes`.
"""

from __future__ import annotations

import math
import struct

from ...ops.scalar_ir import wrap
from ...tensors.dtypes import BITS, DIGITS

_FLOATS = {(16, 11): "half", (32, 24): "float", (64, 53): "double"}
"""By bits and digits. Other floats are held as their bits."""

_SUFFIX = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "ptr": "p0",
}


def vector(scalar: str, width: int) -> str:
    return scalar if width == 1 else f"<{width} x {scalar}>"


def register(dtype: str, width: int = 1) -> str:
    return vector("i1" if dtype == "b8" else _in_memory(dtype), width)


def memory(dtype: str, width: int = 1) -> str:
    """A bool is a byte in memory."""
    return vector(_in_memory(dtype), width)


def _in_memory(dtype: str) -> str:
    return _FLOATS.get((BITS[dtype], DIGITS.get(dtype, 0)), f"i{BITS[dtype]}")


def size(dtype: str) -> int:
    return BITS[dtype] // 8


def suffix(scalar: str, width: int = 1) -> str:
    """The type in the names of LLVM's intrinsics: `v16f32`."""
    return _SUFFIX[scalar] if width == 1 else f"v{width}{_SUFFIX[scalar]}"


def literal(value: bool | int | float, dtype: str, width: int = 1) -> str:
    """A constant, as an operand without its type."""
    if dtype == "b8":
        text = "true" if value else "false"
    elif dtype in ("f32", "f64"):
        text = _hexadecimal(_to_single(value) if dtype == "f32" else float(value))
    elif dtype == "f16":
        text = f"0xH{_half_bits(_to_single(value)):04X}"
    elif dtype == "bf16":
        text = str(bf16_bits(value))
    else:
        text = str(wrap(int(value), dtype))
    return text if width == 1 else f"splat ({register(dtype)} {text})"


def _hexadecimal(value: float) -> str:
    """LLVM writes both float and double as the bits of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _to_single(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _half_bits(value: float) -> int:
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


def bf16_bits(value: float) -> int:
    """Rounds to nearest even from single precision, as eager does."""
    single = _to_single(value)
    if math.isnan(single):
        return 0x7FC0
    bits = struct.unpack("<I", struct.pack("<f", single))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
