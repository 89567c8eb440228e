"""Builds one CPU kernel for symbolic sizes from the kernels for a few sizes.

    kernels for 64, 65, 68 and 77 rows      =>      a kernel that gets the number of rows
      loop i0 < 49152 ...                             loop i0 < %size0        %size0 = 768*s0
      loop i0 < 49920 ...

A formula of the sizes in their boxes (`generalize_sizes`) becomes a `LlvmSize`, which the kernel loads from behind its
buffers. Lanes are chosen among the variables along which all accesses have static strides.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ... import events
from ...concurrency.first_value_cache import once
from ...ops.scalar_ir import Access, Scalar, make
from ...runtime.linking.cuda_module_loader import CudaKernel
from ...runtime.program.native_kernels import NativeKernel, bind
from ...schedule.loops.loop_ir import Kernel, mapped_stages
from ...tensors.fit_size_formulas import Formula, Space
from ..loops.coalesce_loops import LoopNest, accesses, remade
from ..loops.generalize_sizes import SizeGeneralizer, boxes_for_sizes
from ..loops.kernel_listing import listing_of
from . import vectorization_and_tiling as plans
from .compile_to_machine_code import object_code, symbols
from .loop_invariant_scopes import FunctionCode
from .print_kernel_module import (
    ITEMS,
    LIMITS,
    PARALLEL,
    PARALLEL_LOOP,
    SYMBOL,
    VectorizedNest,
    module_of,
    run_share,
    weigh_work,
)
from .runtime_sizes import LlvmSize, blocks, hint, load_sizes, sizes_in
from .target_cpu import Host, host
from .vectorization_and_tiling import VectorPlan


@dataclass(frozen=True, slots=True)
class SymbolicLlvmKernel:
    native: NativeKernel | CudaKernel
    sizes: tuple[Formula, ...]
    """The sizes that the table contains after the buffers."""


def compile_symbolic_kernel(kernels: Sequence[Kernel], space: Space) -> SymbolicLlvmKernel:
    """`kernels` are those at the points of the space. Raises NoFormula if they differ in more than sizes."""
    first = kernels[0]
    sizes: dict[Formula, LlvmSize] = {}

    def size(formula: Formula, seen: int) -> LlvmSize:
        return sizes.setdefault(formula, LlvmSize(len(sizes), seen))

    unifier = SizeGeneralizer(space, size)
    boxes = [unifier.box(same) for same in boxes_for_sizes(kernels)]
    key = "\n".join(
        [
            f"{first.dtypes} {sorted(first.stored)}",
            *(line for box in boxes for line in listing_of(box)),
            *(f"{box.positions} {[hint(n) < 16 for n in box.extents]}" for box in boxes),
        ]
    )
    native = _known.get(key)
    if native is None:
        native = _known.setdefault(key, compiled(first, boxes, len(sizes), host()))
    return SymbolicLlvmKernel(native, tuple(sizes))


_known: weakref.WeakValueDictionary[str, NativeKernel] = weakref.WeakValueDictionary()
"""As long as a program holds them. Two threads may compile the same one; either result is used."""


def compiled(kernel: Kernel, boxes: Sequence[LoopNest], sizes: int, target: Host) -> NativeKernel:
    text, cycles = print_module(kernel, boxes, target)
    code = object_code(text, target)
    made = bind(kernel.name, code, SYMBOL, symbols(), len(kernel.dtypes) + sizes, cycles)
    if events.is_watched("kernels"):
        events.emit("kernels", name=kernel.name, text=text, seconds=0.0)
    return made


def print_module(kernel: Kernel, boxes: Sequence[LoopNest], target: Host) -> tuple[str, float]:
    pieces = weigh_work([(box, choose(box, target)) for box in boxes if 0 not in box.extents[: box.rows]])
    count = len(kernel.dtypes)
    counts = [
        [
            "",
            *item_count(f"items{number}", piece, count),
            "",
            *cycle_count(f"cycles{number}", piece.box, piece.plan, count),
        ]
        for number, piece in enumerate(pieces)
    ]
    entry = _entry([piece.weight for piece in pieces])
    text = module_of(kernel, [f"; kernel {kernel.name}"], entry, pieces, {*LIMITS, PARALLEL_LOOP}, target, counts)
    return text, sum(piece.plan.cycles for piece in pieces)


def item_count(name: str, piece: VectorizedNest, buffers: int) -> list[str]:
    """A function that returns a loop's units of work: its items times their weight."""
    box, plan = piece.box, piece.plan
    code = FunctionCode()
    scope = code.here
    total = str(piece.weight)
    for k in range(box.rows):
        extent: int | str | LlvmSize = box.extents[k]
        if plan.block and k == plan.lane:
            extent = blocks(code, box.extents[k], plan.block)
        total = code.emit(scope, f"mul nuw nsw i64 {total}, {extent}")
    return counting(name, box, buffers, scope.lines, total)


