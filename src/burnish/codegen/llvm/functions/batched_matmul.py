"""Batched matmul of two values that are both new on every call: each matrix of b is packed where it is used.

    step = make_batched(batched)
    step.table                         out, a, b and the plan

A thread takes one product of the batch at a time. It packs b's matrix into panels on its stack, whatever its strides,
and then walks the tiles of `gemm_microkernel` with it.
"""

from __future__ import annotations

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Batched, Step
from ..compile_to_machine_code import compile_function
from ..target_cpu import host
from .argument_tables import load_offsets, load_pointers, load_words, words
from .function_printer import FunctionPrinter
from .matmul import OPERATIONS_PER_CYCLE, SERIAL, product_tables, zeros

TABLE = ("out", "a", "b", "plan")
# The plan, in words; strides in bytes.
PLAN = """
    tasks grain out_batch a_batch b_batch b_row b_column rows columns panels panel_bytes packed_bytes vectors
    last_vectors out_step places place_count full last full_table last_table zeros
""".split()

WORK = """
define internal void @work(i64 %begin, i64 %end, ptr %shared) #0 {{
entry:
  %table.at = getelementptr i64, ptr %shared, i64 1
  %table = load ptr, ptr %table.at
{pointers}
{words}
  %packed = alloca i8, i64 %packed_bytes, align 64
  %full.p = inttoptr i64 %full to ptr
  %last.p = inttoptr i64 %last to ptr
  %full_table.p = inttoptr i64 %full_table to ptr
  %last_table.p = inttoptr i64 %last_table to ptr
  %places.p = inttoptr i64 %places to ptr
  %zeros.p = inttoptr i64 %zeros to ptr
  %lane.step.one = insertelement <{lanes} x i64> poison, i64 %b_column, i64 0
  %lane.step = shufflevector <{lanes} x i64> %lane.step.one, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer
  %lane.far = mul <{lanes} x i64> <{numbers}>, %lane.step
  br label %task
task:
  %t = phi i64 [%begin, %entry], [%t.next, %task.end]
  %a.far = mul i64 %t, %a_batch
  %a.here = getelementptr i8, ptr %a, i64 %a.far
  %b.far = mul i64 %t, %b_batch
  %b.here = getelementptr i8, ptr %b, i64 %b.far
  %out.far = mul i64 %t, %out_batch
  %out.here = getelementptr i8, ptr %out, i64 %out.far
  br label %panel
panel:
  %p = phi i64 [0, %task], [%p.next, %panel.end]
  %p.following = add i64 %p, 1
  %is.last = icmp eq i64 %p.following, %panels
  %count = select i1 %is.last, i64 %last_vectors, i64 %vectors
  %panel.far = mul i64 %p, %panel_bytes
  %panel.at = getelementptr i8, ptr %packed, i64 %panel.far
  %first.vector = mul i64 %p, %vectors
  %first.column = mul i64 %first.vector, {lanes}
  br label %row
row:
  %k = phi i64 [0, %panel], [%k.next, %row.end]
  %to.row = phi ptr [%panel.at, %panel], [%to.next, %row.end]
  %row.far = mul i64 %k, %b_row
  %from.row = getelementptr i8, ptr %b.here, i64 %row.far
  br label %vector
vector:
  %v = phi i64 [0, %row], [%v.next, %vector]
  %to = phi ptr [%to.row, %row], [%to.next, %vector]
  %vector.columns = mul i64 %v, {lanes}
  %column = add i64 %first.column, %vector.columns
  %left = sub i64 %columns, %column
  %left.one = insertelement <{lanes} x i64> poison, i64 %left, i64 0
  %left.all = shufflevector <{lanes} x i64> %left.one, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer
  %mask = icmp slt <{lanes} x i64> <{numbers}>, %left.all
  %column.far = mul i64 %column, %b_column
  %from = getelementptr i8, ptr %from.row, i64 %column.far
  %lanes = getelementptr i8, ptr %from, <{lanes} x i64> %lane.far
  %value = call <{lanes} x float> @llvm.masked.gather.v{lanes}f32.v{lanes}p0(
      <{lanes} x ptr> align 4 %lanes, <{lanes} x i1> %mask, <{lanes} x float> zeroinitializer)
  store <{lanes} x float> %value, ptr %to, align {bytes}
  %to.next = getelementptr i8, ptr %to, i64 {bytes}
  %v.next = add i64 %v, 1
  %v.more = icmp ult i64 %v.next, %count
  br i1 %v.more, label %vector, label %row.end
row.end:
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %rows
  br i1 %k.more, label %row, label %packed.panel
packed.panel:
  %functions = select i1 %is.last, ptr %last.p, ptr %full.p
  %numbers = select i1 %is.last, ptr %last_table.p, ptr %full_table.p
  %out.column = mul i64 %p, %out_step
  %c = getelementptr i8, ptr %out.here, i64 %out.column
  br label %place
place:
  %i = phi i64 [0, %packed.panel], [%i.next, %place]
  %at.far = mul i64 %i, 8
  %at = getelementptr i64, ptr %places.p, i64 %at.far
  %kind = load i64, ptr %at
  %function.at = getelementptr ptr, ptr %functions, i64 %kind
  %function = load ptr, ptr %function.at
{offsets}
  call void %function(ptr %a0, ptr %a1, ptr %panel.at, ptr %c0, ptr %c1, ptr %zeros.p, ptr %zeros.p, ptr %zeros.p,
                      ptr %numbers, ptr %panel.at)
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, %place_count
  br i1 %again, label %place, label %panel.end
panel.end:
  %p.next = add i64 %p, 1
  %p.more = icmp ult i64 %p.next, %panels
  br i1 %p.more, label %panel, label %task.end
task.end:
  %t.next = add i64 %t, 1
  %t.more = icmp ult i64 %t.next, %end
  br i1 %t.more, label %task, label %exit
exit:
  ret void
}}
"""


def driver_text() -> str:
    lanes = host().vector_bits // 32
    work = WORK.format(
        lanes=lanes,
        bytes=4 * lanes,
        pointers=load_pointers("table", TABLE),
        words=load_words("plan", PLAN),
        offsets=load_offsets("at", {"a0": "a.here", "a1": "a.here", "c0": "c", "c1": "c"}),
        numbers=", ".join(f"i64 {n}" for n in range(lanes)),
    )
    printer = FunctionPrinter(host())
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    printer.code.declare(vector, f"llvm.masked.gather.v{lanes}f32.v{lanes}p0", f"<{lanes} x ptr>", mask, vector)
    return printer.text([printer.print_parallel_entry("batched", TABLE, PLAN), work])


@once
def driver() -> NativeFunction:
    return compile_function(driver_text(), "batched")


def make_batched(batched: Batched) -> Step:
    product = batched.product
    tables = product_tables(product)
    panel = product.depth * 4 * product.panel
    flops = product.flops * batched.count
    plan = words(
        batched.count,
        1 if flops >= SERIAL else batched.count,
        *(4 * step for step in (batched.out_batch, batched.a_batch, batched.b_batch, batched.b_row, batched.b_column)),
        product.depth,
        product.outputs,
        product.panels,
        panel,
        panel * product.panels,
        product.shape.vectors,
        product.last_vectors,
        4 * product.panel,
        tables.places,
        sum(map(len, product.chunks)),
        tables.full,
        tables.last,
        tables.full_table,
        tables.last_table,
        zeros(product.panel),
    )
    kernel = NativeKernel("batched", driver(), len(TABLE), flops / OPERATIONS_PER_CYCLE)
    return Step(kernel, (("out", 0), ("a", 0), ("b", 0), plan))
