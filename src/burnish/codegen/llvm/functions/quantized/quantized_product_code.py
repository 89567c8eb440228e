"""Native functions that multiply a few rows by an integer weight, see `own_kernels.quantized_product`.

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

from .....concurrency.first_value_cache import once
from .....runtime.program.native_kernels import NativeFunction, NativeKernel
from .....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from .....schedule.library.own_kernels.quantized_product import QuantizedProduct
from .....tensors.dtypes import NAMES
from ...compile_to_machine_code import compile_function
from ...llvm_types import memory, size
from ...scalar_operations import LlvmOperations
from ...target_cpu import Host, host
from ..function_printer import words
from ..matmul import SERIAL
from ..skinny_gemm import AHEAD_BYTES, BYTES_PER_CYCLE, MOST_TASK_ROWS, TASK_BYTES
from ..skinny_gemm_code import FewRowsPrinter

BLOCK_UNITS = 8
"""Units that are added up in one lane before the sum is added to the row's, where the row has one scale."""

MOST_UNROLLED = 16
"""Units of a block that are printed one after the other; a larger group is a loop."""

MOST_CHAINED_ROWS = 4
"""With more rows of x, each has one sum, whose additions wait for each other no longer than for the other rows'."""

TABLE = ("out", "x", "weight", "scales", "shifts", "bias", "plan")
PLAN = """
    tasks grain task_rows outputs room_bytes room_step sums_at sums_step units rest blocks x_step weight_step
    scales_step shifts_step out_step
""".split()
"""`units` of a row are whole, with `rest` numbers behind them. In each row of the room, two lines of sums by groups are
behind the numbers, from `sums_at` on. Steps are in bytes."""


@dataclass(frozen=True, slots=True)
class QuantizedProductForm:
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