def cycle_count(name: str, box: LoopNest, plan: VectorPlan, buffers: int) -> list[str]:
    """A function that returns a loop's estimated cycles: those for the sizes that were seen, scaled by its elements."""
    code = FunctionCode()
    scope = code.here
    seen = max(math.prod(map(hint, box.extents)), 1)
    total = str(max(round(plan.cycles / seen * FRACTIONS), 1))
    for extent in box.extents:
        total = code.emit(scope, f"mul nuw nsw i64 {total}, {extent}")
    return counting(name, box, buffers, scope.lines, code.emit(scope, f"udiv i64 {total}, {FRACTIONS}"))


FRACTIONS = 1 << 10
"""The unit in which cycles per element are counted: a fraction of a cycle."""


def counting(name: str, box: LoopNest, buffers: int, lines: Sequence[str], total: str) -> list[str]:
    return [
        f"define internal i64 @{name}(ptr %buffers) #0 {{",
        "entry:",
        *load_sizes(sizes_in(box), buffers),
        *lines,
        f"  ret i64 {total}",
        "}",
    ]


def _entry(weights: Sequence[int]) -> list[str]:
    """The kernel itself, and the function that divides a range of work among the loops."""
    lines = [f"define void @{SYMBOL}(ptr %buffers) #0 {{", "entry:"]
    total = cycles = "0"
    for number in range(len(weights)):
        lines += [
            f"  %n{number} = call i64 @items{number}(ptr %buffers)",
            f"  %t{number} = add i64 {total}, %n{number}",
            f"  %c{number} = call i64 @cycles{number}(ptr %buffers)",
            f"  %s{number} = add i64 {cycles}, %c{number}",
        ]
        total, cycles = f"%t{number}", f"%s{number}"
    lines += [
        f"  %is.small = icmp sle i64 {cycles}, {plans.GRAIN}",
        "  br i1 %is.small, label %alone, label %shared",
        "alone:",
        f"  call void @items(i64 0, i64 {total}, ptr %buffers)",
        "  ret void",
        "shared:",
        f"  %grains = mul i64 {total}, {plans.GRAIN}",
        f"  %of.one = udiv i64 %grains, {cycles}",
        "  %grain = call i64 @llvm.smax.i64(i64 %of.one, i64 1)",
        f"  %r = call i32 @{PARALLEL}(i64 0, i64 {total}, i64 %grain, ptr @items, ptr %buffers)",
        "  ret void",
        "}",
        "",
        ITEMS,
        "entry:",
    ]
    start = "0"
    for number, weight in enumerate(weights):
        lines += [
            f"  %n{number} = call i64 @items{number}(ptr %buffers)",
            *run_share(number, start, f"%n{number}", weight),
            f"  %t{number} = add i64 {start}, %n{number}",
        ]
        start = f"%t{number}"
    return [*lines, "  ret void", "}"]


def choose(box: LoopNest, target: Host) -> VectorPlan:
    """As for static sizes, with the sizes of the program that was seen. Strides along lanes are static."""
    guessed = guess(box)
    symbolic_rows = {k for k in range(box.rows) if isinstance(box.extents[k], LlvmSize)}
    if any(r.is_running for r in box.reductions):
        return plans.make_vector_plan(guessed, None, 1, plans.cycles_of(guessed, None, target), target)
    lanes: list[int | None] = [
        k
        for k, extent in enumerate(guessed.extents)
        if extent > 1
        and all(isinstance(a.strides[k], int) for a in accesses(box.stages))
        and (box.is_elementwise or k >= box.rows or k not in symbolic_rows or target.has_masks)
    ]
    if box.is_elementwise or not box.inner or any(isinstance(box.positions[k], LlvmSize) for k in box.inner):
        lanes = [k for k in lanes if k is None or k < box.rows or isinstance(box.positions[k], int)]
    lane = min(lanes or [None], key=lambda k: plans.cycles_of(guessed, k, target, may_transpose=False))
    width = 1 if lane is None else plans.width_of(guessed, lane, target)
    if width == 1 and not box.is_elementwise:
        lane = None
    return plans.make_vector_plan(
        guessed,
        lane,
        width,
        plans.cycles_of(guessed, lane, target, may_transpose=False),
        target,
        may_transpose=False,
        is_symbolic=lane in symbolic_rows,
    )


def guess(box: LoopNest) -> LoopNest:
    """The box with the sizes that were seen."""

    @once
    def access(a: Access) -> Access:
        return replace(
            a, offset=hint(a.offset), strides=tuple(map(hint, a.strides)), indirect=tuple(map(hint, a.indirect))
        )

    def leaf(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        return make("load", x.dtype, args, access(x.payload)) if x.op == "load" else remade(x, args)

    return replace(
        box,
        extents=tuple(map(hint, box.extents)),
        positions=tuple(map(hint, box.positions)),
        stages=mapped_stages(box.stages, leaf, access),
    )
