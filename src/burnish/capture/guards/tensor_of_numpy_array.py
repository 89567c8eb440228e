"""Graph inputs that alias the memory of NumPy arrays from outside.

a[0] = 1             a.dtype and a.shape are guarded as the facts of ``tensor_of_array(a)``
"""

from __future__ import annotations

from typing import Any

import torch

from ..numbers.numpy_tables import ARRAY

CHARACTERS = frozenset("?bhilBefdFD")
"""The dtypes of arrays that a tensor can show and whose operations torch has."""


def tensor_of_array(array: Any) -> torch.Tensor | None:
    """A tensor that shows an array's memory; None if torch cannot, or if the array must not be written to."""
    if type(array) is not ARRAY or array.dtype.char not in CHARACTERS or not array.flags.behaved:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # negative strides, another byte order
        return None
