"""The products of torch's own BLAS, for native code: where they lie.

    symbols()    {"sgemm_": 0x7f…, "cblas_sgemm_compute": 0x7f…, …}

libtorch_cpu on x86-64 brings MKL along and exports it. Called there, a product is the one that eager computes, without
a dispatcher and without Python. Other libraries are left to torch, which may know better ones than their plain product.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ...concurrency.compute_once import once
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
