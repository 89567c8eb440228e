"""The vector functions that eager itself computes with, for native code: where they lie.

    addresses(16, "f32")    {"sin": ("Sleef_sinf16_u10", 0x7f…), …}

libtorch_cpu on x86-64 brings Sleef along and exports it. Its functions take and give whole vectors. Where they are not
there, native code computes with expansions of its own, and without one lane by lane.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from ...concurrency.compute_once import once

ACCURACY = {"erfc": "u15"}
"""In tenths of a last place, half way through the names. What is not here comes as u10."""

FUNCTIONS = "sin cos tan asinh acosh atanh erfc pow lgamma".split()


@once
def addresses(lanes: int, dtype: str) -> dict[str, tuple[str, int]]:
    """By operation, the symbol and its address. Empty where torch exports none for vectors of so many lanes."""
    file = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not file.exists():
        return {}
    library = ctypes.CDLL(str(file))  # loaded already: torch did it
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
