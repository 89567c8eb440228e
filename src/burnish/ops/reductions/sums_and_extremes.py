"""Reductions to a value: sums, means, products, any and all, maxima and minima with their positions.

    sum(i32[2, 3], [1])       i64[2]
    max(f32[2, 3], 0)         f32[3], i64[3]

Each becomes a primitive reduction between conversions: half precisions are computed in f32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ...tensors.type_promotion import kind
from ..operator_record import Arguments, NoRule, call_decomposition
from .reduction_dims_and_dtypes import (
    count,
    own,
    positions,
    reduced_by,
    reduction_shapes,
    require_real,
    summed,
    summed_dtype,
    widened,
)

# -- shape rules -------------------------------------------------------------------------------------------------------


def dtype_of_sum(a: Arguments) -> torch.dtype:
    return summed_dtype(a.self, a.dtype)


def dtype_of_mean(a: Arguments) -> torch.dtype:
    dtype: torch.dtype = a.dtype or a.self.dtype
    if kind(dtype) < 2:
        raise NoRule(f"a mean in {dtype}")
    return dtype


def dtype_of_truth(a: Arguments) -> torch.dtype:
    """uint8 gives uint8, for torch's backward compatibility: it once served as bool."""
    return torch.uint8 if a.self.dtype is torch.uint8 else torch.bool


def default_if_whole(a: Arguments) -> torch.dtype:
    return torch.get_default_dtype() if kind(a.self.dtype) < 2 else own(a)


reduction_shapes(
    "aten.sum.default aten.sum.dim_IntList aten.nansum.default aten.prod.default aten.prod.dim_int", dtype_of_sum
)
reduction_shapes("aten.mean.default aten.mean.dim", dtype_of_mean)
reduction_shapes(
    "aten.any.default aten.any.dim aten.any.dims aten.all.default aten.all.dim aten.all.dims", dtype_of_truth
)
reduction_shapes("aten.logsumexp.default", default_if_whole)
reduction_shapes("aten.amax.default aten.amin.default", own)
reduction_shapes("aten.max.default aten.min.default aten.median.default aten.nanmedian.default", own)
reduction_shapes("aten.aminmax.default", own, own)
reduction_shapes("aten.max.dim aten.min.dim aten.median.dim aten.nanmedian.dim", own, positions)
reduction_shapes("aten.argmax.default aten.argmin.default", positions)
reduction_shapes("aten.count_nonzero.dim_IntList aten.count_nonzero.default", positions)


# -- sums, means, products, any and all --------------------------------------------------------------------------------


def in_dtype_of_sum(g: Any, a: Arguments) -> Any:
    """The operand of a sum or a product: of integers and truth values, they are of 64 bits."""
    require_real(a.self)
    result = dtype_of_sum(a)
    if kind(result) == 3:
        raise NoRule("complex numbers")
    return g.convert(a.self, result)


@call_decomposition("aten.sum.default", "aten.sum.dim_IntList")
def sum_over(g: Any, a: Arguments) -> Any:
    x = in_dtype_of_sum(g, a)
    return g.convert(summed(g, widened(g, x), *reduced_by(a)), x.dtype)


@call_decomposition("aten.mean.default", "aten.mean.dim")
def mean_over(g: Any, a: Arguments) -> Any:
    require_real(a.self)
    result = dtype_of_mean(a)
    if kind(result) != 2:
        raise NoRule(f"{result}")
    dims, keepdim = reduced_by(a)
    total = summed(g, widened(g, g.convert(a.self, result)), dims, keepdim)
    return g.convert(g("div.Scalar", total, float(count(a.self, dims))), result)


@call_decomposition("aten.prod.default", "aten.prod.dim_int")
def prod_over(g: Any, a: Arguments) -> Any:
    x = in_dtype_of_sum(g, a)
    if x.ndim:
        return g.convert(g.reduce("prod", widened(g, x), *reduced_by(a)), x.dtype)
    if hasattr(a, "dim"):
        raise NoRule("no dimension")
    return x


def truth(g: Any, a: Arguments, op: str) -> Any:
    x, dim = a.self, getattr(a, "dim", None)
    require_real(x)
    if not x.ndim or isinstance(dim, (list, tuple)) and not dim:
        raise NoRule("no dimension to reduce")
    found = g.reduce(op, g.convert(x, torch.bool), *reduced_by(a))
    return g.convert(found, torch.uint8) if x.dtype is torch.uint8 else found


for op in ("any", "all"):
    call_decomposition(f"aten.{op}.default", f"aten.{op}.dim", f"aten.{op}.dims")(partial(truth, op=op))


# -- maximum and minimum -----------------------------------------------------------------------------------------------


def extreme(g: Any, a: Arguments, op: str) -> Any:
    require_real(a.self)
    if not a.self.ndim:
        raise NoRule("no dimension")
    if a.self.dtype is torch.bool:
        return g.reduce("any" if op == "max" else "all", a.self, *reduced_by(a))
    return g.convert(g.reduce(op, widened(g, a.self), *reduced_by(a)), a.self.dtype)


def position(g: Any, a: Arguments, op: str) -> Any:
    require_real(a.self)
    if not a.self.ndim or a.self.dtype is torch.bool:
        raise NoRule("no dimension, or booleans")
    return g.reduce(f"arg{op}", widened(g, a.self), *reduced_by(a))


def both(g: Any, a: Arguments, op: str) -> Any:
    return extreme(g, a, op), position(g, a, op)


for op in ("max", "min"):
    call_decomposition(f"aten.a{op}.default", f"aten.{op}.default")(partial(extreme, op=op))
    call_decomposition(f"aten.{op}.dim")(partial(both, op=op))
    call_decomposition(f"aten.arg{op}.default")(partial(position, op=op))
