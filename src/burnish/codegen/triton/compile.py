"""From kernels to what a program launches on a GPU.

    kernels = compile_kernels(launches, device=0)

Equal kernels are one, and stay where they are for as long as the process runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from ... import events
from ...runtime import cuda, forks
from ...runtime.cuda import CudaKernel
from ...schedule.emit import Launch
from .cubin import Cubin, compile_cubin, compile_cubins, without_comments
from .kernel import Printed, print_kernel
from .launch import launching

_made: dict[tuple[Hashable, ...], CudaKernel] = {}
_lock = forks.lock()


def compile_kernels(launches: Sequence[Launch], device: int) -> list[CudaKernel]:
    major, minor = torch.cuda.get_device_capability(device)
    architecture = 10 * major + minor
    printed = [print_kernel(launch.kernel, launch.numbers) for launch in launches]
    keys = [key_of(one, device) for one in printed]
    with _lock:
        missing = {key: one for key, one in zip(keys, printed, strict=True) if key not in _made}
    for (key, one), made in zip(missing.items(), compile_cubins(list(missing.values()), architecture), strict=True):
        if events.is_watched():
            events.emit("kernels", name=one.name, text=one.text, seconds=made.seconds)
        kernel = loaded(one, made.cubin, device, architecture)
        with _lock:
            _made.setdefault(key, kernel)
    return [_made[key] for key in keys]


def key_of(printed: Printed, device: int) -> tuple[Hashable, ...]:
    """Two kernels of the same code may run as different numbers of programs."""
    return without_comments(printed.text), printed.dtypes, printed.numbers, printed.warps, printed.grid, device


def loaded(printed: Printed, cubin: Cubin, device: int, architecture: int) -> CudaKernel:
    def on_gpu(cubin: Cubin) -> cuda.Function:
        return cuda.load(cubin.code, cubin.name, cubin.shared, device)

    words = cuda.words_of(on_gpu(cubin), printed.grid, cubin.threads, kinds_of(printed, cubin),
                          lambda: on_gpu(compile_cubin(printed, architecture, is_aligned=False)))
    return CudaKernel(printed.name, launching(printed.name, len(printed.dtypes), cuda.launch_address()), words, device)


def kinds_of(printed: Printed, cubin: Cubin) -> list[int]:
    """Of the parameters: those that Triton adds at the end are null."""
    kinds = [cuda.NUMBER if n in printed.numbers else cuda.POINTER for n in range(len(printed.dtypes))]
    return kinds + [cuda.NOTHING] * (cubin.parameters - len(kinds))


__all__ = ["compile_kernels"]
