"""Products of a few rows and a weight whose columns are contiguous: `x @ w` of a [depth, outputs] parameter.

    task      a few cache lines of outputs: their sums with all rows of x are in registers
    block     some numbers of x as float32, and the lines of the weight that belong to them
    finish    add the bias, round, store

The last task begins where it ends with the last output: what it shares with the one before is computed twice, equally.
"""

from __future__ import annotations

from ....schedule.library.own_kernels.thin_product import ThinProduct
from ....tensors.dtypes import NAMES
from ..llvm_types import register
from ..scalar_operations import Operations
from ..target_machine import Host
from .argument_tables import load_pointers, load_words
from .thin_product_code import TABLE, Form, ThinCode, load_elements

LONGEST_CHAIN = 64
"""Products that are added up before the sum goes to memory."""

AHEAD_LINES = 32
"""How many lines ahead the weight is fetched into a core's second cache."""

MOST_LOADS, FEWEST_TASKS = 8, 6
"""Of a task, and for the threads: each has the same part of the work, or nearly."""

PLAN = ("tasks", "grain", "last_start", "depth", "x_step", "weight_step", "out_step")
"""`last_start` is the first output of the last task. Steps are in bytes."""


def columns_form(product: ThinProduct, machine: Host) -> Form:
    """As many loads as registers hold sums of, and no more than there are outputs."""
    form = Form(product.rows, NAMES[product.dtype], product.has_bias, 1)
    each = load_elements(form, machine)
    sums = product.rows * (each * 32 // machine.vector_bits)
    most = max(24 // sums, 2) if machine.vector_bits == 512 else max(12 // sums, 1)
    loads = min(most, MOST_LOADS, max(product.outputs // (FEWEST_TASKS * each), 1))
    return Form(form.rows, form.dtype, form.has_bias, loads)


def columns_plan(product: ThinProduct, form: Form, machine: Host, is_serial: bool) -> list[int]:
    columns = form.loads * load_elements(form, machine)
    item, tasks = product.dtype.itemsize, -(-product.outputs // columns)
    steps = [item * step for step in (product.x_step, product.weight_step, product.outputs)]
    return [tasks, tasks if is_serial else 1, product.outputs - columns, product.depth, *steps]


def print_columns(form: Form, machine: Host) -> str:
    return ColumnsPrinter(form, machine).text()


WORK = """
define internal void @work(i64 %begin, i64 %end, ptr %shared) #0 {{
entry:
  %totals = alloca [{totals} x <{lanes} x float>], align 64
  %numbers = alloca [{numbers} x float], align 64
  %table.at = getelementptr i64, ptr %shared, i64 1
  %table = load ptr, ptr %table.at
{pointers}
{words}
  br label %next
next:
  %t = atomicrmw add ptr %shared, i64 1 monotonic
  %some = icmp ult i64 %t, %tasks
  br i1 %some, label %task, label %exit
exit:
  ret void
task:
  %start = mul i64 %t, {columns}
  %first = call i64 @llvm.umin.i64(i64 %start, i64 %last_start)
  %far = mul i64 %first, {item}
  %weight.task = getelementptr i8, ptr %weight, i64 %far
"""


class ColumnsPrinter(ThinCode):
    def __init__(self, form: Form, machine: Host):
        super().__init__(form, machine)
        self.halves = 2 if form.dtype == "bf16" else 1
        self.places = [(m, n, h) for m in range(form.rows) for n in range(form.loads) for h in range(self.halves)]

    def text(self) -> str:
        for place in range(len(self.places)):
            self.put(f"store {self.vector} zeroinitializer, ptr {self.total(place)}, align 64")
        self.code.loop("0", "%depth", LONGEST_CHAIN, [], self.block)
        self.finish()
        work = WORK.format(
            totals=len(self.places),
            numbers=self.form.rows * LONGEST_CHAIN,
            lanes=self.lanes,
            columns=self.form.loads * self.each,
            item=self.item,
            pointers=load_pointers("table", TABLE),
            words=load_words("plan", PLAN),
        )
        return self.module(work)

    def total(self, place: int) -> str:
        return self.emit(f"getelementptr {self.vector}, ptr %totals, i64 {place}")

    def block(self, start: str, _: list[str]) -> list[str]:
        count = self.least(self.emit(f"sub i64 %depth, {start}"), LONGEST_CHAIN)
        for m in range(self.form.rows):
            row = self.moved("%x", self.emit(f"mul i64 %x_step, {m}"))
            self.code.loop("0", count, 1, [], lambda k, _, m=m, row=row: self.number(m, row, start, k))
        lines = self.moved("%weight.task", self.emit(f"mul i64 {start}, %weight_step"))
        zeros = [(self.vector, "zeroinitializer")] * len(self.places)
        sums = self.code.loop("0", count, 1, zeros, lambda k, sums: self.line(lines, k, sums))
        for place, value in enumerate(sums):
            self.add_to(self.total(place), value)
        return []

    def number(self, m: int, row: str, start: str, k: str) -> list[str]:
        """One number of x as float32."""
        scalar = register(self.form.dtype)
        at = self.moved(row, self.emit(f"mul i64 {self.emit(f'add i64 {start}, {k}')}, {self.item}"))
        value = self.emit(f"load {scalar}, ptr {at}, align {self.item}")
        value = Operations(self.code, self.code.here, 1).cast(value, self.form.dtype, "f32")
        self.put(f"store float {value}, ptr {self.place_of(m, k)}, align 4")
        return []

    def place_of(self, m: int, k: str) -> str:
        at = self.emit(f"add i64 {k}, {m * LONGEST_CHAIN}")
        return self.emit(f"getelementptr float, ptr %numbers, i64 {at}")

    def line(self, lines: str, k: str, sums: list[str]) -> list[str]:
        line = self.moved(lines, self.emit(f"mul i64 {k}, %weight_step"))
        ahead = self.moved(line, self.emit(f"mul i64 %weight_step, {AHEAD_LINES}"))
        for far in range(0, self.form.loads * self.load_bytes, 64):
            self.fetch(ahead, str(far))
        weights = [self.widened(self.loaded(line, n * self.load_bytes)) for n in range(self.form.loads)]
        one, all_lanes = f"<{self.lanes} x float>", f"<{self.lanes} x i32>"
        made = []
        for m in range(self.form.rows):
            number = self.emit(f"load float, ptr {self.place_of(m, k)}, align 4")
            number = self.emit(f"insertelement {one} poison, float {number}, i64 0")
            number = self.emit(f"shufflevector {one} {number}, {one} poison, {all_lanes} zeroinitializer")
            for part in (part for load in weights for part in load):
                made.append(self.product(part, number, sums[len(made)]))
        return made

    def finish(self) -> None:
        to = Operations(self.code, self.code.here, self.lanes)
        for n in range(self.form.loads):
            far = self.emit(f"add i64 %far, {n * self.load_bytes}")
            bias = self.widened(self.loaded("%bias", far)) if self.form.has_bias else None
            for m in range(self.form.rows):
                place, values = (m * self.form.loads + n) * self.halves, []
                for h in range(self.halves):
                    value = self.emit(f"load {self.vector}, ptr {self.total(place + h)}, align 64")
                    if bias is not None:
                        value = self.emit(f"fadd {self.vector} {value}, {bias[h]}")
                    values.append(to.cast(value, "f32", self.form.dtype))
                out = self.moved("%out", self.emit(f"add i64 {self.emit(f'mul i64 %out_step, {m}')}, {far}"))
                self.put(f"store {self.memory} {self.joined(values)}, ptr {out}, align {self.item}")

    def joined(self, values: list[str]) -> str:
        """The even and the odd ones in turns."""
        if len(values) == 1:
            return values[0]
        half = f"<{self.lanes} x {register(self.form.dtype)}>"
        order = ", ".join(f"i32 {k // 2 + k % 2 * self.lanes}" for k in range(self.each))
        return self.emit(f"shufflevector {half} {values[0]}, {half} {values[1]}, <{self.each} x i32> <{order}>")
