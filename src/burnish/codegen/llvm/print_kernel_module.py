"""Prints a kernel as a module of LLVM IR.

    void kernel(ptr buffers)                         runs the items of all loops, on torch's threads if it is worth it
      void items(i64 begin, i64 end, ptr buffers)    divides a range of work among the loops
        void loop0(begin, end, buffers) ...          printed by `loop_printer`

The loops of a kernel are independent, so their items are numbered consecutively and distributed in one parallel call.
An item of an expensive loop counts as several units of work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...runtime.linking import torch_thread_pool
from ...schedule.loops.loop_ir import Kernel
from ..loops.coalesce_loops import LoopNest, simplify
from ..loops.kernel_listing import listing
from . import vectorization_and_tiling as plans
from .cache_rows_between_stages import store_in_scratch_rows
from .loop_printer import LlvmLoopPrinter
from .target_cpu import Host, host
from .vectorization_and_tiling import VectorPlan

SYMBOL = "kernel"
"""The name of the native function in each module."""

PARALLEL = torch_thread_pool.PARALLEL
"""int32(int64 begin, int64 end, int64 grain, void(*)(int64, int64, void*), void*): from libtorch's C interface."""

PARALLEL_LOOP = f"declare i32 @{PARALLEL}(i64, i64, i64, ptr, ptr)"
LIMITS = ("declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)")


@dataclass(frozen=True, slots=True)
class VectorizedNest:
    box: LoopNest
    plan: VectorPlan
    weight: int
    """How many units of work an item counts as."""


def print_ir(kernel: Kernel, target: Host | None = None) -> str:
    return print_module(kernel, target or host())[0]


def print_module(kernel: Kernel, target: Host) -> tuple[str, float]:
    """The module's text, and the estimated cycles of one run."""
    planned = []
    for loop in kernel.loops:
        box = simplify(loop)
        if 0 not in box.extents[: box.rows]:
            planned += plans.pieces(box, target)
    pieces = weigh_work(planned)
    total = sum(piece.plan.items * piece.weight for piece in pieces)
    cycles = sum(piece.plan.cycles for piece in pieces)
    # A unit costs about the same in every piece.
    grain = max(int(plans.GRAIN * total / max(cycles, 1)), 1)
    head, *loops = listing(kernel)
    head = f"kernel {kernel.name}{head}"
    comments = [f"; {line}" for line in ("\n".join(kernel.origin).splitlines() + [head] + loops)]
    declarations = set(LIMITS) if len(pieces) > 1 else set()
    if total > grain:
        declarations.add(PARALLEL_LOOP)
    return module_of(kernel, comments, _entry(pieces, total, grain), pieces, declarations, target), cycles


def weigh_work(planned: list[tuple[LoopNest, VectorPlan]]) -> list[VectorizedNest]:
    costs = [max(plan.cycles / max(plan.items, 1), 1) for _, plan in planned]
    unit = min(costs, default=1)
    return [
        VectorizedNest(box, plan, max(round(cost / unit), 1)) for (box, plan), cost in zip(planned, costs, strict=True)
    ]


def module_of(
    kernel: Kernel,
    comments: Sequence[str],
    entry: Sequence[str],
    pieces: Sequence[VectorizedNest],
    declarations: set[str],
    target: Host,
    counts: Sequence[Sequence[str]] = (),
) -> str:
    """The module with this entry and a function for each loop, followed by the functions that count its work."""
    functions: list[str] = []
    count = buffers = len(kernel.dtypes)
    for number, piece in enumerate(pieces):
        box, plan, scratch = piece.box, piece.plan, ()
        if plan.kind == "inner" and plan.lane is not None and all(isinstance(box.extents[k], int) for k in box.inner):
            box, scratch = store_in_scratch_rows(box, plan.lane, count)
        printer = LlvmLoopPrinter(box, plan, target, kernel.stored, kernel.dtypes, scratch)
        functions += ["", *printer.function(f"loop{number}"), *(counts[number] if counts else ())]
        declarations |= printer.code.declarations
        buffers = max(buffers, count + len(scratch))
    lines = [*comments, "", f'target triple = "{target.triple}"', "", *entry, *functions, "", *sorted(declarations)]
    lines += ["", f"attributes #0 = {{ nounwind {target.attributes} }}"]
    if kernel.stored:
        lines += alias_scopes(buffers, [*kernel.stored, *range(count, buffers)])
    return "\n".join(lines) + "\n"


def _entry(pieces: list[VectorizedNest], total: int, grain: int) -> list[str]:
    # A unit of a single loop is one of its items, so no division is needed.
    body = "items" if len(pieces) > 1 else "loop0"
    lines = [f"define void @{SYMBOL}(ptr %buffers) #0 {{"]
    if total > grain:
        lines.append(f"  %r = call i32 @{PARALLEL}(i64 0, i64 {total}, i64 {grain}, ptr @{body}, ptr %buffers)")
    elif pieces:
        lines.append(f"  call void @{body}(i64 0, i64 {total}, ptr %buffers)")
    lines += ["  ret void", "}"]
    if len(pieces) < 2:
        return lines
    lines += ["", ITEMS]
    start = 0
    for number, piece in enumerate(pieces):
        units = piece.plan.items * piece.weight
        lines += run_share(number, start, units, piece.weight)
        start += units
    lines += ["  ret void", "}"]
    return lines


ITEMS = "define internal void @items(i64 %begin, i64 %end, ptr %buffers) #0 {"


def run_share(number: int, start: int | str, units: int | str, weight: int) -> list[str]:
    """Runs the items of a loop that are in the range of work. `start` is the loop's first unit."""
    lines = []
    for name in ("begin", "end"):
        # From units since the start of this loop to its items. An item belongs to the range with its last unit.
        value = f"%{name}{number}"
        lines += [
            f"  {value}.from = sub i64 %{name}, {start}",
            f"  {value}.low = call i64 @llvm.smax.i64(i64 {value}.from, i64 0)",
            f"  {value}.in = call i64 @llvm.smin.i64(i64 {value}.low, i64 {units})",
            f"  {value} = udiv i64 {value}.in, {weight}",
        ]
    return [*lines, f"  call void @loop{number}(i64 %begin{number}, i64 %end{number}, ptr %buffers)"]


def alias_scopes(buffers: int, stored: Collection[int]) -> list[str]:
    """!0 is the domain, !(2n + 1) lists the scope of buffer n, !(2n + 2) those of the buffers it does not overlap.

    All read-only buffers share the first scope: loads never conflict, and with a scope for each of a hundred buffers
    these lists were most of the text.
    """
    first = 2 * buffers + 1
    scopes = {number: first + k for k, number in enumerate(sorted(stored), 1)}
    lines = ["", "!0 = distinct !{!0}"]
    for number in range(buffers):
        mine = scopes.get(number, first)
        others = ", ".join(f"!{scope}" for scope in (first, *scopes.values()) if scope != mine)
        lines += [f"!{2 * number + 1} = !{{!{mine}}}", f"!{2 * number + 2} = !{{{others}}}"]
    return lines + [f"!{scope} = distinct !{{!{scope}, !0}}" for scope in (first, *scopes.values())]
