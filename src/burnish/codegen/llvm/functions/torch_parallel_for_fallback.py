"""`torch_parallel_for` for a torch that does not export it: with torch's OpenMP library, or on this thread alone.

It has the same signature and contract. [begin, end) is split into even chunks, at most one for each of torch's threads,
and none smaller than the grain except the last. Inside a parallel region all work stays on the current thread.
"""

from __future__ import annotations

SERIAL = """
define i32 @torch_parallel_for(i64 %begin, i64 %end, i64 %grain, ptr %fn, ptr %context) {
  call void %fn(i64 %begin, i64 %end, ptr %context)
  ret i32 0
}
"""

# The threads share: begin, end, grain, fn, context.
OPENMP = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_in_parallel()
declare i32 @omp_get_max_threads()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_thread_num()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define i32 @torch_parallel_for(i64 %begin, i64 %end, i64 %grain, ptr %fn, ptr %context) {
  %length = sub i64 %end, %begin
  %is_short = icmp sle i64 %length, %grain
  %nested = call i32 @omp_in_parallel()
  %is_nested = icmp ne i32 %nested, 0
  %is_serial = or i1 %is_short, %is_nested
  br i1 %is_serial, label %serial, label %parallel
serial:
  call void %fn(i64 %begin, i64 %end, ptr %context)
  ret i32 0
parallel:
  %shared = alloca [5 x i64]
  %end.at = getelementptr i64, ptr %shared, i64 1
  %grain.at = getelementptr i64, ptr %shared, i64 2
  %fn.at = getelementptr i64, ptr %shared, i64 3
  %context.at = getelementptr i64, ptr %shared, i64 4
  store i64 %begin, ptr %shared
  store i64 %end, ptr %end.at
  store i64 %grain, ptr %grain.at
  store ptr %fn, ptr %fn.at
  store ptr %context, ptr %context.at
  %grain.1 = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %length.up = add i64 %length, %grain.1
  %length.down = sub i64 %length.up, 1
  %chunks = udiv i64 %length.down, %grain.1
  %most = call i32 @omp_get_max_threads()
  %most.64 = zext i32 %most to i64
  %threads = call i64 @llvm.smin.i64(i64 %chunks, i64 %most.64)
  %threads.32 = trunc i64 %threads to i32
  call void @GOMP_parallel(ptr @chunk, ptr %shared, i32 %threads.32, i32 0)
  ret i32 0
}

define internal void @chunk(ptr %shared) {
  %end.at = getelementptr i64, ptr %shared, i64 1
  %fn.at = getelementptr i64, ptr %shared, i64 3
  %context.at = getelementptr i64, ptr %shared, i64 4
  %begin = load i64, ptr %shared
  %end = load i64, ptr %end.at
  %fn = load ptr, ptr %fn.at
  %context = load ptr, ptr %context.at
  %threads.32 = call i32 @omp_get_num_threads()
  %thread.32 = call i32 @omp_get_thread_num()
  %threads = zext i32 %threads.32 to i64
  %thread = zext i32 %thread.32 to i64
  %length = sub i64 %end, %begin
  %up = add i64 %length, %threads
  %down = sub i64 %up, 1
  %size = udiv i64 %down, %threads
  %ahead = mul i64 %size, %thread
  %first = add i64 %begin, %ahead
  %behind = add i64 %first, %size
  %last = call i64 @llvm.smin.i64(i64 %behind, i64 %end)
  %some = icmp slt i64 %first, %last
  br i1 %some, label %work, label %done
work:
  call void %fn(i64 %first, i64 %last, ptr %context)
  br label %done
done:
  ret void
}
"""
