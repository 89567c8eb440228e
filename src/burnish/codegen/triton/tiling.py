"""Tiling for GPUs: the part of a loop that one Triton program computes.

    elementwise     f32[4096, 768]                     tiles of 1024 elements, numbered consecutively
                    of a transpose                     tiles of 64 by 64: read along one side, stored along the other
                    with numbers of rows               tiles of adjacent elements of a row
    reduction       over 768 of 4096 rows              4 whole rows at a time: each element is read once
                    over 1 << 20 of 8 rows             a row at a time, in steps of 4096 (many rows: 2048)
                    down the columns of a matrix       64 columns at a time, in steps of 32

The two sizes of a tile are powers of two: rows, and inner elements. A tile is `whole` if it holds complete rows: then
no stage needs a loop, and values stay in registers from stage to stage.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import starmap

from ..loops.coalesce_loops import LoopNest, accesses

ELEMENTS = 1024
"""Elements of an elementwise tile: eight per thread."""

PROGRAMS = 264
"""The number of programs that keeps a large GPU busy; with fewer, tiles are made smaller."""

SMALLEST = 128

LONGEST_WHOLE = 8192
"""The longest row that is held in registers: 64 elements for each of 256 threads, at most two values each."""

FEWEST_ROWS = 132
"""A Hopper GPU has this many multiprocessors: with fewer programs some are idle."""

STEP = 2048
"""Elements of a longer row in one step of the loop over it."""

TILE = 2048
"""Elements of a tile of several whole rows."""

OPEN_ELEMENTS = 512
"""Elements of a tile with a symbolic number of rows: enough for large tensors, and small ones still fill the GPU."""

SYMBOLIC_ROW_LENGTHS = (256, 2048)
"""A row of symbolic length is whole in the smallest of these that it fits into; each makes another kernel. Longer rows
are walked in steps."""

COLUMNS = 64
"""Adjacent rows (columns in memory) at once: 256 contiguous bytes of f32."""

FEWEST_COLUMNS = 8
"""32 bytes of f32: memory is read in no smaller units."""


SIDE = 64
"""The side of a tile that is transposed: 128 contiguous bytes of bf16."""

ROW_CHUNKS = (1024, 512, 256, 128)


@dataclass(frozen=True, slots=True)
class Tile:
    rows: int
    inner: int
    """0 where there are no inner variables."""
    whole: bool
    warps: int
    programs: int
    chunks: int = 0
    """For element-wise loops in two dimensions: into how many tiles a row is cut."""
    fast: int | None = None
    """The variable along which `x` counts adjacent rows; None for the last row variable."""


@dataclass(frozen=True, slots=True)
class TileVariant:
    """How a tile differs from the default: the exponents of two for its size and for its number of warps."""

    size: int = 0
    warps: int = 0


PLAIN = TileVariant()
VARIANTS = (PLAIN, *starmap(TileVariant, ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (2, 1))))
"""The variants that autotuning measures, the default first."""

LEAST, MOST = 64, 1 << 14
"""Bounds for the elements of a tile."""


def vary_tile(tile: Tile, rows: int, variant: TileVariant) -> Tile:
    """The same rows in tiles of another size. Whole tiles stay whole: they hold more or fewer rows."""
    if variant == PLAIN or tile.chunks:
        return tile
    elements = tile.rows * max(tile.inner, 1)
    size = shift_within_bounds(elements, variant.size, LEAST, MOST)
    some, inner = tile.rows, tile.inner
    if tile.whole:
        some = min(max(size // max(inner, 1), 1), power_of_two(rows))
    else:
        inner = max(size // some, 1)
    warps = shift_within_bounds(tile.warps, variant.warps, 1, min(16, max(some * max(inner, 1) // 32, 1)))
    return Tile(some, inner, tile.whole, warps, -(-rows // some))


def shift_within_bounds(n: int, steps: int, least: int, most: int) -> int:
    """Doubles or halves `steps` times within the bounds. A number beyond a bound already is not moved further."""
    return min(max(n << steps if steps > 0 else n >> -steps, min(least, n)), max(most, n))


def tile_of(box: LoopNest, variant: TileVariant = PLAIN) -> Tile:
    return vary_tile(plain_tile_of(box), math.prod(box.extents[: box.rows]), variant)


def plain_tile_of(box: LoopNest) -> Tile:
    rows, inner = math.prod(box.extents[: box.rows]), math.prod(box.extents[box.rows :])
    if box.is_elementwise:
        in_two = transposed_tile(box) or row_tile(box)
        if in_two is not None:
            return in_two
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


def variables_of(box: LoopNest, tile: Tile) -> tuple[list[int], list[int]]:
    """The variables that the rows and the inner elements of a tile count, the last one fastest."""
    if not tile.chunks:
        return list(range(box.rows)), list(range(box.rows, len(box.extents)))
    last = len(box.extents) - 1
    rows = [k for k in range(last) if k != tile.fast]
    return rows + ([] if tile.fast is None else [tile.fast]), [last]


def transposed_tile(box: LoopNest) -> Tile | None:
    """The tile of a loop that stores along the last variable and reads along another one."""
    last, total = len(box.extents) - 1, math.prod(box.extents)
    if last < 1 or total < SIDE * SIDE * 4:
        return None
    all_accesses = accesses(box.stages)
    if any(access.indirect for access in all_accesses):
        return None
    turned = [a for a in all_accesses if a.strides[last] not in (0, 1)]
    fast = Counter(k for a in turned for k in range(last) if a.strides[k] == 1 and box.extents[k] >= SIDE // 2)
    is_along = any(a.strides[last] == 1 for a in all_accesses)
    if not fast or not is_along or box.extents[last] < SIDE // 2:
        return None
    across = fast.most_common(1)[0][0]
    return in_two_dimensions(box, SIDE, SIDE, across)


def row_tile(box: LoopNest) -> Tile | None:
    """The tile of a loop that reads numbers of whole rows, if few elements are beyond the ends of rows."""
    last = len(box.extents) - 1
    if last < 1 or math.prod(box.extents) < PROGRAMS * ELEMENTS:
        return None
    is_of_row = [not a.strides[last] and any(a.strides) for a in accesses(box.stages)]
    long = next((n for n in ROW_CHUNKS if -(-box.extents[last] // n) * n <= 9 * box.extents[last] // 8), None)
    return in_two_dimensions(box, ELEMENTS // long, long, None) if any(is_of_row) and long else None


def in_two_dimensions(box: LoopNest, rows: int, inner: int, fast: int | None) -> Tile:
    chunks = -(-box.extents[-1] // inner)
    count = math.prod(box.extents[:-1])
    programs, warps = -(-count // rows) * chunks, max(rows * inner // 512, 4)
    return Tile(rows, inner, True, warps, programs, chunks, fast)


def symbolic_tile_of(seen: LoopNest, inner: int, has_symbolic_rows: bool, has_symbolic_inner: bool) -> Tile:
    """The tile for a box with symbolic extents; it must suit all sizes. `seen` is the box of the program that was seen,
    `inner` the present number of elements of a row. The number of programs is that of the box seen."""
    rows = math.prod(seen.extents[: seen.rows])
    if seen.is_elementwise:
        return Tile(OPEN_ELEMENTS, 0, True, OPEN_ELEMENTS // 256, -(-rows // OPEN_ELEMENTS))
    if rows_lie_side_by_side(seen) and (has_symbolic_rows or rows >= 8):
        wide = COLUMNS if has_symbolic_rows else min(COLUMNS, power_of_two(rows))
        if has_symbolic_inner and not has_symbolic_rows:
            # Rows may become long, and are not split: more programs with few columns each spread the work.
            wide = min(wide, max(power_of_two(rows // PROGRAMS), FEWEST_COLUMNS))
        longest = 2 * TILE // wide
        if inner > longest:
            return tiled(rows, wide, STEP // wide, False)
        return tiled(rows, wide, longest if has_symbolic_inner else power_of_two(inner), True)
    if inner > (SYMBOLIC_ROW_LENGTHS[-1] if has_symbolic_inner else LONGEST_WHOLE):
        return tiled(rows, 1, STEP, False)
    long = next(n for n in SYMBOLIC_ROW_LENGTHS if inner <= n) if has_symbolic_inner else power_of_two(inner)
    several = max(OPEN_ELEMENTS // long, min(TILE // long, power_of_two(-(-rows // PROGRAMS))), 1)
    return tiled(rows, several if has_symbolic_rows else min(several, power_of_two(rows)), long, True)


def tiled(rows: int, some: int, inner: int, whole: bool) -> Tile:
    warps = min(max(power_of_two(some * inner // 512), 1), 8)
    return Tile(some, inner, whole, warps, -(-rows // some))


def rows_lie_side_by_side(box: LoopNest) -> bool:
    """Whether memory is contiguous along the rows' last variable rather than along the inner ones. Accesses without
    inner strides do not count."""
    last, inner = box.rows - 1, len(box.extents) - 1
    if box.rows == 0 or inner < box.rows:
        return False
    within = [a for a in accesses(box.stages) if any(a.strides[box.rows :])]
    along_rows = sum(abs(a.strides[last]) == 1 for a in within)
    return along_rows > sum(abs(a.strides[inner]) == 1 for a in within)


def fills_gpu(rows: int, inner: int, is_along: bool) -> bool:
    """Whether tiles of whole rows keep a GPU busy. Rows held in registers are soon done; rows that are walked in steps
    need many programs."""
    wide = 1 if is_along else min(COLUMNS, power_of_two(rows))
    return inner * wide <= LONGEST_WHOLE or rows // wide >= FEWEST_ROWS


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()
