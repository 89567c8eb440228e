"""Products of a few rows and a weight, both of int8, as native functions: sums of int32, as `_int_mm` makes them.

    step = make_integers(product)
    step.table                       out, x, weight and the plan, in the places of `quantized_product`

Where the processor has it, one instruction multiplies four pairs of bytes. One of a pair is unsigned: the weight plus
128. The sum of x times 128 is subtracted in the end. Elsewhere bytes are widened to 16 bits and multiplied two by two,
with the sums of pairs in 32 bits.
"""

from __future__ import annotations

from dataclasses import replace

from .....concurrency.first_value_cache import once
from .....runtime.program.native_kernels import NativeFunction, NativeKernel
from .....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from .....schedule.library.own_kernels.quantized_product import QuantizedProduct
from ...compile_to_machine_code import compile_function
from ...target_cpu import Host, host
from ..function_printer import words
from ..skinny_gemm import BYTES_PER_CYCLE
from .quantized_product_code import PLAN, TABLE, QuantizedPrinter, QuantizedProductForm, form_of, plan_of

FOUR_PAIRS = {512: "llvm.x86.avx512.vpdpbusd.512", 256: "llvm.x86.avx512.vpdpbusd.256"}
TWO_PAIRS = {512: "llvm.x86.avx512.pmaddw.d.512", 256: "llvm.x86.avx2.pmadd.wd"}
"""By the bits of a vector."""


def multiplies_bytes(machine: Host) -> bool:
    features = machine.features.split(",")
    return "+avx512vnni" in features if machine.vector_bits == 512 else "+avxvnni" in features


def make_integers(product: QuantizedProduct) -> NativeCall:
    machine, form = host(), replace(form_of(product), dtype="i8", scales=None, shifts=None, has_bias=False)
    plan = plan_of(product, form, machine)
    unit = machine.vector_bits // 8
    units, rest = divmod(product.depth, unit)
    room = unit * (units + (rest > 0)) + unit
    changed = {"units": units, "rest": rest, "room_step": room, "room_bytes": room * product.rows}
    changed |= {"sums_at": room - unit, "out_step": 4 * product.outputs}
    for name, number in changed.items():
        plan[PLAN.index(name)] = number
    cycles = max(product.weight_bytes / BYTES_PER_CYCLE, product.flops * 4 / machine.vector_bits)
    kernel = NativeKernel("integers", function(form), len(TABLE), cycles)
    spots = [(name, 0) if name in ("out", "x", "weight") else 0 for name in TABLE[:-1]]
    return NativeCall(kernel, (*spots, words(*plan)))


@once
def function(form: QuantizedProductForm) -> NativeFunction:
    return compile_function(print_integers(form, host()), "quantized")


def print_integers(form: QuantizedProductForm, machine: Host) -> str:
    return IntegerPrinter(form, machine).module()


