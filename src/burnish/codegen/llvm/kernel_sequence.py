"""Runs several kernels in one call from Python.

    run = compile_sequence([(add, (0, 1, 2)), (softmax, (2, (3, 4096)))])
    run(table)             add(table[0], table[1], table[2]), then softmax(table[2], table[3] + 4096 bytes)

The sequence is data, which one small native function reads. That function is compiled once in a process: a new sequence
costs no compilation, and each of its steps costs about two nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...concurrency.first_value_cache import once
from ...runtime.program.native_kernels import NativeFunction, NativeKernel, NativeSequence, Operand, load
from .compile_to_machine_code import object_code
from .target_cpu import host

# For the form of a program see `NativeSequence`.
RUNNER = """
define void @run(ptr %program, ptr %table) {
entry:
  %most = load i64, ptr %program
  %buffers = alloca ptr, i64 %most
  %first = getelementptr i64, ptr %program, i64 1
  br label %step
step:
  %at = phi ptr [%first, %entry], [%next, %call]
  %function = load ptr, ptr %at
  %done = icmp eq ptr %function, null
  br i1 %done, label %exit, label %start
start:
  %count.at = getelementptr i64, ptr %at, i64 1
  %count = load i64, ptr %count.at
  %operands = getelementptr i64, ptr %at, i64 2
  %none = icmp eq i64 %count, 0
  br i1 %none, label %call, label %operand
operand:
  %i = phi i64 [0, %start], [%i.next, %operand]
  %pair = shl i64 %i, 1
  %slot.at = getelementptr i64, ptr %operands, i64 %pair
  %slot = load i64, ptr %slot.at
  %bytes.at = getelementptr i64, ptr %slot.at, i64 1
  %bytes = load i64, ptr %bytes.at
  %base.at = getelementptr ptr, ptr %table, i64 %slot
  %base = load ptr, ptr %base.at
  %address = getelementptr i8, ptr %base, i64 %bytes
  %buffer = getelementptr ptr, ptr %buffers, i64 %i
  store ptr %address, ptr %buffer
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %operand, label %call
call:
  call void %function(ptr %buffers)
  %words = shl i64 %count, 1
  %next = getelementptr i64, ptr %operands, i64 %words
  br label %step
exit:
  ret void
}
"""


def compile_sequence(steps: Sequence[tuple[NativeKernel, Sequence[Operand]]]) -> NativeSequence:
    return NativeSequence(runner(), steps)


@once
def runner() -> NativeFunction:
    return load(object_code(RUNNER, host()), "run", {})