def form_of(product: QuantizedProduct) -> QuantizedProductForm:
    return QuantizedProductForm(
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


def make_quantized(product: QuantizedProduct) -> NativeCall:
    form = form_of(product)
    return step_of(product, form, function(form), plan_of(product, form, host()))


def step_of(
    product: QuantizedProduct, form: QuantizedProductForm, function: NativeFunction, plan: list[int]
) -> NativeCall:
    cycles = max(product.weight_bytes / BYTES_PER_CYCLE, product.flops * 16 / host().vector_bits)
    kernel = NativeKernel("quantized", function, len(TABLE), cycles)
    has = {"scales": form.scales, "shifts": form.shifts, "bias": form.has_bias}
    spots = [(name, 0) if has.get(name, True) else 0 for name in TABLE[:-1]]
    return NativeCall(kernel, (*spots, words(*plan)))


def plan_of(product: QuantizedProduct, form: QuantizedProductForm, machine: Host) -> list[int]:
    lanes, item = machine.vector_bits // 32, product.dtype.itemsize
    unit = 2 * lanes
    task_rows = min(max(TASK_BYTES // max(product.depth * product.bits // 8 * lanes, 1), 1) * lanes, MOST_TASK_ROWS)
    tasks = -(-product.outputs // task_rows)
    units, rest = divmod(product.depth, unit)
    blocks = product.groups if form.group else units // BLOCK_UNITS
    sums_at = 4 * unit * (units + (rest > 0))
    sums_step = 4 * -(-product.groups // lanes) * lanes
    room = sums_at + 2 * sums_step
    steps = (
        item * product.x_step,
        product.weight_step,
        (product.scales.itemsize if product.scales else 0) * product.scales_step,
        (product.shifts.itemsize if product.shifts else 0) * product.shifts_step,
        item * product.outputs,
    )
    grain = tasks if product.flops < SERIAL else 1
    return [
        tasks,
        grain,
        task_rows,
        product.outputs,
        room * product.rows,
        room,
        sums_at,
        sums_step,
        units,
        rest,
        blocks,
        *steps,
    ]


@once
def function(form: QuantizedProductForm) -> NativeFunction:
    return compile_function(print_quantized(form, host()), "quantized")


def print_quantized(form: QuantizedProductForm, machine: Host) -> str:
    return QuantizedPrinter(form, machine).module()


class QuantizedPrinter(FewRowsPrinter):
    def __init__(self, form: QuantizedProductForm, machine: Host):
        super().__init__(form, machine)
        self.unit = 2 * self.lanes
        self.unit_bytes = self.unit * form.bits // 8
        self.block_units = form.group // self.unit if form.group else BLOCK_UNITS
        self.chains = 2 if form.rows <= MOST_CHAINED_ROWS else 1
        self.together = 2 if form.rows == 1 else 1
        """Rows of the weight."""
        self.places = [(r, m) for r in range(self.together) for m in range(form.rows)]
        self.has_table = machine.vector_bits == 512 and machine.triple.startswith("x86_64")
        self.has_raw_halves = self.has_offset_term = form.bits == 4 and self.has_table
        """The high half of a byte is not shifted: x is a sixteenth there. The offset is subtracted after the sum, by
        a sum of x."""

    def module(self) -> str:
        return self.text([self.entry(), self.work_of_tasks(self.prepare, self.task)])

    # ---- the rows of x

    def entry(self) -> str:
        def body() -> None:
            self.load_table("%table", TABLE, PLAN)
            room = self.put(f"alloca i8, i64 {self.words['room_bytes']}, align 64")
            last = self.put(f"alloca [{self.unit * self.item} x i8], align 64")
            shared = self.put("alloca [3 x i64]")
            self.do(f"store i64 0, ptr {shared}")
            self.do(f"store ptr %table, ptr {self.at(shared, 8)}")
            self.do(f"store ptr {room}, ptr {self.at(shared, 16)}")
            for m in range(self.form.rows):
                x = self.at(self.pointers["x"], self.mul(self.words["x_step"], m))
                self.convert_row(x, self.at(room, self.mul(self.words["room_step"], m)), last)
            self.call_in_parallel(self.words["tasks"], self.words["grain"], shared)

        return self.exported("quantized", body)

    def convert_row(self, x: str, room: str, last: str) -> None:
        units, rest = self.words["units"], self.words["rest"]

        def one(u: str) -> None:
            self.convert_unit(
                self.at(x, self.mul(u, self.unit * self.item)), self.at(room, self.mul(u, 8 * self.lanes))
            )

        def partly(_: str) -> None:
            """The last numbers, and zeros."""
            self.do(f"store [{self.unit * self.item} x i8] zeroinitializer, ptr {last}, align 64")
            self.copy_bytes(last, self.at(x, self.mul(units, self.unit * self.item)), self.mul(rest, self.item))
            self.convert_unit(last, self.at(room, self.mul(units, 8 * self.lanes)))

        self.loop(units, 1, one)
        self.loop(rest, self.unit, partly)
        if self.form.shifts is not None:
            self.sum_groups(room, self.words["sums_at"], range(2), 1.0)
        if self.has_raw_halves:
            at = self.add(self.words["sums_at"], self.words["sums_step"])
            self.sum_groups(room, at, range(1, 2), -1.0 * self.form.offset)

    def convert_unit(self, x: str, room: str) -> None:
        value = self.put(f"load {memory(self.form.dtype, self.unit)}, ptr {x}, align {self.item}")
        value = LlvmOperations(self.code, self.code.here, self.unit).cast(value, self.form.dtype, "f32")
        for half in range(2):
            numbers = range(half, self.unit, 2) if self.form.bits == 4 else range(half * self.lanes, self.unit)
            order = ", ".join(f"i32 {number}" for number in list(numbers)[: self.lanes])
            whole, mask = f"<{self.unit} x float>", f"<{self.lanes} x i32>"
            part = self.put(f"shufflevector {whole} {value}, {whole} poison, {mask} <{order}>")
            if half and self.has_raw_halves:
                part = self.put(f"fmul {self.vector} {part}, splat (float 6.25e-02)")
            self.store(part, self.at(room, 4 * half * self.lanes))

    def sum_groups(self, room: str, sums_at: str, halves: range, scale: float) -> None:
        """Sums of x by groups times a number, of both halves of each unit or of one; behind the last group zeros."""
        sums = self.at(room, sums_at)
        count = self.words["blocks"] if self.form.group else "1"
        each = str(self.form.group // self.unit)
        if not self.form.group:
            each = self.put(f"udiv i64 {self.words['sums_at']}, {8 * self.lanes}")

        def one(g: str) -> None:
            first = self.at(room, self.mul(self.mul(g, each), 8 * self.lanes))

            def add(k: str, carried: list[str]) -> list[str]:
                (total,) = carried
                for half in halves:
                    x = self.load(self.at(first, self.add(self.mul(k, 8 * self.lanes), 4 * half * self.lanes)))
                    factor = f"splat (float {16.0 if half and self.has_raw_halves else 1.0})"
                    total = self.fma(x, factor, total)
                return [total]

            (found,) = self.code.loop("0", each, 1, [(self.vector, "zeroinitializer")], add)
            found = self.put(f"fmul float {self.sum_of_lanes(found)}, {scale}")
            self.do(f"store float {found}, ptr {self.at(sums, self.mul(g, 4))}, align 4")

        self.loop(count, 1, one)

    # ---- the rows of the weight

    def prepare(self) -> str:
        self.sums = self.put(f"alloca [{self.form.rows * MOST_TASK_ROWS + 1} x float], align 64")
        self.last = self.room = self.put("alloca [128 x i8], align 64")
        self.load_table(self.pointer("%shared", 1), TABLE, PLAN)
        room = self.pointer("%shared", 2)
        self.rooms = [self.at(room, self.mul(self.words["room_step"], m)) for m in range(self.form.rows)]
        return self.words["tasks"]

    def task(self, task: str) -> None:
        self.first = self.mul(task, self.words["task_rows"])
        left = self.sub(self.words["outputs"], self.first)
        self.count = self.least(left, self.words["task_rows"])
        self.end = self.sub(self.count, 1)
        self.loop(self.count, self.together, self.rows)
        self.loop(self.count, self.lanes, self.finish)

    def rows(self, row: str) -> None:
        """The sums of one row of the weight, or of two with the same x; the last may be computed twice."""
        numbers = [self.add(self.first, self.least(self.add(row, r), self.end)) for r in range(self.together)]

        def lines(name: str) -> list[str]:
            return [self.at(self.pointers[name], self.mul(n, self.words[f"{name}_step"])) for n in numbers]

        weights, scales, shifts = lines("weight"), lines("scales"), lines("shifts")

        def block(b: str, totals: list[str]) -> list[str]:
            sums = self.block(weights, b)
            if not self.form.group or self.form.scales is None:
                return [self.put(f"fadd {self.vector} {a}, {b}") for a, b in zip(totals, sums, strict=True)]
            each = [self.splat(self.number(scale, b, self.form.scales)) for scale in scales]
            return [self.fma(sums[n], each[r], totals[n]) for n, (r, _) in enumerate(self.places)]

        zeros = [(self.vector, "zeroinitializer")] * len(self.places)
        totals = self.code.loop("0", self.words["blocks"], 1, zeros, block, may_be_empty=True)
        if not self.form.group:
            totals = self.rest_of_row(weights, totals)
        values = [self.sum_of_lanes(total) for total in totals]
        if not self.form.group and self.form.scales is not None:
            each = [self.number(scale, "0", self.form.scales) for scale in scales]
            values = [self.put(f"fmul float {values[n]}, {each[r]}") for n, (r, _) in enumerate(self.places)]
        for factors, dtype, sums_at in self.terms(scales, shifts):
            values = self.plus_term(factors, dtype, sums_at, values)
        for (r, m), value in zip(self.places, values, strict=True):
            place = self.add(self.add(self.mul(self.words["task_rows"], m), row), r)
            self.do(f"store float {value}, ptr {self.at(self.sums, self.mul(place, 4))}, align 4")

    def terms(self, scales: list[str], shifts: list[str]) -> list[tuple[list[str], str | None, str]]:
        """The terms to add, for each group: a factor of the weight's row (or 1) times a sum of x, at an offset."""
        made: list[tuple[list[str], str | None, str]] = []
        at = self.words["sums_at"]
        if self.form.shifts is not None:
            made.append((shifts, self.form.shifts, at))
        if self.has_offset_term:
            made.append((scales, self.form.scales, self.add(at, self.words["sums_step"])))
        return made

    def number(self, base: str, index: str, dtype: str) -> str:
        """A scale or a shift as float32."""
        at = self.at(base, self.mul(index, size(dtype)))
        value = self.put(f"load {memory(dtype)}, ptr {at}, align {size(dtype)}")
        return LlvmOperations(self.code, self.code.here, 1).cast(value, dtype, "f32")

    def block(self, weights: list[str], b: str) -> list[str]:
        """The sums of a block, of each pair of rows."""
        first = self.mul(b, self.block_units)
        ahead = self.add(self.mul(first, self.unit_bytes), AHEAD_BYTES)
        for far in range(0, self.block_units * self.unit_bytes, 64):
            for weight in weights:
                self.fetch(self.at(weight, self.add(ahead, far)))
        sums = self.zeros
        if self.block_units <= MOST_UNROLLED:
            for u in range(self.block_units):
                sums = self.unit_products(weights, self.add(first, u), sums)
        else:
            last = self.add(first, self.block_units)
            carried = [(self.vector, value) for value in sums]
            sums = self.code.loop(first, last, 1, carried, lambda u, sums: self.unit_products(weights, u, sums))
        return self.joined(sums)

    @property
    def zeros(self) -> list[str]:
        return ["zeroinitializer"] * (len(self.places) * self.chains)

    def joined(self, sums: list[str]) -> list[str]:
        if self.chains == 1:
            return sums
        return [self.put(f"fadd {self.vector} {a}, {b}") for a, b in zip(sums[::2], sums[1::2], strict=True)]

    def unit_products(self, weights: list[str], u: str, sums: list[str]) -> list[str]:
        far = self.mul(u, self.unit_bytes)
        return self.products([self.at(weight, far) for weight in weights], self.mul(u, 8 * self.lanes), sums)

    def products(self, weights: list[str], far: str, sums: list[str]) -> list[str]:
        """The sums with the products of a unit. `far`: where its numbers of x are."""
        made = list(sums)
        numbers = [self.numbers(weight) for weight in weights]
        for half in range(2):
            xs = [self.load(self.at(room, self.add(far, 4 * half * self.lanes))) for room in self.rooms]
            for n, (r, m) in enumerate(self.places):
                place = n * self.chains + half % self.chains
                made[place] = self.fma(numbers[r][half], xs[m], made[place])
        return made

    def rest_of_row(self, weights: list[str], totals: list[str]) -> list[str]:
        units, rest = self.words["units"], self.words["rest"]
        whole = self.mul(self.words["blocks"], self.block_units)

        def add(sums: list[str], totals: list[str]) -> list[str]:
            return [self.put(f"fadd {self.vector} {a}, {b}") for a, b in zip(totals, self.joined(sums), strict=True)]

        def one(u: str, totals: list[str]) -> list[str]:
            return add(self.unit_products(weights, u, self.zeros), totals)

        def partly(_: str, totals: list[str]) -> list[str]:
            bytes = rest if self.form.bits == 8 else self.put(f"lshr i64 {rest}, 1")
            copies = []
            for r, weight in enumerate(weights):
                copies.append(self.at(self.last, 64 * r))
                self.do(f"store <64 x i8> zeroinitializer, ptr {copies[r]}, align 64")
                self.copy_bytes(copies[r], self.at(weight, self.mul(units, self.unit_bytes)), bytes)
            return add(self.products(copies, self.mul(units, 8 * self.lanes), self.zeros), totals)

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
        if not self.has_raw_halves:
            low, high = self.put(f"and {ints} {both}, splat (i32 15)"), self.put(f"lshr {ints} {both}, splat (i32 4)")
            return [self.converted(low), self.converted(high)]
        table = "<" + ", ".join(f"float {n - self.form.offset}.0" for n in range(16)) + ">"
        look_up = "llvm.x86.avx512.permvar.sf.512"  # reads the low four bits of each index
        low = self.call(self.vector, look_up, (self.vector, table), (ints, both))
        high = self.put(f"and {ints} {both}, splat (i32 240)")
        return [low, self.put(f"sitofp {ints} {high} to {self.vector}")]

    def converted(self, integers: str) -> str:
        ints = f"<{self.lanes} x i32>"
        if self.form.offset:
            integers = self.put(f"sub {ints} {integers}, splat (i32 {self.form.offset})")
        return self.put(f"sitofp {ints} {integers} to {self.vector}")

    def plus_term(self, factors: list[str], dtype: str | None, sums_at: str, values: list[str]) -> list[str]:
        """Adds, group by group, the weight's factor times the sum of x."""
        sums = [self.at(room, sums_at) for room in self.rooms]

        def one(g: str, values: list[str]) -> list[str]:
            each = ["1.0" if dtype is None else self.number(factor, g, dtype) for factor in factors]
            found = [self.put(f"load float, ptr {self.at(sum, self.mul(g, 4))}, align 4") for sum in sums]
            return [self.scalar_fma(each[r], found[m], values[n]) for n, (r, m) in enumerate(self.places)]

        if not self.form.group:
            return one("0", values)

        def some(g: str, totals: list[str]) -> list[str]:
            each = [self.vector_of(factor, g, dtype) for factor in factors]
            found = [self.load(self.at(sum, self.mul(g, 4))) for sum in sums]
            return [self.fma(each[r], found[m], totals[n]) for n, (r, m) in enumerate(self.places)]

        groups = self.words["blocks"]
        whole = self.put(f"and i64 {groups}, -{self.lanes}")
        zeros = [(self.vector, "zeroinitializer")] * len(self.places)
        totals = self.code.loop("0", whole, self.lanes, zeros, some, may_be_empty=True)
        values = [self.put(f"fadd float {a}, {self.sum_of_lanes(b)}") for a, b in zip(values, totals, strict=True)]
        return self.code.loop(whole, groups, 1, [("float", value) for value in values], one, may_be_empty=True)

    def vector_of(self, base: str, index: str, dtype: str | None) -> str:
        if dtype is None:
            return "splat (float 1.0)"
        at = self.at(base, self.mul(index, size(dtype)))
        value = self.put(f"load {memory(dtype, self.lanes)}, ptr {at}, align {size(dtype)}")
        return self.operations.cast(value, dtype, "f32")

    def scalar_fma(self, a: str, b: str, value: str) -> str:
        return self.call("float", "llvm.fma.f32", ("float", a), ("float", b), ("float", value))
