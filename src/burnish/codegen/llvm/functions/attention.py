"""Attention as a native function: keys and values packed for the tiles, and softmax over a block's scores.

    step = make_attention(attention)
    step.table                          out, q, k, v, mask, scratch and the plan

One function serves all sizes; the tiles are those of `gemm_microkernel`. A thread claims a region of the scratch
memory, then computes the heads assigned to it:

    for each head           keys -> panels (transposed in registers), values -> panels
        for each block      scores = q keys'      scores = exp((scores - max) * scale)      out = scores values / sum

In bf16, pairs of numbers take the place of single ones: neighbours of a key, and the values of two neighbouring keys.
"""

from __future__ import annotations

import ctypes

from ....concurrency.first_value_cache import once
from ....ops.scalar_ir import Access, Scalar, load
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ....schedule.library.own_kernels.query_block_attention import Attention
from ..compile_to_machine_code import compile_function
from ..scalar_operations import evaluate
from ..target_cpu import Host, host
from .function_printer import words
from .gemm_microkernel import RUN_WORDS
from .gemm_microkernel import WORDS as TILE_WORDS
from .matmul import OPERATIONS_PER_CYCLE, SERIAL, TiledPrinter, product_tables, zeros

TABLE = ("out", "q", "k", "v", "mask", "scratch", "plan")

PLAN = """
    tasks grain heads shared_by splits region keys depth columns score_panels value_panels q_batch q_head k_batch
    k_head k_row v_batch v_head v_row out_batch out_head out_row mask_batch mask_head mask_row scores_row
    values_at scores_at results_at results_row sums_at value_steps
    is_causal scale blocks block_count score_functions score_table value_functions
    last_functions value_table last_table last_vectors zeros
""".split()
"""The plan, in words. Strides in bytes; `scale` is the bits of a float."""

BLOCK = ("first", "rows", "seen", "kind", "q0", "q1", "s1", "o0", "o1", "numbers")
"""A block of queries: its first query, the number of queries, the number of visible keys, the kind of tile. Then byte
offsets: of the tile's two groups in q, in the scores (the first is 0) and in the result, and of the sum's numbers."""

PAIR = 2
"""Vectors of a panel, as in the tiles."""


