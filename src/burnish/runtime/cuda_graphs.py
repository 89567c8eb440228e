"""CUDA graphs: all launches of a call recorded once, and started as one from then on.

    call = Graphed(program, fixed, written, engine, name)
    call(x)      the first time as it is, the second time recorded, then replayed

A graph works on the memory that it was recorded with. Parameters and what is written to stay where they are: a call in
which they lie elsewhere is recorded anew. Any other input is copied to its place before a replay. Results are copied
out behind it, so that they are the caller's for good and `g(f(x))` needs no care: what is between lives in memory that
all graphs of a stream share, as one runs after the other there. So a replay and the copies behind it are one step: no
other thread's replay comes between.

Numbers are part of what is recorded. Where there is no graph for a call it runs as it stands; `why_not` says why there
never will be one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .. import events
from . import forks

MOST = 8
"""Graphs of one program: for several models' parameters, several numbers. Calls beyond run without."""


class Engine(Protocol):
    device: torch.device
    lock: Any
    """Held while something is recorded, and from a replay to the copies of its results."""

    def stream(self) -> int:
        """What tells the current stream from others."""
        ...

    def capture(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Record what `run` starts, and what it gives, without doing it; and what does it."""
        ...


class TorchGraphs:
    """The graphs of one GPU."""

    def __init__(self, device: torch.device):
        self.device, self.lock = device, forks.lock()
        self.pools: dict[int, Any] = {}
        """Of memory, by the stream that the graphs run in: those of two streams may run at once."""

    def stream(self) -> int:
        found: int = torch.cuda.current_stream(self.device).cuda_stream
        return found

    def capture(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        graph, stream = torch.cuda.CUDAGraph(), self.stream()
        pool = self.pools.get(stream)
        if pool is None:
            pool = self.pools[stream] = torch.cuda.graph_pool_handle()
        # Other threads may go on with what is not allowed here, allocating memory say.
        with torch.cuda.device(self.device), torch.cuda.graph(graph, pool=pool,
                                                              capture_error_mode="thread_local"):
            result = run()
        return graph.replay, result


@functools.cache
def engine_of(device: torch.device) -> TorchGraphs:
    return TorchGraphs(device)


@dataclass(slots=True)
class Recorded:
    replay: Callable[[], None]
    places: list[Any]
    """The inputs as the graph knows them."""
    moving: list[int]
    """Those that are copied to their places."""
    result: Any


class Refused(Exception):
    """There will be no graph, and why."""


class Graphed:
    """`fixed` are the inputs that stay where they are, `written` those of them that are written to."""

    takes_gradients = False

    def __init__(self, program: Any, fixed: Collection[int], written: Sequence[int], engine: Engine, name: str):
        self.program, self.engine, self.name = program, engine, name
        self.fixed, self.written = sorted({*fixed, *written}), list(written)
        self.lies_apart: Callable[[Sequence[Any]], bool] = getattr(program, "lies_apart", lambda inputs: True)
        self.graphs: dict[tuple, Recorded | None] = {}
        """By what must be the same; None where a call has been seen once."""
        self.why_not: str | None = None

    @property
    def source(self) -> str:
        found: str = self.program.source
        return found

    def __call__(self, *inputs: Any) -> Any:
        if self.why_not is not None:
            return self.program(*inputs)
        try:
            with self.engine.lock:
                found = self.found(inputs)
                if found is not None and self.lies_apart(inputs):
                    return self.replayed(found, inputs)
        except Refused as why:
            self.refuse(str(why))
        return self.program(*inputs)

    def found(self, inputs: Sequence[Any]) -> Recorded | None:
        key = self.key_of(inputs)
        if key not in self.graphs:
            if len(self.graphs) < MOST:
                self.graphs[key] = None
            return None
        found = self.graphs[key]
        if found is None and self.lies_apart(inputs):
            found = self.graphs[key] = self.recorded(inputs)
        return found

    def refuse(self, why: str) -> None:
        self.why_not = why
        self.graphs.clear()
        events.emit("runtime.cuda_graphs", text=f"{self.name} runs without a CUDA graph: {why}", why=why)

    def key_of(self, inputs: Sequence[Any]) -> tuple:
        # As texts: 2, 2.0 and True are equal, and so are 0.0 and -0.0.
        numbers = tuple(repr(x) for x in inputs if not isinstance(x, torch.Tensor))
        return (self.engine.stream(), numbers, *(inputs[k].data_ptr() for k in self.fixed))

    def recorded(self, inputs: Sequence[Any]) -> Recorded:
        places, moving = list(inputs), []
        for k, x in enumerate(inputs):
            if isinstance(x, torch.Tensor) and k not in self.fixed:
                if x.device != self.engine.device:
                    raise Refused(f"input {k} is on {x.device}")
                places[k] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
                moving.append(k)
        try:
            replay, result = self.engine.capture(lambda: self.program(*places))
        except RuntimeError as error:
            raise Refused(f"it could not be recorded: {error}") from error
        check_results(result, places, self.engine.device)
        return Recorded(replay, places, moving, result)

    def replayed(self, recorded: Recorded, inputs: Sequence[Any]) -> Any:
        for k in recorded.moving:
            recorded.places[k].copy_(inputs[k])
        recorded.replay()
        if self.written:
            torch._C._increment_version([inputs[k] for k in self.written])
        return copied_out(recorded.result, recorded.places, inputs)


def check_results(result: Any, places: Sequence[Any], device: torch.device) -> None:
    """Results that share memory with one another would not do so when they are copied out."""
    seen = {x.untyped_storage().data_ptr() for x in places if isinstance(x, torch.Tensor)}
    for out in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(out, (list, tuple)):
            raise Refused("it gives lists of tensors")
        if not isinstance(out, torch.Tensor):
            continue
        if out.device != device:
            raise Refused(f"a result is on {out.device}: the GPU would have to be waited for")
        storage = out.untyped_storage().data_ptr()
        if storage in seen and not any(is_view(out, x) for x in places):
            raise Refused("two results share their memory")
        seen.add(storage)


def is_view(out: torch.Tensor, of: Any) -> bool:
    return isinstance(of, torch.Tensor) and out.untyped_storage().data_ptr() == of.untyped_storage().data_ptr()


def copied_out(result: Any, places: Sequence[Any], inputs: Sequence[Any]) -> tuple:
    """The results as the program would give them for these inputs."""
    found = []
    for out in result:
        if isinstance(out, torch.Tensor):
            source = next((k for k, x in enumerate(places) if x is out or is_view(out, x)), None)
            if source is None:
                out = out.clone()
            elif places[source] is out:
                out = inputs[source]
            else:
                given, place = inputs[source], places[source]
                offset = given.storage_offset() + out.storage_offset() - place.storage_offset()
                out = given.as_strided(out.shape, out.stride(), offset)
        found.append(out)
    return tuple(found)


__all__ = ["Graphed", "engine_of"]
