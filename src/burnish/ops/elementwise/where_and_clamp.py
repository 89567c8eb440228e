"""Selection: where, masked_fill, clamp, maximum and minimum, nan_to_num.

    >>> print(clamp(x, 0, 1))
    select(gt(select(lt(x, 0.0), 0.0, x), 1.0), 1.0, select(lt(x, 0.0), 0.0, x))

For bounds that are numbers, a comparison and a select keep NaN and -0.0 as eager's kernels do, and cost less than `max`
and `min`.
"""

from __future__ import annotations

import functools
import math

import torch

from ...tensors.dtypes import LARGEST
from ...tensors.tensor_types import TensorType
from ..scalar_ir import Scalar, cast, is_nan, maximum, minimum, select
from .elementwise_record import Site, clamped, elementwise, is_float, operand, paired, refuse_nan, truth

Number = bool | int | float
Operand = Scalar | Number


# -- where and masks ---------------------------------------------------------------------------------------------------


def why_not_where(condition: TensorType, x: object, y: object) -> str | None:
    return None if condition.dtype in (torch.bool, torch.uint8) else "a condition that is not bool"


@elementwise(
    "aten.where.self",
    "aten.where.ScalarOther",
    "aten.where.ScalarSelf",
    apart=(0,),
    takes="bifc",
    wraps=True,
    fits=True,
    why_not=why_not_where,
)
def where(condition: Scalar, x: Operand, y: Operand) -> Scalar:
    return select(truth(condition), *paired(x, y))


def why_not_filled(x: TensorType, mask: TensorType, value: TensorType | Number) -> str | None:
    if mask.dtype is not torch.bool:
        return "a mask that is not bool"
    if isinstance(value, TensorType) and value.shape:
        return "a value for each element"
    return "a complex number" if isinstance(value, complex) and not x.dtype.is_complex else None


@elementwise(
    "aten.masked_fill.Scalar",
    "aten.masked_fill.Tensor",
    promotion="first",
    apart=(1,),
    takes="bifc",
    contiguous=True,
    fits=True,
    why_not=why_not_filled,
)
def masked_fill(x: Scalar, mask: Scalar, value: Operand) -> Scalar:
    return select(mask, operand(value, x.dtype), x)


# -- bounds ------------------------------------------------------------------------------------------------------------


def why_not_clamp(x: TensorType, low: object = None, high: object = None) -> str | None:
    if low is None and high is None:
        return "no bound"
    if x.dtype.is_floating_point or x.dtype is torch.bool:
        return None
    ends = torch.iinfo(x.dtype)
    beyond = any(isinstance(bound, int) and not ends.min <= bound <= ends.max for bound in (low, high))
    return "a bound beyond the dtype, which some versions of torch refuse and others wrap" if beyond else None


@elementwise("aten.clamp.default", takes="if", cost=2, fits=True, why_not=why_not_clamp)
def clamp(x: Scalar, low: Number | None = None, high: Number | None = None) -> Scalar:
    """torch 2.11 ignores a single bound that is NaN; later versions return NaN for every element."""
    refuse_nan(low, high)
    made = clamped(x, low, high)
    if (low is None or high is None) and ignores_nan():
        return made
    for bound in (low, high):
        if isinstance(bound, Scalar) and is_float(bound):  # a number that is known when the kernel runs
            made = select(is_nan(bound), bound, made)
    return made


@functools.cache
def ignores_nan() -> bool:
    """Whether this torch ignores a single bound that is NaN."""
    return not torch.zeros(1).clamp(max=math.nan).isnan().item()


@elementwise("aten.clamp.Tensor", takes="if", cost=2, why_not=why_not_clamp)
def clamp_tensor(x: Scalar, low: Scalar | None = None, high: Scalar | None = None) -> Scalar:
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


@elementwise("aten.clamp_min.default", takes="if", fits=True, why_not=why_not_clamp)
def clamp_min(x: Scalar, low: Number) -> Scalar:
    return clamp(x, low)


@elementwise("aten.clamp_max.default", takes="if", fits=True, why_not=lambda x, high: why_not_clamp(x, None, high))
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
    """The other operand wins over NaN."""
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
    return x | values if x.dtype == "b8" else select(x.eq(0), values, cast(x > 0, x.dtype))


# -- NaN and infinities ------------------------------------------------------------------------------------------------


@elementwise("aten.nan_to_num.default", promotion="first", takes="bifc", cost=4, like=0)
def nan_to_num(
    x: Scalar,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    site: Site | None = None,
) -> Scalar:
    if not is_float(x):
        return x
    largest = LARGEST[site.dtype if site is not None else x.dtype]
    low = -largest if neginf is None else neginf
    high = largest if posinf is None else posinf
    finite = select(x.eq(-math.inf), low, select(x.eq(math.inf), high, x))
    return select(is_nan(x), nan or 0.0, finite)
