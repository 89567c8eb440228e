"""Matmuls by MKL, which is part of libtorch_cpu: of two plain matrices, or with one that MKL packed in advance.

    why_not_plain(x, weight)                              None where MKL can be called on such tensors
    packed = pack(weight.t(), SIDE_B, other=64)
    Gemm(rows=64, columns=3072, depth=768, a=(PLAIN, 768), b=(PACKED, 3072), added=0)

torch's operators allocate the result, copy a strided x and go through a dispatcher. The MKL functions do none of that.
They are called natively, between our own kernels (`codegen.llvm.functions.mkl_gemm`). A bias or a residual that is
already in the result is added at no cost.

Packed memory is over-allocated (8 MB more than the matrix), but only the part with numbers is ever touched. So its
resident memory is that of the matrix.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ....concurrency.first_value_cache import once
from ....tensors.tensor_types import TensorType
from ..own_kernels import matmul_tiling_and_packing

SIDE_A, SIDE_B = 161, 162
PLAIN, TRANSPOSED, PACKED = 111, 112, 151
_ROW_MAJOR = 101
_LARGEST = (1 << 31) - 1

_INT, _ADDRESS, _FLOAT = ctypes.c_int, ctypes.c_void_p, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "cblas_sgemm_pack_get_size": (ctypes.c_size_t, [_INT] * 4),
    "cblas_sgemm_pack": (None, [_INT] * 6 + [_FLOAT, _ADDRESS, _INT, _ADDRESS]),
}

Side = tuple[int, int]
"""The layout of a matrix: PLAIN, TRANSPOSED or PACKED, and the stride between its lines in elements."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """`out = a @ b`, plus the value copied into `out` before. `out` has no gaps."""

    rows: int
    columns: int
    depth: int
    a: Side
    b: Side
    dtype: torch.dtype = torch.float32
    added: int | None = None
    """The row stride of the added matrix, in elements: 0 if one row is added to all. None where nothing is added."""
    count: int = 1
    """The number of products, one after the other."""
    batch: tuple[int, int, int] = (0, 0, 0)
    """The strides between products in a, b and out, in elements."""

    @property
    def is_packed(self) -> bool:
        return PACKED in (self.a[0], self.b[0])

    @property
    def flops(self) -> int:
        return 2 * self.count * self.rows * self.columns * self.depth


@once
def library() -> ctypes.CDLL | None:
    """libtorch_cpu with MKL's packed products, or None where it has none (other BLAS, other systems)."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not torch.backends.mkl.is_available() or not path.exists():
        return None
    handle = ctypes.CDLL(str(path))  # torch has loaded it already
    try:
        for symbol, (result, arguments) in _SIGNATURES.items():
            function = getattr(handle, symbol)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    return handle


def why_not(*types: TensorType) -> str | None:
    """Why MKL cannot multiply such tensors, one of them packed."""
    if library() is None:
        return "torch runs without MKL's packed products"
    odd = next((type for type in types if type.dtype is not torch.float32), None)
    return f"MKL packs float32 on the CPU, not {odd}" if odd is not None else why_not_plain(*types)


def why_not_plain(*types: TensorType) -> str | None:
    """Why MKL's plain products cannot be called natively on such tensors."""
    dtypes = matmul_tiling_and_packing.dtypes_of_gemm()
    if not dtypes:
        return "torch runs without MKL, or no target makes native calls"
    for type in types:
        if type.dtype not in dtypes or type.dtype is not types[0].dtype or not type.is_on_host:
            return f"MKL multiplies float32 or float64 on the CPU, not {type}"
        if type.numel == 0:
            return "a matrix is empty"
        if max(*type.shape, *type.stride) > _LARGEST:
            return "a size does not fit MKL's 32-bit integers"
    return None


def orientation(shape: tuple[int, ...], stride: tuple[int, ...]) -> Side | None:
    """How BLAS reads a matrix. None where it cannot."""
    (rows, columns), (down, across) = shape, stride
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return PLAIN, max(down, columns)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return TRANSPOSED, max(across, rows)
    return None


def plain_product(a: TensorType, b: TensorType, added: int | None = None) -> Gemm | None:
    """The product of two plain matrices. None where BLAS cannot read their layouts."""
    left, right = orientation(a.shape, a.stride), orientation(b.shape, b.stride)
    if left is None or right is None:
        return None
    return Gemm(a.shape[0], b.shape[1], a.shape[1], left, right, a.dtype, added)


def pack(matrix: torch.Tensor, side: int, *, other: int) -> torch.Tensor:
    """Packs the matrix for that side of a product, whose other operand has `other` rows or columns."""
    handle = library()
    assert handle is not None
    if orientation(matrix.shape, matrix.stride()) is None:
        matrix = matrix.contiguous()
    way, step = orientation(matrix.shape, matrix.stride())  # type: ignore[misc]
    rows, depth, columns = (*matrix.shape, other) if side == SIDE_A else (other, *matrix.shape)
    size = handle.cblas_sgemm_pack_get_size(side, rows, columns, depth)
    packed = torch.empty(size // 4 + 16, dtype=torch.float32, device=matrix.device)
    handle.cblas_sgemm_pack(
        _ROW_MAJOR, side, way, rows, columns, depth, 1.0, matrix.data_ptr(), step, packed.data_ptr()
    )
    return packed
