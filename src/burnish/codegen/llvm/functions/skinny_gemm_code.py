"""What both printers of skinny GEMMs share: loads of a few numbers, converted to float32, and multiplication.

    form = Form(rows=1, dtype="bf16", has_bias=False)
    code.widened(code.loaded(pointer, far))        [even, odd]: two vectors of float32

bf16 is converted by shifts: of each pair in 32 bits, the upper half is a float32 without its last bits. x is converted
in the same order, so no lanes move. Where the processor multiplies pairs of bf16 and there are too many rows for that
(`PAIRS`), its instruction does. It takes denormal numbers for 0, as the library does that eager calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..llvm_types import memory, register, size
from ..target_cpu import Host
from .function_printer import FunctionPrinter

PAIRS = 4
"""From this many rows on, pairs of bf16 are multiplied by the processor's instruction, where there is one."""

TABLE = ("out", "x", "weight", "bias", "plan")
"""The operands of both functions."""


@dataclass(frozen=True, slots=True)
class SkinnyGemmForm:
    """What a function is compiled for."""

    rows: int
    dtype: str
    has_bias: bool
    loads: int = 0
    """Of columns that are computed together, where those are contiguous. 0 where rows of the weight are."""


def multiplies_pairs(form: SkinnyGemmForm, machine: Host) -> bool:
    return machine.has_bf16_pairs and form.dtype == "bf16" and form.rows >= PAIRS and not form.loads


def load_elements(form: SkinnyGemmForm, machine: Host) -> int:
    """Numbers in one load: a vector of them, or of float16 as many as there are lanes."""
    return machine.vector_bits // 16 if form.dtype == "bf16" else machine.vector_bits // 32


class FewRowsPrinter(FunctionPrinter):
    """A product of a few rows of x. `form` has their number, their dtype, and whether there is a bias."""

    def __init__(self, form: Any, machine: Host):
        super().__init__(machine)
        self.form, self.item = form, size(form.dtype)
        self.first = self.count = self.sums = self.room = ""
        """Of a task: its first output, their number, their sums, and memory for one vector of them."""

    def finish(self, column: str) -> None:
        """The end of a task, for a vector of outputs of each row of x: adds the bias, rounds and stores."""
        kind = memory(self.form.dtype, self.lanes)
        valid = self.least(self.sub(self.count, column), self.lanes)
        bytes = self.mul(valid, self.item)
        far = self.mul(self.add(self.first, column), self.item)
        bias = None
        if self.form.has_bias:
            self.copy_bytes(self.room, self.at(self.pointers["bias"], far), bytes)
            loaded = self.put(f"load {kind}, ptr {self.room}, align 64")
            bias = self.operations.cast(loaded, self.form.dtype, "f32")
        for m in range(self.form.rows):
            place = self.add(self.mul(self.words["task_rows"], m), column)
            value = self.load(self.at(self.sums, self.mul(place, 4)))
            if bias is not None:
                value = self.put(f"fadd {self.vector} {value}, {bias}")
            rounded = self.operations.cast(value, "f32", self.form.dtype)
            self.do(f"store {kind} {rounded}, ptr {self.room}, align 64")
            out = self.at(self.pointers["out"], self.add(self.mul(self.words["out_step"], m), far))
            self.copy_bytes(out, self.room, bytes)


class SkinnyGemmCode(FewRowsPrinter):
    def __init__(self, form: SkinnyGemmForm, machine: Host):
        super().__init__(form, machine)
        self.each = load_elements(form, machine)
        self.load_bytes = self.each * self.item
        self.pairs = multiplies_pairs(form, machine)
        self.memory = f"<{self.each} x {register(form.dtype)}>"
        """The type of one load."""
        self.totals = ""
        """The address of the sums of a task, in memory."""

    def total(self, place: int) -> str:
        """Where the sum of this number is, among those of a task."""
        return self.put(f"getelementptr {self.vector}, ptr {self.totals}, i64 {place}")

    def loaded(self, pointer: str, far: str | int) -> str:
        return self.put(f"load {self.memory}, ptr {self.at(pointer, far)}, align {self.item}")

    def widened(self, value: str) -> list[str]:
        """One load as vectors of float32: one, or of bf16 the even and the odd ones."""
        if self.form.dtype == "f32":
            return [value]
        if self.form.dtype == "f16":
            return [self.put(f"fpext {self.memory} {value} to {self.vector}")]
        if self.pairs:
            return [self.put(f"bitcast {self.memory} {value} to <{self.each} x bfloat>")]
        ints = f"<{self.lanes} x i32>"
        both = self.put(f"bitcast {self.memory} {value} to {ints}")
        even = self.put(f"shl {ints} {both}, splat (i32 16)")
        odd = self.put(f"and {ints} {both}, splat (i32 -65536)")
        return [self.put(f"bitcast {ints} {bits} to {self.vector}") for bits in (even, odd)]

    def product(self, a: str, b: str, total: str) -> str:
        if self.pairs:
            pairs = f"<{2 * self.lanes} x bfloat>"
            args = [(self.vector, total), (pairs, a), (pairs, b)]
            return self.call(self.vector, "llvm.x86.avx512bf16.dpbf16ps.512", *args)
        return self.fma(a, b, total)

    def add_to(self, place: str, value: str) -> None:
        """To a vector of sums in memory."""
        old = self.put(f"load {self.vector}, ptr {place}, align 64")
        new = self.put(f"fadd {self.vector} {old}, {value}")
        self.do(f"store {self.vector} {new}, ptr {place}, align 64")
