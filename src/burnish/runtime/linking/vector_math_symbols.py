"""Addresses of the Sleef vector math functions that eager computes with, for native code.

    addresses(16, "f32")    {"sin": ("Sleef_sinf16_u10", 0x7f…), …}

libtorch_cpu on x86-64 contains Sleef and exports it. Its functions take and return whole vectors. Where they are
missing, native code uses its own expansions, or computes lane by lane if there is none.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from ...concurrency.first_value_cache import once

ACCURACY = {"erfc": "u15"}
"""In tenths of a unit in the last place, part of the symbol. The default is u10."""

FUNCTIONS = "sin cos tan asinh acosh atanh erfc pow lgamma".split()


@once
def addresses(lanes: int, dtype: str) -> dict[str, tuple[str, int]]:
    """Symbol and address by operation. Empty where torch exports none for vectors of this many lanes."""
    file = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not file.exists():
        return {}
    library = ctypes.CDLL(str(file))  # loaded already by torch
    found = {}
    for function in FUNCTIONS:
        symbol = f"Sleef_{function}{'f' if dtype == 'f32' else 'd'}{lanes}_{ACCURACY.get(function, 'u10')}"
        try:
            address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        except AttributeError:
            continue
        if address:
            found[function] = (symbol, address)
    return found


@once
def symbols() -> dict[str, int]:
    """All of them, by symbol."""
    return {
        symbol: address
        for lanes in (2, 4, 8, 16)
        for dtype in ("f32", "f64")
        for symbol, address in addresses(lanes, dtype).values()
    }
