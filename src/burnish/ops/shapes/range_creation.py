"""Ranges and index tensors (arange, linspace, logspace, tril_indices): shape rules and element rules.

arange(0, 10, 3)                   i64[4]
"""

from __future__ import annotations

import math
from typing import Unpack

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import number_dtype
from ..operator_record import NoRule, shape
from ..scalar_ir import Scalar, cast
from .creation import Number, Options, made
from .elements_from_index import ElementPosition, index_function


def range_type(start: Number, end: Number, step: Number, options: Options) -> TensorType:
    whole = all(isinstance(limit, int) for limit in (start, end, step))
    if step == 0 or (end - start) / step < 0:
        raise NoRule(f"a range from {start} to {end} in steps of {step}")
    if not whole and options.get("dtype") is torch.int64:  # of arange(3.5) older torch (2.11) makes 3 elements, newer 4
        raise NoRule(f"whole numbers from {start} to {end} in steps of {step}")
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    return made((count,), torch.int64 if whole else None, **options)


@shape("aten.arange.default")
def arange(end: Number, **options: Unpack[Options]) -> TensorType:
    return range_type(0, end, 1, options)


@shape("aten.arange.start", "aten.arange.start_step")
def arange_from(start: Number, end: Number, step: Number = 1, **options: Unpack[Options]) -> TensorType:
    return range_type(start, end, step, options)


EXACT = 1 << 24
"""Integers up to this one are exact in f32, whichever way a range is computed."""


@index_function("aten.arange.default")
def arange_at(at: ElementPosition, end: Number, **_: object) -> Scalar:
    return step_at(at, 0, end, 1)


@index_function("aten.arange.start", "aten.arange.start_step")
def arange_from_at(at: ElementPosition, start: Number, end: Number, step: Number = 1, **_: object) -> Scalar:
    return step_at(at, start, end, step)


def step_at(at: ElementPosition, start: Number, end: Number, step: Number) -> Scalar:
    if at.dtype not in ("i64", "i32", "f32", "f64"):
        raise NoRule(f"a range of {at.dtype}")
    limits = [start, end, step]
    if any(isinstance(x, complex) or abs(x) >= EXACT for x in limits) or any(x != int(x) for x in (start, step)):
        raise NoRule(f"a range from {start} to {end} in steps of {step}")
    steps = at.index[0] if int(step) == 1 else at.index[0] * int(step)  # type: ignore[arg-type]
    return cast(steps if int(start) == 0 else steps + int(start), at.dtype)  # type: ignore[arg-type]


LINES = """
    aten.linspace.default aten.linspace.Tensor_Tensor aten.linspace.Tensor_Scalar aten.linspace.Scalar_Tensor
    aten.logspace.default aten.logspace.Tensor_Tensor aten.logspace.Tensor_Scalar aten.logspace.Scalar_Tensor
""".split()


@shape(*LINES)
def linspace(
    start: Number | TensorType, end: Number | TensorType, steps: int, base: float = 10.0, **options: Unpack[Options]
) -> TensorType:
    is_complex = any(
        isinstance(limit, complex) or (isinstance(limit, TensorType) and limit.dtype.is_complex)
        for limit in (start, end)
    )
    return made((steps,), number_dtype(1j) if is_complex else None, **options)


@shape("aten.tril_indices.default")
def tril_indices(row: int, col: int, offset: int = 0, **options: Unpack[Options]) -> TensorType:
    count = sum(min(max(k + offset + 1, 0), col) for k in range(row))
    return made((2, count), torch.int64, **options)


@shape("aten.triu_indices.default")
def triu_indices(row: int, col: int, offset: int = 0, **options: Unpack[Options]) -> TensorType:
    count = sum(min(max(col - k - offset, 0), col) for k in range(row))
    return made((2, count), torch.int64, **options)
