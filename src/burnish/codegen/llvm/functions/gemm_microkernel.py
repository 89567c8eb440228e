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

from ....ops.scalar_ir import Access, Scalar, cast, load, walk
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Tile
from ...math.expand_operations import expand
from ..llvm_types import register, size, suffix
from ..loop_invariant_scopes import Code, Scope
from ..scalar_operations import Operations, evaluate
from ..target_cpu import Host

WORDS = ("x_step", "out_step", "residual_step", "runs", "valid")
"""The beginning of the table: strides in bytes from a pixel to the next, the number of runs, and the valid outputs of
the last vector. A run is four words: its offset in bytes; its steps; whether the sums go to memory after it; the
offset of its weights, in bytes."""

RUN_WORDS = 4

FETCHED_BYTES = 128
"""Bytes of the next weights prefetched for every `UNROLL` steps: a quarter of what the steps read."""

UNROLL = 4
CHEAP = 8
"""The most scalar operations of an epilogue that is printed inline."""
SYMBOL = "tile"

SUM = load("f32", Access(0, 0, ()))


def print_tile(tile: Tile, host: Host) -> str:
    return TilePrinter(tile, host).module()


class TilePrinter:
    def __init__(self, tile: Tile, host: Host):
        self.tile, self.host = tile, host
        self.lanes = host.vector_bits // 32
        self.bytes = 4 * self.lanes
        self.vector = f"<{self.lanes} x float>"
        self.is_paired = tile.dtype == "bf16"
        self.result = f"<{self.lanes} x {register(tile.result)}>"
        """The vectors of the result in memory."""
        self.result_bytes = size(tile.result) * self.lanes
        self.stored, residual = (load(tile.result, Access(number, 0, ())) for number in range(2))
        """A number of the result, in an expression."""
        self.added = cast(cast(self.stored, "f32") + cast(residual, "f32"), tile.result)
        self.bias: list[str] = []
        self.rows = [(group, i) for group, count in enumerate(tile.halves) for i in range(count)]
        self.sums = [(r, v) for r in range(len(self.rows)) for v in range(tile.vectors)]
        self.bases = [(group, i) for group, i in self.rows if i % 3 == 0]
        self.is_x86 = host.triple.startswith("x86_64")
        self.lines: list[str] = []
        self.declarations: set[str] = set()

    def put(self, line: str) -> None:
        self.lines.append(line)

    def module(self) -> str:
        vector, lanes = self.vector, self.lanes
        self.declarations.add(f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})")
        self.entry()
        self.run()
        self.finish()
        head = (
            f"define void @{SYMBOL}(ptr noalias readonly %a0, ptr noalias readonly %a1, ptr noalias readonly %b, "
            "ptr %c0, ptr %c1, ptr %bias, ptr %r0, ptr %r1, ptr noalias readonly %table, "
            "ptr %ahead) #0 {"
        )
        after = self.epilogue_function()
        return "\n".join(
            [
                f'target triple = "{self.host.triple}"',
                "",
                *after,
                head,
                *self.lines,
                "}",
                "",
                *sorted(self.declarations),
                "",
                f"attributes #0 = {{ nounwind {self.host.attributes} }}",
                "",
            ]
        )

    def entry(self) -> None:
        self.put("entry:")
        if self.tile.is_blocked:
            self.put(f"  %kept = alloca [{len(self.sums)} x {self.vector}], align {self.bytes}")
        for number, word in enumerate(WORDS):
            self.put(f"  %{word}.at = getelementptr i64, ptr %table, i64 {number}")
            self.put(f"  %{word} = load i64, ptr %{word}.at")
        self.put("  %step2 = shl i64 %x_step, 1")
        for n in sorted({i for _, i in self.bases if i}):
            self.put(f"  %ahead{n} = mul i64 %x_step, {n}")
        self.put(f"  %first = getelementptr i64, ptr %table, i64 {len(WORDS)}")
        for v in range(self.tile.vectors):
            self.put(f"  %bias.at{v} = getelementptr i8, ptr %bias, i64 {v * self.result_bytes}")
            self.load(f"bias{v}.loaded", f"%bias.at{v}", v)
            self.bias.append(self.evaluated(cast(self.stored, "f32"), f"bias{v}", f"%bias{v}.loaded"))
        # The accumulators of blocks are in memory from the start.
        for number, (_, v) in enumerate(self.sums if self.tile.is_blocked else ()):
            self.put(f"  %kept{number} = getelementptr {self.vector}, ptr %kept, i64 {number}")
            self.put(f"  store {self.vector} {self.bias[v]}, ptr %kept{number}, align {self.bytes}")
        self.put("  br label %run")

    def load(self, name: str, pointer: str, v: int) -> None:
        """A vector of the bias, of the residual or, where sums are depthwise, of x, as it is in memory."""
        vector, align = self.result, size(self.tile.result)
        if not self.is_partial(v):
            self.put(f"  %{name} = load {vector}, ptr {pointer}, align {align}")
            return
        masks, function = (
            f"<{self.lanes} x i1>",
            f"llvm.masked.load.{suffix(register(self.tile.result), self.lanes)}.p0",
        )
        self.declarations.add(f"declare {vector} @{function}(ptr, {masks}, {vector})")
        self.put(
            f"  %{name} = call {vector} @{function}(ptr align {align} {pointer}, {masks} {self.mask()}, "
            f"{vector} zeroinitializer)"
        )

    def is_partial(self, v: int) -> bool:
        return self.tile.is_masked and v == self.tile.vectors - 1

    def mask(self) -> str:
        if not any(line.startswith("  %mask = ") for line in self.lines):
            wide = f"<{self.lanes} x i64>"
            numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
            self.put(f"  %valid.one = insertelement {wide} poison, i64 %valid, i64 0")
            self.put(
                f"  %valid.all = shufflevector {wide} %valid.one, {wide} poison, <{self.lanes} x i32> zeroinitializer"
            )
            self.put(f"  %mask = icmp ult {wide} <{numbers}>, %valid.all")
        return "%mask"

    # ---- the sum

    def run(self) -> None:
        vector, put = self.vector, self.put
        put("run:")
        put("  %r = phi i64 [0, %entry], [%r.next, %run.end]")
        put("  %at = phi ptr [%first, %entry], [%at.next, %run.end]")
        for r, v in self.sums:
            start = "zeroinitializer" if self.tile.is_blocked else self.bias[v]
            put(f"  %s{r}.{v} = phi {vector} [{start}, %entry], [%next{r}.{v}, %run.end]")
        if self.is_x86 and not self.tile.is_depthwise:
            put("  %ahead.run = phi ptr [%ahead, %entry], [%ahead.next, %run.end]")
        put("  %offset = load i64, ptr %at")
        put("  %weight.at = getelementptr i64, ptr %at, i64 3")
        put("  %weight = load i64, ptr %weight.at")
        put("  %b.run = getelementptr i8, ptr %b, i64 %weight")
        if self.tile.is_depthwise:
            self.one_step()
            self.next_run()
            return
        put("  %length.at = getelementptr i64, ptr %at, i64 1")
        put("  %length = load i64, ptr %length.at")
        put(f"  %blocks = lshr i64 %length, {UNROLL.bit_length() - 1}")
        put(f"  %rest = and i64 %length, {UNROLL - 1}")
        for group, i in self.bases:
            put(f"  %p{group}.{i}.x = getelementptr i8, ptr %a{group}, i64 %offset")
            put(f"  %p{group}.{i} = getelementptr i8, ptr %p{group}.{i}.x, i64 {f'%ahead{i}' if i else 0}")
        put("  %has_blocks = icmp ne i64 %blocks, 0")
        put("  br i1 %has_blocks, label %body, label %between")
        self.steps("body", "%blocks", UNROLL, "run", "%p{}.{}", "%b.run", "%s{}.{}", "between")
        put("between:")
        for group, i in self.bases:
            put(f"  %q{group}.{i} = phi ptr [%p{group}.{i}, %run], [%body.p{group}.{i}.next, %body]")
        put("  %q.b = phi ptr [%b.run, %run], [%body.b.next, %body]")
        for r, v in self.sums:
            put(f"  %q.s{r}.{v} = phi {vector} [%s{r}.{v}, %run], [%body.out{r}.{v}, %body]")
        if self.is_x86:
            put("  %ahead.next = phi ptr [%ahead.run, %run], [%body.ahead.next, %body]")
        put("  %has_rest = icmp ne i64 %rest, 0")
        put("  br i1 %has_rest, label %tail, label %joined")
        self.steps("tail", "%rest", 1, "between", "%q{}.{}", "%q.b", "%q.s{}.{}", "joined")
        put("joined:")
        for r, v in self.sums:
            put(f"  %z{r}.{v} = phi {vector} [%q.s{r}.{v}, %between], [%tail.out{r}.{v}, %tail]")
        if not self.tile.is_blocked:
            put("  br label %run.end")
            put("run.end:")
            for r, v in self.sums:
                put(f"  %next{r}.{v} = phi {vector} [%z{r}.{v}, %joined]")
            self.next_run()
            return
        put("  %flush.at = getelementptr i64, ptr %at, i64 2")
        put("  %flush.word = load i64, ptr %flush.at")
        put("  %flush = icmp ne i64 %flush.word, 0")
        put("  br i1 %flush, label %flushed, label %run.end")
        put("flushed:")
        for number, (r, v) in enumerate(self.sums):
            put(f"  %old{number} = load {vector}, ptr %kept{number}, align {self.bytes}")
            put(f"  %new{number} = fadd {vector} %old{number}, %z{r}.{v}")
            put(f"  store {vector} %new{number}, ptr %kept{number}, align {self.bytes}")
        put("  br label %run.end")
        put("run.end:")
        for r, v in self.sums:
            put(f"  %next{r}.{v} = phi {vector} [%z{r}.{v}, %joined], [zeroinitializer, %flushed]")
        self.next_run()

    def one_step(self) -> None:
        """A step of a depthwise sum: one place of the window, a vector of x for each vector of weights."""
        put, vector, lanes = self.put, self.vector, self.lanes
        weights: list[str] = []
        for v in range(self.tile.vectors):
            put(f"  %w{v}.at = getelementptr i8, ptr %b.run, i64 {v * self.result_bytes}")
            put(f"  %w{v}.loaded = load {self.result}, ptr %w{v}.at, align {self.result_bytes}")
            weights.append(self.evaluated(cast(self.stored, "f32"), f"w{v}", f"%w{v}.loaded"))
        for group, i in self.bases:
            put(f"  %p{group}.{i}.x = getelementptr i8, ptr %a{group}, i64 %offset")
            put(f"  %p{group}.{i} = getelementptr i8, ptr %p{group}.{i}.x, i64 {f'%ahead{i}' if i else 0}")
        for r, v in self.sums:
            group, i = self.rows[r]
            step = (0, "%x_step", "%step2")[i % 3]
            put(f"  %x{r}.{v}.row = getelementptr i8, ptr %p{group}.{i // 3 * 3}, i64 {step}")
            put(f"  %x{r}.{v}.at = getelementptr i8, ptr %x{r}.{v}.row, i64 {v * self.result_bytes}")
            self.load(f"x{r}.{v}.loaded", f"%x{r}.{v}.at", v)
            x = self.evaluated(cast(self.stored, "f32"), f"x{r}.{v}", f"%x{r}.{v}.loaded")
            put(
                f"  %next{r}.{v} = call {vector} @llvm.fma.v{lanes}f32({vector} {x}, {vector} {weights[v]}, "
                f"{vector} %s{r}.{v})"
            )
        put("  br label %run.end")
        put("run.end:")

    def next_run(self) -> None:
        put = self.put
        put("  %r.next = add i64 %r, 1")
        put(f"  %at.next = getelementptr i64, ptr %at, i64 {RUN_WORDS}")
        put("  %again = icmp ult i64 %r.next, %runs")
        put("  br i1 %again, label %run, label %done")

    def steps(
        self, label: str, count: str, unroll: int, before: str, pointer: str, weights: str, sums: str, after: str
    ) -> None:
        """A loop over `count` times `unroll` steps of the sum."""
        if self.is_x86:
            self.put(f"{label}:")
            self.steps_x86(label, count, unroll, pointer, weights, sums)
            self.put(f"  br label %{after}")
            return
        vector, lanes, put, vectors = self.vector, self.lanes, self.put, self.tile.vectors
        put(f"{label}:")
        put(f"  %{label}.k = phi i64 [{count}, %{before}], [%{label}.k.next, %{label}]")
        for group, i in self.bases:
            put(
                f"  %{label}.p{group}.{i} = phi ptr [{pointer.format(group, i)}, %{before}], "
                f"[%{label}.p{group}.{i}.next, %{label}]"
            )
        put(f"  %{label}.b = phi ptr [{weights}, %{before}], [%{label}.b.next, %{label}]")
        now = {}
        for r, v in self.sums:
            now[r, v] = f"%{label}.in{r}.{v}"
            put(f"  {now[r, v]} = phi {vector} [{sums.format(r, v)}, %{before}], [%{label}.out{r}.{v}, %{label}]")
        for j in range(unroll):
            for v in range(vectors):
                put(f"  %{label}.w{j}.{v}.at = getelementptr i8, ptr %{label}.b, i64 {(j * vectors + v) * self.bytes}")
                put(f"  %{label}.w{j}.{v} = load {vector}, ptr %{label}.w{j}.{v}.at, align {self.bytes}")
            for r, (group, i) in enumerate(self.rows):
                base, name = f"%{label}.p{group}.{i // 3 * 3}", f"%{label}.x{j}.{r}"
                if i % 3:
                    put(f"  {name}.row = getelementptr i8, ptr {base}, i64 {'%x_step' if i % 3 == 1 else '%step2'}")
                    base = f"{name}.row"
                put(f"  {name}.at = getelementptr float, ptr {base}, i64 {j}")
                put(f"  {name}.one = load float, ptr {name}.at, align 4")
                put(f"  {name}.lane = insertelement {vector} poison, float {name}.one, i64 0")
                put(f"  {name} = shufflevector {vector} {name}.lane, {vector} poison, <{lanes} x i32> zeroinitializer")
                for v in range(vectors):
                    made = f"%{label}.out{r}.{v}" if j == unroll - 1 else f"%{label}.s{j}.{r}.{v}"
                    put(
                        f"  {made} = call {vector} @llvm.fma.v{lanes}f32({vector} {name}, "
                        f"{vector} %{label}.w{j}.{v}, {vector} {now[r, v]})"
                    )
                    now[r, v] = made
        for group, i in self.bases:
            put(f"  %{label}.p{group}.{i}.next = getelementptr float, ptr %{label}.p{group}.{i}, i64 {unroll}")
        put(f"  %{label}.b.next = getelementptr i8, ptr %{label}.b, i64 {unroll * vectors * self.bytes}")
        put(f"  %{label}.k.next = sub i64 %{label}.k, 1")
        put(f"  %{label}.more = icmp ne i64 %{label}.k.next, 0")
        put(f"  br i1 %{label}.more, label %{label}, label %{after}")

    def steps_x86(self, label: str, count: str, unroll: int, pointer: str, weights: str, sums: str) -> None:
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
        given = [sums.format(r, v) for r, v in self.sums]
        given += [pointer.format(group, i) for group, i in self.bases]
        given += [weights, count, "%ahead.run" if unroll > 1 else "%ahead.next"]
        outputs = ["=&v"] * count_of + ["=&r"] * (len(self.bases) + 3)
        clobbered = [f"~{{{name[1:]}}}" for name in (*weight, *number)] + ["~{flags}", "~{memory}"]
        constraints = ",".join([*outputs, *map(str, range(len(outputs))), "r", *clobbered])
        struct = f"{{{', '.join(types)}}}"
        arguments = ", ".join(f"{type} {value}" for type, value in zip(types, given, strict=True))
        text = "\\0A".join(code)
        self.put(f'  %{label}.all = call {struct} asm sideeffect "{text}", "{constraints}"({arguments}, i64 %x_step)')
        names = [f"{label}.out{r}.{v}" for r, v in self.sums]
        names += [f"{label}.p{group}.{i}.next" for group, i in self.bases]
        names += [f"{label}.b.next", f"{label}.k.next", f"{label}.ahead.next"]
        for n, name in enumerate(names):
            self.put(f"  %{name} = extractvalue {struct} %{label}.all, {n}")

    # ---- the epilogue

    def finish(self) -> None:
        vector, put = self.vector, self.put
        put("done:")
        for number, (r, v) in enumerate(self.sums):
            group, i = self.rows[r]
            value = f"%next{r}.{v}"
            if self.tile.is_blocked:
                put(f"  %base{number} = load {vector}, ptr %kept{number}, align {self.bytes}")
                put(f"  %sum{number} = fadd {vector} %base{number}, {value}")
                value = f"%sum{number}"
            value = self.evaluated(cast(SUM, self.tile.result), f"rounded{number}", value)
            if self.tile.has_residual:
                self.address(f"from{number}", f"%r{group}", "%residual_step", i, v)
                self.load(f"residual{number}", f"%from{number}", v)
                value = self.evaluated(self.added, f"both{number}", value, f"%residual{number}")
            if self.tile.epilogue is not None and self.is_cheap(self.tile.epilogue):
                value = self.evaluated(self.tile.epilogue, str(number), value)
            elif self.tile.epilogue is not None:
                put(f"  %after{number} = call {self.result} @epilogue({self.result} {value})")
                value = f"%after{number}"
            self.address(f"to{number}", f"%c{group}", "%out_step", i, v)
            self.store(value, f"%to{number}", v)
        put("  ret void")

    def address(self, name: str, base: str, step: str, i: int, v: int) -> None:
        self.put(f"  %{name}.row = mul i64 {step}, {i}")
        self.put(f"  %{name}.far = add i64 %{name}.row, {v * self.result_bytes}")
        self.put(f"  %{name} = getelementptr i8, ptr {base}, i64 %{name}.far")

    def store(self, value: str, pointer: str, v: int) -> None:
        vector, align = self.result, size(self.tile.result)
        if not self.is_partial(v):
            self.put(f"  store {vector} {value}, ptr {pointer}, align {align}")
            return
        masks, function = (
            f"<{self.lanes} x i1>",
            f"llvm.masked.store.{suffix(register(self.tile.result), self.lanes)}.p0",
        )
        self.declarations.add(f"declare void @{function}({vector}, ptr, {masks})")
        self.put(f"  call void @{function}({vector} {value}, ptr align {align} {pointer}, {masks} {self.mask()})")

    def is_cheap(self, root: Scalar) -> bool:
        """Whether it is printed inline for every sum. Any other epilogue is a function, called for each sum."""
        return sum(1 for _ in walk(expand(root))) <= CHEAP

    def epilogue_function(self) -> list[str]:
        root, lines = self.tile.epilogue, self.lines
        if root is None or self.is_cheap(root):
            return []
        self.lines = []
        value = self.evaluated(root, "", "%x")
        body, self.lines = self.lines, lines
        return [
            f"define internal {self.result} @epilogue({self.result} %x) #0 {{",
            *body,
            f"  ret {self.result} {value}",
            "}",
            "",
        ]

    def evaluated(self, root: Scalar, name: str, *values: str) -> str:
        """The expression at full width, with the values in place of its loads."""
        code, scope = Code(self.host.has_scaling), Scope("done")
        result = evaluate(Operations(code, scope, self.lanes), root, *values)
        self.declarations |= code.declarations
        # Names are unique within a function, so each use gets its own.
        for line in scope.lines:
            self.put(line.replace("%v", f"%e{name}.v"))
        return result.replace("%v", f"%e{name}.v")