def make_attention(attention: Attention) -> NativeCall:
    spec, output, scores, values = attention.spec, attention.output, attention.scores, attention.values
    scoring, valuing = product_tables(scores), product_tables(values)
    row, item = 4 * attention.scores_row, scores.item
    blocks = words(*(word for number in range(len(attention.blocks)) for word in _block(attention, number)))
    flops = spec.flops
    scale = spec.q.shape[3] ** -0.5 if spec.scale is None else spec.scale
    mask = (
        [0] * 3
        if spec.mask is None
        else [
            item * step if size > 1 else 0 for size, step in zip(spec.mask.shape[:3], spec.mask.stride[:3], strict=True)
        ]
    )
    values_at, scores_at = attention.keys_bytes, attention.keys_bytes + attention.values_bytes
    results_at, results_row = scores_at + attention.scores_bytes, 4 * attention.sums_row
    numbers = {
        "tasks": attention.tasks,
        "grain": -(-attention.tasks // attention.regions) if flops >= SERIAL else attention.tasks,
        "heads": spec.q.shape[1],
        "shared_by": attention.shared_by,
        "splits": attention.splits,
        "region": attention.region_bytes,
        "keys": spec.k.shape[2],
        "depth": spec.q.shape[3] // attention.pair,
        "columns": spec.v.shape[3],
        "score_panels": scores.panels,
        "value_panels": values.panels,
        "q_batch": item * spec.q.stride[0],
        "q_head": item * spec.q.stride[1],
        "k_batch": item * spec.k.stride[0],
        "k_head": item * spec.k.stride[1],
        "k_row": item * spec.k.stride[2],
        "v_batch": item * spec.v.stride[0],
        "v_head": item * spec.v.stride[1],
        "v_row": item * spec.v.stride[2],
        "out_batch": item * output.stride[0],
        "out_head": item * output.stride[1],
        "out_row": item * output.stride[2],
        "mask_batch": mask[0],
        "mask_head": mask[1],
        "mask_row": mask[2],
        "scores_row": row,
        "values_at": values_at,
        "scores_at": scores_at,
        "results_at": results_at,
        "results_row": results_row,
        "sums_at": results_at + results_row * 2 * scores.shape.half,
        "value_steps": attention.value_steps,
        "is_causal": int(spec.is_causal),
        "scale": ctypes.c_uint32.from_buffer(ctypes.c_float(scale)).value,
        "blocks": blocks,
        "block_count": len(attention.blocks),
        # The scores are padded to whole panels: the last one is as wide as the others.
        "score_functions": scoring.last,
        "score_table": scoring.last_table,
        "value_functions": valuing.full,
        "last_functions": valuing.last,
        "value_table": valuing.full_table,
        "last_table": valuing.last_table,
        "last_vectors": values.last_vectors,
        "zeros": zeros(scores.panel),
    }
    plan = words(*(numbers[name] for name in PLAN))
    kernel = NativeKernel("attention", _function(scores.dtype == "bf16"), len(TABLE), flops / OPERATIONS_PER_CYCLE)
    spots = [(name, 0) if name != "mask" or spec.mask is not None else 0 for name in TABLE[:-1]]
    return NativeCall(kernel, (*spots, plan))


def _block(attention: Attention, number: int) -> list[int]:
    """The words of `BLOCK`."""
    block, score = attention.blocks[number], attention.scores.chunks[0][number]
    value = attention.values.chunks[0][number]
    # The tables of all products list the kinds of tiles in the order of their first appearance.
    kinds = list(dict.fromkeys(b.halves for b in attention.blocks))
    starts = [0]
    for part in attention.values.sums:
        starts.append(starts[-1] + 8 * (len(TILE_WORDS) + RUN_WORDS * len(part.runs)))
    return [
        block.first,
        sum(block.halves),
        block.keys,
        kinds.index(block.halves),
        attention.scores.item * score.x[0],
        attention.scores.item * score.x[1],
        4 * score.out[1],
        4 * value.out[0],
        4 * value.out[1],
        starts[value.sum],
    ]


@once
def _function(is_half: bool) -> NativeFunction:
    return compile_function(AttentionPrinter(host(), is_half).module(), "attention")


class AttentionPrinter(TiledPrinter):
    def __init__(self, target: Host, is_half: bool):
        super().__init__(target)
        self.is_half = is_half
        self.item = 2 if is_half else 4

    def module(self) -> str:
        return self.text([self.print_parallel_entry("attention", TABLE, PLAN), self.work(), self.softmax()])

    # ---- the functions

    def work(self) -> str:
        def body() -> None:
            self.load_table(self.pointer("%shared", 1), TABLE, PLAN)
            number = self.put("atomicrmw add ptr %shared, i64 1 monotonic")
            # The arena is aligned, and so are its regions.
            self.packed_keys = self.at(self.pointers["scratch"], self.mul(number, self.words["region"]))
            self.packed_values = self.at(self.packed_keys, self.words["values_at"])
            self.scores = self.at(self.packed_keys, self.words["scores_at"])
            self.results = self.at(self.packed_keys, self.words["results_at"])
            self.sums = self.at(self.packed_keys, self.words["sums_at"])
            self.zeros = self.address(self.words["zeros"])
            self.code.loop("%begin", "%end", 1, [("i64", "-1")], self.task)

        return self.function("void @work(i64 %begin, i64 %end, ptr %shared)", body)

    def task(self, task: str, carried: list[str]) -> list[str]:
        plan = self.words
        head = self.put(f"udiv i64 {task}, {plan['splits']}")
        split = self.sub(task, self.mul(head, plan["splits"]))
        batch = self.put(f"udiv i64 {head}, {plan['heads']}")
        which = self.sub(head, self.mul(batch, plan["heads"]))

        def here(name: str, number: str = which) -> str:
            far = self.add(self.mul(batch, plan[f"{name}_batch"]), self.mul(number, plan[f"{name}_head"]))
            return self.at(self.pointers[name], far)

        # Tasks of one head, and heads that share their keys, are consecutive: the next one reuses the packed keys.
        packed = self.put(f"udiv i64 {head}, {plan['shared_by']}")
        is_packed = self.put(f"icmp eq i64 {packed}, {carried[0]}")
        shared = self.put(f"udiv i64 {which}, {plan['shared_by']}")
        self.pack_keys(here("k", shared), self.put(f"select i1 {is_packed}, i64 0, i64 {plan['score_panels']}"))
        self.pack_values(here("v", shared), self.put(f"select i1 {is_packed}, i64 0, i64 {plan['value_panels']}"))
        q, out, mask = here("q"), here("out"), here("mask")

        def cut(at: str) -> str:
            return self.put(f"udiv i64 {self.mul(at, plan['block_count'])}, {plan['splits']}")

        table = self.address(plan["blocks"])
        self.loop(cut(self.add(split, 1)), 1, lambda number: self.block(table, number, q, out, mask), cut(split))
        return [packed]

    def pack_keys(self, k: str, panels: str) -> None:
        """Packs sixteen keys at a time, transposed: rows become columns."""
        plan, lanes = self.words, self.lanes
        last = self.sub(plan["keys"], 1)
        rounded = self.put(f"and i64 {self.add(plan['depth'], lanes - 1)}, {-lanes}")
        panel_bytes = self.mul(rounded, PAIR * self.bytes)

        def panel(p: str) -> None:
            to_panel = self.at(self.packed_keys, self.mul(p, panel_bytes))
            for v in range(PAIR):
                first = self.add(self.mul(p, PAIR * lanes), v * lanes)
                # Missing keys are replaced by some other key: their scores are not used.
                rows = [self.at(k, self.mul(self.least(self.add(first, n), last), plan["k_row"])) for n in range(lanes)]
                to_half = self.at(to_panel, v * self.bytes)

                def square(e: str, rows: list[str] = rows, to_half: str = to_half) -> None:
                    mask, far = self.before(e, plan["depth"]), self.mul(e, 4)
                    to = self.at(to_half, self.mul(e, PAIR * self.bytes))
                    for n, column in enumerate(self.transposed([self.load(self.at(row, far), mask) for row in rows])):
                        self.store(column, self.at(to, n * PAIR * self.bytes))

                self.loop(plan["depth"], lanes, square)

        self.loop(panels, 1, panel)

    def transposed(self, rows: list[str]) -> list[str]:
        """Transposes a square: blocks of 1, 2, 4, ... numbers are swapped across the diagonal."""
        size = 1
        while size < self.lanes:
            low = ", ".join(f"i32 {n if n & size == 0 else self.lanes + n - size}" for n in range(self.lanes))
            high = ", ".join(f"i32 {n + size if n & size == 0 else self.lanes + n}" for n in range(self.lanes))
            made = list(rows)
            for n in range(self.lanes):
                if n & size == 0:
                    pair = f"{self.vector} {rows[n]}, {self.vector} {rows[n + size]}"
                    made[n] = self.put(f"shufflevector {pair}, <{self.lanes} x i32> <{low}>")
                    made[n + size] = self.put(f"shufflevector {pair}, <{self.lanes} x i32> <{high}>")
            rows, size = made, 2 * size
        return rows

    def pack_values(self, v: str, panels: str) -> None:
        plan = self.words
        full_bytes = self.mul(plan["value_steps"], PAIR * self.bytes)

        def panel(p: str) -> None:
            to_panel = self.at(self.packed_values, self.mul(p, full_bytes))
            is_last = self.put(f"icmp eq i64 {self.add(p, 1)}, {plan['value_panels']}")
            step = self.mul(self.put(f"select i1 {is_last}, i64 {plan['last_vectors']}, i64 {PAIR}"), self.bytes)
            columns = [self.add(self.mul(p, PAIR * self.lanes), n * self.lanes) for n in range(PAIR)]
            masks = [self.before(column, plan["columns"]) for column in columns]

            def row(j: str) -> None:
                to = self.at(to_panel, self.mul(j, step))
                # If the last panel is one vector wide, the next row overwrites the second vector.
                for n, (column, mask) in enumerate(zip(columns, masks, strict=True)):
                    far = self.mul(column, self.item)
                    made = self.pair_of_values(v, j, far, mask) if self.is_half else self.value(v, j, far, mask)
                    self.store(made, self.at(to, n * self.bytes))

            self.loop(plan["value_steps"], 1, row)

        self.loop(panels, 1, panel)

    def value(self, v: str, j: str, far: str, mask: str) -> str:
        return self.load(self.at(self.at(v, self.mul(j, self.words["v_row"])), far), mask)

    def pair_of_values(self, v: str, j: str, far: str, mask: str) -> str:
        """Of two keys; zeros in place of one after the last."""
        ints = f"<{self.lanes} x i32>"
        number = self.add(j, j)
        start = self.at(self.at(v, self.mul(number, self.words["v_row"])), far)
        exists = self.put(f"icmp ult i64 {self.add(number, 1)}, {self.words['keys']}")
        both = self.put(f"and {self.mask_type} {mask}, {self.splat(exists, 'i1')}")
        low, high = (
            self.put(f"zext {self.half} {self.load_half(at, inside)} to {ints}")
            for at, inside in ((start, mask), (self.at(start, self.words["v_row"]), both))
        )
        pair = self.put(f"or {ints} {low}, {self.put(f'shl {ints} {high}, splat (i32 16)')}")
        return self.put(f"bitcast {ints} {pair} to {self.vector}")

    @property
    def half(self) -> str:
        return f"<{self.lanes} x i16>"

    def load_half(self, pointer: str, mask: str) -> str:
        function = f"llvm.masked.load.v{self.lanes}i16.p0"
        given = ("ptr", pointer), (self.mask_type, mask), (self.half, "zeroinitializer")
        return self.call(self.half, function, *given)

    def store_half(self, value: str, pointer: str, mask: str | None = None) -> None:
        if mask is None:
            self.do(f"store {self.half} {value}, ptr {pointer}, align 2")
            return
        function = f"llvm.masked.store.v{self.lanes}i16.p0"
        self.code.declare("void", function, self.half, "ptr", self.mask_type)
        self.do(f"call void @{function}({self.half} {value}, ptr {pointer}, {self.mask_type} {mask})")

    def widened(self, half: str) -> str:
        return self.operations.cast(half, "bf16", "f32")

    def rounded_half(self, value: str) -> str:
        """By the processor's instruction, which takes denormal numbers for 0: an exponential that small is nothing."""
        bits = self.call("<16 x bfloat>", "llvm.x86.avx512bf16.cvtneps2bf16.512", (self.vector, value))
        return self.put(f"bitcast <16 x bfloat> {bits} to {self.half}")

    def block(self, table: str, number: str, q: str, out: str, mask: str) -> None:
        plan, panel = self.words, PAIR * self.bytes
        here = self.at(table, self.mul(number, 8 * len(BLOCK)))
        block = {name: self.word(here, n) for n, name in enumerate(BLOCK)}
        rounded = self.put(f"and i64 {self.add(plan['depth'], self.lanes - 1)}, {-self.lanes}")
        key_bytes, value_bytes = self.mul(rounded, panel), self.mul(plan["value_steps"], panel)
        panels = self.put(f"udiv i64 {self.add(block['seen'], PAIR * self.lanes - 1)}, {PAIR * self.lanes}")
        q0, q1, second = self.at(q, block["q0"]), self.at(q, block["q1"]), self.at(self.scores, block["s1"])
        score = self.pointer(self.address(plan["score_functions"]), block["kind"])
        numbers = self.address(plan["score_table"])

        def score_panel(p: str) -> None:
            weights, far = self.at(self.packed_keys, self.mul(p, key_bytes)), self.mul(p, panel)
            out0, out1, ahead = self.at(self.scores, far), self.at(second, far), self.at(weights, key_bytes)
            self.call_tile(score, q0, q1, weights, out0, out1, *[self.zeros] * 3, numbers, ahead)

        self.loop(panels, 1, score_panel)
        bits = self.put(f"trunc i64 {plan['scale']} to i32")
        scale = self.put(f"bitcast i32 {bits} to float")
        is_masked = self.put(f"icmp ne ptr {self.pointers['mask']}, null")
        is_causal = self.put(f"icmp ne i64 {plan['is_causal']}, 0")

        def row(r: str) -> None:
            query = self.add(block["first"], r)
            seen = self.least(self.add(query, 1), block["seen"])
            seen = self.put(f"select i1 {is_causal}, i64 {seen}, i64 {block['seen']}")
            added = self.at(mask, self.mul(query, plan["mask_row"]))
            added = self.put(f"select i1 {is_masked}, ptr {added}, ptr null")
            scores = self.at(self.scores, self.mul(r, plan["scores_row"]))
            inverse = self.put(
                f"call float @softmax(ptr {scores}, i64 {seen}, i64 {block['seen']}, float {scale}, ptr {added})"
            )
            self.do(f"store float {inverse}, ptr {self.at(self.sums, self.mul(r, 4))}")

        self.loop(block["rows"], 1, row)
        results = self.results if self.is_half else out
        o0, o1 = self.at(results, block["o0"]), self.at(results, block["o1"])
        first_row = self.at(out, self.mul(block["first"], plan["out_row"]))
        full, last = self.address(plan["value_functions"]), self.address(plan["last_functions"])
        full_numbers, last_numbers = self.address(plan["value_table"]), self.address(plan["last_table"])

        def value_panel(p: str) -> None:
            is_last = self.put(f"icmp eq i64 {self.add(p, 1)}, {plan['value_panels']}")
            functions = self.put(f"select i1 {is_last}, ptr {last}, ptr {full}")
            numbers = self.put(f"select i1 {is_last}, ptr {last_numbers}, ptr {full_numbers}")
            weights, far = self.at(self.packed_values, self.mul(p, value_bytes)), self.mul(p, panel)
            function = self.pointer(functions, block["kind"])
            out0, out1, numbers = self.at(o0, far), self.at(o1, far), self.at(numbers, block["numbers"])
            self.call_tile(function, self.scores, second, weights, out0, out1, *[self.zeros] * 3, numbers, weights)

        self.loop(plan["value_panels"], 1, value_panel)

        def divide(r: str) -> None:
            inverse = self.splat(self.put(f"load float, ptr {self.at(self.sums, self.mul(r, 4))}"))
            start = self.at(first_row, self.mul(r, plan["out_row"]))
            source = self.at(self.results, self.mul(r, plan["results_row"])) if self.is_half else start

            def columns(c: str) -> None:
                inside, to = self.before(c, plan["columns"]), self.at(start, self.mul(c, self.item))
                result = self.load(self.at(source, self.mul(c, 4)), inside)
                result = self.put(f"fmul {self.vector} {result}, {inverse}")
                if self.is_half:
                    self.store_half(self.operations.cast(result, "f32", "bf16"), to, inside)
                else:
                    self.store(result, to, inside)

            self.loop(plan["columns"], self.lanes, columns)

        self.loop(block["rows"], 1, divide)

    def softmax(self) -> str:
        """Softmax of one row, in place, without the division. Elements from `seen` to `end` become 0. Returns 1/sum, or
        1 for a row that is fully masked, so that its result is 0 as in eager."""

        def body() -> None:
            is_masked = self.put("icmp ne ptr %mask, null")
            stop = self.put(f"select i1 {is_masked}, i64 %seen, i64 0")
            one = self.put(f"select i1 {is_masked}, float 1.0, float %scale")
            scale, rest = self.splat("%scale"), self.splat(one)

            def add_mask(j: str) -> None:
                inside, at = self.before(j, "%seen"), self.at("%scores", self.mul(j, 4))
                scaled = self.put(f"fmul {self.vector} {self.load(at)}, {scale}")
                added = self.at("%mask", self.mul(j, self.item))
                added = self.widened(self.load_half(added, inside)) if self.is_half else self.load(added, inside)
                self.store(self.put(f"fadd {self.vector} {scaled}, {added}"), at)

            self.loop(stop, self.lanes, add_mask)
            lowest = "splat (float 0xFFF0000000000000)"

            def score(j: str) -> str:
                value = self.load(self.at("%scores", self.mul(j, 4)))
                return self.put(
                    f"select {self.mask_type} {self.before(j, '%seen')}, {self.vector} {value}, {self.vector} {lowest}"
                )

            def larger(j: str, carried: list[str]) -> list[str]:
                return [self.operations.apply("max", "f32", [score(j), carried[0]])]

            (most,) = self.code.loop("0", "%seen", self.lanes, [(self.vector, lowest)], larger, may_be_empty=True)
            greatest = self.call("float", f"llvm.vector.reduce.fmaximum.v{self.lanes}f32", (self.vector, most))
            is_empty = self.put(f"fcmp oeq float {greatest}, 0xFFF0000000000000")
            shift = self.splat(self.put(f"select i1 {is_empty}, float 0.0, float {greatest}"))

            def exponential(j: str, carried: list[str]) -> list[str]:
                far = self.put(f"fsub {self.vector} {score(j)}, {shift}")
                operations = self.operations
                value = evaluate(operations, EXP, self.put(f"fmul {self.vector} {far}, {rest}"))
                if self.is_half:
                    # Its place has been read: the scores are twice as wide. Their sum is that of what is multiplied.
                    rounded = self.rounded_half(value)
                    self.store_half(rounded, self.at("%scores", self.mul(j, 2)))
                    value = self.widened(rounded)
                else:
                    self.store(value, self.at("%scores", self.mul(j, 4)))
                return [self.put(f"fadd {self.vector} {carried[0]}, {value}")]

            (sums,) = self.code.loop(
                "0", "%seen", self.lanes, [(self.vector, "zeroinitializer")], exponential, may_be_empty=True
            )
            rounded = self.put(f"and i64 {self.add('%seen', self.lanes - 1)}, {-self.lanes}")
            store = self.store_half if self.is_half else self.store
            self.loop(
                "%end",
                self.lanes,
                lambda j: store("zeroinitializer", self.at("%scores", self.mul(j, self.item))),
                rounded,
            )
            total = self.sum_of_lanes(sums, "0.0")
            is_zero = self.put(f"fcmp oeq float {total}, 0.0")
            inverse = self.put(f"fdiv float 1.0, {total}")
            self.result = self.put(f"select i1 {is_zero}, float 1.0, float {inverse}")

        return self.function(
            "float @softmax(ptr %scores, i64 %seen, i64 %end, float %scale, ptr %mask)", body, "ret float {result}"
        )


EXP: Scalar = load("f32", Access(0, 0, ())).exp()
