"""Element reads: detects tensors used as numbers, as in ``x[:n]``, ``torch.arange(n)`` or ``x.view(n, -1)``.

torch reads the element of the integer tensor ``n`` inside the call, invisible to a torch function mode. The call itself
can be recorded. But then the size of its result depends on data, and numbers that the trace computes from the size
would be wrong constants. So calls with such tensors are watched one layer below, by a dispatch mode:

    if may_read(function, args, kwargs):
        with ReadNumbers() as read:
            result = function(*args)
        read.any                        whether an element was read
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...foundation.torch_private import TorchDispatchMode
from ..guards.tensor_metadata import TENSOR_TYPES

SIZED_BY_FLOATS = frozenset((torch.arange, torch.range))
"""In other functions a floating-point number only changes values, not sizes."""

NOT_SIZED = frozenset((torch.ctc_loss, torch.nn.functional.ctc_loss))
"""Their lengths are read but determine no size. Under a dispatch mode torch treats the lengths like those of a
subclass, and on a GPU expects them on it."""

READ = torch.ops.aten._local_scalar_dense.default
CONTAINERS = (tuple, list, torch.Size)


def may_read(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call may take a size from a tensor's element."""
    if function in NOT_SIZED:
        return False
    return takes_numbers(args) or bool(kwargs) and takes_numbers(kwargs.values()) or function in SIZED_BY_FLOATS


def takes_numbers(args: Iterable[Any]) -> bool:
    """Whether the arguments contain a tensor that could be used as an integer."""
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
    """Notices when an element becomes a C++ number."""

    any = False
    supports_higher_order_operators = True
    """Loops and other higher-order operators run unchanged: the sizes of their results do not depend on data."""


def notice(self: ReadNumbers, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    if func is READ:
        self.any = True
    return func(*args, **(kwargs or {}))


# As part of the class body, torch would wrap it to keep Dynamo out, and the wrapper imports Dynamo.
ReadNumbers.__torch_dispatch__ = notice  # type: ignore[method-assign]
