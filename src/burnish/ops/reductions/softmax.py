"""Softmax, log-softmax and their gradients.

    softmax(x) = e / sum(e) where e = exp(x - max(x))
    softmax_backward(grad, y) = y * (grad - sum(grad * y))

The scheduler fuses each into one kernel, where every pass over a row is a stage. Half precisions are computed in f32.
"""

from __future__ import annotations

from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ..operator_record import NoRule, call_shape, decomposition, fresh, shape
from .reduction_dims_and_dtypes import floats, normalized_dims, widened

# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("aten._softmax.default", "aten._log_softmax.default", "aten._safe_softmax.default")
def softmax_shape(x: TensorType, dim: int, half_to_float: bool = False) -> TensorType:
    return fresh(x, x.shape, torch.float32 if half_to_float else None)


call_shape("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")(
    lambda a: fresh(a.grad_output, a.grad_output.shape, a.input_dtype)
)


# -- decompositions ----------------------------------------------------------------------------------------------------


def rows_of(g: Any, x: Any, dim: int, half_to_float: bool) -> tuple[Any, tuple[int, ...], torch.dtype]:
    """The input in the compute dtype, its reduced dimension, and the dtype of the result."""
    floats(x)
    if not x.ndim:
        raise NoRule("no dimension")
    return widened(g, x), normalized_dims(x, dim), torch.float32 if half_to_float else x.dtype


@decomposition("aten._softmax.default")
def softmax(g: Any, x: Any, dim: int, half_to_float: bool) -> Any:
    x, dims, result = rows_of(g, x, dim, half_to_float)
    e = g("exp", g("sub.Tensor", x, g.reduce("max", x, dims)))
    return g.convert(g("div.Tensor", e, g.reduce("sum", e, dims)), result)


@decomposition("aten._log_softmax.default")
def log_softmax(g: Any, x: Any, dim: int, half_to_float: bool) -> Any:
    x, dims, result = rows_of(g, x, dim, half_to_float)
    shifted = g("sub.Tensor", x, g.reduce("max", x, dims))
    total = g.reduce("sum", g("exp", shifted), dims)
    return g.convert(g("sub.Tensor", shifted, g("log", total)), result)


# -- gradients ---------------------------------------------------------------------------------------------------------


@decomposition("aten._softmax_backward_data.default")
def softmax_backward(g: Any, grad: Any, y: Any, dim: int, input_dtype: torch.dtype) -> Any:
    floats(y)
    if not y.ndim:
        raise NoRule("no dimension")
    grad, y = widened(g, grad), widened(g, y)
    total = g.reduce("sum", g("mul.Tensor", grad, y), normalized_dims(y, dim))
    return g.convert(g("mul.Tensor", y, g("sub.Tensor", grad, total)), input_dtype)


@decomposition("aten._log_softmax_backward_data.default")
def log_softmax_backward(g: Any, flowing: Any, y: Any, dim: int, input_dtype: torch.dtype) -> Any:
    floats(y)
    if not y.ndim:
        raise NoRule("no dimension")
    grad, y = widened(g, flowing), widened(g, y)
    total = g.row_sums.get(flowing) if normalized_dims(y, dim) == (y.ndim - 1,) else None
    total = g.reduce("sum", grad, normalized_dims(y, dim)) if total is None else widened(g, total)
    return g.convert(g("sub.Tensor", grad, g("mul.Tensor", g("exp", y), total)), input_dtype)
