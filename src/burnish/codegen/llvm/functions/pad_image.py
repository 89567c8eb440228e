"""Copies an image to channels-last with a border of zeros, for windows that extend beyond its edge.

    step = pad(x_type, (height, width), (above, left))
    step.table                                             out, x, and the sizes

One native function serves all sizes. An item is a line of the copy: zeros, or a border, a line of x and a border.
"""

from __future__ import annotations

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Step
from ....tensors.tensor_types import TensorType
from ..compile_to_machine_code import compile_function
from ..target_cpu import host
from .argument_tables import load_pointers, load_words, words
from .function_printer import FunctionPrinter

SERIAL_BYTES = 64 << 10

TABLE = ("out", "x", "plan")
# The plan, in words; strides and lengths in bytes. A task is a line.
PLAN = """
    tasks grain height above x.height image.step line.step line left middle right is.whole width channels
    column.step channel.step
""".split()

WORK = """
define internal void @work(i64 %begin, i64 %end, ptr %shared) #0 {{
entry:
  %table.at = getelementptr i64, ptr %shared, i64 1
  %table = load ptr, ptr %table.at
{pointers}
{words}
  br label %next
next:
  %n = phi i64 [%begin, %entry], [%n.next, %done]
  %image = udiv i64 %n, %height
  %image.lines = mul i64 %image, %height
  %y.copy = sub i64 %n, %image.lines
  %y = sub i64 %y.copy, %above
  %to.far = mul i64 %n, %line
  %to = getelementptr i8, ptr %out, i64 %to.far
  %inside = icmp ult i64 %y, %x.height
  br i1 %inside, label %image.line, label %border
border:
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %line, i1 false)
  br label %done
image.line:
  %image.far = mul i64 %image, %image.step
  %from.image = getelementptr i8, ptr %x, i64 %image.far
  %line.far = mul i64 %y, %line.step
  %from = getelementptr i8, ptr %from.image, i64 %line.far
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %left, i1 false)
  %to.middle = getelementptr i8, ptr %to, i64 %left
  %to.right = getelementptr i8, ptr %to.middle, i64 %middle
  call void @llvm.memset.p0.i64(ptr %to.right, i8 0, i64 %right, i1 false)
  %whole = icmp ne i64 %is.whole, 0
  br i1 %whole, label %copy, label %column
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %to.middle, ptr %from, i64 %middle, i1 false)
  br label %done
column:
  %column.n = phi i64 [0, %image.line], [%column.next, %column.done]
  %column.to = phi ptr [%to.middle, %image.line], [%channel.to.next, %column.done]
  %column.far = mul i64 %column.n, %column.step
  %column.from = getelementptr i8, ptr %from, i64 %column.far
  br label %channel
channel:
  %channel.n = phi i64 [0, %column], [%channel.next, %channel]
  %channel.to = phi ptr [%column.to, %column], [%channel.to.next, %channel]
  %channel.far = mul i64 %channel.n, %channel.step
  %channel.from = getelementptr i8, ptr %column.from, i64 %channel.far
  %value = load float, ptr %channel.from
  store float %value, ptr %channel.to
  %channel.to.next = getelementptr float, ptr %channel.to, i64 1
  %channel.next = add i64 %channel.n, 1
  %channel.more = icmp ult i64 %channel.next, %channels
  br i1 %channel.more, label %channel, label %column.done
column.done:
  %column.next = add i64 %column.n, 1
  %column.more = icmp ult i64 %column.next, %width
  br i1 %column.more, label %column, label %done
done:
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %end
  br i1 %more, label %next, label %exit
exit:
  ret void
}}
"""


@once
def _function() -> NativeFunction:
    printer = FunctionPrinter(host())
    printer.code.declare("void", "llvm.memset.p0.i64", "ptr", "i8", "i64", "i1")
    printer.code.declare("void", "llvm.memcpy.p0.p0.i64", "ptr", "ptr", "i64", "i1")
    work = WORK.format(pointers=load_pointers("table", TABLE), words=load_words("plan", PLAN))
    return compile_function(printer.text([printer.print_parallel_entry("pad", TABLE, PLAN), work]), "pad")


def pad(x: TensorType, size: tuple[int, int], border: tuple[int, ...]) -> Step:
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
    return Step(kernel, (("out", 0), ("x", 0), sizes))
