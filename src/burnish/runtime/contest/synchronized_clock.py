"""Clocks that wait for the GPU: a call with GPU inputs returns before its work is done.

clock = clock_for(inputs)
start = clock(); call(*inputs); seconds = clock() - start
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from ...tensors.device_facts import gpus_of


def clock_for(inputs: Sequence[Any]) -> Callable[[], float]:
    """A clock that waits for the GPUs that the inputs are on, if any."""
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
    """The time when the current GPU has finished its work, if a GPU is in use."""
    if torch.cuda.is_initialized() and not is_recorded():
        torch.cuda.synchronize()
    return perf_counter()


def is_recorded() -> bool:
    """Whether the user is capturing a CUDA graph: launches compute nothing, and synchronizing is an error."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
