"""What the two printers of thin products share: loads of a few numbers, converted to float32, and multiplication.

    form = Form(rows=1, dtype="bf16", has_bias=False)
    code.widened(code.loaded(pointer, far))        [even, odd]: two vectors of float32

bf16 is converted by shifts: of each pair in 32 bits, the upper half is a float32 without its last bits. x is converted
in the same order, so no lanes move. Where the processor multiplies pairs of bf16 and there are too many rows for that
(`PAIRS`), its instruction does. It takes denormal numbers for 0, as the library does that eager calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..llvm_types import register, size
from ..loop_invariant_scopes import Code
from ..target_machine import Host

PAIRS = 4
"""From this many rows on, pairs of bf16 are multiplied by the processor's instruction, where there is one."""

TABLE = ("out", "x", "weight", "bias", "plan")
"""The operands of both functions."""

ENTRY = """
define void @thin(ptr %table) #0 {{
  %plan.at = getelementptr ptr, ptr %table, i64 {plan}
  %plan = load ptr, ptr %plan.at
  %tasks = load i64, ptr %plan
  %grain.at = getelementptr i64, ptr %plan, i64 1
  %grain = load i64, ptr %grain.at
  %shared = alloca [2 x i64]
  store i64 0, ptr %shared
  %table.at = getelementptr i64, ptr %shared, i64 1
  store ptr %table, ptr %table.at
  %r = call i32 @torch_parallel_for(i64 0, i64 %tasks, i64 %grain, ptr @work, ptr %shared)
  ret void
}}
"""
"""The plan begins with the number of tasks and the grain. Threads take tasks from a shared counter."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a function is compiled for."""

    rows: int
    dtype: str
    has_bias: bool
    loads: int = 0
    """Of columns that are computed together, where those are contiguous. 0 where rows of the weight are."""


def multiplies_pairs(form: Form, machine: Host) -> bool:
    has_instruction = machine.vector_bits == 512 and "+avx512bf16" in machine.features.split(",")
    return has_instruction and form.dtype == "bf16" and form.rows >= PAIRS and not form.loads


def load_elements(form: Form, machine: Host) -> int:
    """Numbers in one load: a vector of them, or of float16 as many as there are lanes."""
    return machine.vector_bits // 16 if form.dtype == "bf16" else machine.vector_bits // 32


class ThinCode:
    def __init__(self, form: Form, machine: Host):
        self.form, self.machine = form, machine
        self.lanes = machine.vector_bits // 32
        self.vector = f"<{self.lanes} x float>"
        self.item = size(form.dtype)
        self.each = load_elements(form, machine)
        self.load_bytes = self.each * self.item
        self.pairs = multiplies_pairs(form, machine)
        self.memory = f"<{self.each} x {register(form.dtype)}>"
        """The type of one load."""
        self.code = Code(machine.has_scaling)
        self.code.here.label = "task"
        self.code.declarations |= {
            "declare i32 @torch_parallel_for(i64, i64, i64, ptr, ptr)",
            "declare i64 @llvm.umin.i64(i64, i64)",
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        }

    def module(self, work: str) -> str:
        """`work`: the begin of the function that a thread runs, up to the block of a task."""
        return "\n".join(
            [
                f'target triple = "{self.machine.triple}"',
                *sorted(self.code.declarations),
                ENTRY.format(plan=TABLE.index("plan")),
                work.strip(),
                *self.code.here.lines,
                "  br label %next",
                "}",
                f"attributes #0 = {{ nounwind {self.machine.attributes} }}",
                "",
            ]
        )

    def emit(self, instruction: str) -> str:
        return self.code.emit(self.code.here, instruction)

    def put(self, line: str) -> None:
        self.code.here.put(line)

    def moved(self, pointer: str, far: str | int) -> str:
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {far}")

    def least(self, a: str, b: str | int) -> str:
        return self.code.call(self.code.here, "i64", "llvm.umin.i64", ("i64", a), ("i64", str(b)))

    def copy(self, to: str, source: str, bytes: str) -> None:
        self.put(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {bytes}, i1 false)")

    def fetch(self, pointer: str, far: str) -> None:
        """Into a core's second cache."""
        self.put(f"call void @llvm.prefetch.p0(ptr {self.moved(pointer, far)}, i32 0, i32 2, i32 1)")

    def loaded(self, pointer: str, far: str | int) -> str:
        return self.emit(f"load {self.memory}, ptr {self.moved(pointer, far)}, align {self.item}")

    def widened(self, value: str) -> list[str]:
        """One load as vectors of float32: one, or of bf16 the even and the odd ones."""
        if self.form.dtype == "f32":
            return [value]
        if self.form.dtype == "f16":
            return [self.emit(f"fpext {self.memory} {value} to {self.vector}")]
        if self.pairs:
            return [self.emit(f"bitcast {self.memory} {value} to <{self.each} x bfloat>")]
        ints = f"<{self.lanes} x i32>"
        both = self.emit(f"bitcast {self.memory} {value} to {ints}")
        even = self.emit(f"shl {ints} {both}, splat (i32 16)")
        odd = self.emit(f"and {ints} {both}, splat (i32 -65536)")
        return [self.emit(f"bitcast {ints} {bits} to {self.vector}") for bits in (even, odd)]

    def product(self, a: str, b: str, total: str) -> str:
        if self.pairs:
            pairs = f"<{2 * self.lanes} x bfloat>"
            args = [(self.vector, total), (pairs, a), (pairs, b)]
            return self.code.call(self.code.here, self.vector, "llvm.x86.avx512bf16.dpbf16ps.512", *args)
        args = [(self.vector, v) for v in (a, b, total)]
        return self.code.call(self.code.here, self.vector, f"llvm.fma.v{self.lanes}f32", *args)

    def add_to(self, place: str, value: str) -> None:
        """To a vector of sums in memory."""
        old = self.emit(f"load {self.vector}, ptr {place}, align 64")
        new = self.emit(f"fadd {self.vector} {old}, {value}")
        self.put(f"store {self.vector} {new}, ptr {place}, align 64")
