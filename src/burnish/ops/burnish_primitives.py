"""Our own few operators, to which many of torch's come down.

    view     x, maps              what `maps` show of x; see tensors.views
    put      x, value, maps       x with what `maps` show of it replaced by value
    convert  x, dtype             x in another dtype, element by element
    restride x, stride            a copy that lies in memory as `stride` says
    sum, prod, max, min, argmax, argmin, any, all   x, dims      over `dims`, which stay as dimensions of one element
    running_sum, …_prod, …_max, …_min, …_argmax, …_argmin   x, dim     of the elements up to each one along `dim`

    linear   x, weight, bias, residual, activation     activation(x @ weight.T + bias + residual), x of two dimensions
    conv     x, weight, bias, residual, activation, stride, padding, dilation, transposed, output_padding, groups
    prepare  candidate, weight, bias                   what a library call wants its weights turned into, once
    run      candidate, operands                       a library call that was chosen for a linear or a conv
    assembled  parts, offsets, home                    parts that were written side by side, seen as one
    fetch    source, places                            elements that indices pick; see ops.gathered
    add_at   x, value, places                          adds to elements of x; its result says that it has been done
    again    x, after                                  x, told apart from it for a while; see lower.regions
    held     x, after                                  x itself, for code that is to run when `after` is there
    check    wrong, operator, args, kwargs, about       nothing, or the operator's own complaint

They have no eager kernel: each is made into loops, or run by what `runtime` has for it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..tensors.eager_strides import preserved_stride
from ..tensors.tensor_types import TensorType, contiguous_stride
from ..tensors.view_maps import Maps, view_type
from .operator_record import Op, Pointwise, fresh, record, shape

REDUCTIONS = "sum prod max min argmax argmin any all".split()

RUNNING = "running_sum running_prod running_max running_min running_argmax running_argmin".split()

VIEW: Op = record("view")
PUT: Op = record("put")
CONVERT: Op = record("convert")
RESTRIDE: Op = record("restride")
LINEAR: Op = record("linear")
CONV: Op = record("conv")
PREPARE: Op = record("prepare")
RUN: Op = record("run")
ASSEMBLED: Op = record("assembled")
FETCH: Op = record("fetch")
CHECK: Op = record("check")
ADD_AT: Op = record("add_at")
AGAIN: Op = record("again")
HELD: Op = record("held")
REDUCE: dict[str, Op] = {name: record(name) for name in REDUCTIONS}
RUN_ALONG: dict[str, Op] = {name: record(name) for name in RUNNING}
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


@shape("add_at")
def add_at(x: TensorType, value: TensorType, places: object) -> TensorType:
    """What is added to elements of x, and where, one after the other in any order. The result is nothing but that it
    has been done: nobody reads its elements."""
    return value


@shape("convert")
def convert(x: TensorType, dtype: torch.dtype) -> TensorType:
    return TensorType(x.shape, preserved_stride(x), dtype, x.device)


# The result's dtype is what counts; casting to it is the caller's part of every element-wise rule.
CONVERT.rule = Pointwise(lambda x, dtype: x, "first")


@shape("again", "held")
def again(x: TensorType, after: TensorType | None = None) -> TensorType:
    return x


@shape("restride")
def restride(x: TensorType, stride: tuple[int, ...]) -> TensorType:
    return TensorType(x.shape, stride, x.dtype, x.device)


RESTRIDE.rule = Pointwise(lambda x, stride: x, "first")


@shape(*REDUCTIONS)
def reduction(x: TensorType, dims: tuple[int, ...]) -> TensorType:
    return fresh(x, tuple(1 if k in dims else n for k, n in enumerate(x.shape)), x.dtype)


@shape("argmax", "argmin")
def position(x: TensorType, dims: tuple[int, ...]) -> TensorType:
    return fresh(x, tuple(1 if k in dims else n for k, n in enumerate(x.shape)), torch.int64)


@shape(*RUNNING)
def running(x: TensorType, dim: int) -> TensorType:
    return fresh(x, x.shape, x.dtype)


@shape("running_argmax", "running_argmin")
def running_position(x: TensorType, dim: int) -> TensorType:
    return fresh(x, x.shape, torch.int64)


@shape("linear")
def linear(
    x: TensorType, weight: TensorType, bias: TensorType | None, residual: TensorType | None, activation: Any
) -> TensorType:
    return fresh(x, (x.shape[0], weight.shape[0]))


@shape("conv")
def conv(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    residual: TensorType | None,
    activation: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> TensorType:
    rule = record("aten.convolution.default").shape
    assert rule is not None
    return rule(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
