"""Attributes of arrays and scalars whose data the graph computes: facts, views, and methods."""

from __future__ import annotations

from typing import Any

import torch

from ..interpreter.frames import MISSING
from ..numbers.numpy_tables import ARRAY
from . import array_functions, translate_numpy_call
from .graph_arrays import tensor_of

FACTS = frozenset(("dtype", "ndim", "itemsize"))
VIEWS = {
    "T": (array_functions.transpose, "transpose"),
    "real": (array_functions.real, "real"),
    "imag": (array_functions.imag, "imag"),
}


def load(m: Any, value: Any, name: str) -> Any:
    """``value.name``, or MISSING."""
    tensor = tensor_of(m, value)
    if tensor is None:
        return MISSING
    if name in FACTS:
        return getattr(value, name)
    if name == "shape":
        return tuple(m.load_attr(tensor, "shape"))
    if name == "size":
        return m.call(torch.Tensor.numel, (tensor,), {})
    if name in VIEWS and type(value) is ARRAY:
        implementation, function = VIEWS[name]
        return translate_numpy_call.computed(
            m, translate_numpy_call.function_named(function), implementation, (value,), {}
        )
    found = getattr(type(value), name, None)
    return getattr(value, name) if callable(found) else MISSING
