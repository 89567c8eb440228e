"""Sizes that a kernel is told when it runs.

    loop i0 < %size0 rows, i1 < 768          store double: the table of buffers goes on with the sizes
      stage                                    %size0.at = getelementptr i64, ptr %buffers, i64 2
        b1[768*i0 + i1] = ...                  %size0 = load i64, ptr %size0.at

A `Size` stands where a box or an access has a number otherwise. It prints as the register that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ops.scalar_ir import walk
from ..loops.coalesce_loops import Box, accesses, expressions
from .loop_invariant_scopes import Code

LONG = 1 << 16
"""How long a loop of unknown length is taken to be, where sums of many terms are divided."""


@dataclass(frozen=True, slots=True)
class Size:
    number: int
    """Among the sizes of its kernel."""
    hint: int
    """What it was in the program that was seen. Only for guesses of what is fast."""

    def __str__(self) -> str:
        return f"%size{self.number}"


def most(extent: int | Size) -> int:
    return max(extent.hint, LONG) if isinstance(extent, Size) else extent


def hint(extent: int | Size) -> int:
    return extent.hint if isinstance(extent, Size) else extent


def comes_out_even(extent: int | Size, unit: int) -> bool:
    """Whether it is known to."""
    return unit == 1 or isinstance(extent, int) and extent % unit == 0


def blocks(code: Code, extent: int | Size, block: int) -> int | str:
    """How many blocks an extent takes."""
    if isinstance(extent, int):
        return -(-extent // block)
    scope, key = code.scopes[0], ("blocks", extent, block)
    if key not in scope.memo:
        rounded = code.emit(scope, f"add nuw nsw i64 {extent}, {block - 1}")
        scope.memo[key] = code.emit(scope, f"udiv i64 {rounded}, {block}")
    return scope.memo[key]


def sizes_in(box: Box) -> list[Size]:
    """All that the box speaks of."""
    found: set[Size] = set()

    def see(values: Iterable[object]) -> None:
        found.update(value for value in values if isinstance(value, Size))

    see(box.extents)
    see(box.positions)
    for access in accesses(box.stages):
        see((access.offset, *access.strides, *access.indirect))
    see(x.payload for x in walk(*expressions(box.stages)) if x.op == "size")
    return sorted(found, key=lambda size: size.number)


def load_sizes(sizes: Iterable[Size], buffers: int) -> list[str]:
    """Lines that take them from the table, where they stand behind the buffers."""
    lines = []
    for size in sizes:
        lines += [
            f"  {size}.at = getelementptr ptr, ptr %buffers, i64 {buffers + size.number}",
            f"  {size} = load i64, ptr {size}.at",
        ]
    return lines
