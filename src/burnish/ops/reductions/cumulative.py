"""Cumulative operators (cumsum, cumprod, cummax, cummin), decomposed into scans.

    cumsum(f32[64, 512], 1)     running_sum in f64, rounded once: eager's accumulator

They are running reductions of the loop IR: one pass, in order, with rows in parallel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ...tensors.type_promotion import compute_dtype, kind
from ..operator_record import Arguments, NoRule, call_decomposition, call_shape, fresh, wrapped_dim
from .reduction_dims_and_dtypes import summed_dtype

# -- shape rules -------------------------------------------------------------------------------------------------------


call_shape("aten.cumsum.default", "aten.cumprod.default")(
    lambda a: fresh(a.self, a.self.shape, summed_dtype(a.self, a.dtype))
)
call_shape("aten.logcumsumexp.default")(lambda a: fresh(a.self, a.self.shape))
call_shape("aten.cummax.default", "aten.cummin.default")(
    lambda a: (fresh(a.self, a.self.shape), fresh(a.self, a.self.shape, torch.int64))
)


# -- decompositions ----------------------------------------------------------------------------------------------------


FLOATING = 2
"""A kind of dtype."""


def accumulated(g: Any, a: Arguments, op: str) -> Any:
    x, result = a.self, summed_dtype(a.self, a.dtype)
    if not x.ndim or result is torch.bool or kind(x.dtype) > FLOATING or kind(result) > FLOATING:
        raise NoRule(f"no dimension, or the dtype {result}")
    # Eager accumulates f32 in f64, half precisions in f32, and rounds each result.
    wide = torch.float64 if result is torch.float32 else compute_dtype(result)
    x = g.convert(g.convert(x, result), wide)
    return g.convert(g.run_along(op, x, wrapped_dim(a.dim, x.ndim)), result)


def extreme(g: Any, a: Arguments, op: str) -> tuple[Any, Any]:
    """Among equal elements, the position is that of the last."""
    x = a.self
    if not x.ndim or x.dtype is torch.bool or kind(x.dtype) > FLOATING:
        raise NoRule(f"no dimension, or {x.dtype}")
    dim = wrapped_dim(a.dim, x.ndim)
    if x.type.stride[dim] == 1 and x.shape[dim] > 1:
        raise NoRule("it goes along rows: eager's kernel compares faster than loops without vectors")
    wide = g.convert(x, compute_dtype(x.dtype))
    return g.convert(g.run_along(op, wide, dim), x.dtype), g.run_along(f"arg{op}", wide, dim)


for op in ("sum", "prod"):
    call_decomposition(f"aten.cum{op}.default")(partial(accumulated, op=op))
for op in ("max", "min"):
    call_decomposition(f"aten.cum{op}.default")(partial(extreme, op=op))
