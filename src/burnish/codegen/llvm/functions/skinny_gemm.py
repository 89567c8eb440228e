"""Native functions that multiply a few rows by a large weight, see `own_kernels.skinny_gemm`.

    step = make_skinny_gemm(product)
    step.table                       out, x, weight, bias and the plan

The weight is read once, in order, at the speed of the memory. A function serves all sizes with one number of rows. This
one is for a weight whose rows are contiguous; `skinny_gemm_column_major` is for its transpose.

    work      a thread takes task after task: some rows of the weight
    group     a few rows of the weight at a time: their sums with all rows of x are in registers
    finish    the sums of a task: add the bias, round, store
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....concurrency.first_value_cache import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ....schedule.library.own_kernels.skinny_gemm import SkinnyGemm
from ....tensors.dtypes import NAMES
from ..compile_to_machine_code import compile_function
from ..target_cpu import Host, host
from .function_printer import words
from .matmul import SERIAL
from .skinny_gemm_code import TABLE, SkinnyGemmCode, SkinnyGemmForm, load_elements
from .skinny_gemm_column_major import columns_form, columns_plan, print_columns

BYTES_PER_CYCLE = 6
"""What a core reads from memory."""

TASK_BYTES = 64 << 10
"""The part of a weight that a thread takes at a time."""

MOST_TASK_ROWS = 512
"""The sums of a task are on the stack."""

LONGEST_CHAIN = 128
"""Most products that are added up in one lane before the sum goes to memory: a longer chain would round more."""

AHEAD_BYTES = 8192
"""How far ahead the weight is fetched into a core's second cache. Rows that are adjacent in memory are one stream."""

PLAN = ("tasks", "grain", "task_rows", "outputs", "full", "rest", "x_step", "weight_step", "out_step")
"""`full` whole loads of a row and `rest` numbers behind them. Steps are in bytes."""


@dataclass(frozen=True, slots=True)
class Blocking:
    group: int
    """Rows of the weight that are multiplied together."""
    chains: int
    """Sums of each pair of rows, which do not wait for each other."""


def blocking(form: SkinnyGemmForm, machine: Host) -> Blocking:
    """One row of the weight with one row of x: a single stream is what memory delivers fastest. With more rows of x,
    two rows of the weight share the loaded part of x. Sums stay in registers."""
    if form.rows == 1:
        return Blocking(1, 4)
    is_wide = machine.vector_bits == 512  # then there are 32 registers, else 16
    if form.rows <= (4 if is_wide else 2):
        return Blocking(2, 2)
    return Blocking(2 if is_wide or form.rows <= 5 else 1, 1)


def make_skinny_gemm(product: SkinnyGemm) -> NativeCall:
    machine, dtype = host(), NAMES[product.dtype]
    is_serial = product.flops < SERIAL
    if product.is_transposed:
        form = columns_form(product, machine)
        plan = columns_plan(product, form, machine, is_serial)
    else:
        form = SkinnyGemmForm(product.rows, dtype, product.has_bias)
        plan = rows_plan(product, form, machine, is_serial)
    cycles = max(product.weight_bytes / BYTES_PER_CYCLE, product.flops * 16 / machine.vector_bits)
    kernel = NativeKernel("thin", function(form), len(TABLE), cycles)
    bias = ("bias", 0) if product.has_bias else 0
    return NativeCall(kernel, (("out", 0), ("x", 0), ("weight", 0), bias, words(*plan)))


