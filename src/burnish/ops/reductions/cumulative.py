"""Cumulative operators (cumsum, cumprod, cummax, cummin), decomposed into scans.

    cumsum(f32[64, 512], 1)     running_sum in f64, rounded once: eager's accumulator

They are running reductions of the loop IR: one pass, in order, with rows in parallel.
"""

from __future__ import annotations

from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import compute_dtype, kind
from ..operator_record import NoRule, decomposition, fresh, shape, wrapped_dim
from .reduction_dims_and_dtypes import summed_dtype

# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("aten.cumsum.default", "aten.cumprod.default")
def cumsum_shape(x: TensorType, dim: int, *, dtype: torch.dtype | None = None) -> TensorType:
    return fresh(x, x.shape, summed_dtype(x, dtype))


@shape("aten.logcumsumexp.default")
def logcumsumexp_shape(x: TensorType, dim: int) -> TensorType:
    return fresh(x, x.shape)


@shape("aten.cummax.default", "aten.cummin.default")
def cummax_shape(x: TensorType, dim: int) -> tuple[TensorType, TensorType]:
    return fresh(x, x.shape), fresh(x, x.shape, torch.int64)


# -- decompositions ----------------------------------------------------------------------------------------------------


WHOLE, FLOATING = (0, 1), 2
"""Kinds of dtype."""


@decomposition("aten.cumsum.default")
def cumsum(g: Any, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return accumulated(g, "sum", x, dim, dtype)


@decomposition("aten.cumprod.default")
def cumprod(g: Any, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return accumulated(g, "prod", x, dim, dtype)


def accumulated(g: Any, op: str, x: Any, dim: int, dtype: torch.dtype | None) -> Any:
    result = dtype or (torch.int64 if kind(x.dtype) in WHOLE else x.dtype)
    if not x.ndim or result is torch.bool or kind(x.dtype) > FLOATING or kind(result) > FLOATING:
        raise NoRule(f"no dimension, or the dtype {result}")
    # Eager accumulates f32 in f64, half precisions in f32, and rounds each result.
    wide = torch.float64 if result is torch.float32 else compute_dtype(result)
    x = g.convert(g.convert(x, result), wide)
    return g.convert(g.run_along(op, x, wrapped_dim(dim, x.ndim)), result)


@decomposition("aten.cummax.default")
def cummax(g: Any, x: Any, dim: int) -> Any:
    return extreme(g, "max", x, dim)


@decomposition("aten.cummin.default")
def cummin(g: Any, x: Any, dim: int) -> Any:
    return extreme(g, "min", x, dim)


def extreme(g: Any, op: str, x: Any, dim: int) -> tuple[Any, Any]:
    """Among equal elements, the position is that of the last."""
    if not x.ndim or x.dtype is torch.bool or kind(x.dtype) > FLOATING:
        raise NoRule(f"no dimension, or {x.dtype}")
    dim = wrapped_dim(dim, x.ndim)
    if x.type.stride[dim] == 1 and x.shape[dim] > 1:
        raise NoRule("it goes along rows: eager's kernel compares faster than loops without vectors")
    wide = g.convert(x, compute_dtype(x.dtype))
    return g.convert(g.run_along(op, wide, dim), x.dtype), g.run_along(f"arg{op}", wide, dim)
