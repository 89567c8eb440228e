"""Compiles matmul kernels for a GPU and times them: the `Maker` that `schedule.library.gpu_matmul_spec` needs.

    made = make([(spec, Tiles(128, 128, 64, 8, 3)), (spec, Tiles(64, 64, 64, 4, 4)), (loops, None)])
    seconds_of(run)

Configurations are compiled in parallel, and stay loaded as long as the process runs. For one that the GPU rejects, for
example because it needs too much shared memory, the reason is returned.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from ... import events
from ...concurrency import thread_locks
from ...concurrency.await_future import result_of
from ...concurrency.first_value_cache import once
from ...concurrency.outside_errors import reraise_from_outside
from ...errors import InternalError
from ...runtime.linking import cuda_module_loader
from ...runtime.linking.cuda_module_loader import CudaKernel
from ...schedule.library.gpu_matmul_spec import KernelSpec, LaunchableKernel, Maker, MatmulTiles
from ...schedule.library.own_kernels.matmul_tiling_and_packing import Stream
from .compilation.cubin_cache import MOST_THREADS, compile_cubin, toolchain_key
from .compile_kernels import architecture_of, loaded
from .gpu_timing import seconds_of
from .kernel_function import PrintedKernel, print_kernel
from .matmul_kernel import print_matrix

_made: dict[tuple[str, int, int], CudaKernel] = {}
_lock = thread_locks.lock()


def maker() -> Maker:
    return Maker(seconds_of, torch.cuda.device, about, make)


def make(wanted: Sequence[tuple[KernelSpec, MatmulTiles | None]]) -> list[LaunchableKernel | str]:
    """All for one GPU."""
    device = wanted[0][0].output.device
    index = torch.cuda.current_device() if device.index is None else device.index
    architecture = architecture_of(index)
    texts = [printed_for(spec, tiles) for spec, tiles in wanted]

    def one(printed: PrintedKernel, context: contextvars.Context) -> CudaKernel | str:
        key = printed.text, printed.stages, index
        with _lock:
            found = _made.get(key)
        if found is not None:
            return found
        try:
            cubin = context.run(compile_cubin, printed, architecture)
            kernel = context.run(loaded, printed, cubin, index, architecture)
        except (InternalError, RuntimeError) as error:
            reraise_from_outside(error)
            return str(error).partition("\n")[0]
        if events.is_watched("kernels"):
            events.emit("kernels", name=printed.name, text=printed.text)
        with _lock:
            return _made.setdefault(key, kernel)

    contexts = [contextvars.copy_context() for _ in texts]
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1, len(texts)), "burnish-triton") as pool:
        kernels = [result_of(each) for each in [pool.submit(one, *pair) for pair in zip(texts, contexts, strict=True)]]
    return [
        kernel if isinstance(kernel, str) else LaunchableKernel(kernel.launcher, kernel.words, stream_of(index))
        for kernel in kernels
    ]


def printed_for(spec: KernelSpec, tiles: MatmulTiles | None) -> PrintedKernel:
    return print_kernel(spec.kernel) if tiles is None else print_matrix(spec.kernel, tiles, spec.precision)


@once
def stream_of(index: int) -> Stream:
    return Stream(index, lambda: cuda_module_loader.current_stream(index), complain)


def complain() -> None:
    if cuda_module_loader.failure.value:
        cuda_module_loader.raise_launch_error()


def about(device: torch.device) -> str:
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"{torch.cuda.get_device_name(index)} {toolchain_key(architecture_of(index))}"
