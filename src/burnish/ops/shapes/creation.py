"""Tensor creation (zeros, full, arange, random, *_like, new_*): shape rules and element rules.

    zeros([2, 3])                      f32[2, 3]
    arange(0, 10, 3)                   i64[4]
    empty_like(f32[2, 3]{1, 2})        f32[2, 3]{1, 2}

Elements that depend only on their index have a second rule, for loops (`index_functions`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.tensor_types import CPU, NAMES, NumberType, TensorType
from ...tensors.type_promotion import number_dtype
from ..elementwise.elementwise_record import holds
from ..memory_format import copied, format_stride
from ..operator_record import NoRule, broadcast_shape, decomposition, fresh, record, shape
from ..scalar_ir import FLOATS, Scalar, cast, const, select
from .index_functions import ElementPosition, located

Number = bool | int | float | complex


def strided(layout: torch.layout | None) -> None:
    if layout not in (None, torch.strided):
        raise NoRule(f"layout {layout}")


def made(size: Sequence[int], dtype: torch.dtype | None, device: torch.device | str | None = None) -> TensorType:
    place = CPU if device is None else torch.device(device)
    return TensorType.contiguous(tuple(size), dtype or torch.get_default_dtype(), place)


# -- of a given size ---------------------------------------------------------------------------------------------------


@shape(
    "aten.zeros.default",
    "aten.ones.default",
    "aten.rand.default",
    "aten.randn.default",
    "aten.rand.generator",
    "aten.randn.generator",
)
def zeros(
    size: Sequence[int],
    *,
    generator: object = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    strided(layout)
    return made(size, dtype, device)


@shape("aten.empty.memory_format")
def empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> TensorType:
    strided(layout)
    plain = made(size, dtype, device)
    return TensorType(plain.shape, format_stride(plain.shape, memory_format), plain.dtype, plain.device)


@shape("aten.empty_strided.default")
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    plain = made(size, dtype, device)
    return TensorType(plain.shape, tuple(stride), plain.dtype, plain.device)


@shape("aten.empty_permuted.default")
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    plain = made(size, dtype, device)
    laid = made([size[d] for d in physical_layout], dtype).stride
    stride = tuple(laid[list(physical_layout).index(k)] for k in range(len(size)))
    return TensorType(plain.shape, stride, plain.dtype, plain.device)


@shape("aten.full.default")
def full(
    size: Sequence[int],
    fill_value: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    strided(layout)
    return made(size, dtype or number_dtype(fill_value), device)


@shape("aten.scalar_tensor.default")
def scalar_tensor(
    s: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return made((), dtype, device)


@shape("aten.eye.default")
def eye(
    n: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    strided(layout)
    return made((n, n), dtype, device)


@shape("aten.eye.m")
def eye_of(
    n: int,
    m: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    strided(layout)
    return made((n, m), dtype, device)


@shape("aten.randint.default", "aten.randint.generator")
def randint(
    high: int,
    size: Sequence[int],
    *,
    generator: object = None,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return made(size, dtype or torch.int64, device)


@shape("aten.randint.low", "aten.randint.low_generator")
def randint_from(
    low: int,
    high: int,
    size: Sequence[int],
    *,
    generator: object = None,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return made(size, dtype or torch.int64, device)


@shape("aten.randperm.default", "aten.randperm.generator")
def randperm(
    n: int,
    *,
    generator: object = None,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return made((n,), dtype or torch.int64, device)


@located("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def zero_at(at: ElementPosition, *_: object, **__: object) -> Scalar:
    return const(0, at.dtype)


@located("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def one_at(at: ElementPosition, *_: object, **__: object) -> Scalar:
    return const(1, at.dtype)


@located("aten.full.default", "aten.full_like.default")
def fill_at(at: ElementPosition, like: object, value: Number, **_: object) -> Scalar:
    return number(value, at.dtype)


@located("aten.new_full.default")
def new_fill_at(at: ElementPosition, like: object, size: object, value: Number, **_: object) -> Scalar:
    return number(value, at.dtype)


@located("aten.scalar_tensor.default")
def scalar_at(at: ElementPosition, value: Number, **_: object) -> Scalar:
    return number(value, at.dtype)


@located("aten.eye.default", "aten.eye.m")
def eye_at(at: ElementPosition, *_: object, **__: object) -> Scalar:
    return select(at.index[0].eq(at.index[1]), const(1, at.dtype), const(0, at.dtype))


def number(value: Number, dtype: str) -> Scalar:
    if not isinstance(value, (int, float, complex)):
        raise NoRule("a number that is known when the graph runs")
    if isinstance(value, complex) or not holds(dtype, value) or dtype not in FLOATS and value != int(value):
        raise NoRule(f"{value} as {dtype}")
    return const(value, dtype)


# -- ranges ------------------------------------------------------------------------------------------------------------


def range_type(
    start: Number, end: Number, step: Number, dtype: torch.dtype | None, device: torch.device | None
) -> TensorType:
    whole = all(isinstance(limit, int) for limit in (start, end, step))
    if step == 0 or (end - start) / step < 0:
        raise NoRule(f"a range from {start} to {end} in steps of {step}")
    if not whole and dtype is torch.int64:  # of arange(3.5) older torch (2.11) makes 3 elements, newer 4
        raise NoRule(f"whole numbers from {start} to {end} in steps of {step}")
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    return made((count,), dtype or (torch.int64 if whole else torch.get_default_dtype()), device)


@shape("aten.arange.default")
def arange(
    end: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return range_type(0, end, 1, dtype, device)


@shape("aten.arange.start")
def arange_from(
    start: Number,
    end: Number,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return range_type(start, end, 1, dtype, device)


@shape("aten.arange.start_step")
def arange_in_steps(
    start: Number,
    end: Number,
    step: Number = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    return range_type(start, end, step, dtype, device)


EXACT = 1 << 24
"""Integers up to this one are exact in f32, whichever way a range is computed."""


@located("aten.arange.default")
def arange_at(at: ElementPosition, end: Number, **_: object) -> Scalar:
    return step_at(at, 0, end, 1)


@located("aten.arange.start", "aten.arange.start_step")
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


LINES = (
    "aten.linspace.default",
    "aten.linspace.Tensor_Tensor",
    "aten.linspace.Tensor_Scalar",
    "aten.linspace.Scalar_Tensor",
    "aten.logspace.default",
    "aten.logspace.Tensor_Tensor",
    "aten.logspace.Tensor_Scalar",
    "aten.logspace.Scalar_Tensor",
)


@shape(*LINES)
def linspace(
    start: Number | TensorType,
    end: Number | TensorType,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    if dtype is None and any(
        isinstance(limit, complex) or (isinstance(limit, TensorType) and limit.dtype.is_complex)
        for limit in (start, end)
    ):
        dtype = number_dtype(1j)
    return made((steps,), dtype, device)


@shape("aten.tril_indices.default")
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    count = sum(min(max(k + offset + 1, 0), col) for k in range(row))
    return made((2, count), dtype or torch.int64, device)


@shape("aten.triu_indices.default")
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    count = sum(min(max(col - k - offset, 0), col) for k in range(row))
    return made((2, count), dtype or torch.int64, device)


# -- like another tensor -----------------------------------------------------------------------------------------------


@shape(
    "aten.empty_like.default",
    "aten.zeros_like.default",
    "aten.ones_like.default",
    "aten.rand_like.default",
    "aten.randn_like.default",
)
def empty_like(
    x: TensorType,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
    generator: object = None,
) -> TensorType:
    strided(layout)
    found = copied(x, dtype, memory_format)
    return found if device is None else TensorType(found.shape, found.stride, found.dtype, torch.device(device))


@shape("aten.full_like.default", "aten.randint_like.default")
def full_like(x: TensorType, fill_value: Number, **options: object) -> TensorType:
    return empty_like(x, **options)


@shape("aten.randint_like.low_dtype")
def randint_like_from(x: TensorType, low: int, high: int, **options: object) -> TensorType:
    return empty_like(x, **options)


@shape("aten.bernoulli.default", "aten.bernoulli.p")
def bernoulli(x: TensorType, p: float = 0.5, *, generator: object = None) -> TensorType:
    return fresh(x, x.shape)


@shape("aten.new_empty.default", "aten.new_zeros.default", "aten.new_ones.default")
def new_empty(
    x: TensorType,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorType:
    strided(layout)
    return made(size, dtype or x.dtype, x.device if device is None else device)


@shape("aten.new_full.default")
def new_full(x: TensorType, size: Sequence[int], fill_value: Number, **options: object) -> TensorType:
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
def full_of_a_changing_number(g: Any, size: Sequence[int], value: Any, *, dtype: Any = None, **options: Any) -> Any:
    """Fill with a live scalar: loops read it and multiply ones by it."""
    if not isinstance(getattr(value, "type", None), NumberType):
        raise NoRule("a constant")
    type = made(size, dtype or value.dtype, options.get("device"))
    if type.dtype is torch.bool:
        raise NoRule("a truth value that is known when the graph runs")
    return g.convert(g("mul.Tensor", g.full(type.shape, 1, type), value), type.dtype)


def filled(g: Any, type: TensorType, value: Any) -> Any:
    if NAMES.get(type.dtype, "c")[0] != "c" and isinstance(value, Number):
        number(value, NAMES[type.dtype])  # raises where eager does, or wraps around
    return g.restride(g.full(type.shape, value, type), type.stride)


@shape("aten.new_empty_strided.default")
def new_empty_strided(x: TensorType, size: Sequence[int], stride: Sequence[int], **options: object) -> TensorType:
    found = new_empty(x, size, **options)
    return TensorType(found.shape, tuple(stride), found.dtype, found.device)


@shape("aten.native_dropout.default")
def native_dropout(x: TensorType, p: float, train: bool | None) -> tuple[TensorType, TensorType]:
    return copied(x), copied(x, torch.bool)


@shape("aten.multinomial.default")
def multinomial(x: TensorType, num_samples: int, replacement: bool = False, *, generator: object = None) -> TensorType:
    return fresh(x, (*x.shape[:-1], num_samples), torch.int64)


@shape("aten.normal.Tensor_float")
def normal_around(mean: TensorType, std: float = 1.0, *, generator: object = None) -> TensorType:
    return fresh(mean, mean.shape)


@shape("aten.normal.float_Tensor")
def normal_with(mean: float, std: TensorType, *, generator: object = None) -> TensorType:
    return fresh(std, std.shape)


@shape("aten.normal.Tensor_Tensor")
def normal(mean: TensorType, std: TensorType, *, generator: object = None) -> TensorType:
    return fresh(mean, broadcast_shape([mean.shape, std.shape]))


RANDOM = (
    "aten.rand.default aten.rand.generator aten.randn.default aten.randn.generator aten.randint.default "
    "aten.randint.generator aten.randint.low aten.randint.low_generator aten.randperm.default aten.randperm.generator "
    "aten.rand_like.default aten.randn_like.default aten.randint_like.default aten.randint_like.low_dtype "
    "aten.bernoulli.default aten.bernoulli.p aten.native_dropout.default aten.multinomial.default "
    "aten.normal.Tensor_float aten.normal.float_Tensor aten.normal.Tensor_Tensor"
)
"""They draw from a generator: their order matters, and equal calls return different results."""

for name in RANDOM.split():
    record(name).notes["random"] = True
