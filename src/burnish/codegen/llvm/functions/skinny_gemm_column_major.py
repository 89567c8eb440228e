"""Products of a few rows and a weight whose columns are contiguous: `x @ w` of a [depth, outputs] parameter.

    task      a few cache lines of outputs: their sums with all rows of x are in registers
    block     some numbers of x as float32, and the lines of the weight that belong to them
    finish    add the bias, round, store

The last task begins where it ends with the last output: what it shares with the one before is computed twice, equally.
"""

from __future__ import annotations

from ....schedule.library.own_kernels.skinny_gemm import SkinnyGemm
from ....tensors.dtypes import NAMES
from ..llvm_types import register
from ..scalar_operations import LlvmOperations
from ..target_cpu import Host
from .skinny_gemm_code import TABLE, SkinnyGemmCode, SkinnyGemmForm, load_elements

LONGEST_CHAIN = 64
"""Products that are added up before the sum goes to memory."""

AHEAD_LINES = 32
"""How many lines ahead the weight is fetched into a core's second cache."""

MOST_LOADS, FEWEST_TASKS = 8, 6
"""Of a task, and for the threads: each has the same part of the work, or nearly."""

PLAN = ("tasks", "grain", "last_start", "depth", "x_step", "weight_step", "out_step")
"""`last_start` is the first output of the last task. Steps are in bytes."""


def columns_form(product: SkinnyGemm, machine: Host) -> SkinnyGemmForm:
    """As many loads as registers hold sums of, and no more than there are outputs."""
    form = SkinnyGemmForm(product.rows, NAMES[product.dtype], product.has_bias, 1)
    each = load_elements(form, machine)
    sums = product.rows * (each * 32 // machine.vector_bits)
    most = max(24 // sums, 2) if machine.vector_bits == 512 else max(12 // sums, 1)
    loads = min(most, MOST_LOADS, max(product.outputs // (FEWEST_TASKS * each), 1))
    return SkinnyGemmForm(form.rows, form.dtype, form.has_bias, loads)


def columns_plan(product: SkinnyGemm, form: SkinnyGemmForm, machine: Host, is_serial: bool) -> list[int]:
    columns = form.loads * load_elements(form, machine)
    item, tasks = product.dtype.itemsize, -(-product.outputs // columns)
    steps = [item * step for step in (product.x_step, product.weight_step, product.outputs)]
    return [tasks, tasks if is_serial else 1, product.outputs - columns, product.depth, *steps]


def print_columns(form: SkinnyGemmForm, machine: Host) -> str:
    return ColumnsPrinter(form, machine).module()


class ColumnsPrinter(SkinnyGemmCode):
    def __init__(self, form: SkinnyGemmForm, machine: Host):
        super().__init__(form, machine)
        self.halves = 2 if form.dtype == "bf16" else 1
        self.places = [(m, n, h) for m in range(form.rows) for n in range(form.loads) for h in range(self.halves)]

    def module(self) -> str:
        return self.text([self.print_parallel_entry("thin", TABLE, PLAN), self.work_of_tasks(self.prepare, self.task)])

    def prepare(self) -> str:
        self.totals = self.put(f"alloca [{len(self.places)} x {self.vector}], align 64")
        self.numbers = self.put(f"alloca [{self.form.rows * LONGEST_CHAIN} x float], align 64")
        self.load_table(self.pointer("%shared", 1), TABLE, PLAN)
        return self.words["tasks"]

    def task(self, task: str) -> None:
        first = self.least(self.mul(task, self.form.loads * self.each), self.words["last_start"])
        self.far = self.mul(first, self.item)
        self.weight = self.at(self.pointers["weight"], self.far)
        for place in range(len(self.places)):
            self.do(f"store {self.vector} zeroinitializer, ptr {self.total(place)}, align 64")
        self.loop(self.words["depth"], LONGEST_CHAIN, self.block)
        self.finish_columns()

    def block(self, start: str) -> None:
        count = self.least(self.sub(self.words["depth"], start), LONGEST_CHAIN)
        for m in range(self.form.rows):
            row = self.at(self.pointers["x"], self.mul(self.words["x_step"], m))
            self.loop(count, 1, lambda k, m=m, row=row: self.number(m, row, start, k))
        lines = self.at(self.weight, self.mul(start, self.words["weight_step"]))
        zeros = [(self.vector, "zeroinitializer")] * len(self.places)
        sums = self.code.loop("0", count, 1, zeros, lambda k, sums: self.line(lines, k, sums))
        for place, value in enumerate(sums):
            self.add_to(self.total(place), value)

    def number(self, m: int, row: str, start: str, k: str) -> None:
        """One number of x as float32."""
        scalar = register(self.form.dtype)
        at = self.at(row, self.mul(self.add(start, k), self.item))
        value = self.put(f"load {scalar}, ptr {at}, align {self.item}")
        value = LlvmOperations(self.code, self.code.here, 1).cast(value, self.form.dtype, "f32")
        self.do(f"store float {value}, ptr {self.place_of(m, k)}, align 4")

    def place_of(self, m: int, k: str) -> str:
        at = self.add(k, m * LONGEST_CHAIN)
        return self.put(f"getelementptr float, ptr {self.numbers}, i64 {at}")

    def line(self, lines: str, k: str, sums: list[str]) -> list[str]:
        line = self.at(lines, self.mul(k, self.words["weight_step"]))
        ahead = self.at(line, self.mul(self.words["weight_step"], AHEAD_LINES))
        for far in range(0, self.form.loads * self.load_bytes, 64):
            self.fetch(self.at(ahead, far))
        weights = [self.widened(self.loaded(line, n * self.load_bytes)) for n in range(self.form.loads)]
        made = []
        for m in range(self.form.rows):
            number = self.put(f"load float, ptr {self.place_of(m, k)}, align 4")
            number = self.splat(number)
            for part in (part for load in weights for part in load):
                made.append(self.product(part, number, sums[len(made)]))
        return made

    def finish_columns(self) -> None:
        to = self.operations
        for n in range(self.form.loads):
            far = self.add(self.far, n * self.load_bytes)
            bias = self.widened(self.loaded(self.pointers["bias"], far)) if self.form.has_bias else None
            for m in range(self.form.rows):
                place, values = (m * self.form.loads + n) * self.halves, []
                for h in range(self.halves):
                    value = self.put(f"load {self.vector}, ptr {self.total(place + h)}, align 64")
                    if bias is not None:
                        value = self.put(f"fadd {self.vector} {value}, {bias[h]}")
                    values.append(to.cast(value, "f32", self.form.dtype))
                out = self.at(self.pointers["out"], self.add(self.mul(self.words["out_step"], m), far))
                self.do(f"store {self.memory} {self.joined(values)}, ptr {out}, align {self.item}")

    def joined(self, values: list[str]) -> str:
        """The even and the odd ones in turns."""
        if len(values) == 1:
            return values[0]
        half = f"<{self.lanes} x {register(self.form.dtype)}>"
        order = ", ".join(f"i32 {k // 2 + k % 2 * self.lanes}" for k in range(self.each))
        return self.put(f"shufflevector {half} {values[0]}, {half} {values[1]}, <{self.each} x i32> <{order}>")
