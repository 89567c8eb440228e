"""CUDA calls other than tensor work: synchronize, switch streams, record a time, free memory.

They concern the work started so far, so a graph ends there: one break, at the user's line that calls them, not inside
torch. Selecting the GPU that is already current changes nothing, and is guarded. Entries of ``builtin_functions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...foundation.torch_private import C
from .. import breaks
from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Expression
from ..python.operators import guard_before_native_read
from .constant_queries import is_current_gpu

CALLS: dict[Any, str] = {
    torch.cuda: """
        synchronize current_stream default_stream set_stream set_device empty_cache ipc_collect manual_seed
        manual_seed_all seed seed_all get_rng_state set_rng_state memory_allocated max_memory_allocated memory_reserved
        max_memory_reserved memory_stats memory_summary memory_snapshot mem_get_info reset_peak_memory_stats
        reset_accumulated_memory_stats utilization
        """,
    torch.cuda.Event: "record wait query synchronize elapsed_time __new__",
    torch.cuda.Stream: "wait_event wait_stream record_event query synchronize __new__",
    torch.cuda.StreamContext: "__enter__ __exit__",
    torch.cuda.nvtx: "range_push range_pop range_start range_end mark",
    torch.accelerator: "synchronize current_stream set_stream set_device_index set_device_idx",
}
"""By the module that defines them."""

WITHOUT_GPU = frozenset("manual_seed manual_seed_all seed seed_all".split())
"""Without a GPU these are stored for later. The others then do nothing, or raise an error, and are traced as usual."""


def _ends_graph(name: str, call: str) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if name not in WITHOUT_GPU and not torch.cuda.is_available():
            return MISSING
        return m.stop(breaks.GPU_CALL, call)

    return handler


def _handlers() -> Iterator[tuple[Any, Callable]]:
    for owner, names in CALLS.items():
        for name in names.split():
            function = getattr(owner, name, None)
            if function is not None:
                where = owner.__name__ if not isinstance(owner, type) else f"torch.cuda.{owner.__name__}"
                yield function, _ends_graph(name, f"{where}.{name}" if name != "__new__" else f"a new {where}")


def _exchange(m: Any, args: tuple, kwargs: dict) -> Any:
    """Switch to a GPU and return the previous one."""
    if kwargs or len(args) != 1 or not torch.cuda.is_initialized():
        return MISSING
    asked, index = guard_before_native_read.settled(args[0]), torch.cuda.current_device()
    if asked not in (index, -1):
        return m.stop(breaks.GPU_CALL, f"cuda:{asked} becomes the current GPU in place of cuda:{index}")
    m.guard_outcome(Expression(is_current_gpu, (index,)), True)
    return asked


HANDLERS: dict[Any, Callable] = dict(_handlers())
BUILTINS: dict[Any, Callable] = {
    function: _exchange
    for name in ("_cuda_exchangeDevice", "_cuda_maybeExchangeDevice")
    if (function := getattr(C, name, None)) is not None
}

__all__ = ["BUILTINS", "HANDLERS"]
