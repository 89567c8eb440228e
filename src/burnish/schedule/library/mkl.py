"""Products with a matrix that MKL packed beforehand: `cblas_sgemm_compute`, which libtorch_cpu exports.

torch's own operator for it (`torch.ops.mkl._mkl_linear`) allocates the result, copies a strided x and fills the result
with the bias first. The function itself does none of that, and adds to what the result held before: a residual is free.

    packed = pack(weight, SIDE_B, rows=64)
    product = Product(rows=64, columns=3072, depth=768, packed=SIDE_B, step=768, out_step=3072)
    product(out.data_ptr(), x.data_ptr(), packed.data_ptr())

Packed memory is claimed generously (8 MB more than the matrix), but only what holds numbers is ever touched: in
resident memory it costs what the matrix costs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ...tensors.types import TensorType
from .candidate import Foreign

SIDE_A, SIDE_B = 161, 162
_ROW_MAJOR, _PLAIN, _TRANSPOSED, _PACKED = 101, 111, 112, 151
_LARGEST = (1 << 31) - 1

_INT, _ADDRESS, _FLOAT = ctypes.c_int, ctypes.c_void_p, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "cblas_sgemm_pack_get_size": (ctypes.c_size_t, [_INT] * 4),
    "cblas_sgemm_pack": (None, [_INT] * 6 + [_FLOAT, _ADDRESS, _INT, _ADDRESS]),
    "cblas_sgemm_compute": (None, [_INT] * 6 + [_ADDRESS, _INT, _ADDRESS, _INT, _FLOAT, _ADDRESS, _INT]),
}


@cache
def library() -> ctypes.CDLL | None:
    """libtorch_cpu with MKL's packed products, or None where it has none (other BLAS, other systems)."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not torch.backends.mkl.is_available() or not path.exists():
        return None
    handle = ctypes.CDLL(str(path))
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
    for type in types:
        if type.dtype is not torch.float32 or type.device.type != "cpu":
            return f"MKL packs float32 on the CPU, not {type}"
        if type.numel == 0:
            return "a matrix is empty"
        if max(*type.shape, *type.stride) > _LARGEST:
            return "a size does not fit MKL's 32-bit integers"
    return None


def orientation(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, int] | None:
    """How BLAS reads a matrix: plain or transposed, and the step from row to row. None where it cannot."""
    (rows, columns), (down, across) = shape, stride
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return _PLAIN, max(down, columns)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return _TRANSPOSED, max(across, rows)
    return None


def pack(matrix: torch.Tensor, side: int, *, other: int) -> torch.Tensor:
    """The matrix as MKL wants it on that side of a product, whose other operand has `other` rows or columns."""
    handle = library()
    assert handle is not None
    if orientation(matrix.shape, matrix.stride()) is None:
        matrix = matrix.contiguous()
    transposed, step = orientation(matrix.shape, matrix.stride())
    rows, depth, columns = (*matrix.shape, other) if side == SIDE_A else (other, *matrix.shape)
    size = handle.cblas_sgemm_pack_get_size(side, rows, columns, depth)
    packed = torch.empty(size // 4 + 16, dtype=torch.float32, device="cpu")
    handle.cblas_sgemm_pack(_ROW_MAJOR, side, transposed, rows, columns, depth, 1.0, matrix.data_ptr(), step,
                            packed.data_ptr())
    return packed


@dataclass(frozen=True, slots=True)
class Product:
    """`out = plain @ packed` (or `packed @ plain`), added to what `out` holds with `adds`."""

    rows: int
    columns: int
    depth: int
    packed: int
    plain: tuple[int, int]
    """The orientation of the operand that is not packed."""
    out_step: int
    adds: bool = False

    def arguments(self, out: Any, plain: Any, packed: Any) -> tuple[tuple[str, Any], ...]:
        """The C function's arguments, with the given things as addresses."""
        way, step = self.plain
        if self.packed == SIDE_B:
            ways, operands = (way, _PACKED), (plain, step, packed, self.columns)
        else:
            ways, operands = (_PACKED, way), (packed, self.depth, plain, step)
        left, left_step, right, right_step = operands
        return (
            ("int", _ROW_MAJOR), ("int", ways[0]), ("int", ways[1]),
            ("int", self.rows), ("int", self.columns), ("int", self.depth),
            ("address", left), ("int", left_step), ("address", right), ("int", right_step),
            ("float", 1.0 if self.adds else 0.0), ("address", out), ("int", self.out_step),
        )

    def function(self) -> Any:
        """`f(out, plain, packed)` on addresses."""
        handle = library()
        assert handle is not None
        compute, sides = handle.cblas_sgemm_compute, (0, 1) if self.packed == SIDE_B else (1, 0)
        values = [value for _, value in self.arguments(None, None, None)]
        head, steps, tail = values[:6], (values[7], values[9]), values[10]

        def multiply(out: int, plain: int, packed: int) -> None:
            pair = (plain, packed)
            compute(*head, pair[sides[0]], steps[0], pair[sides[1]], steps[1], tail, out, self.out_step)

        return multiply

    def call(self, out: str, plain: str, packed: str) -> Foreign:
        return Foreign("cblas_sgemm_compute", self.arguments(out, plain, packed))
