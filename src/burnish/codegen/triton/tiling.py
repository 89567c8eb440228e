"""Tiling for GPUs: the part of a loop that one Triton program computes.

    elementwise     f32[4096, 768]                     tiles of 1024 elements, counted through
    reduction       over 768 of 4096 rows              4 rows at a time, each whole: what is read is read once
                    over 1 << 20 of 8 rows             a row at a time, in steps of 4096 (many rows: 2048)
                    down the columns of a matrix       64 columns at a time, in steps of 32

A tile is two powers of two: rows, and inner elements side by side. It is `whole` if it holds a row from end to end:
then no stage needs a loop, and values stay in registers from stage to stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..loops.coalesce_loops import Box, accesses

ELEMENTS = 1024
"""Of a tile whose elements know nothing of one another: eight for each thread."""

PROGRAMS = 264
"""So many programs keep a large GPU busy; tiles of less work are made smaller."""

SMALLEST = 128

LONGEST_WHOLE = 8192
"""Up to here a row is held in registers: 64 elements for each of 256 threads, at most two values each."""

FEWEST_ROWS = 132
"""A Hopper has as many processors: with fewer programs some have nothing to do."""

STEP = 2048
"""How far a loop over a longer row goes at once."""

TILE = 2048
"""Elements of a tile of several whole rows."""

OPEN_ELEMENTS = 512
"""Of a tile where rows may become more or fewer: large tensors are done well with it, and small ones are shared out."""

OPEN_LENGTHS = (256, 2048)
"""A row of a length that is told when it runs is whole in one of these, the least that it fits into: each makes another
kernel. Longer ones are walked in steps."""

COLUMNS = 64
"""Rows that lie side by side, at once: 256 bytes of f32 in one go."""

FEWEST_COLUMNS = 8
"""32 bytes of f32: memory is read in no smaller pieces."""


@dataclass(frozen=True, slots=True)
class Tile:
    rows: int
    inner: int
    """0 where there are no inner variables."""
    whole: bool
    warps: int
    programs: int


@dataclass(frozen=True, slots=True)
class Variant:
    """How a tile differs from the one that is taken unasked: so many times twice as large, with twice as many warps."""

    size: int = 0
    warps: int = 0


PLAIN = Variant()
VARIANTS = (PLAIN, Variant(1, 0), Variant(-1, 0), Variant(0, 1), Variant(0, -1), Variant(1, 1), Variant(2, 1))
"""What is tried where kernels are measured, the one for all others first."""

LEAST, MOST = 64, 1 << 14
"""Elements of a tile."""


def varied(tile: Tile, rows: int, variant: Variant) -> Tile:
    """The same rows in tiles of another size. Whole ones stay whole: they hold more rows, or fewer."""
    if variant == PLAIN:
        return tile
    elements = tile.rows * max(tile.inner, 1)
    size = shifted(elements, variant.size, LEAST, MOST)
    some, inner = tile.rows, tile.inner
    if tile.whole:
        some = min(max(size // max(inner, 1), 1), power_of_two(rows))
    else:
        inner = max(size // some, 1)
    warps = shifted(tile.warps, variant.warps, 1, min(16, max(some * max(inner, 1) // 32, 1)))
    return Tile(some, inner, tile.whole, warps, -(-rows // some))


def shifted(n: int, steps: int, least: int, most: int) -> int:
    """Twice as much, or half, so many times. What lies beyond the bounds already stays there."""
    return min(max(n << steps if steps > 0 else n >> -steps, min(least, n)), max(most, n))


def tile_of(box: Box, variant: Variant = PLAIN) -> Tile:
    return varied(plain_tile_of(box), math.prod(box.extents[: box.rows]), variant)


def plain_tile_of(box: Box) -> Tile:
    rows, inner = math.prod(box.extents[: box.rows]), math.prod(box.extents[box.rows :])
    if box.is_elementwise:
        size = min(ELEMENTS, max(SMALLEST, power_of_two(-(-rows // PROGRAMS))))
        return Tile(size, 0, True, max(size // 256, 1), -(-rows // size))
    if rows_lie_side_by_side(box) and rows >= 8:
        wide = min(COLUMNS, power_of_two(rows))
        if inner * wide <= 2 * TILE:
            return tiled(rows, wide, power_of_two(inner), True)
        return tiled(rows, wide, min(power_of_two(inner), STEP // wide), False)
    if inner <= LONGEST_WHOLE:
        long = power_of_two(inner)
        several = max(min(TILE // long, power_of_two(-(-rows // PROGRAMS)), power_of_two(rows)), 1)
        return tiled(rows, several, long, True)
    return tiled(rows, 1, STEP if rows >= 4 * PROGRAMS else 2 * STEP, False)


def open_tile_of(seen: Box, inner: int, has_open_rows: bool, has_open_inner: bool) -> Tile:
    """For a box some of whose extents are told when it runs: the tile must do for all of them. `seen` is the box of the
    program that was seen, `inner` how many elements a row has now. The number of programs is that of the box seen."""
    rows = math.prod(seen.extents[: seen.rows])
    if seen.is_elementwise:
        return Tile(OPEN_ELEMENTS, 0, True, OPEN_ELEMENTS // 256, -(-rows // OPEN_ELEMENTS))
    if rows_lie_side_by_side(seen) and (has_open_rows or rows >= 8):
        wide = COLUMNS if has_open_rows else min(COLUMNS, power_of_two(rows))
        if has_open_inner and not has_open_rows:
            # They may become long, and nobody cuts them in parts: more programs, each of a few columns, share them out.
            wide = min(wide, max(power_of_two(rows // PROGRAMS), FEWEST_COLUMNS))
        longest = 2 * TILE // wide
        if inner > longest:
            return tiled(rows, wide, STEP // wide, False)
        return tiled(rows, wide, longest if has_open_inner else power_of_two(inner), True)
    if inner > (OPEN_LENGTHS[-1] if has_open_inner else LONGEST_WHOLE):
        return tiled(rows, 1, STEP, False)
    long = next(n for n in OPEN_LENGTHS if inner <= n) if has_open_inner else power_of_two(inner)
    several = max(OPEN_ELEMENTS // long, min(TILE // long, power_of_two(-(-rows // PROGRAMS))), 1)
    return tiled(rows, several if has_open_rows else min(several, power_of_two(rows)), long, True)


def tiled(rows: int, some: int, inner: int, whole: bool) -> Tile:
    warps = min(max(power_of_two(some * inner // 512), 1), 8)
    return Tile(some, inner, whole, warps, -(-rows // some))


def rows_lie_side_by_side(box: Box) -> bool:
    """Whether memory is read along the rows' last variable rather than along the inner ones. What belongs to a row as
    a whole says nothing of that."""
    last, inner = box.rows - 1, len(box.extents) - 1
    if box.rows == 0 or inner < box.rows:
        return False
    within = [a for a in accesses(box.stages) if any(a.strides[box.rows :])]
    along_rows = sum(abs(a.strides[last]) == 1 for a in within)
    return along_rows > sum(abs(a.strides[inner]) == 1 for a in within)


def is_shared_out(rows: int, inner: int, is_along: bool) -> bool:
    """Whether programs of some whole rows keep a GPU busy: what is in registers is soon done, and what is walked in
    steps takes many programs."""
    wide = 1 if is_along else min(COLUMNS, power_of_two(rows))
    return inner * wide <= LONGEST_WHOLE or rows // wide >= FEWEST_ROWS


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


__all__ = ["FEWEST_ROWS", "PLAIN", "VARIANTS", "Tile", "Variant", "open_tile_of", "tile_of"]
