"""Shape rules of layer, group, batch and RMS norms and their gradients.

native_layer_norm(f32[2, 3, 8], [8], f32[8], f32[8], 1e-5)     f32[2, 3, 8], f32[2, 3, 1], f32[2, 3, 1]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...tensors.dtypes import HALVES
from ...tensors.tensor_types import TensorType
from ..memory_format import copied, dense_format, formatted, is_contiguous_as, suggested
from ..operator_record import NoRule, fresh, shape


def parameter_dtype(x: TensorType, *parameters: TensorType | None) -> torch.dtype:
    """For half-precision data, parameters may be in float32."""
    mixed = x.dtype in HALVES and any(
        parameter is not None and parameter.dtype == torch.float32 for parameter in parameters
    )
    return torch.float32 if mixed else x.dtype


def statistics_dtype(x: TensorType, *parameters: TensorType | None) -> torch.dtype:
    """The dtype of the parameters on a CPU; the compute dtype on a GPU."""
    return torch.float32 if x.dtype in HALVES and x.device.type == "cuda" else parameter_dtype(x, *parameters)


@shape("aten.native_layer_norm.default")
def native_layer_norm(
    x: TensorType, normalized_shape: Sequence[int], weight: TensorType | None, bias: TensorType | None, eps: float
) -> tuple[TensorType, ...]:
    kept = x.ndim - len(normalized_shape)
    rows = fresh(x, (*x.shape[:kept], *(1,) * len(normalized_shape)), statistics_dtype(x, weight, bias))
    return fresh(x, x.shape), rows, rows


@shape("aten.native_group_norm.default")
def native_group_norm(
    x: TensorType, weight: TensorType | None, bias: TensorType | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[TensorType, ...]:
    groups = fresh(x, (N, group), parameter_dtype(x, weight, bias))
    return formatted(x, x.shape, suggested(x)), groups, groups


@shape("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def native_batch_norm(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType | None,
    running_var: TensorType | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    """In evaluation the saved statistics are two empty tensors."""
    saved = fresh(x, (x.shape[1],) if training else (0,), statistics_dtype(x, weight, bias, running_mean, running_var))
    return formatted(x, x.shape, dense_format(x)), saved, saved


@shape("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: TensorType, weight: TensorType | None, bias: TensorType | None, training: bool, momentum: float, eps: float
) -> tuple[TensorType, ...]:
    return native_batch_norm(x, weight, bias, None, None, training, momentum, eps)


@shape("aten._native_batch_norm_legit_no_training.default")
def batch_norm_in_evaluation(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType,
    running_var: TensorType,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    return native_batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)


@shape("aten._batch_norm_with_update.default")
def batch_norm_with_reserve(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType | None,
    running_var: TensorType | None,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    """The last result is the reserve space of a GPU library for the gradient; it is empty on a CPU."""
    found = native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return *found, fresh(x, (0,), torch.uint8)


@shape("aten._native_batch_norm_legit_functional.default")
def batch_norm_with_new_statistics(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType,
    running_var: TensorType,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    """The updated running statistics are additional results."""
    found = native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return *found, copied(running_mean), copied(running_var)


@shape("aten._batch_norm_with_update_functional.default")
def batch_norm_with_reserve_and_new_statistics(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType,
    running_var: TensorType,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    found = batch_norm_with_reserve(x, weight, bias, running_mean, running_var, momentum, eps)
    return *found, copied(running_mean), copied(running_var)


@shape("aten._fused_rms_norm.default")
def fused_rms_norm(
    x: TensorType, normalized_shape: Sequence[int], weight: TensorType | None, eps: float | None
) -> tuple[TensorType, ...]:
    kept = x.ndim - len(normalized_shape)
    rows = fresh(x, (*x.shape[:kept], *(1,) * len(normalized_shape)), statistics_dtype(x, weight))
    return fresh(x, x.shape), rows


# -- gradients ---------------------------------------------------------------------------------------------------------


@shape("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(
    grad_out: TensorType,
    x: TensorType,
    normalized_shape: Sequence[int],
    mean: TensorType,
    rstd: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    output_mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    parameter = fresh(x if weight is None else weight, normalized_shape)
    found = fresh(x, x.shape), parameter, parameter
    return tuple(type if asked else None for type, asked in zip(found, output_mask, strict=True))


@shape("aten.native_group_norm_backward.default")
def native_group_norm_backward(
    grad_out: TensorType,
    x: TensorType,
    mean: TensorType,
    rstd: TensorType,
    weight: TensorType | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    """Dense in the format of `x`. torch 2.11 drops the strides of size-1 dimensions; later versions keep them."""
    parameter = fresh(x if weight is None else weight, (C,))
    dense = formatted(x, x.shape, suggested(x))
    if dense.stride != x.stride and x.numel and is_contiguous_as(x, suggested(x)):
        raise NoRule(f"strides {x.stride} of {x.shape}")
    found = dense, parameter, parameter
    return tuple(type if asked else None for type, asked in zip(found, output_mask, strict=True))


@shape("aten.native_batch_norm_backward.default")
def native_batch_norm_backward(
    grad_out: TensorType,
    x: TensorType,
    weight: TensorType | None,
    running_mean: TensorType | None,
    running_var: TensorType | None,
    save_mean: TensorType | None,
    save_invstd: TensorType | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    parameter = fresh(x, x.shape[1:2], parameter_dtype(x, weight, running_mean, running_var))
    found = formatted(x, x.shape, suggested(x)), parameter, parameter
    return tuple(type if asked else None for type, asked in zip(found, output_mask, strict=True))
