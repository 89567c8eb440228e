"""Our own few operators, to which many of torch's come down.

    view     x, maps              what `maps` show of x; see tensors.views
    put      x, value, maps       x with what `maps` show of it replaced by value
    convert  x, dtype             x in another dtype, element by element
    sum, prod, max, min, argmax, argmin, any, all   x, dims      over `dims`, which stay as dimensions of one element

They have no eager kernel: each is made into loops, or run by what `runtime` has for it.
"""

from __future__ import annotations

import torch

from ..tensors.strides import preserved_stride
from ..tensors.types import TensorType, contiguous_stride
from ..tensors.views import Maps, view_type
from .record import Op, Pointwise, fresh, record, shape

REDUCTIONS = "sum prod max min argmax argmin any all".split()

VIEW: Op = record("view")
PUT: Op = record("put")
CONVERT: Op = record("convert")
REDUCE: dict[str, Op] = {name: record(name) for name in REDUCTIONS}
REDUCTION_OF: dict[str, str] = {op.name: name for name, op in REDUCE.items()}


@shape("view")
def view(x: TensorType, maps: Maps) -> TensorType:
    """Where no strides express it, say for a slice from the end, the result is a copy."""
    found = view_type(maps, x)
    if found is not None:
        return found
    result = x.shape
    for step in maps:
        result = step.result_shape(result)
    return TensorType(result, contiguous_stride(result), x.dtype, x.device)


@shape("put")
def put(x: TensorType, value: TensorType, maps: Maps) -> TensorType:
    return TensorType(x.shape, preserved_stride(x), x.dtype, x.device)


@shape("convert")
def convert(x: TensorType, dtype: torch.dtype) -> TensorType:
    return TensorType(x.shape, preserved_stride(x), dtype, x.device)


# The result's dtype is what counts; casting to it is the caller's part of every element-wise rule.
CONVERT.rule = Pointwise(lambda x, dtype: x, "first")


@shape(*REDUCTIONS)
def reduction(x: TensorType, dims: tuple[int, ...]) -> TensorType:
    return fresh(x, tuple(1 if k in dims else n for k, n in enumerate(x.shape)), x.dtype)


@shape("argmax", "argmin")
def position(x: TensorType, dims: tuple[int, ...]) -> TensorType:
    return fresh(x, tuple(1 if k in dims else n for k, n in enumerate(x.shape)), torch.int64)
