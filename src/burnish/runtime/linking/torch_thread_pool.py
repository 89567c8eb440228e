"""Addresses of torch's parallel-for and thread pool functions, for native code.

    addresses()    {"torch_parallel_for": 0x7f…}

Native kernels run on the thread pool of eager operators. So `torch.set_num_threads` applies to both, no second pool
is started, and a kernel inside a parallel region stays on its thread. `torch_parallel_for` is part of libtorch's
stable C interface and does all of that. A torch without it still contains the OpenMP library that its own loops use.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from ...concurrency.first_value_cache import once

PARALLEL = "torch_parallel_for"
LIBTORCH = ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll")
OPENMP = ("libgomp.so.1", "libgomp.so", "libgomp-*.so*")
OPENMP_FUNCTIONS = (
    "GOMP_parallel",
    "omp_in_parallel",
    "omp_get_max_threads",
    "omp_get_num_threads",
    "omp_get_thread_num",
)


@once
def addresses() -> dict[str, int]:
    """The address of `torch_parallel_for`; else those of OpenMP functions to implement it with; else none."""
    folder = Path(torch.__file__).parent / "lib"
    found = addresses_in([folder / name for name in LIBTORCH], (PARALLEL,))
    return found or openmp_addresses()


def openmp_addresses() -> dict[str, int]:
    folder = Path(torch.__file__).parent
    files = [
        file
        for pattern in OPENMP
        for place in (folder / "lib", folder.parent / "torch.libs")
        for file in sorted(place.glob(pattern))
    ]
    return addresses_in(files, OPENMP_FUNCTIONS)


def addresses_in(files: list[Path], names: tuple[str, ...]) -> dict[str, int]:
    """The addresses of all names, in the first of the files that has them all; else none."""
    for file in files:
        if not file.exists():
            continue
        try:
            library = ctypes.CDLL(str(file))  # loaded already by torch
            return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}
        except (OSError, AttributeError):
            continue
    return {}
