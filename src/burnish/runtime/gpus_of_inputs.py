"""The GPUs that input tensors are on.

gpus_of([x, 2.0, w])        {device(type='cuda', index=0)}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..foundation.torch_private import DisableTorchFunctionSubclass


def gpus_of(inputs: Sequence[Any]) -> set[torch.device]:
    """The GPUs that the tensors are on. A tensor subclass's `__torch_function__` is not called."""
    with DisableTorchFunctionSubclass():
        return {x.device for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda}
