"""A loop nest as one LLVM function, `void loop(begin, end, buffers)`: vector loops, and tail loops for the rest.

items                     each decoded into its row variables
  stage after stage
    inner variables       loops, long float sums in blocks of blocks
      lanes               whole vectors `copies` at a time; then single vectors, masked; or single elements
    reductions finished, row stores
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...ops.scalar_ir import Access, walk
from ...schedule.loops.loop_ir import Reduction, Stage, Store
from ..loops.coalesce_loops import Box
from . import reductions
from .expression_printer import Values
from .llvm_types import memory, vector
from .loop_invariant_scopes import Carried, Code
from .reductions import Accumulator
from .runtime_sizes import Size, blocks, comes_out_even, load_sizes, most, sizes_in
from .scalar_operations import Operations
from .target_machine import Host
from .vectorization_and_tiling import VectorPlan, is_across

CHAIN = 16
"""The longest chain of float additions: a longer one is cut into blocks of half as many, each summed by itself."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An accumulator: of which reduction, and how wide."""

    reduction: Reduction
    width: int


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of the lane variable, and how it is walked."""

    start: str
    stop: str
    trips: int
    """At most."""
    copies: int
    width: int
    is_masked: bool
    may_be_empty: bool


class LoopPrinter:
    def __init__(
        self,
        box: Box,
        plan: VectorPlan,
        host: Host,
        stored: frozenset[int],
        dtypes: tuple[str, ...],
        scratch: tuple[str, ...] = (),
    ):
        """`scratch`: the dtypes of buffers behind the kernel's own, of one row each."""
        self.box, self.plan, self.host, self.scratch = box, plan, host, scratch
        self.dtypes = (*dtypes, *scratch)
        self.code = Code(host.has_scaling)
        stored |= set(range(len(dtypes), len(self.dtypes)))
        self.values = Values(self.code, box, plan.lane, plan.width, stored, self.dtypes)

    def function(self, name: str) -> list[str]:
        entry = self.code.here
        self.code.loop("%begin", "%end", 1, [], self._item, may_be_empty=True)
        used = {store.access.buffer for stage in self.box.stages for store in stage.stores + stage.row_stores}
        lines = [f"define internal void @{name}(i64 %begin, i64 %end, ptr %buffers) #0 {{", "entry:"]
        body = "\n".join(entry.lines)
        given = len(self.dtypes) - len(self.scratch)
        lines += load_sizes(sizes_in(self.box), given)
        for number, dtype in enumerate(self.scratch, given):
            length = math.prod(self.box.extents[k] for k in self.box.inner)
            lines.append(f"  %b{number} = alloca [{length} x {memory(dtype)}], align 64")
        for number in range(given):
            if number in used or f"%b{number}," in body:
                slot = f"getelementptr ptr, ptr %buffers, i64 {number}"
                lines += [f"  %slot{number} = {slot}", f"  %b{number} = load ptr, ptr %slot{number}"]
        if "%nothing" in body:
            lines += ["  %nothing = alloca i64", "  store i64 0, ptr %nothing"]
        if "%anything" in body:
            lines += ["  %anything = alloca i64"]
        return [*lines, *entry.lines, "  ret void", "}"]

    # Items.

    def _item(self, item: str, _: list[str]) -> list[str]:
        self._decode(item)
        number = 0
        for stage in self.box.stages:
            if self.plan.strips > 1:
                self._in_strips(stage)
                continue
            self._stage(stage, number)
            number += len(stage.reductions)
        return []

    def _decode(self, item: str) -> None:
        """The row variables of an item: row-major, the lane variable by blocks."""
        scope, plan, box = self.code.here, self.plan, self.box
        axes = [(k, box.extents[k]) for k in range(box.rows)]
        if plan.block:
            axes = [(k, blocks(self.code, n, plan.block) if k in (plan.lane, plan.across) else n) for k, n in axes]
        rest = item
        for k, count in reversed(axes):
            if k == axes[0][0]:
                value = rest
            else:
                value = self.code.emit(scope, f"urem i64 {rest}, {count}")
                rest = self.code.emit(scope, f"udiv i64 {rest}, {count}")
            if plan.block and k in (plan.lane, plan.across):
                first = self.code.emit(scope, f"mul nuw nsw i64 {value}, {plan.block}")
                if plan.kind == "elements":
                    # Bound by the loop over the block.
                    self._first = first
                    continue
                value = first
                if k == plan.lane and not comes_out_even(box.extents[k], plan.block):
                    self._mask_rows(value, box.extents[k])
            scope.variables[k] = value

    def _mask_rows(self, first: str, extent: int) -> None:
        self.values.masks = [self._mask(first, copy, extent) for copy in range(self.plan.copies)]

    def _mask(self, first: str, copy: int, stop: int | str) -> str:
        """The lanes of a copy that lie before `stop`."""
        scope, width = self.code.here, self.values.width
        # Counted from the first lane: 32 bits are enough for that, and half as many registers.
        left = self.code.emit(scope, f"sub i64 {stop}, {first}")
        left = self.code.call(scope, "i64", "llvm.smin.i64", ("i64", left), ("i64", str(self.plan.block or 1 << 20)))
        left = self.code.emit(scope, f"trunc i64 {left} to i32")
        lanes = ", ".join(f"i32 {copy * width + lane}" for lane in range(width))
        type = vector("i32", width)
        limit = self.values.splat(scope, "i32", left, width)
        return self.code.emit(scope, f"icmp slt {type} <{lanes}>, {limit}")

    # Stages.

    def _stage(self, stage: Stage, number: int) -> None:
        plan, box = self.plan, self.box
        self._number = number
        if plan.kind == "tiles":
            self._tile(stage)
            return
        slots = [Slot(r, plan.width) for _ in range(plan.copies) for r in stage.reductions]
        runs = self._runs() if plan.kind in ("inner", "elements") else []
        has_single = any(run.width == 1 for run in runs) and plan.width > 1
        if has_single:
            slots += [Slot(r, 1) for r in stage.reductions]
        accumulators = [reductions.identity(slot.reduction, slot.width) for slot in slots]
        is_empty = any(box.extents[k] == 0 for k in box.inner)
        if (stage.reductions or stage.stores) and not is_empty:
            inner = [k for k in box.inner if k != plan.lane]
            accumulators = self._nest(stage, inner, runs, slots, accumulators)
        for offset in range(len(stage.reductions)):
            mine = accumulators[offset :: len(stage.reductions)]
            if not stage.reductions[offset].is_running:
                self.values.reduced[number + offset] = self._finish(stage.reductions[offset], mine)
        row_copies = plan.copies if plan.kind == "rows" else 1
        self._stores(stage.row_stores, range(row_copies), plan.kind == "rows" and plan.lane is not None)
        self.values.forget_stored()

    def _in_strips(self, stage: Stage) -> None:
        """The same for the only stage, where vectors of rows are walked side by side, element by element: sums in the
        same blocks of blocks, with accumulators in memory."""
        plan, code, values = self.plan, self.code, self.values
        (variable,) = self.box.inner
        extent, first, reach = self.box.extents[variable], code.here.variables[plan.lane], plan.copies * plan.width
        slots = [Slot(r, plan.width) for _ in range(plan.copies) for r in stage.reductions]
        types = [type for slot in slots for type in reductions.types(slot.reduction, slot.width)]
        identities = [reductions.identity(slot.reduction, slot.width) for slot in slots]

        def table() -> list[str]:
            names = [code.name() for _ in types]
            for name, type in zip(names, types, strict=True):
                code.scopes[0].put(f"{name} = alloca [{plan.strips} x {type}], align 64")
            return names

        def each_strip(body: Callable[[str], None]) -> None:
            def strip(counter: str, _: list[str]) -> list[str]:
                at = code.emit(code.here, f"mul nuw nsw i64 {counter}, {reach}")
                code.here.variables[plan.lane] = code.emit(code.here, f"add nuw nsw i64 {first}, {at}")
                body(counter)
                values.forget_stored()
                return []

            code.loop("0", str(plan.strips), 1, [], strip)

        def place(of: str, type: str, strip: str) -> str:
            return code.emit(code.here, f"getelementptr {type}, ptr {of}, i64 {strip}")

        def load(tables: list[str], strip: str) -> list[Accumulator]:
            return _grouped(
                slots,
                [
                    code.emit(code.here, f"load {type}, ptr {place(of, type, strip)}")
                    for of, type in zip(tables, types, strict=True)
                ],
            )

        def store(tables: list[str], strip: str, accumulators: list[Accumulator]) -> None:
            for of, type, value in zip(tables, types, _operands(accumulators), strict=True):
                code.here.put(f"store {type} {value}, ptr {place(of, type, strip)}")

        def take(_: str, into: list[str]) -> None:
            each_strip(lambda strip: store(into, strip, self._body(stage, slots, load(into, strip), plan.copies, None)))

        def count(
            start: str, stop: str, step: int, trips: int, into: list[str], body: Callable[[str, list[str]], None]
        ) -> None:
            if trips > CHAIN:
                below, local = step * (CHAIN // 2), table()

                def fold(strip: str) -> None:
                    pairs = zip(slots, load(into, strip), load(local, strip), strict=True)
                    store(
                        into,
                        strip,
                        [
                            reductions.join(Operations(code, code.here, slot.width), slot.reduction, a, b)
                            for slot, a, b in pairs
                        ],
                    )

                def block(begin: str, into: list[str]) -> None:
                    each_strip(lambda strip: store(local, strip, identities))
                    end = code.emit(code.here, f"add nuw nsw i64 {begin}, {below}")
                    end = code.call(code.here, "i64", "llvm.umin.i64", ("i64", end), ("i64", stop))
                    count(begin, end, step, CHAIN // 2, local, body)
                    each_strip(fold)

                count(start, stop, below, -(-trips // (CHAIN // 2)), into, block)
                return

            def turn(counter: str, _: list[str]) -> list[str]:
                body(counter, into)
                return []

            code.loop(start, stop, step, [], turn, variable=variable if step == 1 else None)

        def finish(strip: str) -> None:
            accumulators, each = load(sums, strip), len(stage.reductions)
            for number, reduction in enumerate(stage.reductions):
                values.reduced[number] = self._finish(reduction, accumulators[number::each])
            self._stores(stage.row_stores, range(plan.copies), True)

        sums = table()
        self._number = 0
        each_strip(lambda strip: store(sums, strip, identities))
        count("0", str(extent), 1, extent, sums, take)
        each_strip(finish)

    def _tile(self, stage: Stage) -> None:
        """A square: what lies across the lanes is turned first, then it is walked like any other."""
        plan, code, values = self.plan, self.code, self.values
        roots = [x for store in stage.stores for x in (*store.args, store.value)]
        tiles: dict[Access, str] = {}
        for x in walk(*roots):
            if (
                x.op == "load"
                and x.payload not in tiles
                and x.payload.buffer not in values.stored
                and is_across(x.payload, plan.lane, plan.across)
            ):
                tile = code.name()
                code.scopes[0].put(f"{tile} = alloca [{plan.width**2} x {memory(x.dtype)}], align 64")
                values.turn(x.payload, x.dtype, tile)
                tiles[x.payload] = tile
        base = code.here.variables[plan.across]

        def row(number: str, _: list[str]) -> list[str]:
            scope = code.here
            scope.variables[plan.across] = code.emit(scope, f"add nuw nsw i64 {base}, {number}")
            at = code.emit(scope, f"mul nuw nsw i64 {number}, {plan.width}")
            for access, tile in tiles.items():
                type = memory(self.dtypes[access.buffer])
                values.turned[access] = code.emit(scope, f"getelementptr {type}, ptr {tile}, i64 {at}")
            self._stores(stage.stores, range(1), True)
            return []

        code.loop("0", str(plan.width), 1, [], row)
        values.turned.clear()
        values.forget_stored()

    def _finish(self, reduction: Reduction, accumulators: list[Accumulator]) -> list[str]:
        width = self.plan.width
        to = Operations(self.code, self.code.here, width)
        if self.plan.kind == "rows":
            return [reductions.finish(to, reduction, a) for a in accumulators]
        vectors, single = accumulators[: self.plan.copies], accumulators[self.plan.copies :]
        while len(vectors) > 1:
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [reductions.join(to, reduction, a, b) for a, b in pairs]
        result = reductions.join_lanes(to, reduction, vectors[0])
        to = Operations(self.code, self.code.here, 1)
        for a in single:
            result = reductions.join(to, reduction, result, a)
        return [reductions.finish(to, reduction, result)]

    def _nest(
        self, stage: Stage, inner: list[int], runs: list[Run], slots: list[Slot], accumulators: list[Accumulator]
    ) -> list[Accumulator]:
        """Loops over the inner variables, then the lanes."""
        if not inner:
            if self.plan.kind == "rows":
                return self._body(stage, slots, accumulators, self.plan.copies, None)
            for run in runs:
                accumulators = self._run(stage, run, slots, accumulators)
            return accumulators
        variable, extent = inner[0], self.box.extents[inner[0]]
        below = math.prod(most(self.box.extents[k]) for k in inner[1:]) * max((run.trips for run in runs), default=1)

        def turn(_: str, current: list[Accumulator]) -> list[Accumulator]:
            def rest(local: list[Accumulator]) -> list[Accumulator]:
                return self._nest(stage, inner[1:], runs, slots, local)

            # A short chain below is simply carried on.
            return self._folded(slots, current, rest) if below >= 16 else rest(current)

        return self._count(
            "0",
            str(extent),
            1,
            most(extent),
            slots,
            accumulators,
            turn,
            variable,
            may_be_empty=isinstance(extent, Size),
            additions=1 if below >= 16 else below,
        )

    def _count(
        self,
        start: str,
        stop: str,
        step: int,
        trips: int,
        slots: list[Slot],
        accumulators: list[Accumulator],
        body: Callable[[str, list[Accumulator]], list[Accumulator]],
        variable: int | None,
        may_be_empty: bool = False,
        additions: int = 1,
    ) -> list[Accumulator]:
        """A loop, in blocks where it would make a chain of float additions too long: so many in each turn."""
        if trips * additions > CHAIN and any(reductions.is_cascaded(slot.reduction) for slot in slots):
            turns = max(CHAIN // 2 // additions, 1)
            reach = step * turns

            def block(first: str, current: list[Accumulator]) -> list[Accumulator]:
                end = self.code.emit(self.code.here, f"add nuw nsw i64 {first}, {reach}")
                end = self.code.call(self.code.here, "i64", "llvm.umin.i64", ("i64", end), ("i64", stop))
                return self._folded(
                    slots, current, lambda local: self._count(first, end, step, turns, slots, local, body, variable)
                )

            blocks = -(-trips // turns)
            return self._count(start, stop, reach, blocks, slots, accumulators, block, None, may_be_empty)
        names = self.code.loop(
            start,
            stop,
            step,
            _flat(slots, accumulators),
            lambda counter, names: _operands(body(counter, _grouped(slots, names))),
            variable=variable,
            may_be_empty=may_be_empty,
        )
        return _grouped(slots, names)

    def _folded(
        self, slots: list[Slot], outer: list[Accumulator], compute: Callable[[list[Accumulator]], list[Accumulator]]
    ) -> list[Accumulator]:
        """Float sums start from zero in `compute` and are added to the outer ones after it."""
        is_cascaded = [reductions.is_cascaded(slot.reduction) for slot in slots]
        local = [
            reductions.identity(slot.reduction, slot.width) if cascaded else a
            for slot, a, cascaded in zip(slots, outer, is_cascaded, strict=True)
        ]
        inner = compute(local)
        return [
            reductions.join(Operations(self.code, self.code.here, slot.width), slot.reduction, a, b) if cascaded else b
            for slot, a, b, cascaded in zip(slots, outer, inner, is_cascaded, strict=True)
        ]

    # Lanes.

    def _runs(self) -> list[Run]:
        """How the lane variable is walked: by several vectors, by one vector, by single elements."""
        plan, scope, code = self.plan, self.code.here, self.code
        extent, width, step = self.box.extents[plan.lane], plan.width, plan.width * plan.copies
        if isinstance(extent, Size):
            return self._open_runs(extent)
        start, stop, longest = "0", str(extent), extent
        is_fixed = True
        if plan.kind == "elements":
            start, longest = self._first, min(plan.block, extent)
            if extent > plan.block:
                is_fixed = extent % plan.block == 0
                stop = code.emit(scope, f"add nuw nsw i64 {start}, {plan.block}")
                if not is_fixed:
                    stop = code.call(scope, "i64", "llvm.umin.i64", ("i64", stop), ("i64", str(extent)))
        runs: list[Run] = []
        position, left = start, longest

        def cut(size: int, copies: int, is_masked: bool) -> None:
            nonlocal position, left
            unit = copies * size
            # What is left over here in every item, or (not fixed) perhaps in the last.
            rest = extent % unit
            if is_masked or not rest:
                end = stop
            elif is_fixed:
                whole = left // unit * unit
                end = (
                    str(int(position) + whole)
                    if position.isdigit()
                    else code.emit(scope, f"add nuw nsw i64 {position}, {whole}")
                )
            else:
                length = code.emit(scope, f"sub i64 {stop}, {position}")
                whole = code.emit(scope, f"and i64 {length}, {-unit}")
                end = code.emit(scope, f"add nuw nsw i64 {position}, {whole}")
            trips = -(-left // unit) if is_masked or not rest else left // unit
            if trips:
                runs.append(Run(position, end, trips, copies, size, is_masked, not is_fixed))
            position = end
            left = 0 if is_masked or not rest else left % unit if is_fixed else unit - 1

        has_rest = bool(extent % width)
        if plan.copies > 1:
            cut(width, plan.copies, False)
        if left and (extent % step or plan.copies == 1):
            cut(width, 1, has_rest and self.host.has_masks)
        if left and has_rest and not self.host.has_masks:
            cut(1, 1, False)
        return runs

    def _open_runs(self, extent: Size) -> list[Run]:
        """The same for an extent told at run time: whole turns, then what is left over, if anything is."""
        plan, scope, code = self.plan, self.code.here, self.code
        width, step = plan.width, plan.width * plan.copies
        start, stop, longest = "0", str(extent), most(extent)
        if plan.kind == "elements":
            start, longest = self._first, plan.block
            reach = code.emit(scope, f"add nuw nsw i64 {start}, {plan.block}")
            stop = code.call(scope, "i64", "llvm.umin.i64", ("i64", reach), ("i64", str(extent)))
        length = code.emit(scope, f"sub i64 {stop}, {start}")
        runs: list[Run] = []

        def whole(unit: int, copies: int, size: int) -> None:
            nonlocal start
            even = code.emit(scope, f"and i64 {length}, {-unit}")
            end = code.emit(scope, f"add nuw nsw i64 {self._first if plan.kind == 'elements' else 0}, {even}")
            runs.append(Run(start, end, max(longest // unit, 1), copies, size, False, True))
            start = end

        whole(step, plan.copies, width)
        if plan.copies > 1:
            whole(width, 1, width)
        if width > 1 and self.host.has_masks:
            runs.append(Run(start, stop, 1, 1, width, True, True))
        elif width > 1:
            runs.append(Run(start, stop, width, 1, 1, False, True))
        return runs

    def _run(self, stage: Stage, run: Run, slots: list[Slot], accumulators: list[Accumulator]) -> list[Accumulator]:
        plan, values, count = self.plan, self.values, len(stage.reductions)
        # The accumulators of this run: those of its copies, or at the end the single ones.
        first = plan.copies * count if run.width == 1 and plan.width > 1 else 0
        mine = slice(first, first + run.copies * count)

        def turn(position: str, current: list[Accumulator]) -> list[Accumulator]:
            mask = None
            if run.is_masked:
                values.masks = [mask := self._mask(position, 0, run.stop)]
            result = self._body(stage, slots[mine], current, run.copies, mask)
            values.masks = None
            return result

        values.width = run.width
        after = list(accumulators)
        after[mine] = self._count(
            run.start,
            run.stop,
            run.copies * run.width,
            run.trips,
            slots[mine],
            accumulators[mine],
            turn,
            plan.lane,
            run.may_be_empty,
        )
        values.width = plan.width
        return after

    def _body(
        self, stage: Stage, slots: list[Slot], accumulators: list[Accumulator], copies: int, mask: str | None
    ) -> list[Accumulator]:
        """One turn: values are taken into the accumulators, elements are stored."""
        result: list[Accumulator] = []
        for number, (slot, a) in enumerate(zip(slots, accumulators, strict=True)):
            copy, reduction = number // len(stage.reductions), slot.reduction
            to = Operations(self.code, self.code.here, slot.width)
            value = self.values.wide(reduction.value, copy)
            value = to.cast(value, reduction.value.dtype, reductions.accumulated(reduction))
            position = self._position(copy) if reductions.is_positional(reduction) else None
            new = reductions.take(to, reduction, a, value, position, self._is_ordered())
            if mask is not None:
                types = reductions.types(reduction, slot.width)
                new = [
                    to.emit(f"select {vector('i1', slot.width)} {mask}, {type} {n}, {type} {o}")
                    for type, n, o in zip(types, new, a, strict=True)
                ]
            result.append(new)
            if reduction.is_running:
                known = self.values.reduced.setdefault(self._number + number % len(stage.reductions), [""] * copies)
                known[copy] = reductions.finish(to, reduction, new)
        self._stores(stage.stores, range(copies), self.plan.lane is not None)
        return result

    def _is_ordered(self) -> bool:
        """Whether each lane meets its elements in row-major order."""
        return self.plan.kind != "inner" or self.plan.lane == len(self.box.extents) - 1

    def _position(self, copy: int) -> str:
        """Of the element among those of its row, in row-major order."""
        scope, box = self.code.here, self.box
        total = "0"
        for k in box.inner:
            step = box.positions[k]
            value = self._variable(k)
            term = value if step == 1 else self.code.emit(scope, f"mul nuw nsw i64 {value}, {step}")
            total = term if total == "0" else self.code.emit(scope, f"add nuw nsw i64 {total}, {term}")
        if self.plan.kind == "inner":
            return self.values.lane_positions(scope, total, copy, box.positions[self.plan.lane], "i64")
        return self.values.splat(scope, "i64", total, self.values.width)

    def _variable(self, k: int) -> str:
        return self.code.scopes[self.code.level_of(1 << k)].variables[k]

    def _stores(self, stores: tuple[Store, ...], copies: range, is_wide: bool) -> None:
        for copy in copies:
            # All values before any store: an update in place reads what was there.
            ready = []
            for store in stores:
                assert not store.adds, "only machines with atomics are given stores that add"
                value = self.values.wide(store.value, copy) if is_wide else self.values.of(store.value, copy)
                for arg in store.args:
                    self.values.of(arg, copy)
                ready.append((store, value))
            for store, value in ready:
                self.values.store(store.access, store.args, value, store.value.dtype, copy, is_wide)


def _flat(slots: list[Slot], accumulators: list[Accumulator]) -> Carried:
    return [
        (type, operand)
        for slot, a in zip(slots, accumulators, strict=True)
        for type, operand in zip(reductions.types(slot.reduction, slot.width), a, strict=True)
    ]


def _operands(accumulators: list[Accumulator]) -> list[str]:
    return [operand for a in accumulators for operand in a]


def _grouped(slots: list[Slot], operands: list[str]) -> list[Accumulator]:
    iterator = iter(operands)
    return [[next(iterator) for _ in reductions.types(slot.reduction, slot.width)] for slot in slots]
