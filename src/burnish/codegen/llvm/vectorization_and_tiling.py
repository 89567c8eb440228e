"""Vectorization and tiling of a loop nest by a cost model: the vector variable, its lanes, the vectors per step.

    f32 softmax over rows of 512     lanes: i1 by 16, 2 vectors per iteration; an item is a row
    column sums of f32[4096, 1024]   lanes: i0 (a row variable) by 16, 4 vectors; an item is 64 columns
    f32 addition over 1048576        lanes: i0 by 16, 2 vectors per iteration; an item is 4096 elements
    transposing f32[1024, 1024]      lanes: i1 by 16; an item is a tile of 16 by 16, transposed in registers

An item is what one iteration of the parallel loop computes. A small cost model, in cycles, decides.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal

from ...ops.scalar_ir import Access, Scalar, walk
from ...schedule.loops.loop_ir import Stage
from ...tensors.dtypes import BITS, FLOATS
from ..loops.coalesce_loops import LoopNest, accesses, expressions, restrict_rows
from .target_cpu import Host

Kind = Literal["elements", "tiles", "inner", "rows"]

COST = {"div": 8, "sqrt": 10, "floor_div": 20, "remainder": 20, "fmod": 40, "const": 0, "load": 0, "reduced": 0}
"""Cycles of a vector operation; 1 for operations not listed."""

GRAIN = 15_000
"""Cycles of work below which a second thread does not pay: about five times the cost of waking it."""

MOST_COPIES = 8
MOST_SCALARS = 64
"""Operations of one iteration, where rows are computed side by side as scalars."""

FAR = 1024
"""Bytes between neighbouring elements of a row from which on rows are walked in strips, so that adjacent memory is read
together."""

STRETCH = 2048
"""The most contiguous bytes that strips read at once."""

NARROW = 128
"""The most contiguous bytes that one iteration reads for which strips are worth their accumulators in memory."""

FEW_ELEMENTS = 16
ITEMS = 8
"""The wanted number of items: enough for several threads."""

POSITIONAL = ("argmax", "argmin")

BLOCK = 4096
"""Elements of an item of an elementwise loop: many enough to hide its start, few enough to balance threads."""


@dataclass(frozen=True, slots=True)
class VectorPlan:
    kind: Kind
    """elements: an elementwise box; an item is a block of the lane variable. tiles: the same with loads strided along
    the lanes; an item is a square. inner: an item is a row, its elements are lanes. rows: an item is `copies` vectors
    of rows, and each lane is a row."""
    lane: int | None
    """The vectorized variable. None: everything is scalar."""
    width: int
    copies: int
    """Vectors computed side by side, to hide latency."""
    block: int
    """The length of an item along the lane variable. 0 if it is not part of the item."""
    items: int
    cycles: float
    """Estimated, for the whole box."""
    across: int | None = None
    """Of tiles: the variable along which the loads are contiguous. An item is one width long along it."""
    strips: int = 1
    """Of rows: an item is this many times `copies` vectors. All of them accumulate one element before any takes the
    next. Their accumulators are in memory."""


def choose(box: LoopNest, host: Host) -> VectorPlan:
    candidates: list[int | None] = [k for k, extent in enumerate(box.extents) if extent > 1]
    if any(r.is_running for r in box.reductions):
        return _in_order(box, host)
    if not candidates or 0 in box.extents:
        candidates = [None]
    lane = min(candidates, key=lambda k: cycles_of(box, k, host))
    width = 1 if lane is None else width_of(box, lane, host)
    if width == 1 and not box.is_elementwise:
        lane = None
    return make_vector_plan(box, lane, width, cycles_of(box, lane, host), host)


def _in_order(box: LoopNest, host: Host) -> VectorPlan:
    """The plan for running reductions. They take one element after the other, so lanes are rows. If rows are not
    contiguous, they are still computed side by side, as scalars: each only waits for its own last addition."""
    steps = accesses(box.stages)
    rows = [k for k in range(box.rows) if box.extents[k] > 1]
    lanes = [k for k in rows if all(a.strides[k] in (0, 1) and not a.indirect for a in steps)]
    if 0 in box.extents or not rows:
        return make_vector_plan(box, None, 1, cycles_of(box, None, host), host)
    if lanes:
        lane = min(lanes, key=lambda k: cycles_of(box, k, host))
        width = width_of(box, lane, host)
        if width > 1:
            return make_vector_plan(box, lane, width, cycles_of(box, lane, host), host)
    lane = max(rows, key=lambda k: box.extents[k])
    body = _operations(box)
    copies = next(
        n for n in (MOST_COPIES, 4, 2, 1) if box.extents[lane] % n == 0 and (n == 1 or n * body <= MOST_SCALARS)
    )
    cycles = cycles_of(box, None, host) / copies
    return VectorPlan("rows", lane, 1, copies, copies, math.prod(box.extents[: box.rows]) // copies, cycles)


def pieces(box: LoopNest, host: Host) -> list[tuple[LoopNest, VectorPlan]]:
    """The box with its plan; split into parts if the extent is not a multiple and lanes cannot be masked."""
    plan = choose(box, host)
    if plan.kind == "rows" and plan.width == 1 and plan.lane is not None and plan.copies < MOST_COPIES:
        # More rows side by side, and the remaining few by themselves.
        extent = box.extents[plan.lane]
        even = extent // MOST_COPIES * MOST_COPIES
        if 0 < even < extent:
            halves = restrict_rows(box, plan.lane, 0, even), restrict_rows(box, plan.lane, even, extent - even)
            return [piece for half in halves for piece in pieces(half, host)]
    if plan.lane is None or plan.kind in ("inner", "elements") or plan.kind == "rows" and host.has_masks:
        return [(box, plan)]
    for k in (plan.lane, plan.across):
        extent = 0 if k is None else box.extents[k]
        rest = extent % plan.width
        if rest:
            parts = [restrict_rows(box, k, 0, extent - rest)] if extent > rest else []
            parts.append(restrict_rows(box, k, extent - rest, rest))
            if len(parts) > 1:
                return [piece for half in parts for piece in pieces(half, host)]
    return [(box, plan)]


def is_across(access: Access, lane: int | None, across: int) -> bool:
    """Whether an access is strided along the lanes, but contiguous along the other variable."""
    return (
        lane is not None
        and access.strides[lane] not in (0, 1, -1)
        and access.strides[across] == 1
        and not access.indirect
        and not access.masked
    )


def _across(box: LoopNest, lane: int | None, width: int) -> int | None:
    if lane is None or not box.is_elementwise or width not in (4, 8, 16) or box.extents[lane] < width:
        return None
    loads = {x.payload for x in walk(*expressions(box.stages)) if x.op == "load"}
    stores = {store.access for stage in box.stages for store in stage.stores}
    for k, extent in enumerate(box.extents):
        if extent >= width and any(is_across(a, lane, k) for a in loads - stores):
            return k
    return None


def make_vector_plan(
    box: LoopNest,
    lane: int | None,
    width: int,
    cycles: float,
    host: Host,
    may_transpose: bool = True,
    is_symbolic: bool = False,
) -> VectorPlan:
    """`may_transpose`: whether squares may be transposed. `is_symbolic`: the extent along the lanes is symbolic."""
    rows = math.prod(box.extents[: box.rows])
    body = _operations(box)
    if lane is None:
        kind, copies, block, items = "rows", 1, 0, rows
    elif may_transpose and (across := _across(box, lane, width)) is not None:
        even = [-(-box.extents[k] // width) for k in (lane, across)]
        items = rows // (box.extents[lane] * box.extents[across]) * even[0] * even[1]
        return VectorPlan("tiles", lane, width, 1, width, items, cycles, across)
    elif box.is_elementwise:
        extent = box.extents[lane]
        # Where lanes are masked at the end anyway, a long body is printed once, not three times.
        longest = 40 if extent % width == 0 and not is_symbolic else 12
        copies = _copies(extent, width, 2 if body <= longest else 1)
        block = max(BLOCK // (width * copies), 1) * width * copies
        kind, items = "elements", rows // extent * -(-extent // block)
    elif lane >= box.rows:
        kind, block, items = "inner", 0, rows
        copies = _copies(box.extents[lane], width, 4 if body <= 12 else 2 if body <= 40 else 1)
    else:
        extent = box.extents[lane]
        kind, copies = "rows", 1
        for wanted in (8, 4, 2):
            is_even = host.has_masks or extent % (width * wanted) == 0
            # Enough items for several threads are more important than long items.
            is_shared = wanted == 2 or rows // (width * wanted) >= ITEMS
            if body <= 32 // wanted * 2 and extent >= 2 * wanted * width and is_even and is_shared:
                copies = wanted
                break
        strips = 1 if is_symbolic else _strips(box, lane, width * copies)
        block = width * copies * strips
        items = rows // extent * -(-extent // block)
        return VectorPlan(kind, lane, width, copies, block, items, cycles, strips=strips)
    return VectorPlan(kind, lane, width, copies, block, items, cycles)


def _strips(box: LoopNest, lane: int, reach: int) -> int:
    """How many units of `reach` rows are walked before the next element of each row. The elements of a row are far
    apart here: walking one row after the other reads a line or two of each page, and waits for each."""
    if len(box.stages) != 1 or len(box.inner) != 1 or any(r.is_running or r.op in POSITIONAL for r in box.reductions):
        return 1
    inner, extent, size = box.inner[0], box.extents[lane], BITS[box.reductions[0].value.dtype] // 8
    steps = [a.strides[inner] for a in accesses(box.stages) if a.strides[lane] == 1]
    if max(map(abs, steps), default=0) * size < FAR or reach * size > NARROW or box.extents[inner] < FEW_ELEMENTS:
        return 1
    most = min(STRETCH // (reach * size), math.prod(box.extents[: box.rows]) // (reach * ITEMS))
    return next((n for n in range(most, 1, -1) if extent % (reach * n) == 0), 1)


def _copies(extent: int, width: int, wanted: int) -> int:
    """As many as divide the extent, or as wanted if the extent is so long that the tail does not matter."""
    while wanted > 1 and extent % (width * wanted) and extent < 4 * width * wanted:
        wanted //= 2
    return wanted


def _operations(box: LoopNest) -> int:
    return sum(COST.get(x.op, 1) for x in walk(*expressions(box.stages)))


def width_of(box: LoopNest, lane: int, host: Host) -> int:
    bits = _element_bits(box)
    width = max(host.vector_bits // bits, 1)
    gathers = any(a.strides[lane] not in (0, 1, -1) or a.indirect for a in accesses(box.stages))
    if gathers:
        # Lanes of a gather are loaded one at a time, or eight to sixteen by an instruction.
        width = min(width, 16)
    while width > 2 and width // 2 >= box.extents[lane]:
        width //= 2
    return width


def _element_bits(box: LoopNest) -> int:
    """The bits of the usual element: of the floats if there are any, because they decide the speed."""
    roots = expressions(box.stages)
    dtypes = {x.dtype for x in common_path(*roots) if x.op not in ("const", "index")}
    dtypes |= {r.value.dtype for r in box.reductions}
    floats = dtypes & FLOATS
    if floats & {"f32", "f64"}:
        return max(BITS[dtype] for dtype in floats)
    if floats:
        moves = {"load", "select", "bitcast", "const", "reduced"}
        is_moved = all(x.op in moves for x in walk(*roots) if x.dtype in floats) and not box.reductions
        return 16 if is_moved and dtypes <= floats | {"b8"} else 32
    return max((BITS[dtype] for dtype in dtypes), default=32)


def common_path(*roots: Scalar) -> set[Scalar]:
    """The nodes computed below the roots, without those that only the rare branch of a select needs."""
    found: set[Scalar] = set()
    stack = list(roots)
    while stack:
        x = stack.pop()
        if x not in found:
            found.add(x)
            stack.extend((x.args[0], x.args[2]) if x.op == "select" and x.payload == "rare" else x.args)
    return found


def cycles_of(box: LoopNest, lane: int | None, host: Host, may_transpose: bool = True) -> float:
    """The estimated cycles of the whole box, with this variable in lanes."""
    if 0 in box.extents[: box.rows]:
        return 0
    width = 1 if lane is None else width_of(box, lane, host)
    across = _across(box, lane, width) if may_transpose else None
    total = 0.0
    elements, rows = math.prod(box.extents), math.prod(box.extents[: box.rows])

    def turn_of(stage: Stage) -> float:
        turn, steps = _work_of(stage)
        for a in steps:
            is_transposed = across is not None and is_across(a, lane, across)
            turn += 6 if is_transposed else _access_cycles(a, lane, width, host)
        return turn

    is_row = lane is not None and lane < box.rows
    lanes = 1.0 if lane is None or width == 1 else box.extents[lane] / math.ceil(box.extents[lane] / width)
    for stage in box.stages:
        if stage.reductions or stage.stores:
            total += elements / lanes * turn_of(replace(stage, row_stores=()))
        if stage.row_stores:
            total += rows / (lanes if is_row else 1) * turn_of(Stage(row_stores=stage.row_stores))
        if lane is not None and width > 1 and lane >= box.rows:
            total += rows * len(stage.reductions) * 6 * math.log2(width)
            total += rows * 10
    return total


@functools.lru_cache(maxsize=256)  # asked for each variable that may be in lanes
def _work_of(stage: Stage) -> tuple[float, tuple[Access, ...]]:
    """The cycles of a stage's operations, and its accesses."""
    operations = sum(COST.get(x.op, 1) for x in common_path(*expressions((stage,))))
    return 1.0 + operations + 2 * len(stage.reductions), tuple(accesses((stage,)))


def _access_cycles(access: Access, lane: int | None, width: int, host: Host) -> float:
    if lane is None:
        return 1
    stride = access.strides[lane]
    if access.indirect:
        return width * 1.2 if stride != 1 else 1.5
    if stride == 0:
        return 0.3
    if stride == 1:
        return 1 if width * 4 <= host.vector_bits // 8 else 1.5
    return 1.5 if stride == -1 else width * 1.2
