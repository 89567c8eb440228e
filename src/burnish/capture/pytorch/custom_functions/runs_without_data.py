"""Whether a function runs on tensors without data: then the types of its results do not depend on data.

    runs_without_data(Scaled.apply, (x, 2.0))      True
    runs_without_data(Positive.apply, (x,))        False: x[x > 0] has a size that only data tells

The function gets tensors that have the types of its arguments and no memory. Whatever it reads out of one raises, in
torch or in Python. No list of calls that read is needed, which would never be complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ....concurrency.outside_errors import reraise_from_outside
from ....foundation.torch_private import (
    are_functorch_transforms_active,
    disabled_torch_function_impl,
    len_torch_dispatch_stack,
    make_wrapper_subclass,
    top_saved_tensors_default_hooks,
)
from ....runtime.argument_trees import mapped
from ...guards.tensor_metadata import TENSOR_TYPES


class WithoutData(torch.Tensor):
    """A tensor on the device of another one. `type_only` is on the device meta, where operators compute types."""

    type_only: torch.Tensor

    @staticmethod
    def make(type_only: torch.Tensor, device: torch.device, requires_grad: bool = False) -> WithoutData:
        made = make_wrapper_subclass(
            WithoutData,
            type_only.shape,
            strides=type_only.stride(),
            dtype=type_only.dtype,
            device=device,
            requires_grad=requires_grad,
        )
        made.type_only = type_only
        return made

    __torch_function__ = disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wrappers: dict[int, WithoutData] = {}

        def type_only(tensor: torch.Tensor) -> torch.Tensor:
            if not isinstance(tensor, WithoutData):
                return like(tensor)
            wrappers[id(tensor.type_only)] = tensor
            return tensor.type_only

        given = mapped((args, kwargs), torch.Tensor, type_only)
        device = kwargs.get("device") or next(iter(wrappers.values())).device
        meta = torch.device("meta")
        made = func(*given[0], **mapped(given[1], torch.device, lambda _: meta))

        def wrapped(tensor: torch.Tensor) -> torch.Tensor:  # an operator that writes returns what it was given
            return wrappers.get(id(tensor)) or WithoutData.make(tensor, torch.device(device))

        return mapped(made, torch.Tensor, wrapped)


def like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def runs_without_data(function: Callable, args: tuple) -> bool:
    """False also where running the function could be seen, or tensors are not plain."""
    tensors: list[torch.Tensor] = []
    mapped(args, torch.Tensor, tensors.append)
    if any(type(x) not in TENSOR_TYPES or x.layout is not torch.strided for x in tensors) or is_seen():
        return False
    try:
        function(*mapped(args, torch.Tensor, lambda x: WithoutData.make(like(x), x.device, x.requires_grad)))
    except Exception as error:
        reraise_from_outside(error)
        return False
    return True


def is_seen() -> bool:
    """Whether the program, or a transform, receives the operators that run, or the tensors that they save."""
    return (
        len_torch_dispatch_stack() > 0
        or are_functorch_transforms_active()
        or top_saved_tensors_default_hooks(True) is not None
    )
