"""Compiles the kernels of a plan, each by the compiler for the device it runs on.

    kernels = compile_launches(launches)          the kernels of a plan, in order
    symbolic_compiler_for(device)(alike, space)   kernels for symbolic sizes, each from those for a few sizes

A target other than the CPU has its compilers in its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .. import events
from ..ops.target_record import target_of
from ..runtime.linking.cuda_module_loader import CudaKernel
from ..runtime.program.native_kernels import NativeKernel
from ..schedule.loops.build_kernel import Launch
from ..tensors.device_facts import CPU
from ..tensors.fit_size_formulas import Space

Compile = Callable[[Sequence[Launch]], Sequence[NativeKernel | CudaKernel]]
CompileSymbolic = Callable[[Sequence[Sequence[Launch]], Space], Sequence[CudaKernel]]


@events.stage("codegen")
def compile_launches(launches: Sequence[Launch], compile_for_cpu: Compile) -> list[NativeKernel | CudaKernel]:
    """In the order given."""
    found: dict[int, NativeKernel | CudaKernel] = {}
    by_device: dict[torch.device, list[int]] = {}
    for number, launch in enumerate(launches):
        by_device.setdefault(launch.device, []).append(number)
    by_device.setdefault(CPU, [])  # library calls of the CPU may need compilation as well
    for device, numbers in by_device.items():
        target = target_of(device)
        compiler = (target and target.compile_kernels) or compile_for_cpu
        found.update(zip(numbers, compiler([launches[number] for number in numbers]), strict=True))
    return [found[number] for number in range(len(launches))]


def symbolic_compiler_for(device: torch.device) -> CompileSymbolic | None:
    """The compiler of kernels for symbolic sizes; None for the CPU, which compiles them one by one."""
    target = target_of(device)
    return None if target is None else target.compile_symbolic_kernels
