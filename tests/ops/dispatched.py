"""Every ATen call that a piece of code makes, in eager.

    with Dispatched(seen):
        F.linear(x, w, b)             # seen(func, args, kwargs, run): t, addmm

A plain object on torch's stack of dispatch modes: `TorchDispatchMode` would import Dynamo.
"""

from collections.abc import Callable
from typing import Any

import torch


class Dispatched:
    """Calls `seen(func, args, kwargs)` in place of each operator; what that returns is the operator's result."""

    def __init__(self, seen: Callable[[Any, tuple, dict[str, Any]], Any]):
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.seen(func, args, kwargs or {})

    def __enter__(self):
        torch._C._push_on_torch_dispatch_stack(self)
        return self

    def __exit__(self, *_):
        torch._C._pop_torch_dispatch_stack(None)
