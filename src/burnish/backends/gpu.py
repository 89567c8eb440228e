"""Graphs on GPUs: who makes their kernels.

    kernels = compile_launches(plan)          each kernel of a plan by the printer for its device, in order

The scheduler is told of a machine for each kind of device that has a printer here (`schedule.machines`). Triton is
imported when the first graph comes that computes on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from .. import events
from ..codegen.triton.functions import why_not_printable
from ..codegen.triton.tiles import COLUMNS
from ..runtime import cuda
from ..runtime.cuda import CudaKernel
from ..runtime.kernels import NativeKernel
from ..schedule.emit import Launch
from ..schedule.library.matrix import Maker
from ..schedule.machines import CPU, Machine, machine_of, offer


@functools.cache
def matrix_maker() -> Maker:
    from ..codegen.triton.matrix_compile import maker

    return maker()


TRITON = Machine(
    "triton", few_rows=64, fewest_rows=132, side_by_side=COLUMNS, short=(4096, 256),
    parts=(256, 128, 64, 32, 16, 8, 4, 2), has_arena=False, has_checks=False, why_not_printed=why_not_printable,
    aligned=16, matrices=matrix_maker,
)

Compile = Callable[[Sequence[Launch]], Sequence["NativeKernel | CudaKernel"]]


def compile_launches(launches: Sequence[Launch], compile_for_cpu: Compile) -> list[NativeKernel | CudaKernel]:
    """In the order given."""
    found: dict[int, NativeKernel | CudaKernel] = {}
    by_device: dict[torch.device, list[int]] = {}
    for number, launch in enumerate(launches):
        by_device.setdefault(launch.device, []).append(number)
    by_device.setdefault(torch.device("cpu"), [])  # whose library calls may want code as well
    for device, numbers in by_device.items():
        machine = machine_of(device)
        compiler = compile_for_cpu if machine is None or machine is CPU else COMPILERS[machine.name]
        found.update(zip(numbers, compiler([launches[number] for number in numbers]), strict=True))
    return [found[number] for number in range(len(launches))]


def compile_for_gpu(launches: Sequence[Launch]) -> Sequence[CudaKernel]:
    """All on one GPU."""
    from ..codegen.triton.compile import compile_kernels

    device = launches[0].device
    index = torch.cuda.current_device() if device.index is None else device.index
    return compile_kernels(launches, index)


def cubins_here() -> dict[str, str]:
    """By what the machine code of kernels is made, for the first GPU of this machine, if it has one."""
    if cuda.why_not() is not None:
        return {}
    from ..codegen.triton.cubin import KIND, made_with

    major, minor = torch.cuda.get_device_capability(0)
    return {KIND: made_with(10 * major + minor)}


COMPILERS: dict[str, Compile] = {TRITON.name: compile_for_gpu}
"""By the name of the machine, but for the CPU."""


@functools.cache
def offer_gpus() -> None:
    """Once a graph comes that computes on one."""
    why = cuda.why_not()
    if why is None:
        offer("cuda", TRITON)
    else:
        events.emit("lower.refused", text=f"graphs on GPUs run their operators one by one: {why}")


__all__ = ["TRITON", "compile_launches", "offer_gpus"]
