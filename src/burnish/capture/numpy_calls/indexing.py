"""Keys of array subscripts as keys of tensor subscripts.

a[1:, None, ..., 0]        the same for tensors
a[a > 0], a[rows, cols]    arrays become tensors
a[0, :, rows]              not supported: the integer counts as an array for NumPy, which decides where dimensions go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..numbers.live_scalars import settled
from ..numbers.numpy_tables import NUMBERS


def key_for(key: Any, operand: Callable) -> Any:
    """The key for a tensor, or NotImplemented. ``operand`` makes tensors of arrays."""
    parts = [part_for(part, operand) for part in (key if type(key) is tuple else (key,))]
    if any(part is NotImplemented for part in parts):
        return NotImplemented
    if any(part.is_floating_point() or part.dtype is torch.uint8 for part in parts if isinstance(part, torch.Tensor)):
        return NotImplemented
    if any(type(part) in ARRAYS for part in parts) and any(type(part) is int for part in parts):
        at = [i for i, part in enumerate(parts) if type(part) in ARRAYS or type(part) is int]
        if len(at) <= at[-1] - at[0]:
            return NotImplemented
    return tuple(parts) if type(key) is tuple else parts[0]


ARRAYS = (torch.Tensor, list)


def part_for(part: Any, operand: Callable) -> Any:
    part = settled(part)
    if type(part) is slice:
        limits = [settled(limit) for limit in (part.start, part.stop, part.step)]
        return slice(*limits) if all(type(limit) in (int, type(None)) for limit in limits) else NotImplemented
    if type(part) in NUMBERS:
        number = operand(part)
        return number if type(number) is int else NotImplemented
    if type(part) in (bool, list, tuple):
        is_index = type(part) is list and len(part) > 0 and all(type(settled(i)) is int for i in part)
        return list(map(settled, part)) if is_index else NotImplemented
    return part if part is None or part is Ellipsis or type(part) is int else operand(part)


def with_tensors(key: Any) -> Any:
    """Lists in the key as tensors. Called under the recorder."""
    if type(key) is tuple:
        return tuple([with_tensors(part) for part in key])
    return torch.tensor(key) if type(key) is list else key


def select(tensor: torch.Tensor, key: Any) -> torch.Tensor:
    return tensor[with_tensors(key)]


def assign(tensor: torch.Tensor, key: Any, value: Any) -> None:
    tensor[with_tensors(key)] = value
