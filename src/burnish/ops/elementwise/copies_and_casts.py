"""Copies and casts: clone, _to_copy, copy, fill.

    _to_copy(f32[2, 3]{1, 2}, dtype=torch.float64)     f64[2, 3]{1, 2}

Their rules return the operand's element: the caller of an element-wise rule casts to the result's dtype.
"""

from __future__ import annotations

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import copied
from ..operator_record import NoRule, broadcast_shape, call_shape, pointwise, shape
from ..scalar_ir import Scalar
from .elementwise_record import elementwise, operand

COPIES = ("aten.alias_copy.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default")


@pointwise("aten.clone.default", *COPIES, promotion="first")
def clone(x: Scalar, memory_format: torch.memory_format | None = None) -> Scalar:
    return x


call_shape("aten.clone.default")(lambda a: copied(a.self, format=a.memory_format))
call_shape(*COPIES)(lambda a: copied(a.self, format=torch.contiguous_format))


@pointwise("aten._to_copy.default", promotion="first")
def to_copy(x: Scalar, **options: object) -> Scalar:
    return x


@shape("aten._to_copy.default")
def to_copy_type(
    x: TensorType,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> TensorType:
    if layout not in (None, torch.strided) or pin_memory:
        raise NoRule("a layout or pinned memory")
    if device is not None and torch.device(device).type != x.device.type:
        raise NoRule("another device")
    return copied(x, dtype, memory_format)


@pointwise("aten.copy.default", promotion="first")
def copy(x: Scalar, source: Scalar, non_blocking: bool = False) -> Scalar:
    return source


@shape("aten.copy.default")
def copy_type(x: TensorType, source: TensorType, non_blocking: bool = False) -> TensorType:
    if broadcast_shape([x.shape, source.shape]) != x.shape:
        raise NoRule("the source is larger")
    if any(stride == 0 and size > 1 for stride, size in zip(x.stride, x.shape, strict=True)):
        return copied(x)
    return x  # the strides of x, with its gaps


def why_not_filled(x: TensorType, value: TensorType | float) -> str | None:
    return "a value for each element" if isinstance(value, TensorType) and value.shape else None


@elementwise(
    "aten.fill.Scalar", "aten.fill.Tensor", promotion="first", takes="bifc", like=0, fits=True, why_not=why_not_filled
)
def fill(x: Scalar, value: Scalar | float) -> Scalar:
    return operand(value, x.dtype)
