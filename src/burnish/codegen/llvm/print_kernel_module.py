"""Prints a kernel as a module of LLVM IR.

    void kernel(ptr buffers)                         runs the items of all loops, on torch's threads if it is worth it
      void items(i64 begin, i64 end, ptr buffers)    divides a range of work among the loops
        void loop0(begin, end, buffers) ...          printed by `loop_printer`

The loops of a kernel are independent, so their items are numbered consecutively and distributed in one parallel call.
An item of an expensive loop counts as several units of work.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...runtime.linking import torch_thread_pool
from ...schedule.loops.loop_ir import Kernel
from ..loops.coalesce_loops import Box, simplify
from ..loops.kernel_listing import listing
from . import vectorization_and_tiling as plans
from .cache_rows_between_stages import store_in_scratch_rows
from .loop_printer import LoopPrinter
from .target_cpu import Host, host
from .vectorization_and_tiling import VectorPlan

SYMBOL = "kernel"
"""The name of the native function in each module."""

PARALLEL = torch_thread_pool.PARALLEL
"""int32(int64 begin, int64 end, int64 grain, void(*)(int64, int64, void*), void*): from libtorch's C interface."""


@dataclass(frozen=True, slots=True)
class Piece:
    box: Box
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
    pieces = _weighed(planned)
    functions: list[str] = []
    declarations: set[str] = set()
    buffers = len(kernel.dtypes)
    for number, piece in enumerate(pieces):
        box, scratch = piece.box, ()
        if piece.plan.kind == "inner" and piece.plan.lane is not None:
            box, scratch = store_in_scratch_rows(box, piece.plan.lane, len(kernel.dtypes))
        printer = LoopPrinter(box, piece.plan, target, kernel.stored, kernel.dtypes, scratch)
        functions += ["", *printer.function(f"loop{number}")]
        declarations |= printer.code.declarations
        buffers = max(buffers, len(kernel.dtypes) + len(scratch))
    total = sum(piece.plan.items * piece.weight for piece in pieces)
    cycles = sum(piece.plan.cycles for piece in pieces)
    # A unit costs about the same in every piece.
    grain = max(int(plans.GRAIN * total / max(cycles, 1)), 1)
    head, *loops = listing(kernel)
    head = f"kernel {kernel.name}{head}"
    lines = [f"; {line}" for line in ("\n".join(kernel.origin).splitlines() + [head] + loops)]
    if len(pieces) > 1:
        declarations |= {"declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)"}
    lines += ["", f'target triple = "{target.triple}"', "", *_entry(pieces, total, grain), *functions, ""]
    if total > grain:
        declarations.add(f"declare i32 @{PARALLEL}(i64, i64, i64, ptr, ptr)")
    lines += sorted(declarations)
    lines += ["", f"attributes #0 = {{ nounwind {target.attributes} }}"]
    if kernel.stored:
        lines += alias_scopes(buffers, [*kernel.stored, *range(len(kernel.dtypes), buffers)])
    return "\n".join(lines) + "\n", cycles


def _weighed(planned: list[tuple[Box, VectorPlan]]) -> list[Piece]:
    costs = [max(plan.cycles / max(plan.items, 1), 1) for _, plan in planned]
    unit = min(costs, default=1)
    return [Piece(box, plan, max(round(cost / unit), 1)) for (box, plan), cost in zip(planned, costs, strict=True)]


def _entry(pieces: list[Piece], total: int, grain: int) -> list[str]:
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
    lines.append("")
    lines.append("define internal void @items(i64 %begin, i64 %end, ptr %buffers) #0 {")
    start = 0
    for number, piece in enumerate(pieces):
        units = piece.plan.items * piece.weight
        ends = []
        for name in ("begin", "end"):
            # From units since the start of this loop to its items. An item belongs to the range with its last unit.
            value = f"%{name}{number}"
            lines += [
                f"  {value}.from = sub i64 %{name}, {start}",
                f"  {value}.low = call i64 @llvm.smax.i64(i64 {value}.from, i64 0)",
                f"  {value}.in = call i64 @llvm.smin.i64(i64 {value}.low, i64 {units})",
                f"  {value} = udiv i64 {value}.in, {piece.weight}",
            ]
            ends.append(value)
        lines.append(f"  call void @loop{number}(i64 {ends[0]}, i64 {ends[1]}, ptr %buffers)")
        start += units
    lines += ["  ret void", "}"]
    return lines


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
