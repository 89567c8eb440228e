"""Stores expensive values in scratch rows on the stack for later stages, instead of recomputing them.

    stage                                             stage
      r1 = sum exp(sub(b0[512*i0 + i1], r0))            r1 = sum exp(sub(b0[512*i0 + i1], r0))
                                                        b2[i1] = exp(sub(b0[512*i0 + i1], r0))
    stage                                       ->    stage
      b1[512*i0 + i1] = div(exp(sub(…, r0)), r1)        b1[512*i0 + i1] = div(b2[i1], r1)

b2 is a scratch buffer of the kernel, on the stack: one row, overwritten by the next.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...ops.scalar_ir import Access, Scalar, load, walk
from ...schedule.loops.loop_ir import Stage, Store, mapped_stages
from ...tensors.dtypes import BITS
from ..loops.coalesce_loops import LoopNest, expressions, remade
from .vectorization_and_tiling import COST

LONGEST = 32 * 1024
"""Bytes of scratch rows: they fit into a first-level cache beside the row itself."""

WORTH = 8
"""Cycles for a vector from which on storing and loading it is cheaper than computing it again."""


def store_in_scratch_rows(box: LoopNest, lane: int, buffers: int) -> tuple[LoopNest, tuple[str, ...]]:
    """The box with additional buffers, numbered from `buffers` on, and their dtypes. Each is as long as a row."""
    length = math.prod(box.extents[k] for k in box.inner)
    strides, step = [0] * len(box.extents), 1
    for k in reversed(box.inner):
        strides[k], step = step, step * box.extents[k]
    stored = {store.access.buffer for stage in box.stages for store in stage.stores + stage.row_stores}
    stages, dtypes = list(box.stages), list[str]()
    for early in range(len(stages) - 1):
        for late in range(early + 1, len(stages)):
            for x in _shared(stages[early], stages[late], lane, stored):
                if length * sum(BITS[d] for d in (*dtypes, x.dtype)) > 8 * LONGEST:
                    continue
                access = Access(buffers + len(dtypes), 0, tuple(strides))
                dtypes.append(x.dtype)
                stages[early] = replace(stages[early], stores=(*stages[early].stores, Store(access, x)))
                for number in range(late, len(stages)):
                    stages[number] = _replaced(stages[number], x, load(x.dtype, access))
    return (replace(box, stages=tuple(stages)), tuple(dtypes)) if dtypes else (box, ())


def _shared(early: Stage, late: Stage, lane: int, stored: set[int]) -> list[Scalar]:
    """The largest common values that are worth keeping. A load from a stored buffer may change in between."""
    known = set(walk(*expressions((early,))))
    costs: dict[Scalar, float] = {}
    is_in_lanes: dict[Scalar, bool] = {}
    is_fixed: dict[Scalar, bool] = {}
    found: list[Scalar] = []
    inside: set[Scalar] = set()
    nodes = list(walk(*_elements(late)))
    for x in nodes:
        own = x.op == "load" and x.payload.strides[lane] != 0 or x.op == "index" and x.payload == lane
        is_in_lanes[x] = own or any(is_in_lanes[a] for a in x.args)
        is_fixed[x] = not (x.op == "load" and x.payload.buffer in stored) and all(is_fixed[a] for a in x.args)
        costs[x] = (COST.get(x.op, 1) if is_in_lanes[x] else 0) + sum(costs[a] for a in x.args)
    for x in reversed(nodes):
        if x in inside:
            inside.update(x.args)
        elif x in known and is_in_lanes[x] and is_fixed[x] and costs[x] >= WORTH and x.dtype != "b8":
            found.append(x)
            inside.update(x.args)
    return found


def _elements(stage: Stage) -> list[Scalar]:
    return expressions((replace(stage, row_stores=()),))


def _replaced(stage: Stage, old: Scalar, new: Scalar) -> Stage:
    def leaf(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        return new if x is old else remade(x, args)

    return mapped_stages((stage,), leaf, lambda access: access)[0]
