"""Symbolic sizes in CPU kernels: the values are passed at run time, after the buffers.

    loop i0 < %size0 rows, i1 < 768          store double: the table of buffers continues with the sizes
      stage                                    %size0.at = getelementptr i64, ptr %buffers, i64 2
        b1[768*i0 + i1] = ...                  %size0 = load i64, ptr %size0.at

A `LlvmSize` takes the place of a number in a box or an access. It prints as the register that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ops.scalar_ir import walk
from ..loops.coalesce_loops import LoopNest, accesses, expressions
from .loop_invariant_scopes import FunctionCode

LONG = 1 << 16
"""The assumed length of a loop of symbolic length, where long sums are split into blocks."""


@dataclass(frozen=True, slots=True)
class LlvmSize:
    number: int
    """Its index among the sizes of its kernel."""
    hint: int
    """Its value in the program that was seen. It only guides estimates of speed."""

    def __str__(self) -> str:
        return f"%size{self.number}"


def most(extent: int | LlvmSize) -> int:
    return max(extent.hint, LONG) if isinstance(extent, LlvmSize) else extent


def hint(extent: int | LlvmSize) -> int:
    return extent.hint if isinstance(extent, LlvmSize) else extent


def comes_out_even(extent: int | LlvmSize, unit: int) -> bool:
    """Whether the extent is known to be a multiple of `unit`."""
    return unit == 1 or isinstance(extent, int) and extent % unit == 0


def blocks(code: FunctionCode, extent: int | LlvmSize, block: int) -> int | str:
    """How many blocks an extent takes, rounded up."""
    if isinstance(extent, int):
        return -(-extent // block)
    scope, key = code.scopes[0], ("blocks", extent, block)
    if key not in scope.memo:
        rounded = code.emit(scope, f"add nuw nsw i64 {extent}, {block - 1}")
        scope.memo[key] = code.emit(scope, f"udiv i64 {rounded}, {block}")
    return scope.memo[key]


def sizes_in(box: LoopNest) -> list[LlvmSize]:
    """All sizes that the box uses."""
    found: set[LlvmSize] = set()

    def see(values: Iterable[object]) -> None:
        found.update(value for value in values if isinstance(value, LlvmSize))

    see(box.extents)
    see(box.positions)
    for access in accesses(box.stages):
        see((access.offset, *access.strides, *access.indirect))
    see(x.payload for x in walk(*expressions(box.stages)) if x.op == "size")
    return sorted(found, key=lambda size: size.number)


def load_sizes(sizes: Iterable[LlvmSize], buffers: int) -> list[str]:
    """Lines that load the sizes from the table, where they follow the buffers."""
    lines = []
    for size in sizes:
        lines += [
            f"  {size}.at = getelementptr ptr, ptr %buffers, i64 {buffers + size.number}",
            f"  {size} = load i64, ptr {size}.at",
        ]
    return lines
