"""Random tensors (rand, randint, randperm, bernoulli, normal, multinomial, dropout): shape rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import copied
from ..operator_record import broadcast_shape, fresh, record, shape
from .creation import Options, empty_like, made, zeros


@shape("aten.rand.default", "aten.randn.default", "aten.rand.generator", "aten.randn.generator")
def rand(size: Sequence[int], *, generator: object = None, **options: Any) -> TensorType:
    return zeros(size, **options)


@shape("aten.rand_like.default", "aten.randn_like.default")
def rand_like(x: TensorType, *, generator: object = None, **options: Any) -> TensorType:
    return empty_like(x, **options)


@shape("aten.randint_like.default")
def randint_like(x: TensorType, high: int, *, generator: object = None, **options: Any) -> TensorType:
    return empty_like(x, **options)


@shape("aten.randint.default", "aten.randint.generator")
def randint(high: int, size: Sequence[int], *, generator: object = None, **options: Unpack[Options]) -> TensorType:
    return made(size, torch.int64, **options)


@shape("aten.randint.low", "aten.randint.low_generator")
def randint_from(
    low: int, high: int, size: Sequence[int], *, generator: object = None, **options: Unpack[Options]
) -> TensorType:
    return made(size, torch.int64, **options)


@shape("aten.randperm.default", "aten.randperm.generator")
def randperm(n: int, *, generator: object = None, **options: Unpack[Options]) -> TensorType:
    return made((n,), torch.int64, **options)


@shape("aten.randint_like.low_dtype")
def randint_like_from(x: TensorType, low: int, high: int, *, generator: object = None, **options: Any) -> TensorType:
    return empty_like(x, **options)


@shape("aten.bernoulli.default", "aten.bernoulli.p")
def bernoulli(x: TensorType, p: float = 0.5, *, generator: object = None) -> TensorType:
    return fresh(x, x.shape)


@shape("aten.native_dropout.default")
def native_dropout(x: TensorType, p: float, train: bool | None) -> tuple[TensorType, TensorType]:
    return copied(x), copied(x, torch.bool)


@shape("aten.multinomial.default")
def multinomial(x: TensorType, num_samples: int, replacement: bool = False, *, generator: object = None) -> TensorType:
    return fresh(x, (*x.shape[:-1], num_samples), torch.int64)


@shape("aten.normal.Tensor_float")
def normal_around(mean: TensorType, std: float = 1.0, *, generator: object = None) -> TensorType:
    return fresh(mean, mean.shape)


@shape("aten.normal.float_Tensor")
def normal_with(mean: float, std: TensorType, *, generator: object = None) -> TensorType:
    return fresh(std, std.shape)


@shape("aten.normal.Tensor_Tensor")
def normal(mean: TensorType, std: TensorType, *, generator: object = None) -> TensorType:
    return fresh(mean, broadcast_shape([mean.shape, std.shape]))


RANDOM = (
    "aten.rand.default aten.rand.generator aten.randn.default aten.randn.generator aten.randint.default "
    "aten.randint.generator aten.randint.low aten.randint.low_generator aten.randperm.default aten.randperm.generator "
    "aten.rand_like.default aten.randn_like.default aten.randint_like.default aten.randint_like.low_dtype "
    "aten.bernoulli.default aten.bernoulli.p aten.native_dropout.default aten.multinomial.default "
    "aten.normal.Tensor_float aten.normal.float_Tensor aten.normal.Tensor_Tensor"
)
"""They draw from a generator: their order matters, and equal calls return different results."""

for name in RANDOM.split():
    record(name).notes["random"] = True
