"""State that grows from call to call: predicts its symbolic size during the first call.

    cache.keys = torch.cat([empty, k], -2)        the first call: the cache is empty, and k is appended to it

The next call appends to it again. So the next segment makes this size symbolic at once. A segment for the size of that
one call would serve only one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .tensor_metadata import TENSOR_TYPES

NOTHING = 0
"""The previous value of such a size. The size is expected to change, but has not been seen to change yet."""


def grown_dim(args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int | None:
    """For a `torch.cat` call with an empty operand and a result that is not empty: the dimension."""
    parts = args[0] if args else kwargs.get("tensors")
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if type(parts) not in (list, tuple) or type(dim) is not int or type(result) not in TENSOR_TYPES:
        return None
    is_begun = any(isinstance(part, torch.Tensor) and not part.numel() for part in parts) and result.numel()
    return dim % result.ndim if is_begun else None


def growing(tracer: Any) -> dict[tuple[tuple, int], tuple[int, int]]:
    """By path and dimension: sizes of values stored in outside objects that will differ in the next call."""
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
