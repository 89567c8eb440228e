"""Type promotion: the dtype that torch computes in, from the types of the operands.

    >>> common_dtype([TensorType.contiguous((2,), torch.int32), 1.5])
    torch.float32

Tensors with dimensions come first, then tensors without, then Python numbers. A lower group counts only if its kind
(bool, integer, floating, complex) is higher.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .dtypes import DTYPES, HALVES, NAMES, WIDE
from .tensor_types import TensorType

COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
    torch.bfloat16: getattr(torch, "bcomplex32", torch.complex64),
}


def common_dtype(operands: Sequence[TensorType | bool | int | float | complex]) -> torch.dtype:
    """The dtype that all operands are converted to."""
    levels: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, TensorType):
            level, dtype = (0 if operand.shape else 1), operand.dtype
        else:
            level, dtype = 2, number_dtype(operand)
        known = levels[level]
        levels[level] = dtype if known is None or known is dtype else torch.promote_types(known, dtype)
    found: torch.dtype | None = None
    for dtype in levels:
        if dtype is None:
            continue
        if found is None:
            found = dtype
        elif kind(dtype) > kind(found):
            found = (
                COMPLEX_OF.get(found, dtype)
                if kind(dtype) == 3
                else torch.promote_types(found, dtype)
                if kind(found) == 0
                else dtype
            )
    assert found is not None, "no operand"
    return found


def number_dtype(number: bool | int | float | complex) -> torch.dtype:
    """The dtype that torch gives a Python number."""
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64
    default = torch.get_default_dtype()
    return default if isinstance(number, float) else COMPLEX_OF[default]


def kind(dtype: torch.dtype) -> int:
    """0 bool, 1 integer, 2 floating, 3 complex."""
    if dtype.is_floating_point:
        return 2
    if dtype.is_complex:
        return 3
    return 0 if dtype is torch.bool else 1


def floating(dtype: torch.dtype) -> torch.dtype:
    """The dtype after promotion of bools and integers to the default float dtype."""
    return torch.get_default_dtype() if kind(dtype) < 2 else dtype


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that eager's kernels compute in: float32 for half precisions."""
    return DTYPES[WIDE[NAMES[dtype]]] if dtype in HALVES else dtype
