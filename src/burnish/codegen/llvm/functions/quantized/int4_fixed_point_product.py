"""Products of a few rows in half precision and a weight of 4 bits, by the instruction that multiplies bytes.

The numbers of x become integers of 23 bits, with one power of two for each chunk of 128. That rounds less than half
precision does. Each is three bytes:

    x[k] = (65536 * high + 256 * middle + low) * power

A chunk of the weight is one vector: its low halves are multiplied with the bytes of the even x, its high halves with
those of the odd x, four at a time. That is a third of the instructions which floats take. Its sums are exact. They
become floats once for each chunk.
"""

from __future__ import annotations

from .....concurrency.first_value_cache import once
from .....runtime.program.native_kernels import NativeFunction
from .....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from .....schedule.library.own_kernels.quantized_product import QuantizedProduct
from .....tensors.dtypes import HALVES
from ...compile_to_machine_code import compile_function
from ...target_cpu import Host, host
from . import quantized_product_code
from .integer_product import FOUR_PAIRS, multiplies_bytes
from .quantized_product_code import PLAN, QuantizedPrinter, QuantizedProductForm, form_of, plan_of, step_of

CHUNK = 128
"""Numbers in one vector of 512 bits."""

PLANES, CHUNK_BYTES = 3, 3 * CHUNK
BLOCK_CHUNKS = 2
"""Of a row that has one scale."""

LEAST_EXPONENT = -104
"""Smaller numbers have fewer bits: the power of two and its inverse are normal floats."""


def why_not_fixed_point(product: QuantizedProduct, machine: Host) -> str | None:
    if machine.vector_bits != 512 or not multiplies_bytes(machine):
        return "the processor does not multiply bytes"
    if product.bits != 4 or product.dtype not in HALVES:
        return "x or the weight has more bits"
    return "groups are no whole chunks" if product.group % CHUNK else None


