"""How long a call takes: by the wall clock, or on a GPU by two of its events.

    clock = clock_for("cuda")
    clock.sample(call)                      # seconds of one call
    clock.start(); …; clock.stop()          # seconds of anything between the two

A GPU is still at work when a call returns. An event is a mark in its queue: the GPU notes the time when it gets there.
Before a call the queue is empty, so the time between the marks is what a user waits for: Python and launches where
these are slower than the kernels, else the kernels. It does not include the wait for the last kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

Now = Callable[[], float]

SAMPLE_SECONDS = 2e-4
"""Shorter calls are timed several at a time, because the clock itself takes a fraction of a microsecond."""


class WallClock:
    name = "wall clock"
    waits = False
    """Whether the clock itself waits for the work that a call has queued."""

    def __init__(self, now: Now = time.perf_counter):
        self.now = now
        self.started = 0.0

    def start(self) -> None:
        self.started = self.now()

    def stop(self) -> float:
        """Seconds since `start`."""
        return self.now() - self.started

    def repeats(self, seconds: float) -> int:
        """How many calls of the given duration make a sample."""
        return max(1, round(SAMPLE_SECONDS / max(seconds, 1e-9)))

    def sample(self, call: Callable[[], Any], repeat: int = 1) -> float:
        """Seconds per call."""
        self.start()
        for _ in range(repeat):
            call()  # the result is dropped, so that every call finds the same memory free
        return self.stop() / repeat


class EventClock(WallClock):
    """Every call has events of its own, however short it is: calls queued behind each other would hide the cost of
    launching them."""

    name = "CUDA events"
    waits = True

    def __init__(self, device: str = "cuda", now: Now = time.perf_counter):
        super().__init__(now)
        self.device = device
        # Created once: an event is initialized when it is first recorded, and that takes time.
        self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.stream = torch.cuda.current_stream(device)
        self.begin.record(self.stream)
        self.end.record(self.stream)

    def start(self) -> None:
        torch.cuda.synchronize(self.device)
        self.begin.record(self.stream)

    def stop(self) -> float:
        self.end.record(self.stream)
        torch.cuda.synchronize(self.device)
        return self.begin.elapsed_time(self.end) / 1e3

    def repeats(self, seconds: float) -> int:
        return 1


def clock_for(device: str) -> WallClock:
    return WallClock() if torch.device(device).type == "cpu" else EventClock(device)


def wait(device: str) -> None:
    if torch.device(device).type != "cpu":
        torch.cuda.synchronize(device)
