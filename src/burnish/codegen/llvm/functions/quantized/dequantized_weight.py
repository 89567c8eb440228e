"""Native function that dequantizes an integer weight, so that the library multiplies many rows by it.

step = make_dequantized(product)
step.table                       out, weight, scales, shifts and the plan, in the places of `quantized_product`
"""

from __future__ import annotations

from dataclasses import replace

from .....concurrency.first_value_cache import once
from .....runtime.program.native_kernels import NativeFunction, NativeKernel
from .....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from .....schedule.library.own_kernels.quantized_product import QuantizedProduct
from ...compile_to_machine_code import compile_function
from ...llvm_types import memory, register
from ...target_cpu import Host, host
from ..function_printer import words
from ..skinny_gemm import BYTES_PER_CYCLE
from .quantized_product_code import PLAN, TABLE, QuantizedPrinter, QuantizedProductForm, form_of, plan_of


def make_dequantized(product: QuantizedProduct) -> NativeCall:
    machine, form = host(), replace(form_of(product), rows=0, has_bias=False)
    plan = plan_of(replace(product, rows=0), form, machine)
    plan[PLAN.index("out_step")] = product.dtype.itemsize * product.depth
    plan[PLAN.index("grain")] = 1
    written = product.outputs * product.depth * product.dtype.itemsize
    kernel = NativeKernel("dequantized", function(form), len(TABLE), (product.weight_bytes + written) / BYTES_PER_CYCLE)
    has = {"out": True, "weight": True, "scales": form.scales, "shifts": form.shifts}
    spots = [(name, 0) if has.get(name) else 0 for name in TABLE[:-1]]
    return NativeCall(kernel, (*spots, words(*plan)))


@once
def function(form: QuantizedProductForm) -> NativeFunction:
    return compile_function(DequantizedPrinter(form, host()).module(), "quantized")


class DequantizedPrinter(QuantizedPrinter):
    """A thread takes some rows of the weight at a time."""

    def __init__(self, form: QuantizedProductForm, machine: Host):
        super().__init__(form, machine)
        self.has_raw_halves = False

    def task(self, task: str) -> None:
        self.first = self.mul(task, self.words["task_rows"])
        left = self.sub(self.words["outputs"], self.first)
        self.room = self.put(f"alloca [{self.unit * self.item} x i8], align 64")
        self.loop(self.least(left, self.words["task_rows"]), 1, self.one_row)

    def one_row(self, row: str) -> None:
        number = self.add(self.first, row)
        names = ("weight", "scales", "shifts", "out")
        weight, scales, shifts, out = (
            self.at(self.pointers[name], self.mul(number, self.words[f"{name}_step"])) for name in names
        )

        def factors(group: str) -> list[str | None]:
            kinds = ((scales, self.form.scales), (shifts, self.form.shifts))
            return [dtype and self.splat(self.number(base, group, dtype)) for base, dtype in kinds]

        def block(b: str) -> None:
            found = factors(b)
            first = self.mul(b, self.block_units)
            self.loop(self.add(first, self.block_units), 1, lambda u: self.one_unit(weight, out, u, found), first)

        if self.form.group:
            self.loop(self.words["blocks"], 1, block)
            return
        found = factors("0")
        units, rest = self.words["units"], self.words["rest"]
        self.loop(units, 1, lambda u: self.one_unit(weight, out, u, found))

        def partly(_: str) -> None:
            bytes = rest if self.form.bits == 8 else self.put(f"lshr i64 {rest}, 1")
            self.copy_bytes(self.last, self.at(weight, self.mul(units, self.unit_bytes)), bytes)
            self.convert(self.last, self.room, found)
            self.copy_bytes(self.at(out, self.mul(units, self.unit * self.item)), self.room, self.mul(rest, self.item))

        self.loop(rest, self.unit, partly)

    def one_unit(self, weight: str, out: str, u: str, factors: list[str | None]) -> None:
        to = self.at(out, self.mul(u, self.unit * self.item))
        self.convert(self.at(weight, self.mul(u, self.unit_bytes)), to, factors)

    def convert(self, weight: str, out: str, factors: list[str | None]) -> None:
        scale, shift = factors
        halves = []
        for value in self.numbers(weight):
            if shift is not None:
                value = self.fma(value, scale or "splat (float 1.0)", shift)
            elif scale is not None:
                value = self.put(f"fmul {self.vector} {value}, {scale}")
            halves.append(self.operations.cast(value, "f32", self.form.dtype))
        half = f"<{self.lanes} x {register(self.form.dtype)}>"
        places = range(self.unit)
        if self.form.bits == 4:
            places = [k // 2 + k % 2 * self.lanes for k in places]
        order = ", ".join(f"i32 {place}" for place in places)
        whole = self.put(f"shufflevector {half} {halves[0]}, {half} {halves[1]}, <{self.unit} x i32> <{order}>")
        self.do(f"store {memory(self.form.dtype, self.unit)} {whole}, ptr {out}, align {self.item}")
