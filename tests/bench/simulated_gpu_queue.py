"""A simulated GPU queue: kernels take time, and events record when they finish.

    gpu = Queue()
    gpu.instead_of_cuda(monkeypatch)
    gpu.launch(cpu=1e-5, kernel=1e-3)           a call: seconds on the CPU, seconds on the GPU
    EventClock("cuda").sample(…)

There are two clocks, as in reality: the CPU's runs while it launches and while it waits; the GPU's work begins when it
is launched and the work before it is done.
"""

from __future__ import annotations

import torch


class Queue:
    def __init__(self):
        self.cpu = 0.0
        self.done = 0.0
        """When all that is queued will be done."""
        self.waits = 0

    def launch(self, cpu, kernel):
        self.cpu += cpu
        self.done = max(self.done, self.cpu) + kernel

    def synchronize(self, device=None):
        self.waits += 1
        self.cpu = max(self.cpu, self.done)

    def now(self):
        return self.cpu

    def instead_of_cuda(self, monkeypatch):
        queue = self

        class Event:
            def __init__(self, enable_timing=False):
                self.is_timed = enable_timing
                self.at = None

            def record(self, stream=None):
                queue.done = self.at = max(queue.cpu, queue.done)

            def elapsed_time(self, other):
                assert self.is_timed and other.is_timed and queue.cpu >= other.at, "not waited for"
                return (other.at - self.at) * 1e3

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: None)
