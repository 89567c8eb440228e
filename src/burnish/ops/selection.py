"""Choosing among operands: where, masks, bounds, the larger and the smaller, replacing what is not finite.

    >>> print(clamp(x, 0, 1))
    select(gt(select(lt(x, 0.0), 0.0, x), 1.0), 1.0, select(lt(x, 0.0), 0.0, x))

With bounds that are numbers a comparison and a choice let NaN and -0.0 pass as eager's kernels do, more cheaply than
`max` and `min`.
"""

from __future__ import annotations

import math

import torch

from ..tensors.types import NAMES, TensorType, contiguous_stride
from .elementwise import LARGEST, Site, clamped, elementwise, is_float, operand, paired, truth
from .record import NoRule, shape
from .scalar import BITS, INTEGERS, Scalar, const, is_nan, maximum, minimum, select

Number = bool | int | float
Operand = Scalar | Number


# -- where and masks ---------------------------------------------------------------------------------------------------

def why_not_where(condition: TensorType, x: object, y: object) -> str | None:
    return None if condition.dtype in (torch.bool, torch.uint8) else "a condition that is not bool"


@elementwise("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", apart=(0,), takes="bifc",
             why_not=why_not_where)
def where(condition: Scalar, x: Operand, y: Operand) -> Scalar:
    return select(truth(condition), *paired(x, y))


def why_not_filled(x: TensorType, mask: TensorType, value: TensorType | Number) -> str | None:
    if mask.dtype is not torch.bool:
        return "a mask that is not bool"
    if isinstance(value, TensorType) and value.shape:
        return "a value for each element"
    return None if isinstance(value, TensorType) else why_not_held(x, value)


@elementwise("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", promotion="first", apart=(1,), takes="bifc",
             why_not=why_not_filled)
def masked_fill(x: Scalar, mask: Scalar, value: Operand) -> Scalar:
    return select(mask, operand(value, x.dtype), x)


def why_not_held(x: TensorType, value: Number | complex) -> str | None:
    """Eager raises where a number goes into a tensor that cannot hold it."""
    name = NAMES.get(x.dtype, "")
    if isinstance(value, complex):
        return None if x.dtype.is_complex else "a complex number"
    if name in INTEGERS:
        if not math.isfinite(value):
            return f"{value} as an integer"
        bits = BITS[name]
        # Of u8 eager lets negative numbers pass that wrap around.
        low, high = (-255, 255) if name == "u8" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return None if low <= int(value) <= high else f"{value} does not fit"
    if name in LARGEST and math.isfinite(value) and abs(value) > LARGEST[name]:
        return f"{value} does not fit"
    return None


# -- bounds ------------------------------------------------------------------------------------------------------------

def why_not_clamp(x: TensorType, low: object = None, high: object = None) -> str | None:
    return "no bound" if low is None and high is None else None


@elementwise("aten.clamp.default", takes="if", cost=2, why_not=why_not_clamp)
def clamp(x: Scalar, low: Number | None = None, high: Number | None = None) -> Scalar:
    """A bound that is NaN makes all NaN."""
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        return const(math.nan, x.dtype)
    return clamped(x, low, high)


@elementwise("aten.clamp.Tensor", takes="if", cost=2, why_not=why_not_clamp)
def clamp_tensor(x: Scalar, low: Scalar | None = None, high: Scalar | None = None) -> Scalar:
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


@elementwise("aten.clamp_min.default", takes="if")
def clamp_min(x: Scalar, low: Number) -> Scalar:
    return clamp(x, low)


@elementwise("aten.clamp_max.default", takes="if")
def clamp_max(x: Scalar, high: Number) -> Scalar:
    return clamp(x, None, high)


@elementwise("aten.clamp_min.Tensor", takes="if")
def clamp_min_tensor(x: Scalar, low: Scalar) -> Scalar:
    return maximum(x, low)


@elementwise("aten.clamp_max.Tensor", takes="if")
def clamp_max_tensor(x: Scalar, high: Scalar) -> Scalar:
    return minimum(x, high)


@elementwise("aten.maximum.default")
def larger(x: Scalar, y: Scalar) -> Scalar:
    return x | y if x.dtype == "b8" else maximum(x, y)


@elementwise("aten.minimum.default")
def smaller(x: Scalar, y: Scalar) -> Scalar:
    return x & y if x.dtype == "b8" else minimum(x, y)


@elementwise("aten.fmax.default", cost=3)
def fmax(x: Scalar, y: Scalar) -> Scalar:
    """NaN loses."""
    if not is_float(x):
        return larger(x, y)
    return select(is_nan(x), y, select(is_nan(y), x, maximum(x, y)))


@elementwise("aten.fmin.default", cost=3)
def fmin(x: Scalar, y: Scalar) -> Scalar:
    if not is_float(x):
        return smaller(x, y)
    return select(is_nan(x), y, select(is_nan(y), x, minimum(x, y)))


def why_not_heaviside(x: TensorType, values: TensorType) -> str | None:
    return None if x.dtype is values.dtype else "operands of several dtypes"


@elementwise("aten.heaviside.default", cost=2, why_not=why_not_heaviside)
def heaviside(x: Scalar, values: Scalar) -> Scalar:
    """0 for NaN."""
    return select(x.eq(0), values, select(x > 0, const(1, x.dtype), const(0, x.dtype))) if x.dtype != "b8" else x | values


# -- what is not finite ------------------------------------------------------------------------------------------------

@elementwise("aten.nan_to_num.default", promotion="first", takes="bifc", cost=4)
def nan_to_num(
    x: Scalar, nan: float | None = None, posinf: float | None = None, neginf: float | None = None,
    site: Site | None = None,
) -> Scalar:
    if not is_float(x):
        return x
    largest = LARGEST[site.dtype if site is not None else x.dtype]
    low = -largest if neginf is None else neginf
    high = largest if posinf is None else posinf
    finite = select(x.eq(-math.inf), low, select(x.eq(math.inf), high, x))
    return select(is_nan(x), nan or 0.0, finite)
