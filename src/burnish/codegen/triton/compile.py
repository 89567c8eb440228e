"""From kernels to what a program launches on a GPU.

    kernels = compile_kernels(launches, device=0)
    kernels = compile_open_kernels(opened, point, device=0)         which are told sizes

Equal kernels are one, and stay where they are for as long as the process runs.
"""

from __future__ import annotations

import contextvars
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from ... import events
from ...runtime import cuda, forks
from ...runtime.cuda import CudaKernel
from ...schedule.emit import Launch
from ...tensors.sizes import Point
from .cubin import Cubin, compile_cubin
from .kernel import Printed, SizeType, print_kernel
from .launch import launching
from .open_kernel import OpenKernel

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


def compile_open_kernels(kernels: Sequence[OpenKernel], point: Point, device: int) -> list[CudaKernel]:
    """With the forms that these sizes take. Others are compiled when sizes come that take them."""
    loaded = OpenForms(device)
    loaded.prepare([kernel.at(point).printed for kernel in kernels])
    address = cuda.launch_address()
    return [CudaKernel(kernel.name, launching(kernel.name, len(kernel.kernel.dtypes), address),
                       open_words(kernel, loaded), device) for kernel in kernels]


def open_words(kernel: OpenKernel, loaded: Callable[[Printed], Loaded]) -> cuda.OpenWords:
    def at(point: Point) -> cuda.LocalWords:
        launching = kernel.at(point)
        form = loaded(launching.printed)
        return cuda.words_of(form.function, launching.grid, form.threads, form.kinds, form.unaligned, launching.sizes)

    return cuda.OpenWords(at)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A form of an open kernel on a GPU."""

    function: cuda.Function
    threads: int
    kinds: Sequence[int]
    unaligned: Callable[[], cuda.Function]


_forms: dict[tuple[str, frozenset[int], tuple[SizeType, ...], int], Loaded] = {}


class OpenForms:
    """Those of one GPU."""

    def __init__(self, device: int):
        self.device = device
        major, minor = torch.cuda.get_device_capability(device)
        self.architecture = 10 * major + minor

    def key(self, printed: Printed) -> tuple[str, frozenset[int], tuple[SizeType, ...], int]:
        return printed.text, printed.numbers, printed.sizes, self.device

    def __call__(self, printed: Printed) -> Loaded:
        if self.key(printed) not in _forms:
            self.prepare([printed])
        return _forms[self.key(printed)]

    def prepare(self, printed: Sequence[Printed]) -> None:
        missing = {self.key(one): one for one in printed if self.key(one) not in _forms}
        for key, cubin in zip(missing, cubins(list(missing.values()), self.architecture), strict=True):
            made = self.made(missing[key], cubin)
            with _lock:
                _forms.setdefault(key, made)

    def made(self, printed: Printed, cubin: Cubin) -> Loaded:
        @functools.cache
        def unaligned() -> cuda.Function:
            return on_gpu(compile_cubin(printed, self.architecture, is_aligned=False), self.device)

        return Loaded(on_gpu(cubin, self.device), cubin.threads, kinds_of(printed, cubin), unaligned)


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
    words = cuda.words_of(on_gpu(cubin, device), printed.grid, cubin.threads, kinds_of(printed, cubin),
                          lambda: on_gpu(compile_cubin(printed, architecture, is_aligned=False), device))
    return CudaKernel(printed.name, launching(printed.name, len(printed.dtypes), cuda.launch_address()), words, device)


def on_gpu(cubin: Cubin, device: int) -> cuda.Function:
    return cuda.load(cubin.code, cubin.name, cubin.shared, device)


def kinds_of(printed: Printed, cubin: Cubin) -> list[int]:
    """Of the parameters: those that Triton adds at the end are null."""
    kinds = [cuda.NUMBER if n in printed.numbers else cuda.POINTER for n in range(len(printed.dtypes))]
    kinds += [cuda.SIZE] * len(printed.sizes)
    return kinds + [cuda.NOTHING] * (cubin.parameters - len(kinds))


__all__ = ["Loaded", "compile_kernels", "compile_open_kernels", "open_words"]
