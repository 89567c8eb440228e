"""Tensor creation (zeros, ones, full, eye, empty, *_like, new_*): shape rules and element rules.

    zeros([2, 3])                      f32[2, 3]
    empty_like(f32[2, 3]{1, 2})        f32[2, 3]{1, 2}

Elements that depend only on their index have a second rule, for loops (`elements_from_index`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch

from ...tensors.dtypes import FLOATS, NAMES
from ...tensors.tensor_types import CPU, NumberType, TensorType
from ...tensors.type_promotion import number_dtype
from ..elementwise.elementwise_record import holds
from ..memory_format import copied, format_stride
from ..operator_record import NoRule, decomposition, shape
from ..scalar_ir import Scalar, const, select
from .elements_from_index import ElementPosition, index_function

Number = bool | int | float | complex


def strided(layout: torch.layout | None) -> None:
    if layout not in (None, torch.strided):
        raise NoRule(f"layout {layout}")


class Options(TypedDict, total=False):
    """What most operators here take besides sizes and values."""

    dtype: torch.dtype | None
    layout: torch.layout | None
    device: torch.device | None
    pin_memory: bool | None


def made(
    size: Sequence[int],
    default: torch.dtype | None = None,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    """`default`: the dtype where no other is chosen."""
    strided(layout)
    place = CPU if device is None else torch.device(device)
    return TensorType.contiguous(tuple(size), dtype or default or torch.get_default_dtype(), place)


# -- of a given size ---------------------------------------------------------------------------------------------------


@shape("aten.zeros.default", "aten.ones.default")
def zeros(size: Sequence[int], **options: Unpack[Options]) -> TensorType:
    return made(size, **options)


@shape("aten.empty.memory_format")
def empty(
    size: Sequence[int], *, memory_format: torch.memory_format | None = None, **options: Unpack[Options]
) -> TensorType:
    plain = made(size, **options)
    return TensorType(plain.shape, format_stride(plain.shape, memory_format), plain.dtype, plain.device)


@shape("aten.empty_strided.default")
def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Unpack[Options]) -> TensorType:
    plain = made(size, **options)
    return TensorType(plain.shape, tuple(stride), plain.dtype, plain.device)


@shape("aten.empty_permuted.default")
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Unpack[Options]) -> TensorType:
    plain = made(size, **options)
    laid = made([size[d] for d in physical_layout]).stride
    stride = tuple(laid[list(physical_layout).index(k)] for k in range(len(size)))
    return TensorType(plain.shape, stride, plain.dtype, plain.device)


@shape("aten.full.default")
def full(size: Sequence[int], fill_value: Number, **options: Unpack[Options]) -> TensorType:
    return made(size, None if options.get("dtype") else number_dtype(fill_value), **options)


@shape("aten.scalar_tensor.default")
def scalar_tensor(s: Number, **options: Unpack[Options]) -> TensorType:
    return made((), **options)


@shape("aten.eye.default")
def eye(n: int, **options: Unpack[Options]) -> TensorType:
    return made((n, n), **options)


@shape("aten.eye.m")
def eye_of(n: int, m: int, **options: Unpack[Options]) -> TensorType:
    return made((n, m), **options)


@index_function("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def zero_at(at: ElementPosition, *_: object, **__: object) -> Scalar:
    return const(0, at.dtype)


@index_function("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def one_at(at: ElementPosition, *_: object, **__: object) -> Scalar:
    return const(1, at.dtype)


@index_function("aten.full.default", "aten.full_like.default")
def fill_at(at: ElementPosition, like: object, value: Number, **_: object) -> Scalar:
    return number(value, at.dtype)


@index_function("aten.new_full.default")
def new_fill_at(at: ElementPosition, like: object, size: object, value: Number, **_: object) -> Scalar:
    return number(value, at.dtype)


@index_function("aten.scalar_tensor.default")
def scalar_at(at: ElementPosition, value: Number, **_: object) -> Scalar:
    return number(value, at.dtype)


@index_function("aten.eye.default", "aten.eye.m")
def eye_at(at: ElementPosition, *_: object, **__: object) -> Scalar:
    return select(at.index[0].eq(at.index[1]), const(1, at.dtype), const(0, at.dtype))


def number(value: Number, dtype: str) -> Scalar:
    if not isinstance(value, (int, float, complex)):
        raise NoRule("a number that is known when the graph runs")
    if isinstance(value, complex) or not holds(dtype, value) or dtype not in FLOATS and value != int(value):
        raise NoRule(f"{value} as {dtype}")
    return const(value, dtype)


# -- like another tensor -----------------------------------------------------------------------------------------------


@shape("aten.empty_like.default", "aten.zeros_like.default", "aten.ones_like.default")
def empty_like(
    x: TensorType,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorType:
    strided(layout)
    found = copied(x, dtype, memory_format)
    return found if device is None else TensorType(found.shape, found.stride, found.dtype, torch.device(device))


@shape("aten.full_like.default")
def full_like(x: TensorType, fill_value: Number, **options: Any) -> TensorType:
    return empty_like(x, **options)


@shape("aten.new_empty.default", "aten.new_zeros.default", "aten.new_ones.default")
def new_empty(x: TensorType, size: Sequence[int], **options: Unpack[Options]) -> TensorType:
    found = made(size, x.dtype, **options)
    return found if options.get("device") else TensorType(found.shape, found.stride, found.dtype, x.device)


@shape("aten.new_full.default")
def new_full(x: TensorType, size: Sequence[int], fill_value: Number, **options: Unpack[Options]) -> TensorType:
    return new_empty(x, size, **options)


# A filled tensor does not depend on the values of its template. Without that operand it is frozen and inlined in loops.


@decomposition("aten.zeros_like.default")
def zeros_like_filled(g: Any, x: Any, **options: Any) -> Any:
    return filled(g, empty_like(x.type, **options), 0)


@decomposition("aten.ones_like.default")
def ones_like_filled(g: Any, x: Any, **options: Any) -> Any:
    return filled(g, empty_like(x.type, **options), 1)


@decomposition("aten.full_like.default")
def full_like_filled(g: Any, x: Any, fill_value: Number, **options: Any) -> Any:
    return filled(g, empty_like(x.type, **options), fill_value)


@decomposition("aten.new_zeros.default")
def new_zeros_filled(g: Any, x: Any, size: Sequence[int], **options: Any) -> Any:
    return filled(g, new_empty(x.type, size, **options), 0)


@decomposition("aten.new_ones.default")
def new_ones_filled(g: Any, x: Any, size: Sequence[int], **options: Any) -> Any:
    return filled(g, new_empty(x.type, size, **options), 1)


@decomposition("aten.new_full.default")
def new_full_filled(g: Any, x: Any, size: Sequence[int], fill_value: Number, **options: Any) -> Any:
    return filled(g, new_empty(x.type, size, **options), fill_value)


@decomposition("aten.full.default")
def full_of_a_changing_number(g: Any, size: Sequence[int], value: Any, **options: Any) -> Any:
    """Fill with a live scalar: loops read it and multiply ones by it."""
    if not isinstance(getattr(value, "type", None), NumberType):
        raise NoRule("a constant")
    type = made(size, value.dtype, **options)
    if type.dtype is not value.dtype and (not type.dtype.is_floating_point or type.dtype is torch.float16):
        raise NoRule(f"a number that may not fit into {type.dtype}")
    return g.convert(g("mul.Tensor", g.full(type.shape, 1, type), value), type.dtype)


def filled(g: Any, type: TensorType, value: Any) -> Any:
    if NAMES.get(type.dtype, "c")[0] != "c" and isinstance(value, Number):
        number(value, NAMES[type.dtype])  # raises where eager does, or wraps around
    return g.restride(g.full(type.shape, value, type), type.stride)


@shape("aten.new_empty_strided.default")
def new_empty_strided(
    x: TensorType, size: Sequence[int], stride: Sequence[int], **options: Unpack[Options]
) -> TensorType:
    found = new_empty(x, size, **options)
    return TensorType(found.shape, tuple(stride), found.dtype, found.device)
