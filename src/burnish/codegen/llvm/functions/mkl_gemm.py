"""Calls MKL's GEMM from native functions, so that no Python runs between it and our own kernels.

    step = make_gemm(Gemm(rows=64, columns=3072, depth=768, a=(PLAIN, 768), b=(PACKED, 3072), added=0))
    step.table                                  out, a, b, the addend, and the sizes

Two native functions serve all sizes, one for plain matrices and one for a packed one. The addend is first copied into
the result, row by row; the product is added to it.
"""

from __future__ import annotations

import struct

import torch

from ....concurrency.compute_once import once
from ....runtime.linking import torch_blas_symbols
from ....runtime.program.native_kernels import NativeFunction, NativeKernel
from ....schedule.library.call_candidates.mkl import TRANSPOSED, Gemm
from ....schedule.library.own_kernels.matmul_tiling_and_packing import Step
from ..compile_to_machine_code import compile_function
from ..target_cpu import host
from .argument_tables import load_pointers, load_words, words

GRAIN_BYTES = 64 << 10
"""The least bytes that a thread copies."""

OPERATIONS_PER_CYCLE = 30

TABLE = ("out", "a", "b", "added", "words")

# The sizes, in words; strides of the addend, and from product to product, in bytes. MKL's functions for plain matrices
# are Fortran's: they take addresses, and see out, a and b as their transposes.
WORDS = """
    rows.copied grain row added.step count a.far b.far out.far rows columns depth a.way b.way a.step b.step
    out.step alpha beta
""".split()

TEXT = """
target triple = "{triple}"

declare i32 @torch_parallel_for(i64, i64, i64, ptr, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @{symbol}({parameters})

define void @gemm(ptr %table) #0 {{
entry:
{pointers}
{words}
{narrow}
  %adds = icmp ne i64 %rows.copied, 0
  br i1 %adds, label %copy, label %next
copy:
  %r = call i32 @torch_parallel_for(i64 0, i64 %rows.copied, i64 %grain, ptr @work, ptr %table)
  br label %next
next:
  %n = phi i64 [0, %entry], [0, %copy], [%n.next, %next]
  %a.behind = mul i64 %n, %a.far
  %a.n = getelementptr i8, ptr %a, i64 %a.behind
  %b.behind = mul i64 %n, %b.far
  %b.n = getelementptr i8, ptr %b, i64 %b.behind
  %out.behind = mul i64 %n, %out.far
  %out.n = getelementptr i8, ptr %out, i64 %out.behind
  call void @{symbol}({arguments})
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %next, label %exit
exit:
  ret void
}}

define internal void @work(i64 %begin, i64 %end, ptr %table) #0 {{
entry:
{pointers}
{words}
  br label %next
next:
  %n = phi i64 [%begin, %entry], [%n.next, %next]
  %to.far = mul i64 %n, %row
  %to = getelementptr i8, ptr %out, i64 %to.far
  %from.far = mul i64 %n, %added.step
  %from = getelementptr i8, ptr %added, i64 %from.far
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %row, i1 false)
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %end
  br i1 %more, label %next, label %exit
exit:
  ret void
}}

attributes #0 = {{ nounwind {attributes} }}
"""

FORTRAN = "b.way a.way columns rows depth alpha %b.n b.step %a.n a.step beta %out.n out.step".split()
"""The arguments of `sgemm_`: all are addresses, of words or of matrices."""

CBLAS = (
    "i32 101",
    "a.way",
    "b.way",
    "rows",
    "columns",
    "depth",
    "%a.n",
    "a.step",
    "%b.n",
    "b.step",
    "float %beta.f",
    "%out.n",
    "out.step",
)
"""The arguments of `cblas_sgemm_compute`; 101 means row-major matrices."""


def make_gemm(gemm: Gemm) -> Step:
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
    return Step(kernel, (("out", 0), ("a", 0), ("b", 0), ("added", 0) if adds else 0, sizes))


@once
def dtypes() -> frozenset[torch.dtype]:
    """The dtypes of plain matrices that can be multiplied."""
    return frozenset(
        dtype for dtype, symbol in torch_blas_symbols.PLAIN.items() if symbol in torch_blas_symbols.symbols()
    )


@once
def _function(symbol: str) -> NativeFunction:
    call = _of_numbers() if symbol == torch_blas_symbols.PACKED else _of_addresses()
    text = TEXT.format(
        triple=host().triple,
        attributes=host().attributes,
        symbol=symbol,
        **call,
        pointers=load_pointers("table", TABLE),
        words=load_words("words", WORDS),
    )
    return compile_function(text, "gemm")


def _of_addresses() -> dict[str, str]:
    arguments = ", ".join(f"ptr {name if name[0] == '%' else f'%{name}.word'}" for name in FORTRAN)
    return {"parameters": ", ".join(["ptr"] * len(FORTRAN)), "arguments": arguments, "narrow": ""}


def _of_numbers() -> dict[str, str]:
    numbers = [name for name in CBLAS if name in WORDS]
    narrow = [f"  %{name}.n = trunc i64 %{name} to i32" for name in numbers]
    narrow += ["  %beta.bits = trunc i64 %beta to i32", "  %beta.f = bitcast i32 %beta.bits to float"]
    arguments = [f"i32 %{name}.n" if name in WORDS else f"ptr {name}" if name[0] == "%" else name for name in CBLAS]
    return {
        "parameters": ", ".join(argument.partition(" ")[0] for argument in arguments),
        "arguments": ", ".join(arguments),
        "narrow": "\n".join(narrow),
    }
