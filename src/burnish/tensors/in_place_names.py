"""Torch calls that write to their first argument: their names, as ``add_``, ``__setitem__``, ``__ilshift__``, and those
that only change its shape, as ``squeeze_``.

Torch marks names by a trailing underscore. Python's special methods have two of their own, and some of them write.
"""

from __future__ import annotations

import torch

OPERATIONS = "add sub mul matmul div truediv floordiv mod pow lshift rshift and or xor"
SPECIAL = frozenset(["setitem", "__setitem__", *(f"__i{name}__" for name in OPERATIONS.split())])
"""Functions that write although their names do not have torch's form."""

VIEW_OF_RESHAPING = {
    torch.ops.aten.squeeze_.default: torch.ops.aten.squeeze.default,
    torch.ops.aten.squeeze_.dim: torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze_.dims: torch.ops.aten.squeeze.dims,
    torch.ops.aten.unsqueeze_.default: torch.ops.aten.unsqueeze.default,
    torch.ops.aten.transpose_.default: torch.ops.aten.transpose.int,
    torch.ops.aten.t_.default: torch.ops.aten.t.default,
}
"""Operators that change the shape of a tensor in place, and those that return it as a view."""


def is_in_place_name(name: str) -> bool:
    return name in SPECIAL or name.endswith("_") and not name.endswith("__")
