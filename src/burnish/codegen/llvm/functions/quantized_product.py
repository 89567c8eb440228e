"""Products of a few rows and a weight of integers as native functions, see `own_kernels.quantized_product`.

    step = make_quantized(product)
    step.table                       out, x, weight, scales, shifts, bias and the plan

    entry     converts x to float32, in the order in which the integers are unpacked, and sums it by groups
    work      a thread takes task after task: some rows of the weight
    row       the sums of one row of the weight with all rows of x are in registers
    finish    the sums of a task: add the bias, round, store

A *unit* is two vectors of numbers: of 8 bits one after the other, of 4 bits those in the low and in the high halves of
a vector of bytes. A *block* is a group of the row, or some units where the row has one scale. Integers become float32
by conversion, or by a table in a register: there are 16 of 4 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel, load
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Step
from ....schedule.library.own_kernels.quantized_product import QuantizedProduct
from ....tensors.tensor_types import NAMES
from ..compile_to_machine_code import object_code
from ..compile_to_machine_code import symbols as shared_symbols
from ..llvm_types import memory, size
from ..scalar_operations import Operations
from ..target_machine import Host, host
from .function_printer import FunctionPrinter
from .matmul import SERIAL
from .thin_product import AHEAD_BYTES, BYTES_PER_CYCLE, MOST_TASK_ROWS, TASK_BYTES
from .word_tables import words

BLOCK_UNITS = 8
"""Units that are added up in one lane before the sum is added to the row's, where the row has one scale."""

MOST_UNROLLED = 16
"""Units of a block that are printed one after the other; a larger group is a loop."""

MOST_CHAINED_ROWS = 4
"""With more rows of x, each has one sum, whose additions wait for each other no longer than for the other rows'."""

TABLE = ("out", "x", "weight", "scales", "shifts", "bias", "plan")
PLAN = (
    *("tasks", "grain", "task_rows", "outputs", "room_bytes", "room_step", "sums_at"),
    *("units", "rest", "blocks", "x_step", "weight_step", "scales_step", "shifts_step", "out_step"),
)
"""`units` of a row are whole, with `rest` numbers behind them. In each row of the room, sums by groups are behind the
numbers, from `sums_at` on. Steps are in bytes."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a function is compiled for."""

    rows: int
    dtype: str
    bits: int
    is_signed: bool
    offset: int
    group: int
    """0 where a row has one scale and one shift."""
    scales: str | None
    shifts: str | None
    has_bias: bool


def form_of(product: QuantizedProduct) -> Form:
    return Form(
        product.rows,
        NAMES[product.dtype],
        product.bits,
        product.is_signed,
        product.offset,
        product.group if product.group != product.depth else 0,
        product.scales and NAMES[product.scales],
        product.shifts and NAMES[product.shifts],
        product.has_bias,
    )


def make_quantized(product: QuantizedProduct) -> Step:
    machine, form = host(), form_of(product)
    cycles = max(product.weight_bytes / BYTES_PER_CYCLE, product.flops * 16 / machine.vector_bits)
    kernel = NativeKernel("quantized", function(form), len(TABLE), cycles)
    has = {"scales": form.scales, "shifts": form.shifts, "bias": form.has_bias}
    spots = [(name, 0) if has.get(name, True) else 0 for name in TABLE[:-1]]
    return Step(kernel, (*spots, words(*plan_of(product, form, machine))))


