"""One-dimensional max pooling without gradients: the result is contiguous, whatever the input's strides.

    F.max_pool1d(x.mT, 2)    =>    maxima, places = max_pool2d_with_indices …
                                   clone          = clone maxima, memory_format=contiguous_format

On a CPU eager has a separate kernel for it. Tensor subclasses, which include the tensors of the trace, use the
two-dimensional kernel, as do inputs that need a gradient. That kernel gives its result the layout of the input.
"""

from __future__ import annotations

from typing import Any

import torch

from ....tensors.device_facts import is_host
from ....tensors.tensor_types import contiguous_stride

POOLS = (torch.nn.functional.max_pool1d, torch.max_pool1d, torch.ops.aten.max_pool1d, torch.ops.aten.max_pool1d.default)


def is_pooled_line(target: Any) -> bool:
    return any(target is pool for pool in POOLS)


def pool_line(target: Any, args: tuple, kwargs: dict) -> Any:
    found = target(*args, **kwargs)
    x = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if not isinstance(found, torch.Tensor) or not is_host(found.device):
        return found
    if torch.is_grad_enabled() and x.requires_grad or found.stride() == contiguous_stride(tuple(found.shape)):
        return found
    return found.clone(memory_format=torch.contiguous_format)
