"""Products of a few rows and a large weight as native functions, see `own_kernels.thin_product`.

    step = make_thin(product)
    step.table                       out, x, weight, bias and the plan

The weight is read once, in order, at the speed of the memory. A function serves all sizes with one number of rows. This
one is for a weight whose rows are contiguous; `thin_product_columns` is for its transpose.

    work      a thread takes task after task: some rows of the weight
    group     a few rows of the weight at a time: their sums with all rows of x are in registers
    finish    the sums of a task: add the bias, round, store
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel, load
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Step
from ....schedule.library.own_kernels.thin_product import ThinProduct
from ....tensors.dtypes import NAMES
from ..compile_to_machine_code import object_code
from ..compile_to_machine_code import symbols as shared_symbols
from ..llvm_types import register
from ..scalar_operations import Operations
from ..target_machine import Host, host
from .argument_tables import load_pointers, load_words, words
from .matmul import SERIAL
from .thin_product_code import TABLE, Form, ThinCode, load_elements
from .thin_product_columns import columns_form, columns_plan, print_columns

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


def blocking(form: Form, machine: Host) -> Blocking:
    """One row of the weight with one row of x: a single stream is what memory delivers fastest. With more rows of x,
    two rows of the weight share what is loaded of x. Sums stay in registers."""
    if form.rows == 1:
        return Blocking(1, 4)
    is_wide = machine.vector_bits == 512  # then there are 32 registers, else 16
    if form.rows <= (4 if is_wide else 2):
        return Blocking(2, 2)
    return Blocking(2 if is_wide or form.rows <= 5 else 1, 1)


def make_thin(product: ThinProduct) -> Step:
    machine, dtype = host(), NAMES[product.dtype]
    is_serial = product.flops < SERIAL
    if product.is_transposed:
        form = columns_form(product, machine)
        plan = columns_plan(product, form, machine, is_serial)
    else:
        form = Form(product.rows, dtype, product.has_bias)
        plan = rows_plan(product, form, machine, is_serial)
    cycles = max(product.weight_bytes / BYTES_PER_CYCLE, product.flops * 16 / machine.vector_bits)
    kernel = NativeKernel("thin", function(form), len(TABLE), cycles)
    bias = ("bias", 0) if product.has_bias else 0
    return Step(kernel, (("out", 0), ("x", 0), ("weight", 0), bias, words(*plan)))


def rows_plan(product: ThinProduct, form: Form, machine: Host, is_serial: bool) -> list[int]:
    item, lanes, each = product.dtype.itemsize, machine.vector_bits // 32, load_elements(form, machine)
    group = blocking(form, machine).group
    unit = lanes * group if lanes % group else lanes
    task_rows = min(max(TASK_BYTES // (product.depth * item * unit), 1) * unit, MOST_TASK_ROWS // unit * unit)
    tasks = -(-product.outputs // task_rows)
    steps = [item * step for step in (product.x_step, product.weight_step, product.outputs)]
    sizes = [product.outputs, product.depth // each, product.depth % each]
    return [tasks, tasks if is_serial else 1, task_rows, *sizes, *steps]


@once
def function(form: Form) -> NativeFunction:
    return load(object_code(print_thin(form, host()), host()), "thin", shared_symbols())


def print_thin(form: Form, machine: Host) -> str:
    return print_columns(form, machine) if form.loads else ThinPrinter(form, machine).text()


WORK = """
define internal void @work(i64 %begin, i64 %end, ptr %shared) #0 {{
entry:
  %sums = alloca [{sums} x float], align 64
  %totals = alloca [{totals} x <{lanes} x float>], align 64
  %rest.w = alloca [64 x i8], align 64
  %rest.x = alloca [64 x i8], align 64
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
  %first = mul i64 %t, %task_rows
  %left = sub i64 %outputs, %first
  %count = call i64 @llvm.umin.i64(i64 %left, i64 %task_rows)
  %last = sub i64 %count, 1
  %first.far = mul i64 %first, %weight_step
  %weight.task = getelementptr i8, ptr %weight, i64 %first.far
