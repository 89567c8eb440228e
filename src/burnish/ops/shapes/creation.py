"""Tensor creation (zeros, ones, full, eye, empty, *_like, new_*): shape rules and element rules.

    zeros([2, 3])                      f32[2, 3]
    empty_like(f32[2, 3]{1, 2})        f32[2, 3]{1, 2}

Elements that depend only on their index have a second rule, for loops (`element_from_index_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...tensors.device_facts import CPU
from ...tensors.dtypes import FLOATS, NAMES, has_loops
from ...tensors.tensor_types import NumberType, TensorType, contiguous_stride
from ...tensors.type_promotion import number_dtype
from ..elementwise.elementwise_record import holds
from ..memory_format import copied, format_stride
from ..operator_record import Arguments, NoRule, call_decomposition, call_shape
from ..scalar_ir import Scalar, const, select
from .element_from_index_rules import ElementPosition, index_function

Number = bool | int | float | complex


def strided(layout: torch.layout | None) -> None:
    if layout not in (None, torch.strided):
        raise NoRule(f"layout {layout}")


def created(a: Arguments, size: Sequence[int], default: torch.dtype | None = None) -> TensorType:
    """The type of a new tensor by the call's options. `default`: the dtype where no other is chosen."""
    strided(a.layout)
    dtype = a.dtype if isinstance(a.dtype, torch.dtype) else default  # in some schemas the default is a number
    place = CPU if a.device is None else torch.device(a.device)
    return TensorType.contiguous(tuple(size), dtype or torch.get_default_dtype(), place)


# -- of a given size ---------------------------------------------------------------------------------------------------


call_shape("aten.zeros.default", "aten.ones.default")(lambda a: created(a, a.size))
call_shape("aten.empty_strided.default")(lambda a: replace(created(a, a.size), stride=tuple(a.stride)))
call_shape("aten.scalar_tensor.default")(lambda a: created(a, ()))
call_shape("aten.eye.default")(lambda a: created(a, (a.n, a.n)))
call_shape("aten.eye.m")(lambda a: created(a, (a.n, a.m)))
call_shape("aten.full.default")(lambda a: created(a, a.size, None if a.dtype else number_dtype(a.fill_value)))


@call_shape("aten.empty.memory_format")
def empty(a: Arguments) -> TensorType:
    plain = created(a, a.size)
    return replace(plain, stride=format_stride(plain.shape, a.memory_format))


@call_shape("aten.empty_permuted.default")
def empty_permuted(a: Arguments) -> TensorType:
    laid = contiguous_stride(tuple(a.size[d] for d in a.physical_layout))
    order = list(a.physical_layout)
    return replace(created(a, a.size), stride=tuple(laid[order.index(k)] for k in range(len(a.size))))


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


def like(x: TensorType, a: Arguments) -> TensorType:
    strided(a.layout)
    found = copied(x, a.dtype, a.memory_format)
    return found if a.device is None else replace(found, device=torch.device(a.device))


def beside(x: TensorType, a: Arguments) -> TensorType:
    """A tensor of a given size, where x is."""
    found = created(a, a.size, x.dtype)
    return found if a.device else replace(found, device=x.device)


call_shape("aten.empty_like.default", "aten.zeros_like.default", "aten.ones_like.default", "aten.full_like.default")(
    lambda a: like(a.self, a)
)
call_shape("aten.new_empty.default", "aten.new_zeros.default", "aten.new_ones.default", "aten.new_full.default")(
    lambda a: beside(a.self, a)
)
call_shape("aten.new_empty_strided.default")(lambda a: replace(beside(a.self, a), stride=tuple(a.stride)))


# A filled tensor does not depend on the values of its template. Without that operand it is frozen and inlined in loops.


@call_decomposition("aten.full.default")
def full_of_a_changing_number(g: Any, a: Arguments) -> Any:
    """Fill with a live scalar: loops read it and multiply ones by it."""
    value = a.fill_value
    if not isinstance(getattr(value, "type", None), NumberType):
        raise NoRule("a constant")
    type = created(a, a.size, value.dtype)
    if type.dtype is not value.dtype and (not type.dtype.is_floating_point or type.dtype is torch.float16):
        raise NoRule(f"a number that may not fit into {type.dtype}")
    return g.convert(g("mul.Tensor", g.full(type.shape, 1, type), value), type.dtype)


def filled(g: Any, a: Arguments, typed: Callable[[TensorType, Arguments], TensorType], value: Number | None) -> Any:
    """A tensor of the type that `typed` returns. `value`: the call's own if None."""
    type, value = typed(a.self.type, a), a.fill_value if value is None else value
    if has_loops(type.dtype) and isinstance(value, Number):
        number(value, NAMES[type.dtype])  # raises where eager does, or wraps around
    return g.restride(g.full(type.shape, value, type), type.stride)


for kind, number_there in (("zeros", 0), ("ones", 1), ("full", None)):
    for name, typed in ((f"aten.{kind}_like.default", like), (f"aten.new_{kind}.default", beside)):
        call_decomposition(name)(partial(filled, typed=typed, value=number_there))
