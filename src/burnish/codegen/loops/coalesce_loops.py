"""Loop coalescing: loops are simplified before printing, with fewer variables in the order of memory.

    loop i0 < 4 rows, i1 < 1 rows, i2 < 8 rows, i3 < 16 rows        loop i0 < 512 rows
      stage                                                  ->       stage
        b1[128*i0 + 16*i2 + i3] = exp(b0[...])                          b1[i0] = exp(b0[i0])

Three steps: variables of extent 1 go; variables are sorted by their strides, rows among rows and inner among inner;
neighbours that every access walks as one become one. Transcendental operations are expanded on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ops.scalar_ir import FLOATS, Access, Scalar, const, make, walk
from ...schedule.loops.loop_ir import Loop, Reduction, Stage, Store
from ..math import expanded, why_not_expandable


@dataclass(frozen=True, slots=True)
class Box:
    """A loop, and what its simplification must not lose."""

    extents: tuple[int, ...]
    rows: int
    stages: tuple[Stage, ...]
    positions: tuple[int, ...]
    """For each variable, how far one step of it moves in the row-major order of the inner variables as they were:
    what argmax counts in. 0 for rows."""

    @property
    def inner(self) -> range:
        return range(self.rows, len(self.extents))

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return tuple(r for stage in self.stages for r in stage.reductions)

    @property
    def is_elementwise(self) -> bool:
        return not any(stage.reductions or stage.row_stores for stage in self.stages)


def simplify(loop: Loop, expands: bool = True) -> Box:
    """`expands`: transcendental operations become base operations on the way."""
    return simplify_alike([loop], expands)[0]


def simplify_alike(loops: Sequence[Loop], expands: bool = True) -> list[Box]:
    """Loops that are the same but for their numbers, each simplified in the way that suits all."""
    boxes = list(map(_box, loops))
    order = _ordered(boxes[0], [k for k in range(len(boxes[0].extents)) if any(box.extents[k] != 1 for box in boxes)])
    return _merged([_rewritten(box, order, _expanded if expands else remade) for box in boxes])


def _box(loop: Loop) -> Box:
    positions, step = [0] * len(loop.extents), 1
    for k in range(len(loop.extents) - 1, loop.rows - 1, -1):
        positions[k], step = step, step * loop.extents[k]
    box = Box(loop.extents, loop.rows, loop.stages, tuple(positions))
    return replace(box, rows=len(box.extents)) if box.is_elementwise else box


def expressions(stages: tuple[Stage, ...]) -> list[Scalar]:
    """The roots: what is reduced and stored, and where."""
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


def part(box: Box, k: int, start: int, count: int) -> Box:
    """The box for `count` values of a row variable, from `start` on."""

    def access(a: Access) -> Access:
        return replace(a, offset=a.offset + start * a.strides[k])

    def leaf(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if x.op == "load":
            return make("load", x.dtype, args, access(x.payload))
        if x.op == "index" and x.payload == k and start:
            return make("add", "i64", (x, const(start, "i64")))
        return remade(x, args)

    extents = tuple(count if j == k else n for j, n in enumerate(box.extents))
    return replace(box, extents=extents, stages=mapped(box.stages, leaf, access))


def _ordered(box: Box, kept: list[int]) -> list[tuple[int, ...]]:
    """The variables that are kept, outermost first, each as a group of one."""
    all_accesses = accesses(box.stages)
    # Rows lie as the first result lies, where it tells; inner variables as what is read. One result for a row is little
    # beside what it is made of, and lies as it may.
    stores = [store.access for stage in box.stages for store in stage.stores]
    stores += [a for a in all_accesses if any(a.strides[k] for k in box.inner)] or [
        store.access for stage in box.stages for store in stage.row_stores
    ]

    def weight(k: int) -> tuple[int, int]:
        strides = [abs(a.strides[k]) for a in all_accesses]
        stored = abs(stores[0].strides[k]) if stores else 0
        return (stored, max(strides, default=0)) if k < box.rows else (0, max(strides, default=0))

    rows = sorted((k for k in kept if k < box.rows), key=weight, reverse=True)
    inner = [k for k in kept if k >= box.rows]
    if not any(r.op in ("argmax", "argmin") or r.is_running for r in box.reductions):
        inner.sort(key=weight, reverse=True)
    return [(k,) for k in rows + inner]


def _merged(boxes: list[Box]) -> list[Box]:
    """Neighbours become one where no access tells them apart and nobody asks for their value."""
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
    """In base operations, where there is a way to write it so."""
    x = remade(x, args)
    is_function = x.dtype in FLOATS or x.op == "random_bits"
    return expanded(x, args) if is_function and why_not_expandable(x.op, x.dtype) is None else x


def _rewritten(box: Box, groups: list[tuple[int, ...]], finish: Callable[[Scalar, tuple[Scalar, ...]], Scalar]) -> Box:
    """The box over new variables, each of which stands for a group of old ones that it walks in row-major order.

    Old variables in no group are 0 throughout. `finish` makes each expression anew from its operands.
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

    return Box(
        tuple(math.prod(box.extents[k] for k in group) for group in groups),
        sum(1 for k in last if k < box.rows),
        mapped(box.stages, rewritten, access),
        tuple(box.positions[k] for k in last),
    )


def mapped(
    stages: tuple[Stage, ...],
    rewritten: Callable[[Scalar, tuple[Scalar, ...]], Scalar],
    access: Callable[[Access], Access],
) -> tuple[Stage, ...]:
    """The stages with every expression made anew, from the leaves up, and every access of a store."""
    made: dict[Scalar, Scalar] = {}

    def expression(root: Scalar) -> Scalar:
        for x in walk(root):
            if x not in made:
                made[x] = rewritten(x, tuple(made[arg] for arg in x.args))
        return made[root]

    def store(s: Store) -> Store:
        return Store(access(s.access), expression(s.value), tuple(map(expression, s.args)), s.adds)

    return tuple(
        Stage(
            tuple(Reduction(r.op, expression(r.value)) for r in stage.reductions),
            tuple(map(store, stage.stores)),
            tuple(map(store, stage.row_stores)),
        )
        for stage in stages
    )
