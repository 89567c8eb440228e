"""Calls MKL's GEMM from native functions, so that no Python runs between it and our own kernels.

    step = make_gemm(Gemm(rows=64, columns=3072, depth=768, a=(PLAIN, 768), b=(PACKED, 3072), added=0))
    step.table                                  out, a, b, the addend, and the sizes

Two native functions serve all sizes, one for plain matrices and one for a packed one. The addend is first copied into
the result, row by row; the product is added to it.
"""

from __future__ import annotations

import struct

import torch

from ....concurrency.first_value_cache import once
from ....runtime.linking import torch_blas_symbols
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.call_candidates.mkl import TRANSPOSED, Gemm
from ....schedule.library.own_kernels.matmul_tiling_and_packing import NativeCall
from ..compile_to_machine_code import compile_function
from ..target_cpu import Host, host
from .function_printer import FunctionPrinter, words

GRAIN_BYTES = 64 << 10
"""The least bytes that a thread copies."""

OPERATIONS_PER_CYCLE = 30

TABLE = ("out", "a", "b", "added", "plan")

# The sizes, in words; strides of the addend, and from product to product, in bytes. MKL's functions for plain matrices
# are Fortran's: they take addresses, and see out, a and b as their transposes.
PLAN = """
    copied_rows grain row added_step count a_far b_far out_far rows columns depth a_way b_way a_step b_step
    out_step alpha beta
""".split()

FORTRAN = "b_way a_way columns rows depth alpha b b_step a a_step beta out out_step".split()
"""The arguments of `sgemm_`: all are addresses, of words or of matrices."""
CBLAS = "101 a_way b_way rows columns depth a a_step b b_step beta out out_step".split()
"""The arguments of `cblas_sgemm_compute`; 101 means row-major matrices."""


def make_gemm(gemm: Gemm) -> NativeCall:
    size, form = gemm.dtype.itemsize, "<f" if gemm.dtype is torch.float32 else "<d"
    number = {x: int.from_bytes(struct.pack(form, x), "little") for x in (0.0, 1.0)}
    row, adds = size * gemm.columns, gemm.added is not None
    ways = [way if gemm.is_packed else ord("T" if way == TRANSPOSED else "N") for way, _ in (gemm.a, gemm.b)]
    sizes = words(
        gemm.rows if adds else 0,
        max(GRAIN_BYTES // row, 1),
        row,
        size * (gemm.added or 0),
        gemm.count,
        *(size * step for step in gemm.batch),
        gemm.rows,
        gemm.columns,
        gemm.depth,
        *ways,
        gemm.a[1],
        gemm.b[1],
        gemm.columns,
        number[1.0],
        number[1.0 if adds else 0.0],
    )
    function = _function(torch_blas_symbols.PACKED if gemm.is_packed else torch_blas_symbols.PLAIN[gemm.dtype])
    kernel = NativeKernel("gemm", function, len(TABLE), gemm.flops / OPERATIONS_PER_CYCLE)
    return NativeCall(kernel, (("out", 0), ("a", 0), ("b", 0), ("added", 0) if adds else 0, sizes))


@once
def dtypes() -> frozenset[torch.dtype]:
    """The dtypes of plain matrices that can be multiplied."""
    return frozenset(
        dtype for dtype, symbol in torch_blas_symbols.PLAIN.items() if symbol in torch_blas_symbols.symbols()
    )


@once
def _function(symbol: str) -> NativeFunction:
    return compile_function(GemmPrinter(symbol, host()).module(), "gemm")


class GemmPrinter(FunctionPrinter):
    def __init__(self, symbol: str, target: Host):
        super().__init__(target)
        self.symbol = symbol

    def module(self) -> str:
        copy = self.function("void @work(i64 %begin, i64 %end, ptr %table)", self.copy_rows)
        return self.text([self.exported("gemm", self.gemm), copy])

    def gemm(self) -> None:
        self.load_table("%table", TABLE, PLAN)
        here, rows = self.code.here, self.words["copied_rows"]
        self.do(f"br i1 {self.put(f'icmp ne i64 {rows}, 0')}, label %copy, label %products")
        here.begin("copy")
        self.call_in_parallel(rows, self.words["grain"], "%table")
        self.do("br label %products")
        here.begin("products")
        self.loop(self.words["count"], 1, self.product)

    def product(self, number: str) -> None:
        matrices = {
            name: self.at(self.pointers[name], self.mul(number, self.words[f"{name}_far"]))
            for name in ("a", "b", "out")
        }
        if self.symbol == torch_blas_symbols.PACKED:
            arguments = [self.number(name, matrices) for name in CBLAS]
        else:
            arguments = [("ptr", matrices.get(name) or self.at(self.plan, 8 * PLAN.index(name))) for name in FORTRAN]
        self.code.declare("void", self.symbol, *(type for type, _ in arguments))
        self.do(f"call void @{self.symbol}({', '.join(f'{type} {value}' for type, value in arguments)})")

    @property
    def plan(self) -> str:
        return self.pointers["plan"]

    def number(self, name: str, matrices: dict[str, str]) -> tuple[str, str]:
        """An argument of `cblas_sgemm_compute`."""
        if name in matrices:
            return "ptr", matrices[name]
        if name not in PLAN:
            return "i32", name
        narrow = self.put(f"trunc i64 {self.words[name]} to i32")
        return ("float", self.put(f"bitcast i32 {narrow} to float")) if name == "beta" else ("i32", narrow)

    def copy_rows(self) -> None:
        """The addend into the result."""
        self.load_table("%table", TABLE, PLAN)

        def row(n: str) -> None:
            to = self.at(self.pointers["out"], self.mul(n, self.words["row"]))
            source = self.at(self.pointers["added"], self.mul(n, self.words["added_step"]))
            self.copy_bytes(to, source, self.words["row"])

        self.loop("%end", 1, row, "%begin")