class IntegerPrinter(QuantizedPrinter):
    """A unit is a vector of bytes."""

    def __init__(self, form: QuantizedProductForm, machine: Host):
        super().__init__(form, machine)
        self.unit = self.bytes
        self.whole, self.ints = f"<{self.unit} x i8>", f"<{self.lanes} x i32>"
        is_x86 = machine.triple.startswith("x86_64")
        self.four_pairs = FOUR_PAIRS.get(machine.vector_bits) if is_x86 and multiplies_bytes(machine) else None
        self.two_pairs = TWO_PAIRS.get(machine.vector_bits) if is_x86 else None

    # ---- the rows of x: a copy with zeros behind it, and their sums

    def convert_row(self, x: str, room: str, last: str) -> None:
        units, rest = self.words["units"], self.words["rest"]

        def one(u: str, sums: list[str]) -> list[str]:
            far = self.mul(u, self.unit)
            value = self.put(f"load {self.whole}, ptr {self.at(x, far)}, align 1")
            self.do(f"store {self.whole} {value}, ptr {self.at(room, far)}, align 1")
            return self.summed(value, sums)

        def partly(_: str, sums: list[str]) -> list[str]:
            end = self.mul(units, self.unit)
            to = self.at(room, end)
            self.do(f"store {self.whole} zeroinitializer, ptr {to}, align 1")
            self.copy_bytes(to, self.at(x, end), rest)
            return self.summed(self.put(f"load {self.whole}, ptr {to}, align 1"), sums)

        sums = self.code.loop("0", units, 1, [("i32", "0")], one, may_be_empty=True)
        (sum,) = self.code.loop("0", rest, self.unit, [("i32", sums[0])], partly, may_be_empty=True)
        if self.four_pairs is not None:
            self.do(
                f"store i32 {self.put(f'mul i32 {sum}, -128')}, ptr {self.at(room, self.words['sums_at'])}, align 4"
            )

    def summed(self, value: str, sums: list[str]) -> list[str]:
        wide = f"<{self.unit} x i32>"
        return [
            self.put(f"add i32 {sums[0]}, {self.sum_of(self.put(f'sext {self.whole} {value} to {wide}'), self.unit)}")
        ]

    def sum_of(self, value: str, count: int) -> str:
        reduce = f"llvm.vector.reduce.add.v{count}i32"
        return self.call("i32", reduce, (f"<{count} x i32>", value))

    # ---- the rows of the weight

    def task(self, task: str) -> None:
        self.first = self.mul(task, self.words["task_rows"])
        left = self.sub(self.words["outputs"], self.first)
        self.count = self.least(left, self.words["task_rows"])
        self.end = self.sub(self.count, 1)
        self.loop(self.count, self.together, self.rows)

    def rows(self, row: str) -> None:
        numbers = [self.add(self.first, self.least(self.add(row, r), self.end)) for r in range(self.together)]
        weights = [self.at(self.pointers["weight"], self.mul(n, self.words["weight_step"])) for n in numbers]
        units, rest = self.words["units"], self.words["rest"]

        def one(u: str, sums: list[str]) -> list[str]:
            far = self.mul(u, self.unit)
            return self.added([self.at(weight, far) for weight in weights], far, sums)

        def partly(_: str, sums: list[str]) -> list[str]:
            far, copies = self.mul(units, self.unit), []
            for r, weight in enumerate(weights):
                copies.append(self.at(self.last, self.unit * r))
                self.do(f"store {self.whole} zeroinitializer, ptr {copies[r]}, align 1")
                self.copy_bytes(copies[r], self.at(weight, far), rest)
            return self.added(copies, far, sums)

        zeros = [(self.ints, "zeroinitializer")] * len(self.places)
        sums = self.code.loop("0", units, 1, zeros, one, may_be_empty=True)
        sums = self.code.loop("0", rest, self.unit, [(self.ints, sum) for sum in sums], partly, may_be_empty=True)
        for (r, m), sum in zip(self.places, sums, strict=True):
            value = self.sum_of(sum, self.lanes)
            if self.four_pairs is not None:
                less = self.put(f"load i32, ptr {self.at(self.rooms[m], self.words['sums_at'])}, align 4")
                value = self.put(f"add i32 {value}, {less}")
            far = self.add(self.mul(self.words["out_step"], m), self.mul(numbers[r], 4))
            self.do(f"store i32 {value}, ptr {self.at(self.pointers['out'], far)}, align 4")

    def added(self, weights: list[str], far: str, sums: list[str]) -> list[str]:
        """The sums with the products of a unit of each row."""
        numbers = [self.put(f"load {self.whole}, ptr {weight}, align 1") for weight in weights]
        xs = [self.put(f"load {self.whole}, ptr {self.at(room, far)}, align 1") for room in self.rooms]
        if self.four_pairs is not None:
            numbers = [self.put(f"xor {self.whole} {number}, splat (i8 -128)") for number in numbers]
            numbers, xs = (
                [self.put(f"bitcast {self.whole} {value} to {self.ints}") for value in values]
                for values in (numbers, xs)
            )
            return [
                self.call(self.ints, self.four_pairs, *((self.ints, value) for value in (sums[n], numbers[r], xs[m])))
                for n, (r, m) in enumerate(self.places)
            ]
        parts_of_x = [self.widened_parts(x) for x in xs]
        made = list(sums)
        for r, number in enumerate(numbers):
            for part, wide in enumerate(self.widened_parts(number)):
                for n in (n for n, place in enumerate(self.places) if place[0] == r):
                    product = self.product(wide, parts_of_x[self.places[n][1]][part])
                    made[n] = self.put(f"add {self.ints} {made[n]}, {product}")
        return made

    def widened_parts(self, value: str) -> list[str]:
        """The bytes of a unit in vectors of 16 bits, or of 32 where pairs are not multiplied at once."""
        count, bits = (2 * self.lanes, 16) if self.two_pairs else (self.lanes, 32)
        made = []
        for start in range(0, self.unit, count):
            order = ", ".join(f"i32 {start + k}" for k in range(count))
            mask = f"<{count} x i32> <{order}>"
            part = self.put(f"shufflevector {self.whole} {value}, {self.whole} poison, {mask}")
            made.append(self.put(f"sext <{count} x i8> {part} to <{count} x i{bits}>"))
        return made

    def product(self, a: str, b: str) -> str:
        if self.two_pairs is None:
            return self.put(f"mul {self.ints} {a}, {b}")
        pairs = f"<{2 * self.lanes} x i16>"
        return self.call(self.ints, self.two_pairs, (pairs, a), (pairs, b))
