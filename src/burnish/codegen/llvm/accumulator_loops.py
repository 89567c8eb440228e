"""Loops that carry the accumulators of reductions; long float sums are cascaded, in nested blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...schedule.loops.loop_ir import Reduction
from . import reductions
from .loop_invariant_scopes import Carried, FunctionCode
from .reductions import Accumulator
from .scalar_operations import LlvmOperations

CHAIN = 16
"""The longest chain of float additions. A longer one is split into blocks of half as many, each summed separately."""


@dataclass(frozen=True, slots=True)
class AccumulatorSlot:
    """An accumulator: its reduction and its width."""

    reduction: Reduction
    width: int


def accumulate(
    code: FunctionCode,
    start: str,
    stop: str,
    step: int,
    trips: int,
    slots: list[AccumulatorSlot],
    accumulators: list[Accumulator],
    body: Callable[[str, list[Accumulator]], list[Accumulator]],
    variable: int | None,
    may_be_empty: bool = False,
    additions: int = 1,
) -> list[Accumulator]:
    """A loop; in blocks if it would make a chain of float additions too long. `additions`: in each iteration."""
    if trips * additions > CHAIN and any(reductions.is_cascaded(slot.reduction) for slot in slots):
        turns = max(CHAIN // 2 // additions, 1)
        reach = step * turns

        def block(first: str, current: list[Accumulator]) -> list[Accumulator]:
            end = code.emit(code.here, f"add nuw nsw i64 {first}, {reach}")
            end = code.call(code.here, "i64", "llvm.umin.i64", ("i64", end), ("i64", stop))
            return sum_from_zero(
                code,
                slots,
                current,
                lambda local: accumulate(code, first, end, step, turns, slots, local, body, variable),
            )

        blocks = -(-trips // turns)
        return accumulate(code, start, stop, reach, blocks, slots, accumulators, block, None, may_be_empty)
    names = code.loop(
        start,
        stop,
        step,
        flat(slots, accumulators),
        lambda counter, names: operands(body(counter, grouped(slots, names))),
        variable=variable,
        may_be_empty=may_be_empty,
    )
    return grouped(slots, names)


def sum_from_zero(
    code: FunctionCode,
    slots: list[AccumulatorSlot],
    outer: list[Accumulator],
    compute: Callable[[list[Accumulator]], list[Accumulator]],
) -> list[Accumulator]:
    """Float sums start from zero in `compute`; then they are added to the outer ones."""
    is_cascaded = [reductions.is_cascaded(slot.reduction) for slot in slots]
    local = [
        reductions.identity(slot.reduction, slot.width) if cascaded else a
        for slot, a, cascaded in zip(slots, outer, is_cascaded, strict=True)
    ]
    inner = compute(local)
    return [
        reductions.join(LlvmOperations(code, code.here, slot.width), slot.reduction, a, b) if cascaded else b
        for slot, a, b, cascaded in zip(slots, outer, inner, is_cascaded, strict=True)
    ]


def flat(slots: list[AccumulatorSlot], accumulators: list[Accumulator]) -> Carried:
    return [
        (type, operand)
        for slot, a in zip(slots, accumulators, strict=True)
        for type, operand in zip(reductions.types(slot.reduction, slot.width), a, strict=True)
    ]


def operands(accumulators: list[Accumulator]) -> list[str]:
    return [operand for a in accumulators for operand in a]


def grouped(slots: list[AccumulatorSlot], operands: list[str]) -> list[Accumulator]:
    iterator = iter(operands)
    return [[next(iterator) for _ in reductions.types(slot.reduction, slot.width)] for slot in slots]
