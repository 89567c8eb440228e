"""Tensors where torch wants a number: ``x[:n]``, ``torch.arange(n)``, ``x.view(n, -1)`` with an integer tensor ``n``.

torch reads the tensor's element inside of the call, unseen by who watches the calls. The call itself can be recorded,
but the size of its result depends on data then, and what the trace goes on to compute from the size would be a
constant. So calls that are given such tensors are watched one layer further down:

    if may_read(function, args, kwargs):
        with ReadNumbers() as read:
            result = function(*args)
        read.any                        whether an element was read
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..guards.tensor_metadata import TENSOR_TYPES

SIZED_BY_FLOATS = frozenset((torch.arange, torch.range))
"""Elsewhere a floating-point number changes values alone."""

NOT_SIZED = frozenset((torch.ctc_loss, torch.nn.functional.ctc_loss))
"""Lengths are read and size nothing. Where a call is watched torch takes them for those of a subclass, and on a GPU
wants them there."""

READ = torch.ops.aten._local_scalar_dense.default
CONTAINERS = (tuple, list, torch.Size)


def may_read(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call may take a size from a tensor's element."""
    if function in NOT_SIZED:
        return False
    return takes_numbers(args) or bool(kwargs) and takes_numbers(kwargs.values()) or function in SIZED_BY_FLOATS


def takes_numbers(args: Iterable[Any]) -> bool:
    """Whether there is a tensor among them that could stand for a whole number."""
    for value in args:
        kind = type(value)
        if kind in TENSOR_TYPES:
            if value.numel() == 1 and not value.is_floating_point() and not value.is_complex():
                return True
        elif kind in CONTAINERS:
            if takes_numbers(value):
                return True
        elif kind is slice and takes_numbers((value.start, value.stop, value.step)):
            return True
    return False


class ReadNumbers(TorchDispatchMode):
    """Notices that an element becomes a number of C++."""

    any = False
    supports_higher_order_operators = True
    """Loops and the like run as they are: what they answer has a size that does not depend on data."""


def notice(self: ReadNumbers, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    if func is READ:
        self.any = True
    return func(*args, **(kwargs or {}))


# Given in the body of the class it would be kept out of Dynamo by a wrapper that imports Dynamo.
ReadNumbers.__torch_dispatch__ = notice  # type: ignore[method-assign]
