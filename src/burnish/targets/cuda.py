"""The target for NVIDIA GPUs: machine facts for the scheduler, kernels by Triton, matmul kernels, timing.

    gpu_target()                               when the first graph computes on a GPU
    compile_kernel_for_gpu(kernel, device)     a kernel that is not part of a plan

Triton is imported when the first kernel is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .. import events
from ..codegen.triton.print_math_expansions import why_not_printable
from ..codegen.triton.tiling import COLUMNS, FEWEST_ROWS, LONGEST_WHOLE, fills_gpu
from ..concurrency.first_value_cache import once
from ..ops.target_record import Target, register_target
from ..runtime.linking import cuda_module_loader
from ..runtime.linking.cuda_module_loader import CudaKernel
from ..schedule.library.gpu_matmul_spec import Maker
from ..schedule.library.measure_candidates import Clock
from ..schedule.loops.build_kernel import Launch
from ..schedule.loops.loop_ir import Kernel
from ..tensors.fit_size_formulas import Space

if TYPE_CHECKING:
    from ..codegen.triton.symbolic_size_kernel import SymbolicTritonKernel


@once
def matmul_compiler() -> Maker:
    from ..codegen.triton.compile_matmul import maker

    return maker()


def clock() -> Clock | None:
    """None if there is no GPU, or while launches are recorded: then nothing is measured."""
    return clock_of_torch() if torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing() else None


@once
def clock_of_torch() -> Clock:
    from ..codegen.triton.gpu_timing import seconds_of

    # Few runs: each of fifty convolutions may have two candidates, and a graph waits for all of them.
    return Clock(functools.partial(seconds_of, rounds=2, at_once=4), torch.cuda.device, torch.cuda.get_device_name)


def compile_for_gpu(launches: Sequence[Launch]) -> Sequence[CudaKernel]:
    """All on one GPU."""
    from ..codegen.triton.compile_kernels import compile_kernels

    return compile_kernels(launches, index_of(launches[0].device))


def compile_symbolic_for_gpu(alike: Sequence[Sequence[Launch]], space: Space) -> Sequence[CudaKernel]:
    from ..codegen.triton.compile_kernels import compile_symbolic_kernels

    return compile_symbolic_kernels(symbolic_kernels_of(alike, space), space.points[0], index_of(alike[0][0].device))


def symbolic_kernels_of(alike: Sequence[Sequence[Launch]], space: Space) -> list[SymbolicTritonKernel]:
    from ..codegen.triton.symbolic_size_kernel import SymbolicTritonKernel

    return [
        SymbolicTritonKernel([launch.kernel for launch in launches], launches[0].numbers, space) for launches in alike
    ]


def index_of(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def compile_kernel_for_gpu(kernel: Kernel, device: torch.device) -> CudaKernel:
    """Compiles a kernel that is not part of a plan."""
    from ..codegen.triton.compile_kernels import compile_kernels

    (made,) = compile_kernels([Launch(kernel, ())], index_of(device))
    return made


TRITON = Target(
    "triton",
    has_enough_parallelism=fills_gpu,
    fewest_rows=FEWEST_ROWS,
    side_by_side=COLUMNS,
    short=(LONGEST_WHOLE, 256),
    parts=(1024, 512, 256, 128, 64, 32, 16, 8, 4, 2),
    least_part=(2048, 16),
    most_programs=1056,
    cuts_several=True,
    most_together=1 << 21,
    keeps_operands=True,
    has_arena=False,
    has_checks=False,
    has_atomics=True,
    hoists_rows=True,
    why_not_printed=why_not_printable,
    aligned=16,
    matmul_compiler=matmul_compiler,
    copy_seconds=0.8e-12,
    clock=clock,
    compile_kernels=compile_for_gpu,
    compile_symbolic_kernels=compile_symbolic_for_gpu,
)


def cubins_here() -> dict[str, str]:
    """What the machine code of GPU kernels depends on, for the first GPU of this machine, if it has one."""
    if cuda_module_loader.why_not() is not None:
        return {}
    from ..codegen.triton.compilation.cubin_cache import KIND, toolchain_key

    major, minor = torch.cuda.get_device_capability(0)
    return {KIND: toolchain_key(10 * major + minor)}


@once
def gpu_target() -> Target | None:
    """Made when the first graph computes on a GPU."""
    why = cuda_module_loader.why_not()
    if why is not None:
        events.emit("lower.refused", text=f"graphs on GPUs run their operators one by one: {why}", fallback="refused")
        return None
    from ..codegen.triton.compilation.compile_worker_pool import start_early

    start_early()
    return TRITON


register_target("cuda", gpu_target)