def plan_of(product: QuantizedProduct, form: Form, machine: Host) -> list[int]:
    lanes, item = machine.vector_bits // 32, product.dtype.itemsize
    unit = 2 * lanes
    task_rows = min(max(TASK_BYTES // max(product.depth * product.bits // 8 * lanes, 1), 1) * lanes, MOST_TASK_ROWS)
    tasks = -(-product.outputs // task_rows)
    units, rest = divmod(product.depth, unit)
    blocks = product.groups if form.group else units // BLOCK_UNITS
    sums_at = 4 * unit * (units + (rest > 0))
    room = sums_at + 4 * -(-product.groups // lanes) * lanes
    steps = (
        item * product.x_step,
        product.weight_step,
        (product.scales.itemsize if product.scales else 0) * product.scales_step,
        (product.shifts.itemsize if product.shifts else 0) * product.shifts_step,
        item * product.outputs,
    )
    grain = tasks if product.flops < SERIAL else 1
    return [tasks, grain, task_rows, product.outputs, room * product.rows, room, sums_at, units, rest, blocks, *steps]


@once
def function(form: Form) -> NativeFunction:
    return load(object_code(print_quantized(form, host()), host()), "quantized", shared_symbols())


def print_quantized(form: Form, machine: Host) -> str:
    return QuantizedPrinter(form, machine).module()


class QuantizedPrinter(FunctionPrinter):
    def __init__(self, form: Form, machine: Host):
        super().__init__(machine)
        self.form, self.item = form, size(form.dtype)
        self.unit = 2 * self.lanes
        self.unit_bytes = self.unit * form.bits // 8
        self.block_units = form.group // self.unit if form.group else BLOCK_UNITS
        self.chains = 2 if form.rows <= MOST_CHAINED_ROWS else 1
        self.has_table = machine.vector_bits == 512 and machine.triple.startswith("x86_64")
        self.words: dict[str, str] = {}
        self.pointers: dict[str, str] = {}

    def module(self) -> str:
        self.code.declarations |= {
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        }
        return self.text([self.entry(), self.work()])

    def load_table(self, table: str) -> None:
        self.pointers = {name: self.pointer(table, number) for number, name in enumerate(TABLE)}
        self.words = {name: self.word(self.pointers["plan"], number) for number, name in enumerate(PLAN)}

    def copy(self, to: str, source: str, bytes: str) -> None:
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {bytes}, i1 false)")

    def fma(self, a: str, b: str, c: str) -> str:
        args = [(self.vector, value) for value in (a, b, c)]
        return self.code.call(self.code.here, self.vector, f"llvm.fma.v{self.lanes}f32", *args)

    def total(self, value: str) -> str:
        """The sum of a vector's lanes."""
        args = ("float", "-0.0"), (self.vector, value)
        reduce = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
        return self.code.call(self.code.here, "float", reduce, *args, flags="reassoc ")

    # ---- the rows of x

    def entry(self) -> str:
        def body() -> None:
            self.load_table("%table")
            room = self.put(f"alloca i8, i64 {self.words['room_bytes']}, align 64")
            last = self.put(f"alloca [{self.unit * self.item} x i8], align 64")
            shared = self.put("alloca [3 x i64]")
            self.do(f"store i64 0, ptr {shared}")
            self.do(f"store ptr %table, ptr {self.at(shared, 8)}")
            self.do(f"store ptr {room}, ptr {self.at(shared, 16)}")
            for m in range(self.form.rows):
                x = self.at(self.pointers["x"], self.mul(self.words["x_step"], m))
                self.convert_row(x, self.at(room, self.mul(self.words["room_step"], m)), last)
            tasks, grain = self.words["tasks"], self.words["grain"]
            self.put(f"call i32 @torch_parallel_for(i64 0, i64 {tasks}, i64 {grain}, ptr @work, ptr {shared})")

        return self.function("void @quantized(ptr %table)", body).replace("define internal", "define", 1)

    def convert_row(self, x: str, room: str, last: str) -> None:
        units, rest = self.words["units"], self.words["rest"]

        def one(u: str) -> None:
            self.convert_unit(
                self.at(x, self.mul(u, self.unit * self.item)), self.at(room, self.mul(u, 8 * self.lanes))
            )

        def partly(_: str) -> None:
            """The last numbers, and zeros."""
            self.do(f"store [{self.unit * self.item} x i8] zeroinitializer, ptr {last}, align 64")
            self.copy(last, self.at(x, self.mul(units, self.unit * self.item)), self.mul(rest, self.item))
            self.convert_unit(last, self.at(room, self.mul(units, 8 * self.lanes)))

        self.loop(units, 1, one)
        self.loop(rest, self.unit, partly)
        if self.form.shifts is not None:
            self.sum_groups(room)

    def convert_unit(self, x: str, room: str) -> None:
        value = self.put(f"load {memory(self.form.dtype, self.unit)}, ptr {x}, align {self.item}")
        value = Operations(self.code, self.code.here, self.unit).cast(value, self.form.dtype, "f32")
        for half in range(2):
            numbers = range(half, self.unit, 2) if self.form.bits == 4 else range(half * self.lanes, self.unit)
            order = ", ".join(f"i32 {number}" for number in list(numbers)[: self.lanes])
            whole, mask = f"<{self.unit} x float>", f"<{self.lanes} x i32>"
            part = self.put(f"shufflevector {whole} {value}, {whole} poison, {mask} <{order}>")
            self.store(part, self.at(room, 4 * half * self.lanes))

    def sum_groups(self, room: str) -> None:
        """Sums of x by groups, for the shifts; behind the last one zeros."""
        sums = self.at(room, self.words["sums_at"])
        count = self.words["blocks"] if self.form.group else "1"
        each = (
            str(self.form.group // self.lanes)
            if self.form.group
            else self.put(f"udiv i64 {self.words['sums_at']}, {self.bytes}")
        )
        end = self.put(f"sub i64 {self.words['room_step']}, {self.words['sums_at']}")
        self.loop(end, self.bytes, lambda at: self.store("zeroinitializer", self.at(sums, at)))

        def one(g: str) -> None:
            first = self.at(room, self.mul(self.mul(g, each), self.bytes))

            def add(k: str, carried: list[str]) -> list[str]:
                return [
                    self.put(f"fadd {self.vector} {carried[0]}, {self.load(self.at(first, self.mul(k, self.bytes)))}")
                ]

            (found,) = self.code.loop("0", each, 1, [(self.vector, "zeroinitializer")], add)
            self.do(f"store float {self.total(found)}, ptr {self.at(sums, self.mul(g, 4))}, align 4")

        self.loop(count, 1, one)

    # ---- the rows of the weight

    def work(self) -> str:
        def body() -> None:
            here = self.code.here
            self.sums = self.put(f"alloca [{self.form.rows * MOST_TASK_ROWS} x float], align 64")
            self.last = self.put("alloca [64 x i8], align 64")
            self.load_table(self.put(f"load ptr, ptr {self.at('%shared', 8)}"))
            room = self.put(f"load ptr, ptr {self.at('%shared', 16)}")
            self.rooms = [self.at(room, self.mul(self.words["room_step"], m)) for m in range(self.form.rows)]
            self.do("br label %next")
            here.begin("next")
            task = self.put("atomicrmw add ptr %shared, i64 1 monotonic")
            some = self.put(f"icmp ult i64 {task}, {self.words['tasks']}")
            self.do(f"br i1 {some}, label %task, label %exit")
            here.begin("exit")
            self.do("ret void")
            here.begin("task")
            self.task(task)

        return self.function("void @work(i64 %begin, i64 %end, ptr %shared)", body, "br label %next")

    def task(self, task: str) -> None:
        self.first = self.mul(task, self.words["task_rows"])
        left = self.put(f"sub i64 {self.words['outputs']}, {self.first}")
        self.count = self.least(left, self.words["task_rows"])
        self.loop(self.count, 1, self.row)
        self.loop(self.count, self.lanes, self.finish)

    def row(self, row: str) -> None:
        number = self.add(self.first, row)
        weight = self.at(self.pointers["weight"], self.mul(number, self.words["weight_step"]))
        scales, shifts = (
            self.at(self.pointers[name], self.mul(number, self.words[f"{name}_step"])) for name in ("scales", "shifts")
        )

        def block(b: str, totals: list[str]) -> list[str]:
            sums = self.block(weight, b)
            if not self.form.group or self.form.scales is None:
                return [self.put(f"fadd {self.vector} {a}, {b}") for a, b in zip(totals, sums, strict=True)]
            scale = self.splat(self.number(scales, b, self.form.scales))
            return [self.fma(sum, scale, total) for sum, total in zip(sums, totals, strict=True)]

        zeros = [(self.vector, "zeroinitializer")] * self.form.rows
        totals = self.code.loop("0", self.words["blocks"], 1, zeros, block, may_be_empty=True)
        if not self.form.group:
            totals = self.rest_of_row(weight, totals)
        values = [self.total(total) for total in totals]
        if not self.form.group and self.form.scales is not None:
            scale = self.number(scales, "0", self.form.scales)
            values = [self.put(f"fmul float {value}, {scale}") for value in values]
        if self.form.shifts is not None:
            values = self.shifted(shifts, values)
        for m, value in enumerate(values):
            place = self.add(self.mul(self.words["task_rows"], m), row)
            self.do(f"store float {value}, ptr {self.at(self.sums, self.mul(place, 4))}, align 4")

    def number(self, base: str, index: str, dtype: str) -> str:
        """A scale or a shift as float32."""
        at = self.at(base, self.mul(index, size(dtype)))
        value = self.put(f"load {memory(dtype)}, ptr {at}, align {size(dtype)}")
        return Operations(self.code, self.code.here, 1).cast(value, dtype, "f32")

    def block(self, weight: str, b: str) -> list[str]:
        """The sums of a block, of each row of x."""
        first = self.mul(b, self.block_units)
        ahead = self.add(self.mul(first, self.unit_bytes), AHEAD_BYTES)
        for far in range(0, self.block_units * self.unit_bytes, 64):
            self.do(f"call void @llvm.prefetch.p0(ptr {self.at(weight, self.add(ahead, far))}, i32 0, i32 2, i32 1)")
        sums = ["zeroinitializer"] * (self.form.rows * self.chains)
        if self.block_units <= MOST_UNROLLED:
            for u in range(self.block_units):
                sums = self.unit_products(weight, self.add(first, u), sums)
        else:
            last = self.add(first, self.block_units)
            carried = [(self.vector, value) for value in sums]
            sums = self.code.loop(first, last, 1, carried, lambda u, sums: self.unit_products(weight, u, sums))
        return self.joined(sums)

    def joined(self, sums: list[str]) -> list[str]:
        if self.chains == 1:
            return sums
        return [self.put(f"fadd {self.vector} {a}, {b}") for a, b in zip(sums[::2], sums[1::2], strict=True)]

    def unit_products(self, weight: str, u: str, sums: list[str]) -> list[str]:
        return self.products(self.at(weight, self.mul(u, self.unit_bytes)), self.mul(u, 8 * self.lanes), sums)

    def products(self, weight: str, far: str, sums: list[str]) -> list[str]:
        """The sums with the products of a unit. `far`: where its numbers of x are."""
        made = list(sums)
        for half, numbers in enumerate(self.numbers(weight)):
            for m, room in enumerate(self.rooms):
                x = self.load(self.at(room, self.add(far, 4 * half * self.lanes)))
                place = m * self.chains + half % self.chains
                made[place] = self.fma(numbers, x, made[place])
        return made

    def rest_of_row(self, weight: str, totals: list[str]) -> list[str]:
        units, rest = self.words["units"], self.words["rest"]
        whole = self.mul(self.words["blocks"], self.block_units)
        nothing = ["zeroinitializer"] * (self.form.rows * self.chains)

        def add(sums: list[str], totals: list[str]) -> list[str]:
            return [self.put(f"fadd {self.vector} {a}, {b}") for a, b in zip(totals, self.joined(sums), strict=True)]

        def one(u: str, totals: list[str]) -> list[str]:
            return add(self.unit_products(weight, u, nothing), totals)

        def partly(_: str, totals: list[str]) -> list[str]:
            self.do(f"store <64 x i8> zeroinitializer, ptr {self.last}, align 64")
            bytes = rest if self.form.bits == 8 else self.put(f"lshr i64 {rest}, 1")
            self.copy(self.last, self.at(weight, self.mul(units, self.unit_bytes)), bytes)
            return add(self.products(self.last, self.mul(units, 8 * self.lanes), nothing), totals)

        carried = [(self.vector, total) for total in totals]
        totals = self.code.loop(whole, units, 1, carried, one, may_be_empty=True)
        carried = [(self.vector, total) for total in totals]
        return self.code.loop("0", rest, self.unit, carried, partly, may_be_empty=True)

    def numbers(self, weight: str) -> list[str]:
        """The two vectors of a unit, as float32."""
        ints, loaded = f"<{self.lanes} x i32>", f"<{self.lanes} x i8>"
        if self.form.bits == 8:
            extend = "sext" if self.form.is_signed else "zext"
            halves = [
                self.put(
                    f"{extend} {loaded} {self.put(f'load {loaded}, ptr {self.at(weight, at)}, align 1')} to {ints}"
                )
                for at in (0, self.lanes)
            ]
            return [self.converted(half) for half in halves]
        both = self.put(f"load {loaded}, ptr {weight}, align 1")
        both = self.put(f"zext {loaded} {both} to {ints}")
        high = self.put(f"lshr {ints} {both}, splat (i32 4)")
        if not self.has_table:
            return [self.converted(half) for half in (self.put(f"and {ints} {both}, splat (i32 15)"), high)]
        table = "<" + ", ".join(f"float {n - self.form.offset}.0" for n in range(16)) + ">"
        look_up = "llvm.x86.avx512.permvar.sf.512"  # reads the low four bits of each index
        return [
            self.code.call(self.code.here, self.vector, look_up, (self.vector, table), (ints, half))
            for half in (both, high)
        ]

    def converted(self, integers: str) -> str:
        ints = f"<{self.lanes} x i32>"
        if self.form.offset:
            integers = self.put(f"sub {ints} {integers}, splat (i32 {self.form.offset})")
        return self.put(f"sitofp {ints} {integers} to {self.vector}")

    def shifted(self, shifts: str, values: list[str]) -> list[str]:
        """Adds the shifts times the sums of x."""
        dtype = self.form.shifts
        assert dtype is not None
        sums = [self.at(room, self.words["sums_at"]) for room in self.rooms]
        if not self.form.group:
            shift = self.number(shifts, "0", dtype)
            return [self.scalar_fma(shift, total, value) for total, value in zip(sums, values, strict=True)]
        groups = self.words["blocks"]
        whole = self.put(f"and i64 {groups}, -{self.lanes}")

        def some(g: str, totals: list[str]) -> list[str]:
            at = self.at(shifts, self.mul(g, size(dtype)))
            value = self.put(f"load {memory(dtype, self.lanes)}, ptr {at}, align {size(dtype)}")
            value = Operations(self.code, self.code.here, self.lanes).cast(value, dtype, "f32")
            far = self.mul(g, 4)
            return [
                self.fma(value, self.load(self.at(sum, far)), total) for sum, total in zip(sums, totals, strict=True)
            ]

        def one(g: str, values: list[str]) -> list[str]:
            shift, far = self.number(shifts, g, dtype), self.mul(g, 4)
            return [self.scalar_fma(shift, self.at(sum, far), value) for sum, value in zip(sums, values, strict=True)]

        zeros = [(self.vector, "zeroinitializer")] * self.form.rows
        totals = self.code.loop("0", whole, self.lanes, zeros, some, may_be_empty=True)
        values = [self.put(f"fadd float {a}, {self.total(b)}") for a, b in zip(values, totals, strict=True)]
        return self.code.loop(whole, groups, 1, [("float", value) for value in values], one, may_be_empty=True)

    def scalar_fma(self, a: str, b: str, value: str) -> str:
        """`b`: where the other factor is."""
        b = self.put(f"load float, ptr {b}, align 4")
        return self.code.call(self.code.here, "float", "llvm.fma.f32", ("float", a), ("float", b), ("float", value))

    # ---- the end of a task

    def finish(self, column: str) -> None:
        """A vector of outputs of each row of x."""
        kind = memory(self.form.dtype, self.lanes)
        valid = self.least(self.put(f"sub i64 {self.count}, {column}"), str(self.lanes))
        bytes = self.mul(valid, self.item)
        far = self.mul(self.add(self.first, column), self.item)
        to = Operations(self.code, self.code.here, self.lanes)
        bias = None
        if self.form.has_bias:
            self.copy(self.last, self.at(self.pointers["bias"], far), bytes)
            bias = to.cast(self.put(f"load {kind}, ptr {self.last}, align 64"), self.form.dtype, "f32")
        for m in range(self.form.rows):
            place = self.add(self.mul(self.words["task_rows"], m), column)
            value = self.load(self.at(self.sums, self.mul(place, 4)))
            if bias is not None:
                value = self.put(f"fadd {self.vector} {value}, {bias}")
            self.do(f"store {kind} {to.cast(value, 'f32', self.form.dtype)}, ptr {self.last}, align 64")
            out = self.at(self.pointers["out"], self.add(self.mul(self.words["out_step"], m), far))
            self.copy(out, self.last, bytes)
