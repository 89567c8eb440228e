"""Targets: for each kind of device that kernels are compiled for, the facts that operators and the scheduler need.

    target_of(value.type.device)       a Target, or None where no backend compiles kernels for that device

Loops are the same for every target. Targets differ in how many rows keep the machine busy, whether a program keeps its
arena between runs, and which operations cannot be printed. `targets` registers one for each kind of device that has a
printer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .scalar_ir import Scalar


def _anything(expression: Scalar) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    has_enough_parallelism: Callable[[int, int, bool], bool]
    """Whether one loop over rows has enough parallelism, given the number of rows, their length, and whether rows are
    contiguous. Otherwise reductions and the loops after them are separate kernels."""
    fewest_rows: int
    """With fewer rows than this, long rows are reduced in parts."""
    side_by_side: int
    """Rows per work item where the reduced dimension is not contiguous. On a CPU an item is a strip of adjacent rows,
    a cache line or two wide. When rows are split into parts, the strips of one part are read together while it is in
    the cache. The loops after the reduction then walk memory in order."""
    short: tuple[int, int]
    """Rows up to this length are not split: where rows are contiguous, and where they are not."""
    parts: tuple[int, ...]
    """Numbers of parts to try: the largest that divides the row evenly is used."""
    least_part: tuple[int, int] = (1, 1)
    """Fewest elements in a part: where rows are contiguous, and where they are not."""
    most_programs: int = 1 << 30
    """Most useful number of programs (strips of rows times parts)."""
    most_together: int = 1 << 18
    """Largest number of elements of two kernels that are launched as one. Above that a launch costs little compared
    with the work, and each kernel parallelizes better by itself."""
    keeps_operands: bool = False
    """Whether the operand of a library call is saved for backward even if the call read a view of it. Otherwise it is
    recomputed from values that need no further memory: less memory, more work."""
    cuts_several: bool = False
    """Whether more than one dimension is split, where one does not divide evenly into enough parts."""
    has_arena: bool = True
    """Whether a program keeps the memory of its intermediate values between runs. Otherwise torch's allocator
    allocates each value when it is needed."""
    has_checks: bool = True
    """Whether indices are checked before any computation, so that eager's error is raised. Otherwise each load checks
    its own index."""
    has_atomics: bool = False
    """Whether parallel loops may add atomically to the same address."""
    hoists_rows: bool = False
    """Whether loops without reductions compute a number of each row once for the row. Then it is not stored by another
    kernel before."""
    why_not_printed: Callable[[Scalar], str | None] = _anything
    aligned: int = 0
    """Row alignment in bytes at which libraries multiply matrices faster. 0: alignment does not matter."""
    matmul_compiler: Callable[[], Any] | None = None
    """Returns the generator of our own matmul kernels (`gpu_matmul_spec.Maker`), or is None. It is called when a
    product is scheduled."""
    copy_seconds: float = 0.3e-9
    """Seconds for each byte that is copied into another layout."""
    clock: Callable[[], Any] | None = None
    """Returns the timer of torch's convolutions on this target (`measure_candidates.Clock`), or None. Without one,
    `library.choose_calls` measures as on a CPU."""
    compile_kernels: Callable[[Any], Any] | None = None
    """Compiles the launches of a plan on one device (`targets.kernel_compilers.Compile`). None: as for the CPU,
    together with library calls."""
    compile_symbolic_kernels: Callable[[Any, Any], Any] | None = None
    """The same for symbolic sizes (`CompileSymbolic`). None: kernels are compiled one by one."""
    native_kernels: Any = None
    """Compiles our own native functions for library calls (`matmul_tiling_and_packing.NativeKernelMaker`). Without it,
    they are no candidates."""
    measurements: Any = None
    """Keeps measurements of library calls between processes (`autotune_library_calls.MeasurementStore`), or None."""


CPU = Target(
    "cpu",
    has_enough_parallelism=lambda rows, *_: rows >= 16,
    fewest_rows=8,
    side_by_side=1024,
    short=(0, 256),
    parts=(64, 32, 16, 8, 4, 2),
)

Make = Callable[[], Target | None]

_targets: dict[str, Make] = {CPU.name: lambda: CPU}
"""The one registry of targets. Only `targets` adds to it."""


def target_of(device: torch.device) -> Target | None:
    make = _targets.get(device.type)
    return make and make()


def register_target(device_type: str, make: Make) -> None:
    """`make` is called whenever the target is asked for, first when the first graph computes on such a device. It
    returns None where this machine has no compiler for the device."""
    _targets[device_type] = make


@contextlib.contextmanager
def substitute_target(device_type: str, target: Target) -> Iterator[None]:
    """Replaces a target temporarily: for tests, and to inspect the code for another target. The tensors are where they
    were, so the library calls stay: their native functions, and what was measured."""
    make = _targets[device_type]
    before = make()
    if before is not None:
        target = replace(target, native_kernels=before.native_kernels, measurements=before.measurements)
    register_target(device_type, lambda: target)
    try:
        yield
    finally:
        register_target(device_type, make)