"""

Load = Callable[[int], str]
"""The numbers of one row, by its index."""


class ThinPrinter(ThinCode):
    def __init__(self, form: Form, machine: Host):
        super().__init__(form, machine)
        self.blocking = blocking(form, machine)
        self.places = [(r, m) for r in range(self.blocking.group) for m in range(form.rows)]
        halves = 2 if form.dtype == "bf16" and not self.pairs else 1
        self.loads = max(self.blocking.chains // halves, 1)
        """Loads of each row in one step of the loop."""

    def text(self) -> str:
        self.code.loop("0", "%count", self.blocking.group, [], self.group)
        self.code.loop("0", "%count", self.lanes, [], self.finish)
        work = WORK.format(
            sums=self.form.rows * MOST_TASK_ROWS,
            totals=len(self.places),
            lanes=self.lanes,
            pointers=load_pointers("table", TABLE),
            words=load_words("plan", PLAN),
        )
        return self.module(work)

    # ---- the sums of a few rows of the weight

    def group(self, row: str, _: list[str]) -> list[str]:
        rows = []
        for r in range(self.blocking.group):
            # The last group may have fewer rows: then its last one is computed again.
            at = self.least(self.emit(f"add i64 {row}, {r}"), "%last")
            rows.append(self.moved("%weight.task", self.emit(f"mul i64 {at}, %weight_step")))
        xs = [self.moved("%x", self.emit(f"mul i64 %x_step, {m}")) for m in range(self.form.rows)]
        for place in range(len(self.places)):
            self.put(f"store {self.vector} zeroinitializer, ptr {self.total(place)}, align 64")
        steps = self.emit(f"udiv i64 %full, {self.loads}")
        whole = self.emit(f"mul i64 {steps}, {self.loads}")
        block = LONGEST_CHAIN * self.loads

        def add_block(start: str, _: list[str]) -> list[str]:
            end = self.least(self.emit(f"add i64 {start}, {block}"), whole)
            chains = self.blocking.chains
            zeros = [(self.vector, "zeroinitializer")] * (len(self.places) * chains)
            sums = self.code.loop(start, end, self.loads, zeros, lambda k, sums: self.steps(rows, xs, k, sums))
            for place in range(len(self.places)):
                parts = sums[place * chains : (place + 1) * chains]
                while len(parts) > 1:
                    pairs = zip(parts[::2], parts[1::2], strict=True)
                    parts = [self.emit(f"fadd {self.vector} {a}, {b}") for a, b in pairs]
                self.add_to(self.total(place), parts[0])
            return []

        self.code.loop("0", whole, block, [], add_block, may_be_empty=True)

        def one_load(k: str, sums: list[str]) -> list[str]:
            far = self.far(k)
            return self.multiplied(sums, 1, lambda r: self.loaded(rows[r], far), lambda m: self.loaded(xs[m], far))

        zeros = [(self.vector, "zeroinitializer")] * len(self.places)
        sums = self.code.loop(whole, "%full", 1, zeros, one_load, may_be_empty=True)
        sums = self.with_rest(rows, xs, sums)
        for place, (r, m) in enumerate(self.places):
            self.add_to(self.total(place), sums[place])
            total = self.emit(f"load {self.vector}, ptr {self.total(place)}, align 64")
            reduce = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
            args = ("float", "-0.0"), (self.vector, total)
            value = self.code.call(self.code.here, "float", reduce, *args, flags="reassoc ")
            line = self.emit(f"add i64 {self.emit(f'mul i64 %task_rows, {m}')}, {row}")
            to = self.emit(f"getelementptr float, ptr %sums, i64 {self.emit(f'add i64 {line}, {r}')}")
            self.put(f"store float {value}, ptr {to}, align 4")
        return []

    def total(self, place: int) -> str:
        return self.emit(f"getelementptr {self.vector}, ptr %totals, i64 {place}")

    def far(self, k: str, more: int = 0) -> str:
        return self.emit(f"mul i64 {self.emit(f'add i64 {k}, {more}') if more else k}, {self.load_bytes}")

    def steps(self, rows: list[str], xs: list[str], k: str, sums: list[str]) -> list[str]:
        """Some loads of each row. Each load has its own sums."""
        chains, each, made = self.blocking.chains, self.blocking.chains // self.loads, list(sums)
        for n in range(self.loads):
            far = self.far(k, n)
            if self.load_bytes >= 64 or n % (64 // self.load_bytes) == 0:
                ahead = self.emit(f"add i64 {far}, {AHEAD_BYTES}")
                for row in rows:
                    self.fetch(row, ahead)
            places = [place * chains + n * each + c for place in range(len(self.places)) for c in range(each)]
            loads: list[Load] = [lambda r, far=far, some=some: self.loaded(some[r], far) for some in (rows, xs)]
            found = self.multiplied([made[at] for at in places], each, *loads)
            for at, value in zip(places, found, strict=True):
                made[at] = value
        return made

    def with_rest(self, rows: list[str], xs: list[str], sums: list[str]) -> list[str]:
        """The sums with the numbers behind the last whole load, if there are any."""
        scope = self.code.here
        name, before = self.code.name()[1:], scope.label
        some = self.emit("icmp ne i64 %rest, 0")
        self.put(f"br i1 {some}, label %some.{name}, label %all.{name}")
        scope.begin(f"some.{name}")
        far = self.far("%full")
        made = self.multiplied(
            sums,
            1,
            lambda r: self.partly(self.moved(rows[r], far), "%rest.w"),
            lambda m: self.partly(self.moved(xs[m], far), "%rest.x"),
        )
        self.put(f"br label %all.{name}")
        scope.begin(f"all.{name}")
        return [
            self.emit(f"phi {self.vector} [{old}, %{before}], [{new}, %some.{name}]")
            for old, new in zip(sums, made, strict=True)
        ]

    def partly(self, pointer: str, room: str) -> str:
        """The last numbers of a row, and zeros."""
        self.put(f"store <64 x i8> zeroinitializer, ptr {room}, align 64")
        self.copy(room, pointer, self.emit(f"mul i64 %rest, {self.item}"))
        return self.emit(f"load {self.memory}, ptr {room}, align 64")

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

    # ---- the end of a task

    def finish(self, column: str, _: list[str]) -> list[str]:
        """A vector of outputs of each row of x."""
        valid = self.least(self.emit(f"sub i64 %count, {column}"), self.lanes)
        bytes = self.emit(f"mul i64 {valid}, {self.item}")
        far = self.emit(f"mul i64 {self.emit(f'add i64 %first, {column}')}, {self.item}")
        memory = f"<{self.lanes} x {register(self.form.dtype)}>"
        to = Operations(self.code, self.code.here, self.lanes)
        bias = None
        if self.form.has_bias:
            self.copy("%rest.x", self.moved("%bias", far), bytes)
            bias = to.cast(self.emit(f"load {memory}, ptr %rest.x, align 64"), self.form.dtype, "f32")
        for m in range(self.form.rows):
            line = self.emit(f"add i64 {self.emit(f'mul i64 %task_rows, {m}')}, {column}")
            place = self.emit(f"getelementptr float, ptr %sums, i64 {line}")
            value = self.emit(f"load {self.vector}, ptr {place}, align 4")
            if bias is not None:
                value = self.emit(f"fadd {self.vector} {value}, {bias}")
            self.put(f"store {memory} {to.cast(value, 'f32', self.form.dtype)}, ptr %rest.w, align 64")
            out = self.moved("%out", self.emit(f"add i64 {self.emit(f'mul i64 %out_step, {m}')}, {far}"))
            self.copy(out, "%rest.w", bytes)
        return []
