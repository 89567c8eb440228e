"""Load CUDA modules through the driver and launch their kernels from one native launcher function.

    words = words_of(Function(address, shared=0), grid=512, threads=128, kinds=(POINTER, POINTER), unaligned=…)
    kernel = CudaKernel("softmax", launcher, words, device=0)

A launch is a step of a native sequence like any other (`runtime.program.native_call_sequence`). The launcher reads
what to launch from a few words, takes the stream and the addresses from the table, and calls the driver. This needs
no C compiler, processes no argument twice, and makes a chain of launches one call from Python.

Kernels are compiled for buffers aligned to 16 bytes, as torch's are. For an unaligned buffer, such as some views,
the launcher asks Python once for another variant of the kernel.

A thread that has called nothing of CUDA has no current context, and a launch fails there: the launcher asks Python to
make the context of torch current, and launches once more. The engine of autograd and threads of programs are such.

The driver's library is opened when the first kernel is loaded. Nothing here uses a GPU before.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...concurrency.first_value_cache import once
from ...foundation.torch_private import cuda_get_current_raw_stream as current_stream
from ...foundation.torch_private import cuda_get_device as current_device
from ..program.native_kernels import NativeKernel, Words

POINTER, NUMBER, NOTHING, SIZE = 0, 1, 2, 3
"""What a kernel parameter is: an address, a number stored at the address in the table, null, or a number in the
words."""

OLDEST = (7, 0)
"""The first architecture that Triton compiles kernels for."""

OLDEST_TRITON = (3, 5)

failure = ctypes.c_int64(0)
"""The driver's error code for a launch that failed. Launchers write it; drivers of programs read it."""

LAUNCH = "cuLaunchKernel"
MOST_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
MISALIGNED = -1
"""An error code of ours: there is no kernel variant for unaligned buffers."""
NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT"""
RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED"""


@dataclass(frozen=True, slots=True)
class CudaKernel:
    name: str
    launcher: NativeKernel
    words: Words | SymbolicWords
    """What the launcher reads: see `words_of`."""
    device: int


@dataclass(frozen=True, slots=True)
class CudaFunction:
    address: int
    shared: int
    """Bytes of shared memory per thread block."""


def words_of(
    function: CudaFunction,
    grid: int,
    threads: int,
    kinds: Sequence[int],
    unaligned: Callable[[], CudaFunction],
    sizes: Sequence[int] = (),
    device: int = 0,
) -> LocalWords:
    """The words of a launch: two functions with their shared bytes, the grid, threads per block. Then the address for
    an error, the callback for what the launcher cannot do, the number of parameters, their kinds. Then `sizes`, for
    parameters of kind SIZE. The second function is for unaligned buffers, and null until it is needed."""
    words = LocalWords(
        [
            function.address,
            function.shared,
            0,
            0,
            grid,
            threads,
            ctypes.addressof(failure),
            ctypes.cast(_help, ctypes.c_void_p).value or 0,
            len(kinds),
            *kinds,
            *sizes,
        ]
    )
    _launched[words.address] = unaligned, device
    return words


_launched: dict[int, tuple[Callable[[], CudaFunction], int]] = {}
"""What makes the second function of a kernel, and its GPU, by the address of its words."""


class LocalWords(Words):
    """Valid in this process only, and not written to disk."""

    def __del__(self, launched: dict[int, tuple[Callable[[], CudaFunction], int]] = _launched) -> None:
        launched.pop(self.address, None)


class SymbolicWords:
    """Words of a kernel with size parameters: each frame has its own for its sizes, and keeps them alive."""

    def __init__(self, at: Callable[[tuple[int, ...]], LocalWords]):
        self.at = at


_errors: list[Exception] = []
"""Why a launcher was not helped the last time."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
def _help(address: int, why: int) -> None:
    """Called by a launcher that got unaligned buffers, or whose thread has no context. It cannot raise:
    `raise_launch_error` does."""
    try:
        unaligned, device = _launched[address]
        if why == NO_CONTEXT:
            make_context_current(device)
            return
        function = unaligned()
    except Exception as error:
        _errors[:] = [error]
        return
    words = ctypes.cast(address, ctypes.POINTER(ctypes.c_int64))
    words[3], words[2] = function.shared, function.address


def make_context_current(device: int) -> None:
    """The GPU's primary context, which is torch's, becomes the calling thread's."""
    checked("cuCtxSetCurrent", primary_context(device))


