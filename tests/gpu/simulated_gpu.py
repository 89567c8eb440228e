"""A simulated GPU: CPU tensors, and kernels printed, launched and passed their arguments as on a GPU.

    with interpreted() as ran:
        burnish.compile(fn)(x)           lowered, scheduled and launched as on a GPU; ran: the names of the kernels

The driver's function to launch a kernel is a Python function: it reads the parameters from memory, as a GPU would, and
passes them to Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import replace

import burnish
from burnish.codegen.triton.compile_kernels import Loaded, symbolic_words
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.codegen.triton.launch_function import launching
from burnish.ops import target_record
from burnish.runtime.linking import cuda_module_loader
from burnish.targets import cuda

from ..codegen.triton_interpreter import Interpreted

MACHINE = replace(cuda.TRITON, name="interpreter")
STREAM = 4711
"""Of the first GPU. That of the next is one more."""

kernels: dict[int, tuple[Interpreted, int]] = {}
"""By the handle of their function. And the GPU that they are for."""
current = 0
"""The number of the current GPU."""
ran: list[str] = []
texts: list[str] = []
"""Of the kernels that have run, as they did."""
forms: list[str] = []
"""The texts of symbolic kernels, one for each compiled form."""
failures: list[BaseException] = []


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_uint32] * 7, *[ctypes.c_void_p] * 3)
def launch(function, x, y, z, threads, ty, tz, shared, stream, places, extra):
    try:
        kernel, device = kernels[function]
        printed = kernel.printed
        assert (y, z, stream, current) == (1, 1, STREAM + device, device) and (printed.sizes or x == printed.grid)
        at = ctypes.cast(places, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)))
        values = [
            ctypes.cast(at[n], ctypes.POINTER(ctypes.c_double))[0]
            if n in printed.numbers and dtype == "f64"
            else at[n][0]
            for n, dtype in enumerate(printed.dtypes)
        ]
        # Of a number of 32 bits a GPU reads no more than that.
        sizes = [
            ctypes.cast(at[n], ctypes.POINTER(ctypes.c_int32 if size.type == "i32" else ctypes.c_int64))[0]
            for n, size in enumerate(printed.sizes, len(printed.dtypes))
        ]
        ran.append(printed.name)
        texts.append(printed.text)
        kernel(*values, sizes=sizes, grid=x)
    except BaseException as error:
        failures.append(error)
        return 999
    return 0


def kernel_of(kernel, numbers, device=0):
    return placed(print_kernel(kernel, numbers), device)


def placed(printed, device=0):
    """A printed kernel, as it would be on a GPU."""
    made = Interpreted(printed)
    handle = len(kernels) + 1
    kernels[handle] = made, device
    kinds = [
        cuda_module_loader.NUMBER if n in printed.numbers else cuda_module_loader.POINTER
        for n in range(len(printed.dtypes))
    ]
    function = cuda_module_loader.CudaFunction(handle, 0)
    words = cuda_module_loader.words_of(
        function, printed.grid, 128, [*kinds, cuda_module_loader.NOTHING, cuda_module_loader.NOTHING], lambda: function
    )
    address = ctypes.cast(launch, ctypes.c_void_p).value
    return cuda_module_loader.CudaKernel(
        printed.name, launching(printed.name, len(printed.dtypes), address), words, device
    )


def elsewhere(index, run, *arguments):
    global current
    before, current = current, index
    try:
        return run(*arguments)
    finally:
        current = before


def compiled_open(alike, space):
    """Kernels with symbolic sizes. Each form of a kernel is a separate function."""
    return [open_kernel_of(kernel, space.points[0]) for kernel in cuda.symbolic_kernels_of(alike, space)]


def open_kernel_of(kernel, seen):
    made = {}

    def loaded(printed):
        if printed.text not in made:
            handle = len(kernels) + 1
            kernels[handle] = Interpreted(printed), 0
            forms.append(printed.text)
            kinds = [
                cuda_module_loader.NUMBER if n in printed.numbers else cuda_module_loader.POINTER
                for n in range(len(printed.dtypes))
            ]
            function = cuda_module_loader.CudaFunction(handle, 0)
            made[printed.text] = Loaded(
                function,
                128,
                [*kinds, *[cuda_module_loader.SIZE] * len(printed.sizes), cuda_module_loader.NOTHING],
                lambda: function,
            )
        return made[printed.text]

    loaded(kernel.at(seen).printed)
    address = ctypes.cast(launch, ctypes.c_void_p).value
    return cuda_module_loader.CudaKernel(
        kernel.name,
        launching(kernel.name, len(kernel.kernel.dtypes), address),
        symbolic_words(kernel, loaded),
        device=0,
    )


@contextlib.contextmanager
def interpreted(gpus: int = 1) -> Iterator[list[str]]:
    """Yields the names of the kernels that have run, as a live list. With several GPUs each has some of them."""
    ran.clear()
    texts.clear()
    forms.clear()
    turns = itertools.cycle(range(gpus))
    machine = replace(
        MACHINE,
        compile_kernels=lambda launches: [kernel_of(launch.kernel, launch.numbers, next(turns)) for launch in launches],
        compile_symbolic_kernels=compiled_open,
    )
    before = (
        cuda_module_loader.current_device,
        cuda_module_loader.current_stream,
        cuda_module_loader.run_on_other_gpu,
        cuda_module_loader.explained,
    )
    cuda_module_loader.current_device, cuda_module_loader.current_stream = lambda: current, lambda index: STREAM + index
    cuda_module_loader.run_on_other_gpu = elsewhere
    cuda_module_loader.explained = lambda result: f"{failures[0]!r}"
    with target_record.substitute_target("cpu", machine), burnish.settings.patch(cache=False, never_slower=False):
        try:
            yield ran
        finally:
            (
                cuda_module_loader.current_device,
                cuda_module_loader.current_stream,
                cuda_module_loader.run_on_other_gpu,
                cuda_module_loader.explained,
            ) = before
            cuda_module_loader.failure.value = 0
            failures.clear()
