"""The transforms of Winograd's convolution as native functions: of tiles of x before the products, and of their sums.

    before, after = make_winograd(strip)
    before.table                out, x and sizes
    after.table                 out, x (the products), image, weight, bias, residual, spare and sizes

A task is a row of tiles. Both transforms add and subtract vectors of 16 channels, in registers. A pixel beyond the edge
of the image is read from a line of zeros, and one of the result is written to `spare`. Where a result is not finite, a
function that adds up the window directly computes the tile again: see `schedule.library.own_kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....concurrency.first_value_cache import once
from ....ops.scalar_ir import Scalar
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ....schedule.library.own_kernels.winograd_convolution import POSITIONS, Winograd
from ..compile_to_machine_code import compile_function
from ..target_cpu import host
from .epilogue import EpiloguePrinter
from .function_printer import FunctionPrinter, words
from .matmul import zeros

SERIAL_BYTES = 64 << 10

BEFORE = ("out", "x", "plan")
# The plan, in words; steps in bytes.
BEFORE_PLAN = """
    tasks grain first tile_rows tile_columns height width above left image line pixel position zeros
""".split()

AFTER = ("out", "x", "image", "weight", "bias", "residual", "spare", "plan")
AFTER_PLAN = """
    tasks grain first tile_rows tile_columns rows columns out_image out_line out_pixel position
    height width above left image line pixel channels
    weight_output weight_channel weight_down weight_across direct
