"""State that grows from call to call, known as such before it has.

    cache.keys = torch.cat([empty, k], -2)        the first call: it begins with nothing, and k is put behind it

The next call puts something behind it again. So the segment that is traced then leaves this size open at once, where
one for the size that it happens to have would serve a single call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .tensor_metadata import TENSOR_TYPES

NOTHING = 0
"""What such a size was before. It only is expected to change, and has not been seen to."""


def grown_dim(args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int | None:
    """Of a call of `torch.cat`: the dimension, where one of what it joins is empty."""
    parts = args[0] if args else kwargs.get("tensors")
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if type(parts) not in (list, tuple) or type(dim) is not int or type(result) not in TENSOR_TYPES:
        return None
    is_begun = any(isinstance(part, torch.Tensor) and not part.numel() for part in parts) and result.numel()
    return dim % result.ndim if is_begun else None


def growing(tracer: Any) -> dict[tuple[tuple, int], tuple[int, int]]:
    """The sizes, by path and dimension, of what the trace stored in objects from outside that will be others in the
    next call."""
    heap, recorder = tracer.heap, tracer.recorder
    found: dict[tuple[tuple, int], tuple[int, int]] = {}
    if not recorder.grown:
        return found
    for origin in list(heap.origins.values()):
        if type(origin.obj) is not dict or not heap.changed(origin):
            continue
        for name, value in origin.obj.items():
            handle = recorder.handle_of(value) if type(value) in TENSOR_TYPES else None
            dim = None if handle is None or handle.path else recorder.grown.get(handle.call)
            if dim is not None:
                found[origin.entry(name).path(), dim] = NOTHING, value.shape[dim]
    return found
