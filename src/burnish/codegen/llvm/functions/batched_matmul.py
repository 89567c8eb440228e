"""Batched matmul of two values that are both new on every call: each matrix of b is packed where it is used.

    step = make_batched(batched)
    step.table                         out, a, b and the plan

A thread takes one product of the batch at a time. It packs b's matrix into panels on its stack, whatever its strides,
and then walks the tiles of `gemm_microkernel` with it.
"""

from __future__ import annotations

from ....concurrency.first_value_cache import once
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Batched, NativeCall
from ..compile_to_machine_code import compile_function
from ..target_cpu import host
from .function_printer import words
from .matmul import OPERATIONS_PER_CYCLE, SERIAL, TiledPrinter, product_tables, zeros

TABLE = ("out", "a", "b", "plan")
# The plan, in words; strides in bytes.
PLAN = """
    tasks grain out_batch a_batch b_batch b_row b_column rows columns panels panel_bytes packed_bytes vectors
    last_vectors out_step places place_count full last full_table last_table zeros
""".split()


class BatchedPrinter(TiledPrinter):
    def module(self) -> str:
        return self.text(
            [self.print_parallel_entry("batched", TABLE, PLAN), self.work_of_range(self.task, self.prepare)]
        )

    def prepare(self) -> None:
        self.packed = self.put(f"alloca i8, i64 {self.words['packed_bytes']}, align 64")
        self.apart = self.lanes_times(self.words["b_column"])

    def task(self, task: str) -> None:
        a, b, out = (self.at(self.pointers[n], self.mul(task, self.words[f"{n}_batch"])) for n in ("a", "b", "out"))
        self.loop(self.words["panels"], 1, lambda panel: self.panel(panel, a, b, out))

    def panel(self, panel: str, a: str, b: str, out: str) -> None:
        """Packs a panel of b's matrix, then multiplies."""
        plan = self.words
        is_last = self.put(f"icmp eq i64 {self.add(panel, 1)}, {plan['panels']}")
        count = self.put(f"select i1 {is_last}, i64 {plan['last_vectors']}, i64 {plan['vectors']}")
        packed = self.at(self.packed, self.mul(panel, plan["panel_bytes"]))
        first = self.mul(self.mul(panel, plan["vectors"]), self.lanes)

        def row(k: str) -> None:
            source, to = (
                self.at(b, self.mul(k, plan["b_row"])),
                self.at(packed, self.mul(self.mul(k, count), self.bytes)),
            )

            def vector(v: str) -> None:
                column = self.add(first, self.mul(v, self.lanes))
                # Columns behind the last one are 0.
                mask = self.before(column, plan["columns"])
                value = self.gather(self.at(source, self.mul(column, plan["b_column"])), self.apart, mask)
                self.do(f"store {self.vector} {value}, ptr {self.at(to, self.mul(v, self.bytes))}, align {self.bytes}")

            self.loop(count, 1, vector)

        self.loop(plan["rows"], 1, row)
        functions = self.of_panel(is_last, "full", "last")
        tables = self.of_panel(is_last, "full_table", "last_table")
        columns, zeros = self.at(out, self.mul(panel, plan["out_step"])), self.address(plan["zeros"])
        self.loop(
            plan["place_count"],
            1,
            lambda place: self.place(place, functions, tables, a, packed, columns, zeros, zeros, packed),
        )


@once
def driver() -> NativeFunction:
    return compile_function(BatchedPrinter(host()).module(), "batched")


def make_batched(batched: Batched) -> NativeCall:
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
    return NativeCall(kernel, (("out", 0), ("a", 0), ("b", 0), plan))