def rows_plan(product: SkinnyGemm, form: SkinnyGemmForm, machine: Host, is_serial: bool) -> list[int]:
    item, lanes, each = product.dtype.itemsize, machine.vector_bits // 32, load_elements(form, machine)
    group = blocking(form, machine).group
    unit = lanes * group if lanes % group else lanes
    task_rows = min(max(TASK_BYTES // (product.depth * item * unit), 1) * unit, MOST_TASK_ROWS // unit * unit)
    tasks = -(-product.outputs // task_rows)
    steps = [item * step for step in (product.x_step, product.weight_step, product.outputs)]
    sizes = [product.outputs, product.depth // each, product.depth % each]
    return [tasks, tasks if is_serial else 1, task_rows, *sizes, *steps]


@once
def function(form: SkinnyGemmForm) -> NativeFunction:
    return compile_function(print_skinny_gemm(form, host()), "thin")


def print_skinny_gemm(form: SkinnyGemmForm, machine: Host) -> str:
    return print_columns(form, machine) if form.loads else SkinnyGemmPrinter(form, machine).module()


Load = Callable[[int], str]
"""The numbers of one row, by its index."""


class SkinnyGemmPrinter(SkinnyGemmCode):
    def __init__(self, form: SkinnyGemmForm, machine: Host):
        super().__init__(form, machine)
        self.blocking = blocking(form, machine)
        self.places = [(r, m) for r in range(self.blocking.group) for m in range(form.rows)]
        halves = 2 if form.dtype == "bf16" and not self.pairs else 1
        self.loads = max(self.blocking.chains // halves, 1)
        """Loads of each row in one step of the loop."""

    def module(self) -> str:
        return self.text([self.print_parallel_entry("thin", TABLE, PLAN), self.work_of_tasks(self.prepare, self.task)])

    def prepare(self) -> str:
        self.sums = self.put(f"alloca [{self.form.rows * MOST_TASK_ROWS} x float], align 64")
        self.totals = self.put(f"alloca [{len(self.places)} x {self.vector}], align 64")
        self.rest_of_weight, self.rest_of_x = (self.put("alloca [64 x i8], align 64") for _ in range(2))
        self.room = self.rest_of_x
        self.load_table(self.pointer("%shared", 1), TABLE, PLAN)
        return self.words["tasks"]

    def task(self, task: str) -> None:
        self.first = self.mul(task, self.words["task_rows"])
        self.count = self.least(self.sub(self.words["outputs"], self.first), self.words["task_rows"])
        self.last = self.sub(self.count, 1)
        self.weight = self.at(self.pointers["weight"], self.mul(self.first, self.words["weight_step"]))
        self.loop(self.count, self.blocking.group, self.group)
        self.loop(self.count, self.lanes, self.finish)

    # ---- the sums of a few rows of the weight

    def group(self, row: str) -> None:
        rows = []
        for r in range(self.blocking.group):
            # The last group may have fewer rows: then its last one is computed again.
            at = self.least(self.add(row, r), self.last)
            rows.append(self.at(self.weight, self.mul(at, self.words["weight_step"])))
        xs = [self.at(self.pointers["x"], self.mul(self.words["x_step"], m)) for m in range(self.form.rows)]
        for place in range(len(self.places)):
            self.do(f"store {self.vector} zeroinitializer, ptr {self.total(place)}, align 64")
        full = self.words["full"]
        steps = self.put(f"udiv i64 {full}, {self.loads}")
        whole = self.mul(steps, self.loads)
        block = LONGEST_CHAIN * self.loads

        def add_block(start: str) -> None:
            end = self.least(self.add(start, block), whole)
            chains = self.blocking.chains
            zeros = [(self.vector, "zeroinitializer")] * (len(self.places) * chains)
            sums = self.code.loop(start, end, self.loads, zeros, lambda k, sums: self.steps(rows, xs, k, sums))
            for place in range(len(self.places)):
                parts = sums[place * chains : (place + 1) * chains]
                while len(parts) > 1:
                    pairs = zip(parts[::2], parts[1::2], strict=True)
                    parts = [self.put(f"fadd {self.vector} {a}, {b}") for a, b in pairs]
                self.add_to(self.total(place), parts[0])

        self.loop(whole, block, add_block)

        def one_load(k: str, sums: list[str]) -> list[str]:
            far = self.far(k)
            return self.multiplied(sums, 1, lambda r: self.loaded(rows[r], far), lambda m: self.loaded(xs[m], far))

        zeros = [(self.vector, "zeroinitializer")] * len(self.places)
        sums = self.code.loop(whole, full, 1, zeros, one_load, may_be_empty=True)
        sums = self.with_rest(rows, xs, sums)
        for place, (r, m) in enumerate(self.places):
            self.add_to(self.total(place), sums[place])
            value = self.sum_of_lanes(self.put(f"load {self.vector}, ptr {self.total(place)}, align 64"))
            line = self.add(self.mul(self.words["task_rows"], m), row)
            to = self.put(f"getelementptr float, ptr {self.sums}, i64 {self.add(line, r)}")
            self.do(f"store float {value}, ptr {to}, align 4")

    def far(self, k: str, more: int = 0) -> str:
        return self.mul(self.add(k, more) if more else k, self.load_bytes)

    def steps(self, rows: list[str], xs: list[str], k: str, sums: list[str]) -> list[str]:
        """Some loads of each row. Each load has its own sums."""
        chains, each, made = self.blocking.chains, self.blocking.chains // self.loads, list(sums)
        for n in range(self.loads):
            far = self.far(k, n)
            if self.load_bytes >= 64 or n % (64 // self.load_bytes) == 0:
                ahead = self.add(far, AHEAD_BYTES)
                for row in rows:
                    self.fetch(self.at(row, ahead))
            places = [place * chains + n * each + c for place in range(len(self.places)) for c in range(each)]
            loads: list[Load] = [lambda r, far=far, some=some: self.loaded(some[r], far) for some in (rows, xs)]
            found = self.multiplied([made[at] for at in places], each, *loads)
            for at, value in zip(places, found, strict=True):
                made[at] = value
        return made

    def with_rest(self, rows: list[str], xs: list[str], sums: list[str]) -> list[str]:
        """The sums with the numbers behind the last whole load, if there are any."""
        some = self.put(f"icmp ne i64 {self.words['rest']}, 0")
        far = self.words["full"]

        def with_rest() -> list[str]:
            at = self.far(far)
            return self.multiplied(
                sums,
                1,
                lambda r: self.partly(self.at(rows[r], at), self.rest_of_weight),
                lambda m: self.partly(self.at(xs[m], at), self.rest_of_x),
            )

        return self.when(some, [(self.vector, old) for old in sums], with_rest)

    def partly(self, pointer: str, room: str) -> str:
        """The last numbers of a row, and zeros."""
        self.do(f"store <64 x i8> zeroinitializer, ptr {room}, align 64")
        self.copy_bytes(room, pointer, self.mul(self.words["rest"], self.item))
        return self.put(f"load {self.memory}, ptr {room}, align 64")

    def multiplied(self, sums: list[str], chains: int, weight: Load, x: Load) -> list[str]:
        """Adds the products of one load of each row to `chains` sums of each pair of rows."""
        weights = [self.widened(weight(r)) for r in range(self.blocking.group)]
        made = list(sums)
        for m in range(self.form.rows):
            numbers = self.widened(x(m))
            for r in range(self.blocking.group):
                place = (r * self.form.rows + m) * chains
                for n, (a, b) in enumerate(zip(weights[r], numbers, strict=True)):
                    at = place + n % chains
                    made[at] = self.product(a, b, made[at])
        return made
