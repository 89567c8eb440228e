"""Prints one tile of a matmul as LLVM IR: a few pixels by a few vectors of outputs, all sums in registers.

    void tile(a0, a1, b, c0, c1, bias, r0, r1, table, ahead)

        a0, a1   the beginnings of the two groups of pixels    b       the panel of weights
        c0, c1   the places of their results                    r0, r1  the residual that is added to them
        table    numbers: see `WORDS`, then some for each run of the sum
        ahead    the weights needed next: a part of them is prefetched into the cache

Each step of the sum loads a few vectors of weights once and multiplies them with one number of each pixel, broadcast to
all lanes. Every third pixel has a pointer: an address can consist of a base and one or two steps.

Of bf16 a step takes a pair of numbers in place of each one. The processor's instruction adds both products to the sum,
and takes denormal numbers for 0, as the library does that eager calls. The sum is rounded to bf16 before an epilogue,
as if that were another kernel.
"""

from __future__ import annotations

from functools import partial

from ....ops.scalar_ir import Access, cast, load
from ....schedule.library.own_kernels.matmul_tiling_and_packing import MatmulTile
from ..llvm_types import register, size, suffix
from ..scalar_operations import evaluate
from ..target_cpu import Host
from .epilogue import EpiloguePrinter

WORDS = ("x_step", "out_step", "residual_step", "runs", "valid")
"""The beginning of the table: strides in bytes from a pixel to the next, the number of runs, and the valid outputs of
the last vector. A run is four words: its offset in bytes; its steps; whether the sums go to memory after it; the
offset of its weights, in bytes."""

RUN_WORDS = 4

FETCHED_BYTES = 128
"""Bytes of the next weights prefetched for every `UNROLL` steps: a quarter of what the steps read."""

UNROLL = 4
SYMBOL = "tile"

SUM = load("f32", Access(0, 0, ()))


def print_tile(tile: MatmulTile, host: Host) -> str:
    return TilePrinter(tile, host).module()


