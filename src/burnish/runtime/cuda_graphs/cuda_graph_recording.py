"""Capture CUDA graphs with torch, on one GPU.

    engine = engine_of(device)
    replay, result = engine.capture(lambda: program(*places))       nothing has been computed yet
    replay()                                                        now `result` has been computed

A thread that captures or replays excludes others on its GPU until the results are copied out (`ExclusiveUse`). Each
user stream has a capture stream, and memory that its graphs share. Per-stream state of libraries, such as cuBLAS's
workspace, becomes part of the graphs, so graphs of two streams may run at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ...concurrency import pause_garbage_collection, thread_locks
from ...concurrency.first_value_cache import once
from ...foundation.torch_private import cuda_end_allocate_to_pool


class RecordingRefused(Exception):
    """No graph can be made, and why."""


class ExclusiveUse:
    """A lock that a thread does not wait for when it holds it already; `begin` then returns False. A finalizer may run
    anywhere and call compiled code."""

    def __init__(self) -> None:
        self.lock = thread_locks.lock()
        self.owner: int | None = None

    def begin(self) -> bool:
        """Whether this thread has exclusive use now, until it calls `end`."""
        if self.owner == threading.get_ident():
            return False
        self.lock.acquire()
        self.owner = threading.get_ident()
        return True

    def end(self) -> None:
        self.owner = None
        self.lock.release()


class Engine(Protocol):
    device: torch.device
    alone: ExclusiveUse
    """Held while capturing, and while replaying until the results have been copied."""

    def stream(self) -> int:
        """Identifies the current stream."""
        ...

    def is_recording(self) -> bool:
        """Whether the user is capturing the current stream: then nothing may be captured or replayed in it."""
        ...

    def new_memory(self) -> Any:
        """Memory that no other graph uses."""
        ...

    def capture(self, run: Callable[[], Any], memory: Any = None) -> tuple[Callable[[], None], Any]:
        """Capture what `run` launches without running it. Returns the replay function and the result of `run`. Without
        `memory` it uses the memory that the graphs of the stream share."""
        ...


class TorchGraphs:
    """The graphs of one GPU."""

    def __init__(self, device: torch.device):
        self.device, self.alone = device, ExclusiveUse()
        self.sides: dict[int, torch.cuda.Stream] = {}
        """The capture streams, by the stream that the graphs run in."""
        self.pools: dict[int, Any] = {}
        """The memory pools, by the same."""
        self.broken: list[Any] = []

    def stream(self) -> int:
        found: int = torch.cuda.current_stream(self.device).cuda_stream
        return found

    def is_recording(self) -> bool:
        with torch.cuda.device(self.device):
            return torch.cuda.is_current_stream_capturing()

    def new_memory(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def capture(self, run: Callable[[], Any], memory: Any = None) -> tuple[Callable[[], None], Any]:
        stream = self.stream()
        if stream not in self.sides:
            self.sides[stream] = self.new_side(stream)
        if memory is None:
            memory = self.pools.setdefault(stream, torch.cuda.graph_pool_handle())
        side, graph = self.sides[stream], torch.cuda.CUDAGraph()
        try:
            result = self.recorded(graph, side, memory, run)
        except BaseException:
            self.break_off(graph, side, memory)
            raise
        return graph.replay, result

    def recorded(self, graph: Any, side: torch.cuda.Stream, memory: Any, run: Callable[[], Any]) -> Any:
        # Garbage collection could free tensors and graphs, which is not allowed during capture. The restriction applies
        # to this thread only. If torch fails to end a capture, it may leave its own stream current: the outer `stream`
        # context restores the previous one.
        with (
            pause_garbage_collection.paused(),
            torch.cuda.device(self.device),
            torch.cuda.stream(side),
            torch.cuda.graph(graph, pool=memory, stream=side, capture_error_mode="thread_local"),
        ):
            return run()

    def new_side(self, stream: int) -> torch.cuda.Stream:
        """Torch reuses its streams in turn, so a new one may be the user's."""
        while True:
            found = torch.cuda.Stream(self.device)
            if found.cuda_stream != stream:
                return found

    def break_off(self, graph: Any, side: torch.cuda.Stream, memory: Any) -> None:
        """Clean up after a capture that failed. If ending it failed too, torch (2.11, for example) assumes it goes on:
        memory, and the random numbers of the whole process, would be those of a capture."""
        self.broken.append(graph)  # the allocator may still ask it which stream it captures
        self.pools = {stream: pool for stream, pool in self.pools.items() if pool != memory}
        with contextlib.suppress(RuntimeError):  # if it has ended
            cuda_end_allocate_to_pool(self.device.index, memory)
        graph.reset()
        # A successful capture resets the generators.
        self.recorded(
            torch.cuda.CUDAGraph(), side, torch.cuda.graph_pool_handle(), lambda: torch.zeros((), device=self.device)
        )


@once
def engine_of(device: torch.device) -> TorchGraphs:
    return TorchGraphs(device)
