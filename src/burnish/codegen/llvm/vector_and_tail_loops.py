"""Splits a vectorized loop into runs: blocks of vectors, single vectors, and a tail loop, masked or scalar."""

from __future__ import annotations

from dataclasses import dataclass

from .loop_invariant_scopes import FunctionCode
from .runtime_sizes import LlvmSize, most
from .target_cpu import Host
from .vectorization_and_tiling import VectorPlan


@dataclass(frozen=True, slots=True)
class LaneRange:
    """A range of the lane variable, and how a loop steps through it."""

    start: str
    stop: str
    trips: int
    """At most."""
    copies: int
    width: int
    is_masked: bool
    may_be_empty: bool


def lane_runs(code: FunctionCode, plan: VectorPlan, host: Host, extent: int | LlvmSize, first: str) -> list[LaneRange]:
    """Ranges of the lane variable: in steps of several vectors, of one vector, of single elements. `first`: where it
    begins."""
    if isinstance(extent, LlvmSize):
        return symbolic_lane_runs(code, plan, host, extent, first)
    scope, width, step = code.here, plan.width, plan.width * plan.copies
    start, stop, longest = first, str(extent), extent
    is_fixed = True
    if plan.kind == "elements":
        longest = min(plan.block, extent)
        if extent > plan.block:
            is_fixed = extent % plan.block == 0
            stop = code.emit(scope, f"add nuw nsw i64 {start}, {plan.block}")
            if not is_fixed:
                stop = code.call(scope, "i64", "llvm.umin.i64", ("i64", stop), ("i64", str(extent)))
    runs: list[LaneRange] = []
    position, left = start, longest

    def cut(size: int, copies: int, is_masked: bool) -> None:
        nonlocal position, left
        unit = copies * size
        # The rest of every item, or (not fixed) perhaps only of the last one.
        rest = extent % unit
        if is_masked or not rest:
            end = stop
        elif is_fixed:
            whole = left // unit * unit
            end = (
                str(int(position) + whole)
                if position.isdigit()
                else code.emit(scope, f"add nuw nsw i64 {position}, {whole}")
            )
        else:
            length = code.emit(scope, f"sub i64 {stop}, {position}")
            whole = code.emit(scope, f"and i64 {length}, {-unit}")
            end = code.emit(scope, f"add nuw nsw i64 {position}, {whole}")
        trips = -(-left // unit) if is_masked or not rest else left // unit
        if trips:
            runs.append(LaneRange(position, end, trips, copies, size, is_masked, not is_fixed))
        position = end
        left = 0 if is_masked or not rest else left % unit if is_fixed else unit - 1

    has_rest = bool(extent % width)
    if plan.copies > 1:
        cut(width, plan.copies, False)
    if left and (extent % step or plan.copies == 1):
        cut(width, 1, has_rest and host.has_masks)
    if left and has_rest and not host.has_masks:
        cut(1, 1, False)
    return runs


def symbolic_lane_runs(
    code: FunctionCode, plan: VectorPlan, host: Host, extent: LlvmSize, first: str
) -> list[LaneRange]:
    """The same for an extent known at run time: whole steps, then a tail that may be empty."""
    scope, width, step = code.here, plan.width, plan.width * plan.copies
    start, stop, longest = first, str(extent), most(extent)
    if plan.kind == "elements":
        longest = plan.block
        reach = code.emit(scope, f"add nuw nsw i64 {start}, {plan.block}")
        stop = code.call(scope, "i64", "llvm.umin.i64", ("i64", reach), ("i64", str(extent)))
    length = code.emit(scope, f"sub i64 {stop}, {start}")
    runs: list[LaneRange] = []

    def whole(unit: int, copies: int, size: int) -> None:
        nonlocal start
        even = code.emit(scope, f"and i64 {length}, {-unit}")
        end = code.emit(scope, f"add nuw nsw i64 {first}, {even}")
        runs.append(LaneRange(start, end, max(longest // unit, 1), copies, size, False, True))
        start = end

    whole(step, plan.copies, width)
    if plan.copies > 1:
        whole(width, 1, width)
    if width > 1 and host.has_masks:
        runs.append(LaneRange(start, stop, 1, 1, width, True, True))
    elif width > 1:
        runs.append(LaneRange(start, stop, width, 1, 1, False, True))
    return runs
