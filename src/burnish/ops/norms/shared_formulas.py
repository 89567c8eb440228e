"""What layer, group, batch and RMS norms share: deviations, the affine step, the gradient's formula, dtypes.

corrected_deviations(x)     x - mean, mean, variance
through_norm(u, h, rstd)    rstd * (u - mean(u) - h * mean(u * h)), with h = (x - mean) * rstd, u = grad * weight
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.dtypes import HALVES
from ...tensors.tensor_types import TensorType
from ..reductions.reduction_dims_and_dtypes import count, mean

Mask = Sequence[bool]


def corrected_deviations(g: Any, x: Any, dims: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The deviations from the mean, the mean and the variance. The mean is rounded, which is visible if a row varies
    little. So the mean of the deviations, computed in the same pass as the variance, is subtracted again.

    A long row whose mean is small compared with the deviations gets no such correction. There each subtraction loses
    the mean's last digits in the same way. That is not a rounding error of the mean: the correction would add error."""
    n = float(count(x, dims))
    first = g("div.Scalar", g.reduce("sum", x, dims), n)
    apart = g("sub.Tensor", x, first)
    rest = g("div.Scalar", g.reduce("sum", apart, dims), n)
    square = g("div.Scalar", g.reduce("sum", g("mul.Tensor", apart, apart), dims), n)
    # In a row of equal elements both are the mean's squared rounding error: the difference may be negative, and both
    # may be infinite.
    less = g("clamp_max", g("mul.Tensor", rest, rest), torch.finfo(x.dtype).max)
    variance = g("relu", g("sub.Tensor", square, less))
    if n >= LONG_ROW:
        is_small = g("lt.Tensor", g("mul.Tensor", first, first), g("mul.Scalar", variance, SMALL_MEAN**2))
        rest = g("where.ScalarSelf", is_small, 0.0, rest)
    return g("sub.Tensor", apart, rest), g("add.Tensor", first, rest), variance


SMALL_MEAN = 0.125
"""In standard deviations. About here the error of the sum, which grows with the mean, equals that of the correction."""


LONG_ROW = 384
"""In elements. In a shorter row the two errors are about equal for any mean, and the test costs time."""


def affine(g: Any, y: Any, weight: Any, bias: Any) -> Any:
    """With both a weight and a bias, rounded once as in eager: the product and the bias often cancel."""
    weight, bias = (None if p is None else g.convert(p, y.dtype) for p in (weight, bias))
    if weight is not None and bias is not None:
        return g("addcmul", bias, y, weight)
    if weight is not None:
        return g("mul.Tensor", y, weight)
    return y if bias is None else g("add.Tensor", y, bias)


# -- gradients ---------------------------------------------------------------------------------------------------------


def through_norm(g: Any, u: Any, normed: Any, rstd: Any, dims: tuple[int, ...], centre: bool = True) -> Any:
    """The gradient of the normalized input; with `centre` off for a norm that does not subtract the mean."""
    along = g("mul.Tensor", normed, mean(g, g("mul.Tensor", u, normed), dims))
    rest = g("sub.Tensor", g("sub.Tensor", u, mean(g, u, dims)) if centre else u, along)
    return g("mul.Tensor", rest, rstd)


def parameters_of_affine(
    g: Any, grad: Any, normed: Any, outer: tuple[int, ...], shape: list[int], wanted: Mask
) -> list[Any]:
    """The gradients of a weight and a bias that are broadcast over `outer`."""
    return [
        g.reshape(g.reduce("sum", g("mul.Tensor", grad, normed), outer), shape) if wanted[0] else None,
        g.reshape(g.reduce("sum", grad, outer), shape) if wanted[1] else None,
    ]


def in_dtypes_of(g: Any, found: list[Any], dtype: torch.dtype, weight: Any) -> tuple:
    """The gradients of data of a dtype, of its weight and of its bias, which may be in float32 for half-precision
    data."""
    dtypes = (dtype, *(dtype if weight is None else weight.dtype,) * 2)
    return tuple(None if part is None else g.convert(part, to) for part, to in zip(found, dtypes, strict=True))


# -- dtypes ------------------------------------------------------------------------------------------------------------


def parameter_dtype(x: TensorType, *parameters: TensorType | None) -> torch.dtype:
    """For half-precision data, parameters may be in float32."""
    mixed = x.dtype in HALVES and any(
        parameter is not None and parameter.dtype == torch.float32 for parameter in parameters
    )
    return torch.float32 if mixed else x.dtype


def statistics_dtype(x: TensorType, *parameters: TensorType | None) -> torch.dtype:
    """The dtype of the parameters on a CPU; the compute dtype on a GPU."""
    is_wide = x.dtype in HALVES and x.device_facts.has_wide_statistics
    return torch.float32 if is_wide else parameter_dtype(x, *parameters)
