"""NumPy's reductions, sorting and statistics as torch calls, with NumPy's dtypes: integers are summed as int64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .ufuncs import torch_dtype


def dims_of(a: Tensor, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(a.ndim))
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def summed(a: Tensor, dtype: Any) -> Any:
    """The dtype of a sum or product. NumPy sums uint8 as uint64, which torch cannot."""
    if dtype is not None:
        return torch_dtype(dtype)
    if a.dtype is torch.uint8:
        return None
    return a.dtype if a.is_floating_point() or a.is_complex() else torch.int64


def averaged(a: Tensor, dtype: Any) -> Tensor:
    """The tensor in the dtype in which NumPy computes a mean of it."""
    if dtype is not None:
        return a.to(torch_dtype(dtype))
    return a if a.is_floating_point() or a.is_complex() else a.to(torch.float64)


def sum_(a: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    kind, dims = summed(a, dtype), dims_of(a, axis)
    if kind is None:
        return NotImplemented
    return torch.sum(a, dims, keepdim=keepdims, dtype=kind) if dims else a.to(kind, copy=True)


def nansum(a: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    if a.is_complex():
        return NotImplemented
    return sum_(torch.nan_to_num(a, 0.0, float("inf"), -float("inf")), axis, dtype, keepdims=keepdims)


def prod(a: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    kind = summed(a, dtype)
    if kind is None or isinstance(axis, (tuple, list)):
        return NotImplemented
    if axis is None:
        made = torch.prod(a, dtype=kind)
        return made.reshape((1,) * a.ndim) if keepdims else made
    return torch.prod(a, axis, keepdim=keepdims, dtype=kind)


def mean(a: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    dims, values = dims_of(a, axis), averaged(a, dtype)
    return torch.mean(values, dims, keepdim=keepdims) if dims else values.clone()


def nanmean(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    dims = dims_of(a, axis)
    return torch.nanmean(a, dims, keepdim=keepdims) if dims and a.is_floating_point() else NotImplemented


def var(a: Tensor, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Any:
    dims = dims_of(a, axis)
    if not dims or a.dtype is torch.float16:
        return NotImplemented
    return torch.var(averaged(a, dtype), dims, correction=ddof, keepdim=keepdims)


def std(a: Tensor, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Any:
    made = var(a, axis, dtype, ddof=ddof, keepdims=keepdims)
    return made if made is NotImplemented else torch.sqrt(made)


def max_(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    dims = dims_of(a, axis)
    return torch.amax(a, dims, keepdim=keepdims) if dims and not a.is_complex() else NotImplemented


def min_(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    dims = dims_of(a, axis)
    return torch.amin(a, dims, keepdim=keepdims) if dims and not a.is_complex() else NotImplemented


def ptp(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    largest = max_(a, axis, keepdims=keepdims)
    return largest if largest is NotImplemented else largest - min_(a, axis, keepdims=keepdims)


def any_(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    dims = dims_of(a, axis)
    return torch.any(a != 0, dims, keepdim=keepdims) if dims else NotImplemented


def all_(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    dims = dims_of(a, axis)
    return torch.all(a != 0, dims, keepdim=keepdims) if dims else NotImplemented


def count_nonzero(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    return sum_((a != 0).to(torch.int64), axis, keepdims=keepdims)


def argmax(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    return first_of(torch.argmax, a, axis, keepdims)


def argmin(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    return first_of(torch.argmin, a, axis, keepdims)


def first_of(function: Any, a: Tensor, axis: Any, keepdims: bool) -> Any:
    if a.is_complex() or isinstance(axis, (tuple, list)):
        return NotImplemented
    values = a.to(torch.uint8) if a.dtype is torch.bool else a
    if axis is None:
        made = function(values.reshape(-1), 0)
        return made.reshape((1,) * a.ndim) if keepdims else made
    return function(values, axis, keepdim=keepdims)


def cumsum(a: Tensor, axis: Any = None, dtype: Any = None) -> Any:
    kind = summed(a, dtype)
    values = a.reshape(-1) if axis is None else a
    return NotImplemented if kind is None else torch.cumsum(values, 0 if axis is None else axis, dtype=kind)


def cumprod(a: Tensor, axis: Any = None, dtype: Any = None) -> Any:
    kind = summed(a, dtype)
    values = a.reshape(-1) if axis is None else a
    return NotImplemented if kind is None else torch.cumprod(values, 0 if axis is None else axis, dtype=kind)


def median(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The mean of the two elements in the middle, which torch does not compute. NaN is sorted to the end."""
    if a.is_complex() or isinstance(axis, (tuple, list)) or a.dtype in (torch.bool, torch.float16) or not a.numel():
        return NotImplemented
    values = averaged(a.reshape(-1) if axis is None else a, None)
    dim = 0 if axis is None else axis
    ordered, count = torch.sort(values, dim).values, values.shape[dim]
    middle = torch.mean(ordered.narrow(dim, (count - 1) // 2, 2 - count % 2), dim)
    last = ordered.select(dim, count - 1)
    made = torch.where(torch.isnan(last), last, middle)
    if not keepdims:
        return made
    return made.reshape((1,) * a.ndim) if axis is None else made.unsqueeze(axis)


median.reads_sizes = True  # type: ignore[attr-defined]


def quantile(a: Tensor, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if isinstance(q, Tensor) or isinstance(axis, (tuple, list)) or a.dtype not in FLOATS:
        return NotImplemented
    wanted = q if isinstance(q, float) else NotImplemented
    return wanted if wanted is NotImplemented else torch.quantile(a, wanted, axis, keepdim=keepdims)


def percentile(a: Tensor, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return NotImplemented if isinstance(q, (Tensor, tuple, list)) else quantile(a, q / 100, axis, keepdims=keepdims)


FLOATS = (torch.float32, torch.float64)


def sort(a: Tensor, axis: Any = -1) -> Any:
    if a.is_complex():
        return NotImplemented
    return torch.sort(a.reshape(-1) if axis is None else a, -1 if axis is None else axis).values


def argsort(a: Tensor, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    """Only if equal elements keep their order: otherwise it is that of NumPy's own algorithm."""
    if a.is_complex() or not (kind in ("stable", "mergesort") or stable):
        return NotImplemented
    return torch.argsort(a.reshape(-1) if axis is None else a, dim=-1 if axis is None else axis, stable=True)


FUNCTIONS = {
    "sum": sum_,
    "nansum": nansum,
    "prod": prod,
    "mean": mean,
    "nanmean": nanmean,
    "var": var,
    "std": std,
    "max": max_,
    "min": min_,
    "amax": max_,
    "amin": min_,
    "ptp": ptp,
    "any": any_,
    "all": all_,
    "count_nonzero": count_nonzero,
    "argmax": argmax,
    "argmin": argmin,
    "cumsum": cumsum,
    "cumprod": cumprod,
    "median": median,
    "quantile": quantile,
    "percentile": percentile,
    "sort": sort,
    "argsort": argsort,
}
METHODS = "sum prod mean var std max min any all argmax argmin cumsum cumprod ptp argsort".split()