class TilePrinter(EpiloguePrinter):
    def __init__(self, tile: MatmulTile, host: Host):
        super().__init__(host)
        self.tile = tile
        self.is_paired = tile.dtype == "bf16"
        self.result_type = f"<{self.lanes} x {register(tile.result)}>"
        self.result_bytes = size(tile.result) * self.lanes
        self.stored, residual = (load(tile.result, Access(number, 0, ())) for number in range(2))
        """A number of the result, in an expression."""
        self.added = cast(cast(self.stored, "f32") + cast(residual, "f32"), tile.result)
        self.rows = [(group, i) for group, count in enumerate(tile.halves) for i in range(count)]
        self.sums = [(r, v) for r in range(len(self.rows)) for v in range(tile.vectors)]
        self.bases = [(group, i) for group, i in self.rows if i % 3 == 0]
        self.is_x86 = host.triple.startswith("x86_64")
        has_ahead = self.is_x86 and not tile.is_depthwise
        self.of_sums = [self.vector] * len(self.sums)
        self.of_run = [*self.of_sums, *["ptr"] * has_ahead]
        """Types of what one run hands to the next: the sums, and where prefetching has arrived."""

    def module(self) -> str:
        head = (
            f"void @{SYMBOL}(ptr noalias readonly %a0, ptr noalias readonly %a1, ptr noalias readonly %b, "
            "ptr %c0, ptr %c1, ptr %bias, ptr %r0, ptr %r1, ptr noalias readonly %table, ptr %ahead)"
        )
        tile = self.function(head, self.body).replace("define internal", "define", 1)
        return self.text([*self.epilogue_function(self.tile.epilogue), tile])

    def body(self) -> None:
        self.words = {name: self.word("%table", number) for number, name in enumerate(WORDS)}
        step, first = self.words["x_step"], self.at("%table", 8 * len(WORDS))
        self.steps_of_rows = (0, step, self.put(f"shl i64 {step}, 1"))
        self.ahead = {n: self.mul(step, n) for n in sorted({i for _, i in self.bases if i})}
        if self.tile.is_masked:
            numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
            valid = self.splat(self.words["valid"], "i64")
            self.mask = self.put(f"icmp ult <{self.lanes} x i64> <{numbers}>, {valid}")
        bias = [self.of_result(self.at("%bias", v * self.result_bytes), v) for v in range(self.tile.vectors)]
        start = [bias[v] for _, v in self.sums]
        if self.tile.is_blocked:  # the accumulators of blocks are in memory from the start
            kept = self.put(f"alloca [{len(self.sums)} x {self.vector}], align {self.bytes}")
            self.kept = [self.at(kept, self.bytes * number) for number in range(len(self.sums))]
            for place, value in zip(self.kept, start, strict=True):
                self.do(f"store {self.vector} {value}, ptr {place}, align {self.bytes}")
            start = ["zeroinitializer"] * len(self.sums)
        carried = list(zip(self.of_run, [*start, "%ahead"], strict=False))
        sums = self.code.loop("0", self.words["runs"], 1, carried, lambda r, carried: self.run(first, r, carried))
        self.finish(sums)

    def of_result(self, pointer: str, v: int) -> str:
        """A vector of the bias or, where sums are depthwise, of x, as float32."""
        return evaluate(self.operations, cast(self.stored, "f32"), self.load_result(pointer, v))

    def load_result(self, pointer: str, v: int) -> str:
        """A vector as it is in memory."""
        vector, align = self.result_type, size(self.tile.result)
        if not self.is_partial(v):
            return self.put(f"load {vector}, ptr {pointer}, align {align}")
        function = f"llvm.masked.load.{suffix(register(self.tile.result), self.lanes)}.p0"
        self.code.declare(vector, function, "ptr", self.mask_type, vector)
        masked = f"{self.mask_type} {self.mask}, {vector} zeroinitializer"
        return self.put(f"call {vector} @{function}(ptr align {align} {pointer}, {masked})")

    def is_partial(self, v: int) -> bool:
        return self.tile.is_masked and v == self.tile.vectors - 1

    # ---- the sum

    def run(self, first: str, r: str, carried: list[str]) -> list[str]:
        at = self.at(first, self.mul(r, 8 * RUN_WORDS))
        weights = self.at("%b", self.word(at, 3))
        offset, pointers = self.word(at, 0), []
        for group, i in self.bases:
            pointer = self.at(f"%a{group}", offset)
            pointers.append(self.at(pointer, self.ahead[i]) if i else pointer)
        if self.tile.is_depthwise:
            return self.one_step(pointers, weights, carried)
        length = self.word(at, 1)
        state = [*pointers, weights, *carried]
        for count, unroll in (
            (self.put(f"lshr i64 {length}, {UNROLL.bit_length() - 1}"), UNROLL),
            (self.put(f"and i64 {length}, {UNROLL - 1}"), 1),
        ):
            types = ["ptr"] * (len(pointers) + 1) + self.of_run
            some = self.put(f"icmp ne i64 {count}, 0")
            state = self.when(some, zip(types, state, strict=True), partial(self.steps, count, unroll, state))
        sums = state[len(pointers) + 1 :]
        if not self.tile.is_blocked:
            return sums
        own = sums[: len(self.sums)]
        flush = self.put(f"icmp ne i64 {self.word(at, 2)}, 0")
        flushed = self.when(flush, zip(self.of_sums, own, strict=True), partial(self.flush, own))
        return [*flushed, *sums[len(own) :]]

    def flush(self, sums: list[str]) -> list[str]:
        """Adds the sums to those in memory; they begin again at 0."""
        for place, value in zip(self.kept, sums, strict=True):
            old = self.put(f"load {self.vector}, ptr {place}, align {self.bytes}")
            new = self.put(f"fadd {self.vector} {old}, {value}")
            self.do(f"store {self.vector} {new}, ptr {place}, align {self.bytes}")
        return ["zeroinitializer"] * len(sums)

    def one_step(self, pointers: list[str], weights: str, sums: list[str]) -> list[str]:
        """A step of a depthwise sum: one place of the window, a vector of x for each vector of weights."""
        each = []
        for v in range(self.tile.vectors):
            at = self.at(weights, v * self.result_bytes)
            value = self.put(f"load {self.result_type}, ptr {at}, align {self.result_bytes}")
            each.append(evaluate(self.operations, cast(self.stored, "f32"), value))
        made, base = [], dict(zip(self.bases, pointers, strict=True))
        for (r, v), total in zip(self.sums, sums, strict=True):
            group, i = self.rows[r]
            row = self.at(base[group, i // 3 * 3], self.steps_of_rows[i % 3])
            made.append(self.fma(self.of_result(self.at(row, v * self.result_bytes), v), each[v], total))
        return made

    def steps(self, count: str, unroll: int, state: list[str]) -> list[str]:
        """A loop over `count` times `unroll` steps of the sum. The state is the pointers to pixels, the weights, the
        sums and, on x86, the weights to prefetch."""
        if self.is_x86:
            return self.steps_x86(count, unroll, state)
        types = ["ptr"] * (len(self.bases) + 1) + self.of_sums
        carried = list(zip(types, state, strict=True))
        return self.code.loop("0", count, 1, carried, lambda _, state: self.unrolled(unroll, state))

    def unrolled(self, unroll: int, state: list[str]) -> list[str]:
        vectors, bases = self.tile.vectors, len(self.bases)
        pointers, weights, sums = state[:bases], state[bases], state[bases + 1 :]
        base = dict(zip(self.bases, pointers, strict=True))
        for j in range(unroll):
            each = [
                self.put(
                    f"load {self.vector}, ptr {self.at(weights, (j * vectors + v) * self.bytes)}, align {self.bytes}"
                )
                for v in range(vectors)
            ]
            for r, (group, i) in enumerate(self.rows):
                row = base[group, i // 3 * 3]
                row = self.at(row, self.steps_of_rows[i % 3]) if i % 3 else row
                x = self.splat(self.put(f"load float, ptr {self.at(row, 4 * j)}, align 4"))
                for v in range(vectors):
                    sums[r * vectors + v] = self.fma(x, each[v], sums[r * vectors + v])
        following = self.at(weights, unroll * vectors * self.bytes)
        return [*(self.at(pointer, 4 * unroll) for pointer in pointers), following, *sums]

    def steps_x86(self, count: str, unroll: int, state: list[str]) -> list[str]:
        """The loop in inline assembly, because LLVM's scheduler moves loads up until registers run out."""
        vectors, vector, zmm = self.tile.vectors, self.vector, "zmm" if self.lanes == 16 else "ymm"
        count_of = len(self.sums)
        registers = 32 if self.lanes == 16 else 16
        numbers = min(2, registers - count_of - vectors)
        first = registers - numbers - vectors
        weight = [f"%{zmm}{first + v}" for v in range(vectors)]
        number = [f"%{zmm}{first + vectors + n}" for n in range(numbers)]
        operand = {base: f"${count_of + n}" for n, base in enumerate(self.bases)}
        b, k, ahead = (f"${count_of + len(self.bases) + n}" for n in range(3))
        step = f"${2 * (count_of + len(self.bases) + 3)}"
        multiply = "vdpbf16ps" if self.is_paired else "vfmadd231ps"
        code = ["1:"]
        if unroll > 1:
            code += [f"prefetcht1 {64 * line}({ahead})" for line in range(FETCHED_BYTES // 64)]
            code.append(f"addq $${FETCHED_BYTES}, {ahead}")
        for j in range(unroll):
            for v in range(vectors):
                code.append(f"vmovups {(j * vectors + v) * self.bytes}({b}), {weight[v]}")
            for r, (group, i) in enumerate(self.rows):
                base, x = operand[group, i // 3 * 3], number[r % numbers]
                place = (f"({base})", f"({base},{step})", f"({base},{step},2)")[i % 3]
                code.append(f"vbroadcastss {4 * j}{place}, {x}")
                code += [f"{multiply} {weight[v]}, {x}, ${r * vectors + v}" for v in range(vectors)]
        code += [f"addq $${4 * unroll}, {operand[base]}" for base in self.bases]
        code += [f"addq $${unroll * vectors * self.bytes}, {b}", f"decq {k}", "jnz 1b"]
        types = [vector] * count_of + ["ptr"] * (len(self.bases) + 1) + ["i64", "ptr"]
        (*pointers, weights), sums, ahead_of = state[: len(self.bases) + 1], state[len(self.bases) + 1 : -1], state[-1]
        given = [*sums, *pointers, weights, count, ahead_of]
        outputs = ["=&v"] * count_of + ["=&r"] * (len(self.bases) + 3)
        clobbered = [f"~{{{name[1:]}}}" for name in (*weight, *number)] + ["~{flags}", "~{memory}"]
        constraints = ",".join([*outputs, *map(str, range(len(outputs))), "r", *clobbered])
        struct = f"{{{', '.join(types)}}}"
        arguments = ", ".join(f"{type} {value}" for type, value in zip(types, given, strict=True))
        text = "\\0A".join(code)
        step = self.words["x_step"]
        every = self.put(f'call {struct} asm sideeffect "{text}", "{constraints}"({arguments}, i64 {step})')
        found = [self.put(f"extractvalue {struct} {every}, {n}") for n in range(len(types))]
        *own, following, _, ahead_next = found
        return [*own[count_of:], following, *own[:count_of], ahead_next]

    # ---- the epilogue

    def finish(self, sums: list[str]) -> None:
        for number, (r, v) in enumerate(self.sums):
            (group, i), value = self.rows[r], sums[number]
            if self.tile.is_blocked:
                base = self.put(f"load {self.vector}, ptr {self.kept[number]}, align {self.bytes}")
                value = self.put(f"fadd {self.vector} {base}, {value}")
            value = evaluate(self.operations, cast(SUM, self.tile.result), value)
            if self.tile.has_residual:
                residual = self.load_result(self.address(f"%r{group}", "residual_step", i, v), v)
                value = evaluate(self.operations, self.added, value, residual)
            value = self.after_sum(self.tile.epilogue, value)
            self.store_result(value, self.address(f"%c{group}", "out_step", i, v), v)

    def address(self, base: str, step: str, i: int, v: int) -> str:
        return self.at(base, self.add(self.mul(self.words[step], i), v * self.result_bytes))

    def store_result(self, value: str, pointer: str, v: int) -> None:
        vector, align = self.result_type, size(self.tile.result)
        if not self.is_partial(v):
            self.do(f"store {vector} {value}, ptr {pointer}, align {align}")
            return
        function = f"llvm.masked.store.{suffix(register(self.tile.result), self.lanes)}.p0"
        self.code.declare("void", function, vector, "ptr", self.mask_type)
        place = f"ptr align {align} {pointer}, {self.mask_type} {self.mask}"
        self.do(f"call void @{function}({vector} {value}, {place})")
