"""Finds sums of exponentials that can be computed in the pass that finds the maximum: rows in steps are read once less.

r0 = max.f32 x                        r0, r1 = joined by `online`: where a larger maximum is found, the sum so far
r1 = sum.f32 exp(sub(x, r0))    =>             is multiplied by exp(old - new)
"""

from __future__ import annotations

from ....schedule.loops.loop_ir import Reduction, Stage
from ...loops.coalesce_loops import LoopNest


def online_sums(box: LoopNest) -> dict[int, int]:
    """The numbers of such sums, with those of their maxima. All reductions of a sum's stage are such sums: otherwise
    the row is read again anyway."""
    found: dict[int, int] = {}
    first = 0
    for before, stage in zip(box.stages, box.stages[1:], strict=False):
        begin = first + len(before.reductions)
        pairs = {
            begin + k: maximum
            for k, reduction in enumerate(stage.reductions)
            if (maximum := maximum_of(reduction, before, first)) is not None
        }
        if pairs and len(pairs) == len(stage.reductions) and not stage.stores:
            found |= pairs
        first = begin
    return found


def maximum_of(reduction: Reduction, before: Stage, first: int) -> int | None:
    """The number of the maximum that a sum of exponentials subtracts."""
    value = reduction.value
    if reduction.op != "sum" or reduction.dtype != "f32" or value.op != "exp" or value.args[0].op != "sub":
        return None
    x, most = value.args[0].args
    number = most.payload - first if most.op == "reduced" else -1
    if not 0 <= number < len(before.reductions):
        return None
    maximum = before.reductions[number]
    return most.payload if maximum.op == "max" and maximum.value is x and x.dtype == "f32" else None
