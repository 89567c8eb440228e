"""Copies an image to channels-last with a border of zeros, for windows that extend beyond its edge.

    step = pad(x_type, (height, width), (above, left))
    step.table                                             out, x, and the sizes

One native function serves all sizes. An item is a line of the copy: zeros, or a border, a line of x and a border.
"""

from __future__ import annotations

from ....concurrency.first_value_cache import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ....tensors.tensor_types import TensorType
from ..compile_to_machine_code import compile_function
from ..target_cpu import host
from .function_printer import FunctionPrinter, words

SERIAL_BYTES = 64 << 10

TABLE = ("out", "x", "plan")
# The plan, in words; strides and lengths in bytes. A task is a line.
PLAN = """
    tasks grain height above x_height image_step line_step line left middle right is_whole width channels
    column_step channel_step
""".split()


class PadPrinter(FunctionPrinter):
    def module(self) -> str:
        return self.text([self.print_parallel_entry("pad", TABLE, PLAN), self.work_of_range(self.line)])

    def line(self, line: str) -> None:
        plan, here = self.words, self.code.here
        image = self.put(f"udiv i64 {line}, {plan['height']}")
        y = self.sub(self.sub(line, self.mul(image, plan["height"])), plan["above"])
        to = self.at(self.pointers["out"], self.mul(line, plan["line"]))
        is_inside = self.put(f"icmp ult i64 {y}, {plan['x_height']}")
        self.do(f"br i1 {is_inside}, label %inside, label %border")
        here.begin("border")
        self.clear(to, plan["line"])
        self.do("br label %done")
        here.begin("inside")
        source = self.at(self.pointers["x"], self.mul(image, plan["image_step"]))
        source = self.at(source, self.mul(y, plan["line_step"]))
        middle = self.at(to, plan["left"])
        self.clear(to, plan["left"])
        self.clear(self.at(middle, plan["middle"]), plan["right"])
        is_whole = self.put(f"icmp ne i64 {plan['is_whole']}, 0")
        self.do(f"br i1 {is_whole}, label %copy, label %columns")
        here.begin("copy")
        self.copy_bytes(middle, source, plan["middle"])
        self.do("br label %done")
        here.begin("columns")
        self.loop(plan["width"], 1, lambda column: self.column(column, source, middle))
        self.do("br label %done")
        here.begin("done")

    def column(self, column: str, source: str, to: str) -> None:
        """The channels of a pixel, one by one."""
        source = self.at(source, self.mul(column, self.words["column_step"]))
        to = self.at(to, self.mul(self.mul(column, self.words["channels"]), 4))

        def channel(number: str) -> None:
            value = self.put(f"load float, ptr {self.at(source, self.mul(number, self.words['channel_step']))}")
            self.do(f"store float {value}, ptr {self.at(to, self.mul(number, 4))}")

        self.loop(self.words["channels"], 1, channel)

    def clear(self, to: str, bytes: str) -> None:
        self.code.declare("void", "llvm.memset.p0.i64", "ptr", "i8", "i64", "i1")
        self.do(f"call void @llvm.memset.p0.i64(ptr {to}, i8 0, i64 {bytes}, i1 false)")


@once
def _function() -> NativeFunction:
    return compile_function(PadPrinter(host()).module(), "pad")


def pad(x: TensorType, size: tuple[int, int], border: tuple[int, ...]) -> NativeCall:
    images, channels, x_height, x_width = x.shape
    height, width = size
    above, left = border
    item = x.dtype.itemsize
    line, pixel = item * width * channels, item * channels
    # A dimension of size 1 may have any stride.
    is_whole = (x.stride[1] == 1 or channels == 1) and (x.stride[3] == channels or x_width == 1)
    assert is_whole or item == 4, "single numbers are copied as float32"
    total = images * height * line
    sizes = words(
        images * height,
        1 if total > SERIAL_BYTES else images * height,
        height,
        above,
        x_height,
        item * x.stride[0],
        item * x.stride[2],
        line,
        left * pixel,
        x_width * pixel,
        (width - left - x_width) * pixel,
        is_whole,
        x_width,
        channels,
        item * x.stride[3],
        item * x.stride[1],
    )
    kernel = NativeKernel("pad", _function(), len(TABLE), total / 4)
    return NativeCall(kernel, (("out", 0), ("x", 0), sizes))