def make_quantized(product: QuantizedProduct) -> NativeCall:
    machine = host()
    if why_not_fixed_point(product, machine) is not None:
        return quantized_product_code.make_quantized(product)
    form = form_of(product)
    chunks = product.depth // CHUNK
    changed = {"units": chunks, "rest": 0, "blocks": product.groups if form.group else chunks // BLOCK_CHUNKS}
    changed["sums_at"] = CHUNK_BYTES * chunks + 64 * -(-chunks // 16)
    plan = plan_of(product, form, machine)
    changed["room_step"] = changed["sums_at"] + 2 * plan[PLAN.index("sums_step")]
    changed["room_bytes"] = product.rows * changed["room_step"]
    for name, number in changed.items():
        plan[PLAN.index(name)] = number
    return step_of(product, form, function(form), plan)


@once
def function(form: QuantizedProductForm) -> NativeFunction:
    return compile_function(FixedPointPrinter(form, host()).module(), "quantized")


class FixedPointPrinter(QuantizedPrinter):
    def __init__(self, form: QuantizedProductForm, machine: Host):
        super().__init__(form, machine)
        self.ints, self.bytes_type = "<16 x i32>", "<64 x i8>"
        self.block_units = form.group // CHUNK if form.group else BLOCK_CHUNKS
        self.unit_bytes = CHUNK // 2
        self.has_raw_halves, self.has_offset_term = False, True
        self.chains = 1

    # ---- the rows of x

    def convert_row(self, x: str, room: str, last: str) -> None:
        floats = self.put(f"alloca [{CHUNK} x float], align 64")
        powers = self.at(room, self.mul(self.words["units"], CHUNK_BYTES))
        sums, step = self.at(room, self.words["sums_at"]), self.words["sums_step"]
        count = self.words["blocks"] if self.form.group else "1"
        each = str(self.form.group // CHUNK) if self.form.group else self.words["units"]

        def group(g: str) -> None:
            def chunk(n: str, carried: list[str]) -> list[str]:
                c = self.add(self.mul(g, each), n)
                return [self.convert_chunk(x, room, powers, floats, c, carried[0])]

            (found,) = self.code.loop("0", each, 1, [(self.vector, "zeroinitializer")], chunk)
            total = self.sum_of_lanes(found)
            far = self.mul(g, 4)
            self.do(f"store float {total}, ptr {self.at(sums, far)}, align 4")
            less = self.put(f"fmul float {total}, {float(-self.form.offset)}")
            self.do(f"store float {less}, ptr {self.at(sums, self.add(step, far))}, align 4")

        self.loop(count, 1, group)

    def convert_chunk(self, x: str, room: str, powers: str, floats: str, c: str, total: str) -> str:
        """The bytes of a chunk, its power of two, and its sums."""
        source = self.at(x, self.mul(c, CHUNK * self.item))
        for u in range(4):
            self.convert_unit(self.at(source, u * self.unit * self.item), self.at(floats, 8 * self.lanes * u))
        values = [self.load(self.at(floats, 4 * self.lanes * v)) for v in range(8)]
        most = "zeroinitializer"
        for value in values:
            total = self.put(f"fadd {self.vector} {total}, {value}")
            bits = self.put(
                f"and {self.ints} {self.put(f'bitcast {self.vector} {value} to {self.ints}')}, splat (i32 2147483647)"
            )
            most = self.call(self.ints, "llvm.umax.v16i32", (self.ints, most), (self.ints, bits))
        bits = self.call("i32", "llvm.vector.reduce.umax.v16i32", (self.ints, most))
        field = self.put(f"lshr i32 {bits}, 23")
        field = self.call("i32", "llvm.umax.i32", ("i32", field), ("i32", str(127 + LEAST_EXPONENT)))
        is_finite = self.put(f"icmp ult i32 {field}, 255")
        power = self.power_of_two(self.put(f"sub i32 {field}, 21"))
        inverse = self.power_of_two(self.put(f"sub i32 {2 * 127 + 21}, {field}"))
        power = self.put(f"select i1 {is_finite}, float {power}, float 0x7FF8000000000000")
        inverse = self.put(f"select i1 {is_finite}, float {inverse}, float 0.0")
        self.do(f"store float {power}, ptr {self.at(powers, self.mul(c, 4))}, align 4")
        factor, to = self.splat(inverse), self.at(room, self.mul(c, CHUNK_BYTES))
        for v, value in enumerate(values):
            scaled = self.put(f"fmul {self.vector} {value}, {factor}")
            scaled = self.call(self.vector, "llvm.rint.v16f32", (self.vector, scaled))
            left = self.put(f"freeze {self.ints} {self.put(f'fptosi {self.vector} {scaled} to {self.ints}')}")
            half, place = v % 2, v // 2 * 16
            for plane in range(PLANES):
                part = self.put(f"trunc {self.ints} {left} to <16 x i8>")
                far = (2 * plane + half) * 64 + place
                self.do(f"store <16 x i8> {part}, ptr {self.at(to, far)}, align 16")
                wide = self.put(f"sext <16 x i8> {part} to {self.ints}")
                left = self.put(f"ashr {self.ints} {self.put(f'sub {self.ints} {left}, {wide}')}, splat (i32 8)")
        return total

    def power_of_two(self, field: str) -> str:
        """Given the bits of its exponent."""
        bits = self.put(f"shl i32 {field}, 23")
        return self.put(f"bitcast i32 {bits} to float")

    # ---- the rows of the weight

    def unit_products(self, weights: list[str], u: str, sums: list[str]) -> list[str]:
        """The sums with those of a chunk."""
        halves = [self.halves(self.at(weight, self.mul(u, self.unit_bytes))) for weight in weights]
        made = list(sums)
        for m, room in enumerate(self.rooms):
            x = self.at(room, self.mul(u, CHUNK_BYTES))
            planes = [self.put(f"load {self.ints}, ptr {self.at(x, 64 * n)}, align 64") for n in range(2 * PLANES)]
            at = self.at(room, self.add(self.mul(self.words["units"], CHUNK_BYTES), self.mul(u, 4)))
            power = self.splat(self.put(f"load float, ptr {at}, align 4"))
            for n in (n for n, place in enumerate(self.places) if place[1] == m):
                low, high = halves[self.places[n][0]]
                parts = [
                    self.dot(self.dot("zeroinitializer", low, planes[2 * plane]), high, planes[2 * plane + 1])
                    for plane in range(PLANES)
                ]
                whole = parts[2]
                for part in (parts[1], parts[0]):
                    whole = self.put(f"add {self.ints} {self.put(f'shl {self.ints} {whole}, splat (i32 8)')}, {part}")
                value = self.put(f"sitofp {self.ints} {whole} to {self.vector}")
                made[n] = self.fma(value, power, made[n])
        return made

    def halves(self, weight: str) -> list[str]:
        both = self.put(f"load {self.bytes_type}, ptr {weight}, align 1")
        low = self.put(f"and {self.bytes_type} {both}, splat (i8 15)")
        high = self.put(f"lshr {self.bytes_type} {both}, splat (i8 4)")
        return [self.put(f"bitcast {self.bytes_type} {half} to {self.ints}") for half in (low, high)]

    def dot(self, total: str, weight: str, x: str) -> str:
        args = [(self.ints, value) for value in (total, weight, x)]
        return self.call(self.ints, FOUR_PAIRS[512], *args)

    def rest_of_row(self, weights: list[str], totals: list[str]) -> list[str]:
        whole = self.mul(self.words["blocks"], self.block_units)
        carried = [(self.vector, total) for total in totals]
        return self.code.loop(
            *(whole, self.words["units"], 1, carried),
            lambda u, totals: self.unit_products(weights, u, totals),
            may_be_empty=True,
        )
