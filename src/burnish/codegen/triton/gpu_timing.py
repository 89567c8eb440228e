"""Measures how long a run takes on a GPU.

seconds_of(run)         run() starts kernels in the current stream
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...foundation.torch_private import sleep_on_gpu

ROUNDS, AT_ONCE = 3, 10
"""Ten runs are timed together; the minimum of three such times counts."""

HEAD_START = 2_000_000
"""GPU cycles, about a millisecond: the GPU waits this long while the CPU launches the timed work."""


def seconds_of(run: Callable[[], object], rounds: int = ROUNDS, at_once: int = AT_ONCE) -> float:
    """Seconds of one run, on the GPU alone: launches wait there until all of them are queued."""
    run()  # the first call may select its own kernels
    least = float("inf")
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        sleep_on_gpu(HEAD_START)
        start.record()
        for _ in range(at_once):
            run()
        end.record()
        end.synchronize()
        least = min(least, start.elapsed_time(end) / 1e3 / at_once)
    return least
