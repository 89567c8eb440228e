"""Addresses of the BLAS matrix products that torch links, for native code.

    symbols()    {"sgemm_": 0x7f…, "cblas_sgemm_compute": 0x7f…, …}

libtorch_cpu on x86-64 contains MKL and exports it. A product called there is the one that eager computes, without
dispatcher and Python. Other BLAS libraries are called through torch, which may choose better functions of theirs.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ...concurrency.first_value_cache import once
from .torch_thread_pool import addresses_in

PLAIN = {torch.float32: "sgemm_", torch.float64: "dgemm_"}
PACKED = "cblas_sgemm_compute"
"""One of the matrices was packed before, see `schedule.library.call_candidates.mkl`."""


@once
def symbols() -> dict[str, int]:
    """All of them, or none."""
    if not torch.backends.mkl.is_available():
        return {}
    return addresses_in([Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"], (*PLAIN.values(), PACKED))
