"""Ranges and index tensors (arange, linspace, logspace, tril_indices): shape rules and element rules.

arange(0, 10, 3)                   i64[4]
"""

from __future__ import annotations

import math

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import number_dtype
from ..operator_record import Arguments, NoRule, call_shape
from ..scalar_ir import Scalar, cast
from .creation import Number, created
from .element_from_index_rules import ElementPosition, index_function


@call_shape("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(a: Arguments) -> TensorType:
    start, end, step = getattr(a, "start", 0), a.end, getattr(a, "step", 1)
    whole = all(isinstance(limit, int) for limit in (start, end, step))
    if step == 0 or (end - start) / step < 0:
        raise NoRule(f"a range from {start} to {end} in steps of {step}")
    if not whole and a.dtype is torch.int64:  # of arange(3.5) older torch (2.11) makes 3 elements, newer 4
        raise NoRule(f"whole numbers from {start} to {end} in steps of {step}")
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    return created(a, (count,), torch.int64 if whole else None)


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


@call_shape(*LINES)
def linspace(a: Arguments) -> TensorType:
    is_complex = any(
        isinstance(limit, complex) or (isinstance(limit, TensorType) and limit.dtype.is_complex)
        for limit in (a.start, a.end)
    )
    return created(a, (a.steps,), number_dtype(1j) if is_complex else None)


@call_shape("aten.tril_indices.default")
def tril_indices(a: Arguments) -> TensorType:
    count = sum(min(max(k + a.offset + 1, 0), a.col) for k in range(a.row))
    return created(a, (2, count), torch.int64)


@call_shape("aten.triu_indices.default")
def triu_indices(a: Arguments) -> TensorType:
    count = sum(min(max(a.col - k - a.offset, 0), a.col) for k in range(a.row))
    return created(a, (2, count), torch.int64)
