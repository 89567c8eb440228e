"""A native function that compares words of memory with their recorded values.

    memory_comparer().launch(table)    table: the addresses, the expected words, their number, the address of the result

`runtime.program.frozen_prologue` uses it to see whether a module's parameters were changed without torch's knowledge.
"""

from __future__ import annotations

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeKernel, bind
from ..compile_to_machine_code import object_code
from ..target_cpu import host

TEXT = """
target triple = "{triple}"

define void @sampler(ptr %table) {{
entry:
  %addresses = load ptr, ptr %table
  %slot1 = getelementptr ptr, ptr %table, i64 1
  %words = load ptr, ptr %slot1
  %slot2 = getelementptr ptr, ptr %table, i64 2
  %where2 = load ptr, ptr %slot2
  %count = load i64, ptr %where2
  %slot3 = getelementptr ptr, ptr %table, i64 3
  %answer = load ptr, ptr %slot3
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %head, label %exit
head:
  %k = phi i64 [0, %entry], [%next, %head]
  %sum = phi i32 [0, %entry], [%or, %head]
  %place = getelementptr i64, ptr %addresses, i64 %k
  %address = load i64, ptr %place
  %pointer = inttoptr i64 %address to ptr
  %now = load i32, ptr %pointer
  %wanted = getelementptr i32, ptr %words, i64 %k
  %before = load i32, ptr %wanted
  %differs = xor i32 %now, %before
  %or = or i32 %sum, %differs
  %next = add i64 %k, 1
  %again = icmp slt i64 %next, %count
  br i1 %again, label %head, label %exit
exit:
  %total = phi i32 [0, %entry], [%or, %head]
  store i32 %total, ptr %answer
  ret void
}}
"""


@once
def memory_comparer() -> NativeKernel:
    code = object_code(TEXT.format(triple=host().triple), host())
    return bind("sampler", code, "sampler", {}, buffers=4, cycles=10_000)
