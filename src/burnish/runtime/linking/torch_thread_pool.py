"""torch's own threads, for native code: where the functions lie that share work out among them.

    addresses()    {"torch_parallel_for": 0x7f…}

Native kernels run on the pool that eager operators run on, so that `torch.set_num_threads` holds for both, nothing is
started twice, and a kernel inside a parallel region stays on its thread. `torch_parallel_for` is of libtorch's stable
C interface and does all of that. A torch without it still brings the OpenMP library along that its own loops use.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from ...concurrency.compute_once import once

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
    """Of `torch_parallel_for`, or else of what it can be written with on OpenMP, or of nothing."""
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
    """Of all the names, in the first of the files that has them; else nothing."""
    for file in files:
        if not file.exists():
            continue
        try:
            library = ctypes.CDLL(str(file))  # loaded already: torch did it
            return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}
        except (OSError, AttributeError):
            continue
    return {}
