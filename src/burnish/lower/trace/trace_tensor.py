"""Tensors of a trace: a type and no data, as a wrapper subclass of torch.Tensor."""

from __future__ import annotations

from typing import Any

import torch

from ...foundation.torch_private import (
    DispatchKey,
    DispatchKeySet,
    disabled_torch_function_impl,
    make_wrapper_subclass,
    set_conj,
    set_neg,
)
from ...ir.alias_analysis import aliased_argument
from ...ir.graph import Value
from ...ir.untraceable_graph import Untraceable
from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import TensorType


class TraceTensor(torch.Tensor):
    """A tensor that has only a type. `value` represents it in the graph."""

    value: Value

    @staticmethod
    def make(value: Value, storage_offset: int = 0, is_zero: bool = False) -> TraceTensor:
        """`is_zero`: zeros without memory, see `aten_tracer.ZEROS_WITHOUT_MEMORY`."""
        type = value.type
        made = make_wrapper_subclass(
            TraceTensor,
            type.shape,
            strides=type.stride,
            storage_offset=storage_offset,
            dtype=type.dtype,
            device=type.device,
            **ZERO_TENSOR if is_zero else {},
        )
        made.value = value
        return made

    __torch_function__ = disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Torch prints arguments in its messages; an error raised there would corrupt the dispatcher's state."""
        return f"TraceTensor({self.value}: {self.value.type})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Untraceable(f"{func} was called outside the trace")


ZERO_TENSOR: dict[str, Any] = {"_extra_dispatch_keys": DispatchKeySet(DispatchKey.ZeroTensor)}

LAZY = {
    torch.ops.aten._conj.default: (set_conj, torch.Tensor.is_conj),
    torch.ops.aten._neg_view.default: (set_neg, torch.Tensor.is_neg),
}


def mark_lazy_view(func: Any, args: tuple, made: TraceTensor) -> TraceTensor:
    """Set the conj or neg bit of a view that has it in eager: torch's C++ code reads it
    (`ops.elementwise.lazy_conj_neg`). A view of zeros without memory is such zeros, too."""
    x = args[0] if args else None
    if not isinstance(x, TraceTensor) or not func._schema.returns[0].alias_info:
        return made
    if x._is_zerotensor():
        made = TraceTensor.make(made.value, made.storage_offset(), is_zero=True)
    for turns, (turn, is_turned) in LAZY.items():
        if is_turned(x) != (func is turns):
            turn(made, True)
    return made


def is_view_through_lazy(value: Value) -> bool:
    """Whether it is a view of a lazily conjugated or negated tensor, such as ``x.mH.mH``. The graph would return a
    copy, since it computes what such a tensor shows."""
    at: Value | None = value
    while at is not None and at.node is not None:
        if at.node.op.target in LAZY:
            return True
        at = aliased_argument(at.node)
    return False


def gradient_type(type: TensorType) -> TensorType:
    """The type of a tensor's gradient: a dense tensor's strides are kept."""
    return TensorType(type.shape, preserved_stride(type), type.dtype, type.device)
