"""Burnish's own primitive operators, the targets of decompositions and rewrites.

    view     x, maps              the view of x by `maps`; see tensors.views.view_maps
    put      x, value, maps       x with the elements in the view by `maps` replaced by value
    convert  x, dtype             x in another dtype, element by element
    restride x, stride            a copy with these strides
    sum, prod, max, min, argmax, argmin, any, all   x, dims      reduction over `dims`, which stay with size 1
    running_sum, …_prod, …_max, …_min, …_argmax, …_argmin   x, dim     scan along `dim`

    linear   x, weight, bias, residual, activation     activation(x @ weight.T + bias + residual), x of two dimensions
    quantized_linear  x, weight, scales, shifts, bias, bits, group, offset   see tensors.quantized_linear_reference
    conv     x, weight, bias, residual, activation, stride, padding, dilation, transposed, output_padding, groups
    prepare  candidate, weight, bias                   the packed weights of a library call, computed once
    run      candidate, operands                       the library call chosen for a linear or a conv
    assembled  parts, offsets, buffer                  the concatenation of parts already stored side by side
    fetch    source, places                            gather by index tensors; see ops.indexing.gather_lowering
    add_at   x, value, places                          scatter-add into x; the result only orders later readers
    again    x, after                                  a barrier against CSE; see lower.passes.drop_recompute_barriers
    held     x, after                                  x itself, for code that must run after `after` is computed
    check    wrong, operator, args, kwargs, about      raises the operator's own error if `wrong`; no result

They have no eager kernel: each is compiled into loops, or run by its function in `runtime`.
"""

from __future__ import annotations

from typing import Any

import torch

from ..tensors.eager_strides import preserved_stride
from ..tensors.tensor_types import TensorType, contiguous_stride
from ..tensors.views.view_maps import Maps, view_type
from .operator_record import Op, Pointwise, fresh, record, shape

REDUCTIONS = "sum prod max min argmax argmin any all".split()

RUNNING = "running_sum running_prod running_max running_min running_argmax running_argmin".split()

VIEW: Op = record("view")
PUT: Op = record("put")
CONVERT: Op = record("convert")
RESTRIDE: Op = record("restride")
LINEAR: Op = record("linear")
QUANTIZED_LINEAR: Op = record("quantized_linear")
CONV: Op = record("conv")
PREPARE: Op = record("prepare")
RUN: Op = record("run")
ASSEMBLED: Op = record("assembled")
FETCH: Op = record("fetch")
CHECK: Op = record("check")
ADD_AT: Op = record("add_at")
RECOMPUTE_BARRIER: Op = record("again")
ORDER_AFTER: Op = record("held")
REDUCE: dict[str, Op] = {name: record(name) for name in REDUCTIONS}
RUN_ALONG: dict[str, Op] = {name: record(name) for name in RUNNING}
REDUCTION_OF: dict[str, str] = {op.name: name for name, op in REDUCE.items()}


@shape("view")
def view(x: TensorType, maps: Maps) -> TensorType:
    """If no strides can express the view, as for a reversed slice, the result is a copy."""
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
    """Adds the elements of `value` to elements of x, in any order. The result only shows that the additions are done:
    its elements are never read."""
    return value


@shape("convert")
def convert(x: TensorType, dtype: torch.dtype) -> TensorType:
    return TensorType(x.shape, preserved_stride(x), dtype, x.device)


# The caller of an element-wise rule casts the result to the result dtype.
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


@shape("linear", "quantized_linear")
def linear(x: TensorType, weight: TensorType, *_: object) -> TensorType:
    return fresh(x, (x.shape[0], weight.shape[0]))


@shape("conv")
def conv(
    x: TensorType, weight: TensorType, bias: TensorType | None, residual: object, activation: object, *others: Any
) -> TensorType:
    rule = record("aten.convolution.default").shape
    assert rule is not None
    return rule(x, weight, bias, *others)
