"""What records a CUDA graph: torch's own, for one GPU.

    engine = engine_of(device)
    replay, result = engine.capture(lambda: program(*places))       nothing has been computed yet
    replay()                                                        what lies in `result` has been, now

Whoever records or replays is alone on its GPU until the results are copied out (`Alone`). Each stream of the user's has
a stream to record in and memory that its graphs share: what libraries keep for a stream, cuBLAS its scratch space, goes
into the graphs, and those of two streams may run at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ...concurrency import fork_safe_locks
from ...concurrency.compute_once import once
from ..contest import pause_garbage_collection


class Refused(Exception):
    """There will be no graph, and why."""


class Alone:
    """A lock that does not let a thread wait for itself: it is told that it is in there already. A finalizer, which may
    run anywhere, may call what is compiled."""

    def __init__(self) -> None:
        self.lock = fork_safe_locks.lock()
        self.owner: int | None = None

    def begin(self) -> bool:
        """Whether this thread is alone now, which it is until it says `end`."""
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
    alone: Alone
    """Whoever records, and whoever replays, until the results have been copied."""

    def stream(self) -> int:
        """What tells the current stream from others."""
        ...

    def is_recording(self) -> bool:
        """Whether the current stream is recorded, by the user: then nothing is to be recorded or replayed in it."""
        ...

    def new_memory(self) -> Any:
        """Memory that no other graph uses."""
        ...

    def capture(self, run: Callable[[], Any], memory: Any = None) -> tuple[Callable[[], None], Any]:
        """Record what `run` starts, and what it gives, without doing it; and what does it. Without `memory` it goes on
        in that which the graphs of the stream share."""
        ...


class TorchGraphs:
    """The graphs of one GPU."""

    def __init__(self, device: torch.device):
        self.device, self.alone = device, Alone()
        self.sides: dict[int, torch.cuda.Stream] = {}
        """The streams to record in, by the stream that the graphs run in."""
        self.pools: dict[int, Any] = {}
        """Of memory, likewise."""
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
        # Garbage that is collected meanwhile may be tensors and graphs, and to free them is not allowed here. Other
        # threads may do what this one may not. Where torch fails to end a recording, it may leave the stream that it
        # made the current one: the second `stream` is to go back from there.
        with (
            pause_garbage_collection.paused(),
            torch.cuda.device(self.device),
            torch.cuda.stream(side),
            torch.cuda.graph(graph, pool=memory, stream=side, capture_error_mode="thread_local"),
        ):
            return run()

    def new_side(self, stream: int) -> torch.cuda.Stream:
        """Torch hands out its streams in turn, and so this one may be the user's."""
        while True:
            found = torch.cuda.Stream(self.device)
            if found.cuda_stream != stream:
                return found

    def break_off(self, graph: Any, side: torch.cuda.Stream, memory: Any) -> None:
        """After a recording that failed. Where its end failed as well, torch (2.11, say) takes it to go on: memory, and
        the random numbers of the whole process, would be those of a recording."""
        self.broken.append(graph)  # the allocator may ask it yet which stream it records
        self.pools = {stream: pool for stream, pool in self.pools.items() if pool != memory}
        with contextlib.suppress(RuntimeError):  # where it has ended
            torch._C._cuda_endAllocateToPool(self.device.index, memory)
        graph.reset()
        # One that succeeds leaves the generators as it should.
        self.recorded(
            torch.cuda.CUDAGraph(), side, torch.cuda.graph_pool_handle(), lambda: torch.zeros((), device=self.device)
        )


@once
def engine_of(device: torch.device) -> TorchGraphs:
    return TorchGraphs(device)


__all__ = ["Alone", "Engine", "Refused", "engine_of"]
