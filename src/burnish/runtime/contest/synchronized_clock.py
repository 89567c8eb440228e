"""What time it is, for measuring calls: on a GPU a call returns before its work is done.

clock = clock_for(inputs)
start = clock(); call(*inputs); seconds = clock() - start
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from ..devices import gpus_of


def clock_for(inputs: Sequence[Any]) -> Callable[[], float]:
    """One that waits for the GPUs that the inputs are on, if they are on any."""
    devices = gpus_of(inputs)
    if not devices:
        return perf_counter

    def clock() -> float:
        if not is_recorded():
            for device in devices:
                torch.cuda.synchronize(device)
        return perf_counter()

    return clock


def synchronized_clock() -> float:
    """What time it is when the current GPU has done its work, where one is in use."""
    if torch.cuda.is_initialized() and not is_recorded():
        torch.cuda.synchronize()
    return perf_counter()


def is_recorded() -> bool:
    """Whether what is launched now is recorded by the user: nothing is computed, and nobody may wait for it."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


__all__ = ["clock_for", "is_recorded", "synchronized_clock"]