""".split()

DIRECT = "direct"
EDGE, RESULT, WINDOW = range(4), range(2), "3"
"""The sides of a tile, of its result and of the window."""

CANCELLED = 2.0**-8
"""Four results that are smaller than the largest of their products by more than this are summed up directly."""


class TileRowPrinter(EpiloguePrinter):
    """Walks through the tiles of a row."""

    def place_of(self, row: str) -> tuple[str, str]:
        """The image of a row of tiles, and the first line of the result."""
        row = self.add(row, self.words["first"])
        image = self.put(f"udiv i64 {row}, {self.words['tile_rows']}")
        return image, self.mul(self.sub(row, self.mul(image, self.words["tile_rows"])), 2)

    def combined(self, pairs: Sequence[tuple[str, str, str]]) -> list[str]:
        """Vectors that are sums or differences: pairs of operands after the instruction."""
        return [self.put(f"{instruction} {self.vector} {a}, {b}") for instruction, a, b in pairs]

    def is_inside(self, at: str, size: str) -> str:
        """Negative numbers are large ones without a sign."""
        return self.put(f"icmp ult i64 {at}, {self.words[size]}")

    def either(self, conditions: Sequence[str], inside: str, outside: str) -> str:
        both = self.put(f"and i1 {conditions[0]}, {conditions[1]}")
        return self.put(f"select i1 {both}, ptr {inside}, ptr {outside}")


class BeforePrinter(TileRowPrinter):
    def module(self) -> str:
        return self.text([self.print_parallel_entry("before", BEFORE, BEFORE_PLAN), self.work_of_range(self.row)])

    def row(self, row: str) -> None:
        plan = self.words
        image, first = self.place_of(row)
        source, top = self.at(self.pointers["x"], self.mul(image, plan["image"])), self.sub(first, plan["above"])
        lines = []
        for a in EDGE:
            y = self.add(top, a)
            lines.append((self.is_inside(y, "height"), self.at(source, self.mul(y, plan["line"]))))
        to = self.at(self.pointers["out"], self.mul(self.mul(row, plan["tile_columns"]), plan["pixel"]))
        nothing = self.address(plan["zeros"])

        def tile(number: str) -> None:
            left = self.sub(self.mul(number, 2), plan["left"])
            across = [self.add(left, b) for b in EDGE]
            columns = [(self.is_inside(x, "width"), self.mul(x, plan["pixel"])) for x in across]
            pixels = [
                [self.either((down, across), self.at(line, far), nothing) for across, far in columns]
                for down, line in lines
            ]
            place = self.at(to, self.mul(number, plan["pixel"]))
            self.loop(plan["pixel"], self.bytes, lambda channel: self.vector_of(channel, pixels, place))

        self.loop(plan["tile_columns"], 1, tile)

    def vector_of(self, channel: str, pixels: list[list[str]], place: str) -> None:
        read = [[self.load(self.at(pixel, channel)) for pixel in line] for line in pixels]
        across = [self.side(line) for line in read]
        down = [self.side([across[a][b] for a in EDGE]) for b in EDGE]
        place = self.at(place, channel)
        for a in EDGE:
            for b in EDGE:
                self.store(down[b][a], self.at(place, self.mul(self.words["position"], 4 * a + b)))

    def side(self, d: Sequence[str]) -> list[str]:
        return self.combined([("fsub", d[0], d[2]), ("fadd", d[1], d[2]), ("fsub", d[2], d[1]), ("fsub", d[1], d[3])])


class AfterPrinter(TileRowPrinter):
    def __init__(self, has_residual: bool, epilogue: Scalar | None):
        super().__init__(host())
        self.has_residual, self.epilogue = has_residual, epilogue

    def module(self) -> str:
        entry = self.print_parallel_entry("after", AFTER, AFTER_PLAN)
        return self.text([*self.epilogue_function(self.epilogue), entry, self.work_of_range(self.row, self.prepare)])

    def prepare(self) -> None:
        self.again = self.put(f"alloca [4 x {self.vector}], align {self.bytes}")

    def row(self, row: str) -> None:
        plan, given = self.words, self.pointers
        image, first = self.place_of(row)
        source = self.at(given["image"], self.mul(image, plan["image"]))
        base = self.mul(image, plan["out_image"])
        lines = []
        for a in RESULT:
            y = self.add(first, a)
            lines.append((self.is_inside(y, "rows"), self.add(base, self.mul(y, plan["out_line"]))))
        sums = self.at(given["x"], self.mul(self.mul(row, plan["tile_columns"]), plan["out_pixel"]))
        top = self.sub(first, plan["above"])

        def tile(number: str) -> None:
            left = self.mul(number, 2)
            columns = []
            for b in RESULT:
                x = self.add(left, b)
                columns.append((self.is_inside(x, "columns"), self.mul(x, plan["out_pixel"])))
            places = [
                [
                    self.either((down, across), self.at(given[name], self.add(line, far)), given["spare"])
                    for down, line in lines
                    for across, far in columns
                ]
                for name in ("out", *["residual"] * self.has_residual)
            ]
            place = self.at(sums, self.mul(number, plan["out_pixel"]))
            corner = source, top, self.sub(left, plan["left"])
            self.loop(plan["out_pixel"], self.bytes, lambda output: self.vector_of(output, place, places, corner))

        self.loop(plan["tile_columns"], 1, tile)

    def vector_of(self, output: str, place: str, places: list[list[str]], corner: tuple[str, str, str]) -> None:
        place = self.at(place, output)
        sums = [[self.load(self.at(place, self.mul(self.words["position"], 4 * a + b))) for b in EDGE] for a in EDGE]
        across = [self.side(line) for line in sums]
        made = [self.side([across[a][b] for a in EDGE]) for b in RESULT]
        values = [made[b][a] for a in RESULT for b in RESULT]
        is_strange = self.is_strange(values, [each for line in sums for each in line])
        found = [(self.vector, value) for value in values]
        values = self.when(is_strange, found, lambda: self.direct(output, corner))
        bias = self.load(self.at(self.pointers["bias"], output))
        for number, value in enumerate(values):
            value = self.put(f"fadd {self.vector} {value}, {bias}")
            if self.has_residual:
                residual = self.load(self.at(places[1][number], output))
                value = self.put(f"fadd {self.vector} {value}, {residual}")
            self.store(self.after_sum(self.epilogue, value), self.at(places[0][number], output))

    def side(self, m: Sequence[str]) -> list[str]:
        middle, difference = self.combined([("fadd", m[1], m[2]), ("fsub", m[1], m[2])])
        return self.combined([("fadd", m[0], middle), ("fsub", difference, m[3])])

    def is_strange(self, values: list[str], sums: list[str]) -> str:
        """Whether one of the numbers may be infinite or NaN: x - x is NaN then. Or whether all of an output are small
        differences of much larger products, whose rounding errors they have."""
        first, second = self.combined([("fadd", values[0], values[1]), ("fadd", values[2], values[3])])
        (total,) = self.combined([("fadd", first, second)])
        (nothing,) = self.combined([("fsub", total, total)])
        is_infinite = self.put(f"fcmp uno {self.vector} {nothing}, zeroinitializer")
        factor = self.splat(f"{CANCELLED:e}")
        scaled = self.put(f"fmul {self.vector} {self.largest(sums)}, {factor}")
        is_small = self.put(f"fcmp ogt {self.vector} {scaled}, {self.largest(values)}")
        lanes = self.put(f"or {self.mask_type} {is_infinite}, {is_small}")
        bits = self.put(f"bitcast {self.mask_type} {lanes} to i{self.lanes}")
        return self.put(f"icmp ne i{self.lanes} {bits}, 0")

    def largest(self, numbers: list[str]) -> str:
        """The largest magnitude in each lane."""
        sizes = [self.call(self.vector, f"llvm.fabs.v{self.lanes}f32", (self.vector, each)) for each in numbers]
        while len(sizes) > 1:
            pairs = zip(sizes[::2], sizes[1::2], strict=True)
            sizes = [
                self.call(self.vector, f"llvm.maxnum.v{self.lanes}f32", *((self.vector, each) for each in pair))
                for pair in pairs
            ]
        return sizes[0]

    def direct(self, output: str, corner: tuple[str, str, str]) -> list[str]:
        source, top, left = corner
        number = self.put(f"lshr i64 {output}, 2")
        weight = self.at(self.pointers["weight"], self.mul(number, self.words["weight_output"]))
        arguments = f"ptr {self.again}, ptr {self.pointers['plan']}, ptr {source}, i64 {top}, i64 {left}, ptr {weight}"
        self.do(f"call void {self.address(self.words['direct'])}({arguments})")
        return [self.load(self.at(self.again, number * self.bytes)) for number in range(4)]


class DirectPrinter(FunctionPrinter):
    """Four pixels of a vector of outputs, as sums over the windows."""

    def module(self) -> str:
        head = f"void @{DIRECT}(ptr %to, ptr %plan, ptr %image, i64 %top, i64 %left, ptr %weight)"
        return self.text([self.function(head, self.body).replace("define internal", "define", 1)])

    def body(self) -> None:
        self.words = {name: self.word("%plan", number) for number, name in enumerate(AFTER_PLAN)}
        self.apart = self.lanes_times(self.words["weight_output"])

        def pixel(number: str) -> None:
            top = self.add("%top", self.put(f"lshr i64 {number}, 1"))
            left = self.add("%left", self.put(f"and i64 {number}, 1"))
            nothing = [(self.vector, "zeroinitializer")]
            total = self.code.loop("0", WINDOW, 1, nothing, lambda i, kept: self.line(i, top, left, kept))
            self.store(total[0], self.at("%to", self.mul(number, self.bytes)))

        self.loop("4", 1, pixel)

    def line(self, i: str, top: str, left: str, kept: list[str]) -> list[str]:
        y = self.add(top, i)
        source = self.at("%image", self.mul(y, self.words["line"]))
        weight = self.at("%weight", self.mul(i, self.words["weight_down"]))
        is_inside = self.put(f"icmp ult i64 {y}, {self.words['height']}")
        sums = [(self.vector, kept[0])]

        def places() -> list[str]:
            return self.code.loop("0", WINDOW, 1, sums, lambda j, kept: self.place(j, left, source, weight, kept))

        return self.when(is_inside, sums, places)

    def place(self, j: str, left: str, source: str, weight: str, kept: list[str]) -> list[str]:
        x = self.add(left, j)
        source = self.at(source, self.mul(x, self.words["pixel"]))
        weight = self.at(weight, self.mul(j, self.words["weight_across"]))
        is_inside = self.put(f"icmp ult i64 {x}, {self.words['width']}")

        def channel(c: str, kept: list[str]) -> list[str]:
            value = self.splat(self.put(f"load float, ptr {self.at(source, self.mul(c, 4))}, align 4"))
            weights = self.gather(self.at(weight, self.mul(c, self.words["weight_channel"])), self.apart)
            return [self.fma(value, weights, kept[0])]

        sums = [(self.vector, kept[0])]
        return self.when(is_inside, sums, lambda: self.code.loop("0", self.words["channels"], 1, sums, channel))


@once
def before_function() -> NativeFunction:
    return compile_function(BeforePrinter(host()).module(), "before")


@once
def after_function(has_residual: bool, epilogue: Scalar | None) -> NativeFunction:
    return compile_function(AfterPrinter(has_residual, epilogue).module(), "after")


@once
def direct_function() -> NativeFunction:
    return compile_function(DirectPrinter(host()).module(), DIRECT)


def make_winograd(strip: Winograd) -> tuple[NativeCall, NativeCall]:
    _, channels, height, width = strip.x.shape
    _, outputs, rows, columns = strip.output_shape
    pixel, out_pixel = 4 * channels, 4 * outputs
    image = height, width, *strip.padding, height * width * pixel, width * pixel, pixel
    bytes = 4 * POSITIONS * strip.tiles * max(channels, outputs)
    tasks = strip.rows, strip.rows if bytes < SERIAL_BYTES else 1, strip.first, strip.tile_rows, strip.tile_columns
    before = words(*tasks, *image, strip.tiles * pixel, zeros(channels))
    after = words(
        *tasks,
        *(rows, columns, rows * columns * out_pixel, columns * out_pixel, out_pixel),
        strip.tiles * out_pixel,
        *image,
        channels,
        *(4 * step for step in strip.weight.stride),
        direct_function(),
    )
    kernels = (
        NativeKernel("winograd tiles", before_function(), len(BEFORE), bytes / 16),
        NativeKernel("winograd sums", after_function(strip.has_residual, strip.epilogue), len(AFTER), bytes / 16),
    )
    bias = ("bias", 0) if strip.has_bias else zeros(outputs)
    residual = ("residual", 0) if strip.has_residual else 0
    table = (("out", 0), ("x", 0), ("image", 0), ("weight", 0), bias, residual, ("spare", 0), after)
    return NativeCall(kernels[0], (("out", 0), ("x", 0), before)), NativeCall(kernels[1], table)
