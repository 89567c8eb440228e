"""Loop coalescing: simplifies loop nests before printing, with fewer variables sorted by memory order.

    loop i0 < 4 rows, i1 < 1 rows, i2 < 8 rows, i3 < 16 rows        loop i0 < 512 rows
      stage                                                  ->       stage
        b1[128*i0 + 16*i2 + i3] = exp(b0[...])                          b1[i0] = exp(b0[i0])

Three steps. Variables of extent 1 are removed. Variables are sorted by stride, rows among rows and inner among inner.
Adjacent variables that every access walks as one are merged. Transcendental operations are expanded as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ops.scalar_ir import Access, Scalar, const, make, walk
from ...schedule.loops.loop_ir import Loop, Reduction, Stage, mapped_stages
from ...tensors.dtypes import FLOATS
from ..math.expand_operations import expanded, why_not_expandable


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A loop nest, with the facts that simplification must preserve."""

    extents: tuple[int, ...]
    rows: int
    stages: tuple[Stage, ...]
    positions: tuple[int, ...]
    """For each inner variable, how far one step moves in the original row-major order of the inner variables. argmax
    counts positions in this order. 0 for rows."""

    @property
    def inner(self) -> range:
        return range(self.rows, len(self.extents))

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return tuple(r for stage in self.stages for r in stage.reductions)

    @property
    def is_elementwise(self) -> bool:
        return not any(stage.reductions or stage.row_stores for stage in self.stages)


def simplify(loop: Loop, expands: bool = True) -> LoopNest:
    """`expands`: rewrite transcendental operations as base operations."""
    return simplify_together([loop], expands)[0]


def simplify_together(loops: Sequence[Loop], expands: bool = True) -> list[LoopNest]:
    """Simplifies loops that differ only in their numbers, all in the same way."""
    boxes = list(map(_box, loops))
    order = _ordered(boxes[0], [k for k in range(len(boxes[0].extents)) if any(box.extents[k] != 1 for box in boxes)])
    return _merged([_rewritten(box, order, _expanded if expands else remade) for box in boxes])


def _box(loop: Loop) -> LoopNest:
    positions, step = [0] * len(loop.extents), 1
    for k in range(len(loop.extents) - 1, loop.rows - 1, -1):
        positions[k], step = step, step * loop.extents[k]
    box = LoopNest(loop.extents, loop.rows, loop.stages, tuple(positions))
    return replace(box, rows=len(box.extents)) if box.is_elementwise else box


def expressions(stages: tuple[Stage, ...]) -> list[Scalar]:
    """The root expressions: reduced values, stored values, and the indices and masks of stores."""
    roots: list[Scalar] = []
    for stage in stages:
        roots += [r.value for r in stage.reductions]
        for store in stage.stores + stage.row_stores:
            roots += [*store.args, store.value]
    return roots


def accesses(stages: tuple[Stage, ...]) -> list[Access]:
    found = [store.access for stage in stages for store in stage.stores + stage.row_stores]
    found += [x.payload for x in walk(*expressions(stages)) if x.op == "load"]
    return list(dict.fromkeys(found))


def restrict_rows(box: LoopNest, k: int, start: int, count: int) -> LoopNest:
    """The box restricted to `count` values of row variable `k`, from `start` on."""

    def access(a: Access) -> Access:
        return replace(a, offset=a.offset + start * a.strides[k])

    def leaf(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if x.op == "load":
            return make("load", x.dtype, args, access(x.payload))
        if x.op == "index" and x.payload == k and start:
            return make("add", "i64", (x, const(start, "i64")))
        return remade(x, args)

    extents = tuple(count if j == k else n for j, n in enumerate(box.extents))
    return replace(box, extents=extents, stages=mapped_stages(box.stages, leaf, access))


def _ordered(box: LoopNest, kept: list[int]) -> list[tuple[int, ...]]:
    """The kept variables, outermost first, each as a group of one."""
    all_accesses = accesses(box.stages)
    # Rows follow the first elementwise store, or else the first access along inner variables. Inner variables follow
    # all accesses. A row store is small beside what its row reads, so it decides only if there is nothing else.
    stores = [store.access for stage in box.stages for store in stage.stores]
    stores += [a for a in all_accesses if any(a.strides[k] for k in box.inner)] or [
        store.access for stage in box.stages for store in stage.row_stores
    ]

    def weight(k: int) -> tuple[int, int]:
        most = max((abs(a.strides[k]) for a in all_accesses), default=0)
        stored = abs(stores[0].strides[k]) if stores else 0
        if stores and stores[0].indirect and not stored:
            stored = most  # an index takes the variable's place in the address: the other accesses show its steps
        return (stored, most) if k < box.rows else (0, most)

    rows = sorted((k for k in kept if k < box.rows), key=weight, reverse=True)
    inner = [k for k in kept if k >= box.rows]
    if not any(r.op in ("argmax", "argmin") or r.is_running for r in box.reductions):
        inner.sort(key=weight, reverse=True)
    return [(k,) for k in rows + inner]


def _merged(boxes: list[LoopNest]) -> list[LoopNest]:
    """Merges adjacent variables that every access walks contiguously, unless an expression uses their index."""
    first = boxes[0]
    asked = {x.payload for x in walk(*expressions(first.stages)) if x.op == "index"}
    all_accesses = [accesses(box.stages) for box in boxes]

    def is_one(before: int, k: int) -> bool:
        return all(
            all(a.strides[before] == a.strides[k] * box.extents[k] for a in found)
            and (k < box.rows or box.positions[before] == box.positions[k] * box.extents[k])
            for box, found in zip(boxes, all_accesses, strict=True)
        )

    groups: list[tuple[int, ...]] = []
    for k in range(len(first.extents)):
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and (before < first.rows) == (k < first.rows)
            and before not in asked
            and k not in asked
            and is_one(before, k)
        ):
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return boxes if len(groups) == len(first.extents) else [_rewritten(box, groups, remade) for box in boxes]


def remade(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    return make(x.op, x.dtype, args, x.payload)


def _expanded(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    """The operation in base operations, if it has an expansion."""
    x = remade(x, args)
    is_function = x.dtype in FLOATS or x.op == "random_bits"
    return expanded(x, args) if is_function and why_not_expandable(x.op, x.dtype) is None else x


def _rewritten(
    box: LoopNest, groups: list[tuple[int, ...]], finish: Callable[[Scalar, tuple[Scalar, ...]], Scalar]
) -> LoopNest:
    """The box over new variables. Each new variable walks a group of old ones in row-major order.

    Old variables in no group are always 0. `finish` builds each expression from its rewritten operands.
    """
    last = [group[-1] for group in groups]
    number = {old: new for new, old in enumerate(last)}

    def access(a: Access) -> Access:
        return replace(a, strides=tuple(a.strides[k] for k in last))

    def rewritten(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if x.op == "load":
            return make("load", x.dtype, args, access(x.payload))
        if x.op == "index":
            new = number.get(x.payload)
            return const(0, "i64") if new is None else make("index", "i64", (), new)
        return finish(x, args)

    return LoopNest(
        tuple(math.prod(box.extents[k] for k in group) for group in groups),
        sum(1 for k in last if k < box.rows),
        mapped_stages(box.stages, rewritten, access),
        tuple(box.positions[k] for k in last),
    )
