"""Compiles kernels with Triton and loads them onto a GPU, ready to launch.

    kernels = compile_kernels(launches, device=0)
    kernels = compile_symbolic_kernels(kernels, point, device=0)         for symbolic sizes

Equal kernels are compiled once, and stay loaded as long as the process runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ... import events
from ...concurrency import thread_locks
from ...concurrency.first_value_cache import once
from ...concurrency.outside_errors import reraise_from_outside
from ...runtime.linking import cuda_module_loader
from ...runtime.linking.cuda_module_loader import CudaKernel
from ...schedule.loops.build_kernel import Launch
from ...settings import current
from ...tensors.fit_size_formulas import Point
from .autotune_tiles import choose_tiles
from .compilation.cubin_cache import Cubin, compile_cubin, compile_cubins, toolchain_key, without_comments
from .gpu_timing import seconds_of
from .kernel_function import PrintedKernel, print_kernel
from .launch_function import launching
from .symbolic_size_kernel import SymbolicTritonKernel

_made: dict[tuple[Hashable, ...], CudaKernel] = {}
_lock = thread_locks.lock()


def compile_kernels(launches: Sequence[Launch], device: int) -> list[CudaKernel]:
    if current().max_autotune:
        printed = choose_tiles(
            launches, device, toolchain_key(architecture_of(device)), lambda some: loadable(some, device), seconds_of
        )
    else:
        printed = [print_kernel(launch.kernel, launch.numbers) for launch in launches]
    prepare(printed, device)
    return [_made[key_of(one, device)] for one in printed]


def loadable(printed: Sequence[PrintedKernel], device: int) -> list[CudaKernel | None]:
    """None for kernels that the GPU rejects because their programs need more than it has."""
    refused = prepare(printed, device, is_trial=True)
    return [None if (key := key_of(one, device)) in refused else _made[key] for one in printed]


def prepare(printed: Sequence[PrintedKernel], device: int, is_trial: bool = False) -> dict[tuple[Hashable, ...], str]:
    """Loads all of them onto the GPU. Returns those that a trial shows it rejects, and why."""
    refused: dict[tuple[Hashable, ...], str] = {}
    architecture = architecture_of(device)
    with _lock:
        missing = {key: one for one in printed if (key := key_of(one, device)) not in _made}
    for (key, one), cubin in zip(missing.items(), cubins(list(missing.values()), architecture), strict=True):
        try:
            kernel = loaded(one, cubin, device, architecture)
        except RuntimeError as error:
            reraise_from_outside(error)
            if not is_trial:
                raise
            refused[key] = str(error)
            continue
        with _lock:
            _made.setdefault(key, kernel)
    return refused


def architecture_of(device: int) -> int:
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def cubins(printed: Sequence[PrintedKernel], architecture: int) -> Iterator[Cubin]:
    for one, made in zip(printed, compile_cubins(printed, architecture), strict=True):
        if events.is_watched("kernels"):
            events.emit("kernels", name=one.name, text=one.text, seconds=made.seconds)
        yield made.cubin


def compile_symbolic_kernels(kernels: Sequence[SymbolicTritonKernel], point: Point, device: int) -> list[CudaKernel]:
    """Compiles the forms that these sizes need. Other forms are compiled when sizes come that need them."""
    loaded = LoadedForms(device)
    loaded.prepare([kernel.at(point).printed for kernel in kernels])
    address = cuda_module_loader.launch_address()
    return [
        CudaKernel(
            kernel.name,
            launching(kernel.name, len(kernel.kernel.dtypes), address),
            symbolic_words(kernel, loaded),
            device,
        )
        for kernel in kernels
    ]


def symbolic_words(
    kernel: SymbolicTritonKernel, loaded: Callable[[PrintedKernel], Loaded]
) -> cuda_module_loader.SymbolicWords:
    def at(point: Point) -> cuda_module_loader.LocalWords:
        launching = kernel.at(point)
        form = loaded(launching.printed)
        return cuda_module_loader.words_of(
            form.function, launching.grid, form.threads, form.kinds, form.unaligned, launching.sizes, form.device
        )

    return cuda_module_loader.SymbolicWords(at)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A form of a symbolic-size kernel, loaded on a GPU."""

    function: cuda_module_loader.CudaFunction
    threads: int
    kinds: Sequence[int]
    unaligned: Callable[[], cuda_module_loader.CudaFunction]
    device: int = 0


_forms: dict[tuple[Hashable, ...], Loaded] = {}


class LoadedForms:
    """The loaded forms on one GPU."""

    def __init__(self, device: int):
        self.device, self.architecture = device, architecture_of(device)

    def __call__(self, printed: PrintedKernel) -> Loaded:
        if key_of(printed, self.device) not in _forms:
            self.prepare([printed])
        return _forms[key_of(printed, self.device)]

    def prepare(self, printed: Sequence[PrintedKernel]) -> None:
        missing = {key_of(one, self.device): one for one in printed if key_of(one, self.device) not in _forms}
        for key, cubin in zip(missing, cubins(list(missing.values()), self.architecture), strict=True):
            made = self.made(missing[key], cubin)
            with _lock:
                _forms.setdefault(key, made)

    def made(self, printed: PrintedKernel, cubin: Cubin) -> Loaded:
        @once
        def unaligned() -> cuda_module_loader.CudaFunction:
            return on_gpu(compile_cubin(printed, self.architecture, is_aligned=False), self.device)

        return Loaded(on_gpu(cubin, self.device), cubin.threads, kinds_of(printed, cubin), unaligned, self.device)


def key_of(printed: PrintedKernel, device: int) -> tuple[Hashable, ...]:
    """Includes the grid: kernels with the same code may run as different numbers of programs."""
    return (
        without_comments(printed.text),
        printed.dtypes,
        printed.numbers,
        printed.sizes,
        printed.warps,
        printed.grid,
        device,
    )


def loaded(printed: PrintedKernel, cubin: Cubin, device: int, architecture: int) -> CudaKernel:
    words = cuda_module_loader.words_of(
        on_gpu(cubin, device),
        printed.grid,
        cubin.threads,
        kinds_of(printed, cubin),
        lambda: on_gpu(compile_cubin(printed, architecture, is_aligned=False), device),
        device=device,
    )
    return CudaKernel(
        printed.name, launching(printed.name, len(printed.dtypes), cuda_module_loader.launch_address()), words, device
    )


def on_gpu(cubin: Cubin, device: int) -> cuda_module_loader.CudaFunction:
    return cuda_module_loader.load(cubin.code, cubin.name, cubin.shared, device)


def kinds_of(printed: PrintedKernel, cubin: Cubin) -> list[int]:
    """The kinds of the parameters. Triton adds parameters at the end, which are null."""
    kinds = [
        cuda_module_loader.NUMBER if n in printed.numbers else cuda_module_loader.POINTER
        for n in range(len(printed.dtypes))
    ]
    kinds += [cuda_module_loader.SIZE] * len(printed.sizes)
    return kinds + [cuda_module_loader.NOTHING] * (cubin.parameters - len(kinds))
