"""A GPU that is none: CPU tensors, and kernels printed, launched and passed their arguments as on a GPU.

    with interpreted() as ran:
        burnish.compile(fn)(x)           lowered, scheduled and launched as on a GPU; ran: the names of the kernels

The driver's function to launch a kernel is one of Python's: it takes the parameters from where they lie, as a GPU
would, and gives them to Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import replace

import burnish
from burnish.backends import gpu
from burnish.codegen.triton.kernel import print_kernel
from burnish.codegen.triton.launch import launching
from burnish.runtime import cuda
from burnish.schedule import machines

from ..codegen.triton_interpreter import Interpreted

MACHINE = replace(gpu.TRITON, name="interpreter")
STREAM = 4711

kernels: dict[int, Interpreted] = {}
"""By the handle of their function."""
ran: list[str] = []
texts: list[str] = []
failures: list[BaseException] = []


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_uint32] * 7, *[ctypes.c_void_p] * 3)
def launch(function, x, y, z, threads, ty, tz, shared, stream, places, extra):
    try:
        kernel = kernels[function]
        assert (x, y, z, stream) == (kernel.printed.grid, 1, 1, STREAM)
        at = ctypes.cast(places, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)))
        values = [ctypes.cast(at[n], ctypes.POINTER(ctypes.c_double))[0]
                  if n in kernel.printed.numbers and dtype == "f64" else at[n][0]
                  for n, dtype in enumerate(kernel.printed.dtypes)]
        ran.append(kernel.printed.name)
        texts.append(kernel.printed.text)
        kernel(*values)
    except BaseException as error:
        failures.append(error)
        return 999
    return 0


def compiled(launches):
    return [kernel_of(launch.kernel, launch.numbers) for launch in launches]


def kernel_of(kernel, numbers):
    return placed(print_kernel(kernel, numbers))


def placed(printed):
    """A printed kernel, as it would be on a GPU."""
    made = Interpreted(printed)
    handle = len(kernels) + 1
    kernels[handle] = made
    kinds = [cuda.NUMBER if n in printed.numbers else cuda.POINTER for n in range(len(printed.dtypes))]
    function = cuda.Function(handle, 0)
    words = cuda.words_of(function, printed.grid, 128, [*kinds, cuda.NOTHING, cuda.NOTHING], lambda: function)
    address = ctypes.cast(launch, ctypes.c_void_p).value
    return cuda.CudaKernel(printed.name, launching(printed.name, len(printed.dtypes), address), words, device=0)


@contextlib.contextmanager
def interpreted() -> Iterator[list[str]]:
    """Gives the names of the kernels that have run, as they do."""
    ran.clear()
    texts.clear()
    gpu.COMPILERS[MACHINE.name] = compiled
    before = cuda.current_device, cuda.current_stream, cuda.explained
    cuda.current_device, cuda.current_stream = lambda: 0, lambda index: STREAM
    cuda.explained = lambda result: f"{failures[0]!r}"
    with machines.replaced("cpu", MACHINE), burnish.settings.patch(cache=False, never_slower=False):
        try:
            yield ran
        finally:
            del gpu.COMPILERS[MACHINE.name]
            cuda.current_device, cuda.current_stream, cuda.explained = before
            cuda.failure.value = 0
            failures.clear()
