"""Autotuning of Triton kernels: measures the tiles with which a kernel runs fastest (`max_autotune`).

    printed = tuned(launches, device, …)     each kernel in the fastest of a few variants (`tiling.VARIANTS`)

Kernels run on memory of their own, as much as they read and write, filled with zeros: an index of zero is always in
range. The results are stored with the measurements of library calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ... import events
from ...concurrency import thread_locks
from ...runtime.linking import cuda_module_loader
from ...runtime.linking.cuda_module_loader import CudaKernel
from ...schedule.library.autotune_library_calls import memory
from ...schedule.loops.build_kernel import Launch
from ...tensors.tensor_types import NumberType
from .compilation.cubin_cache import without_comments
from .kernel_function import PrintedKernel, print_kernel
from .tiling import VARIANTS

LEAST_BYTES = 1 << 20
"""A kernel that moves less memory takes as long as its launch, whatever its tiles."""

ROOM = 0.25
"""The fraction of the free memory that measuring may take."""

WORTH = 0.97
"""Another variant must take at most this fraction of the default's time: clocks are not exact."""

Run = Callable[[], None]
Load = Callable[[Sequence[PrintedKernel]], "list[CudaKernel | None]"]
"""Kernels on the GPU; None for one that the GPU rejects."""

_chosen: dict[str, int] = {}
"""The number of the variant, by kernel and GPU."""
_lock = thread_locks.lock()


def choose_tiles(
    launches: Sequence[Launch], device: int, toolchain_key: str, load: Load, seconds_of: Callable[[Run], float]
) -> list[PrintedKernel]:
    """`toolchain_key`: what else the time depends on, for example Triton's version."""
    found = []
    for launch in launches:
        plain = print_kernel(launch.kernel, launch.numbers)
        number = 0
        if bytes_of(launch) >= LEAST_BYTES:
            on = f"{toolchain_key} {torch.cuda.get_device_name(device)}"
            number = remembered(
                f"tiles {on} {plain.grid} {plain.dtypes} {without_comments(plain.text)}",
                lambda launch=launch: fastest(launch, device, load, seconds_of),
            )
        found.append(print_kernel(launch.kernel, launch.numbers, VARIANTS[number]) if number else plain)
    return found


def remembered(key: str, find: Callable[[], int | None]) -> int:
    if key not in _chosen:
        shelf = memory.shelf()
        kept = shelf.get(key) if shelf is not None else None
        is_known = kept in map(str, range(len(VARIANTS)))
        number = int(kept) if is_known else find()  # type: ignore[arg-type]
        if number is None:
            return 0
        if not is_known and shelf is not None:
            shelf.put(key, str(number))
        with _lock:
            _chosen[key] = number
    return _chosen[key]


def fastest(launch: Launch, device: int, load: Load, seconds_of: Callable[[Run], float]) -> int | None:
    """The number of the fastest variant. None if it cannot be measured now."""
    if torch.cuda.is_current_stream_capturing() or bytes_of(launch) > ROOM * torch.cuda.mem_get_info(device)[0]:
        return None
    different: dict[tuple[str, int, int], int] = {}
    printed = [print_kernel(launch.kernel, launch.numbers, variant) for variant in VARIANTS]
    for number, one in enumerate(printed):
        different.setdefault((without_comments(one.text), one.grid, one.warps), number)
    numbers = list(different.values())
    if len(numbers) == 1:
        return 0
    try:
        buffers = [filled(value.type) for value in launch.buffers]
    except torch.OutOfMemoryError:
        return None
    kernels = dict(zip(numbers, load([printed[number] for number in numbers]), strict=True))
    with torch.cuda.device(device):
        times = {
            number: seconds_of(partial(cuda_module_loader.start, kernel, *buffers))
            for number, kernel in kernels.items()
            if kernel is not None
        }
    if 0 not in times:
        return None
    best = min(times, key=times.__getitem__)
    best = best if times[best] < WORTH * times[0] else 0
    if events.is_watched("kernels.measured"):
        lines = [f"  {VARIANTS[number]}: {1e6 * seconds:.1f} us" for number, seconds in times.items()]
        events.emit("kernels.measured", text="\n".join([f"{launch.kernel.name}: {VARIANTS[best]}", *lines]))
    return best


def filled(type: Any) -> torch.Tensor:
    """A buffer of zeros. A number that is passed by value is read from CPU memory."""
    if isinstance(type, NumberType):
        return torch.zeros(1, dtype=type.dtype)
    return torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device).zero_()


def bytes_of(launch: Launch) -> int:
    return sum(value.type.bytes for value in launch.buffers if not isinstance(value.type, NumberType))
