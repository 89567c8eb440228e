"""From kernels to what a program launches on a GPU.

    kernels = compile_kernels(launches, device=0)

Equal kernels are one, and stay where they are for as long as the process runs.
"""

from __future__ import annotations

import contextvars
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from ... import events
from ...runtime import cuda, forks
from ...runtime.cuda import CudaKernel
from ...schedule.emit import Launch
from .cubin import Cubin, compile_cubin
from .kernel import Printed, print_kernel
from .launch import launching

_made: dict[tuple[str, frozenset[int], int], CudaKernel] = {}
_lock = forks.lock()


MOST_THREADS = 8
"""Triton lets go of Python's lock in LLVM's passes and in the assembler, about half of its time."""


def compile_kernels(launches: Sequence[Launch], device: int) -> list[CudaKernel]:
    major, minor = torch.cuda.get_device_capability(device)
    architecture = 10 * major + minor
    printed = [print_kernel(launch.kernel, launch.numbers) for launch in launches]
    keys = [(one.text, one.numbers, device) for one in printed]
    with _lock:
        missing = {key: one for key, one in zip(keys, printed, strict=True) if key not in _made}
    for key, cubin in zip(missing, cubins(list(missing.values()), architecture), strict=True):
        made = loaded(missing[key], cubin, device, architecture)
        with _lock:
            _made.setdefault(key, made)
    return [_made[key] for key in keys]


def cubins(printed: Sequence[Printed], architecture: int) -> Iterator[Cubin]:
    """Side by side, each under the settings of this thread."""
    def one(kernel: Printed, context: contextvars.Context) -> Cubin:
        start = time.perf_counter()
        made = context.run(compile_cubin, kernel, architecture)
        if events.is_watched():
            events.emit("kernels", name=kernel.name, text=kernel.text, seconds=time.perf_counter() - start)
        return made

    contexts = [contextvars.copy_context() for _ in printed]
    threads = min(MOST_THREADS, os.cpu_count() or 1, len(printed))
    if threads < 2:
        return map(one, printed, contexts)
    with ThreadPoolExecutor(threads, "burnish-triton") as pool:
        try:
            made = [pool.submit(one, *each) for each in zip(printed, contexts, strict=True)]
        except RuntimeError:  # the interpreter is ending, or the machine has no thread left
            return map(one, printed, contexts)
        return iter([each.result() for each in made])


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
