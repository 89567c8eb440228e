"""The native function that launches GPU kernels, generated once for all of them.

    table       words of the kernel (see `cuda_module_loader`), stream, address of buffer 0, of buffer 1, …

A kernel parameter is passed by its address. For a pointer that is its slot in the table; for a number it is the address
in that slot. Sizes are stored one after the other in the words themselves, after the kinds.
"""

from __future__ import annotations

from ...concurrency.first_value_cache import once
from ...runtime.linking import cuda_module_loader as loader
from ...runtime.program.native_kernels import NativeFunction, NativeKernel, load
from ..llvm.compile_to_machine_code import object_code
from ..llvm.target_cpu import host
from .compilation.cubin_cache import ALIGNED

CYCLES = 6000.0
"""CPU cycles of one launch."""

LAUNCHER = f"""
declare i32 @{loader.LAUNCH}(ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)

@nothing = internal constant i64 0

define void @launch(ptr %table) {{
entry:
  %words = load ptr, ptr %table
  %stream.at = getelementptr ptr, ptr %table, i64 1
  %stream = load ptr, ptr %stream.at
  %buffers = getelementptr ptr, ptr %table, i64 2
  %grid.at = getelementptr i64, ptr %words, i64 4
  %grid.long = load i64, ptr %grid.at
  %grid = trunc i64 %grid.long to i32
  %threads.at = getelementptr i64, ptr %words, i64 5
  %threads.long = load i64, ptr %threads.at
  %threads = trunc i64 %threads.long to i32
  %failure.at = getelementptr i64, ptr %words, i64 6
  %failure = load ptr, ptr %failure.at
  %count.at = getelementptr i64, ptr %words, i64 8
  %count = load i64, ptr %count.at
  %kinds = getelementptr i64, ptr %words, i64 9
  %parameters = alloca ptr, i64 %count
  %idle = icmp eq i32 %grid, 0
  br i1 %idle, label %done, label %next
next:
  %k = phi i64 [0, %entry], [%k.next, %set]
  %bits = phi i64 [0, %entry], [%bits.next, %set]
  %size.k = phi i64 [%count, %entry], [%size.k.next, %set]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %parameter, label %choose
parameter:
  %kind.at = getelementptr i64, ptr %kinds, i64 %k
  %kind = load i64, ptr %kind.at
  %slot = getelementptr ptr, ptr %buffers, i64 %k
  switch i64 %kind, label %null [i64 {loader.POINTER}, label %pointer i64 {loader.NUMBER}, label %number
                                    i64 {loader.SIZE}, label %size]
pointer:
  %address = load i64, ptr %slot
  br label %set
number:
  %number.at = load ptr, ptr %slot
  br label %set
size:
  %size.at = getelementptr i64, ptr %kinds, i64 %size.k
  %size.k.more = add i64 %size.k, 1
  br label %set
null:
  br label %set
set:
  %where = phi ptr [%slot, %pointer], [%number.at, %number], [%size.at, %size], [@nothing, %null]
  %low = phi i64 [%address, %pointer], [0, %number], [0, %size], [0, %null]
  %size.k.next = phi i64 [%size.k, %pointer], [%size.k, %number], [%size.k.more, %size], [%size.k, %null]
  %place = getelementptr ptr, ptr %parameters, i64 %k
  store ptr %where, ptr %place
  %bits.next = or i64 %bits, %low
  %k.next = add i64 %k, 1
  br label %next
choose:
  %odd = and i64 %bits, {ALIGNED - 1}
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %start, label %anywhere
anywhere:
  %second.at = getelementptr i64, ptr %words, i64 2
  %second = load i64, ptr %second.at
  %missing = icmp eq i64 %second, 0
  br i1 %missing, label %ask, label %start
ask:
  %prepare.at = getelementptr i64, ptr %words, i64 7
  %prepare = load ptr, ptr %prepare.at
  call void %prepare(ptr %words, i64 {loader.MISALIGNED})
  %now = load i64, ptr %second.at
  %still = icmp eq i64 %now, 0
  br i1 %still, label %tell, label %start
start:
  %which = phi i64 [0, %choose], [2, %anywhere], [2, %ask]
  %function.at = getelementptr i64, ptr %words, i64 %which
  %function = load ptr, ptr %function.at
  %shared.at = getelementptr i64, ptr %function.at, i64 1
  %shared.long = load i64, ptr %shared.at
  %shared = trunc i64 %shared.long to i32
  %result = call i32 @{loader.LAUNCH}(ptr %function, i32 %grid, i32 1, i32 1, i32 %threads, i32 1, i32 1, i32 %shared,
                                    ptr %stream, ptr %parameters, ptr null)
  %bare = icmp eq i32 %result, {loader.NO_CONTEXT}
  br i1 %bare, label %again, label %look
again:
  %help.at = getelementptr i64, ptr %words, i64 7
  %help = load ptr, ptr %help.at
  call void %help(ptr %words, i64 {loader.NO_CONTEXT})
  %second.result = call i32 @{loader.LAUNCH}(ptr %function, i32 %grid, i32 1, i32 1, i32 %threads, i32 1, i32 1,
                                    i32 %shared, ptr %stream, ptr %parameters, ptr null)
  br label %look
look:
  %final = phi i32 [%result, %start], [%second.result, %again]
  %failed = icmp ne i32 %final, 0
  %result.long = zext i32 %final to i64
  br i1 %failed, label %tell, label %done
tell:
  %why = phi i64 [{loader.MISALIGNED}, %ask], [%result.long, %look]
  store i64 %why, ptr %failure
  br label %done
done:
  ret void
}}
"""


@once
def launcher(address: int) -> NativeFunction:
    """`address` is that of the CUDA driver's launch function."""
    return load(object_code(LAUNCHER, host()), "launch", {loader.LAUNCH: address})


def launching(name: str, buffers: int, address: int) -> NativeKernel:
    """The launcher for a kernel with `buffers` buffers."""
    return NativeKernel(name, launcher(address), buffers + 2, CYCLES)