@once
def primary_context(device: int) -> ctypes.c_void_p:
    """Retained once, and as long as the process runs."""
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    checked("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
    checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    return context


def load(code: bytes, name: str, shared: int, device: int) -> CudaFunction:
    """Load machine code onto a GPU. It is never unloaded: a launch may still be running."""
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device), captures_undisturbed():
        make_context_current(device)
        checked("cuModuleLoadData", ctypes.byref(module), code)
        checked("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        if shared > 48 << 10:  # above the default limit: it has to be requested
            checked("cuFuncSetAttribute", found, ctypes.c_int(MOST_SHARED), ctypes.c_int(shared))
    assert found.value is not None
    return CudaFunction(found.value, shared)


@contextlib.contextmanager
def captures_undisturbed() -> Iterator[None]:
    """Code is loaded while the user captures a stream, in this thread or another: that neither fails nor ends the
    capture, for nothing of it takes part in the stream."""
    mode = ctypes.c_int(RELAXED)
    checked("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        checked("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def checked(function: str, *args: Any) -> None:
    result = getattr(driver(), function)(*args)
    if result:
        raise RuntimeError(f"{function} of the CUDA driver: {explained(result)}")


def explained(result: int) -> str:
    text = ctypes.c_char_p()
    driver().cuGetErrorString(ctypes.c_int(result), ctypes.byref(text))
    return f"{(text.value or b'an unknown error').decode()} ({result})"


def raise_launch_error() -> None:
    """Raise the error of a failed launch."""
    result, failure.value = failure.value, 0
    if result == MISALIGNED:
        cause = _errors.pop() if _errors else None
        raise RuntimeError(
            "a kernel of Burnish was not started: it could not be compiled for a tensor that begins at "
            "no multiple of 16 bytes"
        ) from cause
    cause = _errors.pop() if result == NO_CONTEXT and _errors else None
    raise RuntimeError(f"a kernel of Burnish was not started: {explained(result)}") from cause


@once
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def launch_address() -> int:
    found = ctypes.cast(driver().cuLaunchKernel, ctypes.c_void_p).value
    assert found is not None
    return found


# ---- called by drivers of programs


def start(kernel: CudaKernel, *tensors: torch.Tensor) -> None:
    """Launch one kernel by itself, in the current stream of its GPU."""
    run_on_gpu(
        kernel.device,
        kernel.launcher,
        kernel.words.address,
        current_stream(kernel.device),
        *(x.data_ptr() for x in tensors),
    )
    if failure.value:
        raise_launch_error()


def run_on_gpu(index: int, run: Callable[..., Any], *arguments: Any) -> Any:
    """Kernels are launched from a thread whose current GPU is theirs."""
    return run(*arguments) if current_device() == index else run_on_other_gpu(index, run, *arguments)


def run_on_other_gpu(index: int, run: Callable[..., Any], *arguments: Any) -> Any:
    """The same if another GPU is current."""
    with torch.cuda.device(index):
        return run(*arguments)


@once
def why_not() -> str | None:
    """Why no kernels are compiled for the GPUs of this machine, in a sentence; None if they are."""
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    if torch.version.cuda is None:
        return "this torch is not built for NVIDIA GPUs"
    old = [k for k in range(torch.cuda.device_count()) if torch.cuda.get_device_capability(k) < OLDEST]
    if old:
        name = torch.cuda.get_device_name(old[0])
        return f"{name} is older than the first GPU that Triton makes kernels for: graphs run eagerly on it"
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "Triton is not installed: `pip install triton` to have graphs compiled for the GPU"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TRITON:
        return f"Triton {version} is too old: Burnish takes {'.'.join(map(str, OLDEST_TRITON))} or newer"
    try:
        driver()
    except OSError as error:
        return f"the CUDA driver cannot be opened: {error}"
    return None
