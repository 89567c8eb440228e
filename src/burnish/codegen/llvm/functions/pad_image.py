"""Copies an image to channels-last with a border of zeros, for windows that extend beyond its edge.

    step = pad(x_type, (height, width), (above, left))
    step.table                                             out, x, and the sizes

One native function serves all sizes. An item is a line of the copy: zeros, or a border, a line of x and a border.
"""

from __future__ import annotations

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel, load
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Step
from ....tensors.tensor_types import TensorType
from ..compile_to_machine_code import object_code
from ..compile_to_machine_code import symbols as shared_symbols
from ..target_machine import host
from .argument_tables import load_words, words

SERIAL_BYTES = 64 << 10

# The sizes, in words; strides and lengths in bytes.
WORDS = (
    "lines",
    "grain",
    "height",
    "above",
    "x.height",
    "image.step",
    "line.step",
    "line",
    "left",
    "middle",
    "right",
    "is.whole",
    "width",
    "channels",
    "column.step",
    "channel.step",
)

TEXT = """
target triple = "{triple}"

declare i32 @torch_parallel_for(i64, i64, i64, ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @pad(ptr %table) #0 {{
  %words.at = getelementptr ptr, ptr %table, i64 2
  %words = load ptr, ptr %words.at
  %lines = load i64, ptr %words
  %grain.at = getelementptr i64, ptr %words, i64 1
  %grain = load i64, ptr %grain.at
  %r = call i32 @torch_parallel_for(i64 0, i64 %lines, i64 %grain, ptr @work, ptr %table)
  ret void
}}

define internal void @work(i64 %begin, i64 %end, ptr %table) #0 {{
entry:
  %out = load ptr, ptr %table
  %x.at = getelementptr ptr, ptr %table, i64 1
  %x = load ptr, ptr %x.at
  %words.at = getelementptr ptr, ptr %table, i64 2
  %words = load ptr, ptr %words.at
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

attributes #0 = {{ nounwind {attributes} }}
"""


@once
def _function() -> NativeFunction:
    text = TEXT.format(triple=host().triple, attributes=host().attributes, words=load_words("words", WORDS))
    return load(object_code(text, host()), "pad", shared_symbols())


def pad(x: TensorType, size: tuple[int, int], border: tuple[int, ...]) -> Step:
    images, channels, x_height, x_width = x.shape
    height, width = size
    above, left = border
    line, pixel = 4 * width * channels, 4 * channels
    is_whole = x.stride[1] == 1 and x.stride[3] == channels or channels == 1 and x.stride[3] == 1
    total = images * height * line
    sizes = words(
        images * height,
        1 if total > SERIAL_BYTES else images * height,
        height,
        above,
        x_height,
        4 * x.stride[0],
        4 * x.stride[2],
        line,
        left * pixel,
        x_width * pixel,
        (width - left - x_width) * pixel,
        is_whole,
        x_width,
        channels,
        4 * x.stride[3],
        4 * x.stride[1],
    )
    kernel = NativeKernel("pad", _function(), 3, total / 4)
    return Step(kernel, (("out", 0), ("x", 0), sizes))
