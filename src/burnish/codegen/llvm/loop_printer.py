"""Prints a loop nest as one LLVM function, `void loop(begin, end, buffers)`: vector loops and tail loops.

items                     each decoded into its row variables
  stage after stage
    inner variables       loops, long float sums in blocks of blocks
      lanes               whole vectors `copies` at a time; then single vectors, masked; or single elements
    reductions finished, row stores
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ops.scalar_ir import Access, walk
from ...schedule.loops.loop_ir import Reduction, Stage, Store
from ..loops.coalesce_loops import LoopNest
from . import reductions
from .accumulator_loops import CHAIN, AccumulatorSlot, accumulate, grouped, operands, sum_from_zero
from .expression_printer import ExpressionPrinter
from .llvm_types import memory, vector
from .loop_invariant_scopes import FunctionCode
from .reductions import Accumulator
from .runtime_sizes import LlvmSize, blocks, comes_out_even, load_sizes, most, sizes_in
from .scalar_operations import LlvmOperations
from .target_cpu import Host
from .vector_and_tail_loops import LaneRange, lane_runs
from .vectorization_and_tiling import VectorPlan, is_across


class LlvmLoopPrinter:
    def __init__(
        self,
        box: LoopNest,
        plan: VectorPlan,
        host: Host,
        stored: frozenset[int],
        dtypes: tuple[str, ...],
        scratch: tuple[str, ...] = (),
    ):
        """`scratch`: the dtypes of further buffers after the kernel's own, of one row each."""
        self.box, self.plan, self.host, self.scratch = box, plan, host, scratch
        self.dtypes = (*dtypes, *scratch)
        self.code = FunctionCode(host.has_scaling)
        stored |= set(range(len(dtypes), len(self.dtypes)))
        self.values = ExpressionPrinter(self.code, box, plan.lane, plan.width, stored, self.dtypes)

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
        """Compute the row variables of an item: row-major, the lane variable in blocks."""
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
                    # The loop over the block sets it.
                    self._first = first
                    continue
                value = first
                if k == plan.lane and not comes_out_even(box.extents[k], plan.block):
                    self._mask_rows(value, box.extents[k])
            scope.variables[k] = value

    def _mask_rows(self, first: str, extent: int) -> None:
        self.values.masks = [self._mask(first, copy, extent) for copy in range(self.plan.copies)]

    def _mask(self, first: str, copy: int, stop: int | str) -> str:
        """The mask of the lanes of a copy that are before `stop`."""
        scope, width = self.code.here, self.values.width
        # Counted from the first lane: 32 bits are enough, and take half the registers.
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
        slots = [AccumulatorSlot(r, plan.width) for _ in range(plan.copies) for r in stage.reductions]
        runs: list[LaneRange] = []
        if plan.kind in ("inner", "elements"):
            first = self._first if plan.kind == "elements" else "0"
            runs = lane_runs(self.code, plan, self.host, box.extents[plan.lane], first)
        has_single = any(run.width == 1 for run in runs) and plan.width > 1
        if has_single:
            slots += [AccumulatorSlot(r, 1) for r in stage.reductions]
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
        """A single stage whose rows are in the lanes: several vectors of rows side by side, element by element. Sums
        use the same nested blocks; the accumulators are in memory."""
        plan, code, values = self.plan, self.code, self.values
        (variable,) = self.box.inner
        extent, first, reach = self.box.extents[variable], code.here.variables[plan.lane], plan.copies * plan.width
        slots = [AccumulatorSlot(r, plan.width) for _ in range(plan.copies) for r in stage.reductions]
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
            return grouped(
                slots,
                [
                    code.emit(code.here, f"load {type}, ptr {place(of, type, strip)}")
                    for of, type in zip(tables, types, strict=True)
                ],
            )

        def store(tables: list[str], strip: str, accumulators: list[Accumulator]) -> None:
            for of, type, value in zip(tables, types, operands(accumulators), strict=True):
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
                            reductions.join(LlvmOperations(code, code.here, slot.width), slot.reduction, a, b)
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
        count("0", str(extent), 1, most(extent), sums, take)
        each_strip(finish)

    def _tile(self, stage: Stage) -> None:
        """A square tile: transpose the operands that run across the lanes, then iterate as usual."""
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
                values.transpose_tile(x.payload, x.dtype, tile)
                tiles[x.payload] = tile
        base = code.here.variables[plan.across]

        def row(number: str, _: list[str]) -> list[str]:
            scope = code.here
            scope.variables[plan.across] = code.emit(scope, f"add nuw nsw i64 {base}, {number}")
            at = code.emit(scope, f"mul nuw nsw i64 {number}, {plan.width}")
            for access, tile in tiles.items():
                type = memory(self.dtypes[access.buffer])
                values.transposed[access] = code.emit(scope, f"getelementptr {type}, ptr {tile}, i64 {at}")
            self._stores(stage.stores, range(1), True)
            return []

        code.loop("0", str(plan.width), 1, [], row)
        values.transposed.clear()
        values.forget_stored()

    def _finish(self, reduction: Reduction, accumulators: list[Accumulator]) -> list[str]:
        width = self.plan.width
        to = LlvmOperations(self.code, self.code.here, width)
        if self.plan.kind == "rows":
            return [reductions.finish(to, reduction, a) for a in accumulators]
        vectors, single = accumulators[: self.plan.copies], accumulators[self.plan.copies :]
        while len(vectors) > 1:
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [reductions.join(to, reduction, a, b) for a, b in pairs]
        result = reductions.join_lanes(to, reduction, vectors[0])
        to = LlvmOperations(self.code, self.code.here, 1)
        for a in single:
            result = reductions.join(to, reduction, result, a)
        return [reductions.finish(to, reduction, result)]

    def _nest(
        self,
        stage: Stage,
        inner: list[int],
        runs: list[LaneRange],
        slots: list[AccumulatorSlot],
        accumulators: list[Accumulator],
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

            # A short inner loop continues the chain of additions.
            return sum_from_zero(self.code, slots, current, rest) if below >= 16 else rest(current)

        return accumulate(
            self.code,
            "0",
            str(extent),
            1,
            most(extent),
            slots,
            accumulators,
            turn,
            variable,
            may_be_empty=isinstance(extent, LlvmSize),
            additions=1 if below >= 16 else below,
        )

    # Lanes.

    def _run(
        self, stage: Stage, run: LaneRange, slots: list[AccumulatorSlot], accumulators: list[Accumulator]
    ) -> list[Accumulator]:
        plan, values, count = self.plan, self.values, len(stage.reductions)
        # The accumulators of this run: those of its copies, or the scalar ones after them.
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
        after[mine] = accumulate(
            self.code,
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
        self, stage: Stage, slots: list[AccumulatorSlot], accumulators: list[Accumulator], copies: int, mask: str | None
    ) -> list[Accumulator]:
        """One iteration: accumulate values, store elements."""
        result: list[Accumulator] = []
        for number, (slot, a) in enumerate(zip(slots, accumulators, strict=True)):
            copy, reduction = number // len(stage.reductions), slot.reduction
            to = LlvmOperations(self.code, self.code.here, slot.width)
            value = self.values.wide(reduction.value, copy)
            value = to.cast(value, reduction.value.dtype, reductions.accumulator_dtype(reduction))
            position = self._position(copy) if reduction.is_positional else None
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
        """Whether each lane visits its elements in row-major order."""
        return self.plan.kind != "inner" or self.plan.lane == len(self.box.extents) - 1

    def _position(self, copy: int) -> str:
        """The position of the element in its row, in row-major order."""
        scope, box = self.code.here, self.box
        total = "0"
        for k in box.inner:
            step = box.positions[k]
            value = self._variable(k)
            term = value if step == 1 else self.code.emit(scope, f"mul nuw nsw i64 {value}, {step}")
            total = term if total == "0" else self.code.emit(scope, f"add nuw nsw i64 {total}, {term}")
        if self.plan.kind == "inner":
            return self.values.lane_positions(scope, total, copy, box.positions[self.plan.lane])
        return self.values.splat(scope, "i64", total, self.values.width)

    def _variable(self, k: int) -> str:
        return self.code.scopes[self.code.level_of(1 << k)].variables[k]

    def _stores(self, stores: tuple[Store, ...], copies: range, is_wide: bool) -> None:
        for copy in copies:
            # Compute all values before any store: an in-place update reads the old ones.
            ready = []
            for store in stores:
                assert not store.adds, "only machines with atomics are given stores that add"
                value = self.values.wide(store.value, copy) if is_wide else self.values.of(store.value, copy)
                for arg in store.args:
                    self.values.of(arg, copy)
                ready.append((store, value))
            for store, value in ready:
                self.values.store(store.access, store.args, value, store.value.dtype, copy, is_wide)
