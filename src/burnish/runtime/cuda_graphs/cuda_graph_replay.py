"""CUDA graph replay for inference: capture all launches of a call once, then replay them.

    call = CudaGraphProgram(program, fixed, written, engine, name)
    call(x)      the first call runs as it is, the second one is captured, then it is replayed

A graph uses the memory it was captured with. Parameters and tensors that are written to stay in place: a call where
they have other addresses is captured again. Other inputs are copied into the graph's memory before a replay. Results
are copied out after it, so the caller owns them and `g(f(x))` is safe. Intermediate values are in memory that all
graphs of a stream share, since they run one after the other. So a replay and its copies are one step, which no other
thread's replay may interrupt.

The first call is checked: an operator that cannot be captured rules out a graph (`cuda_graph_capturable`). That call
also makes what cannot be made during capture: library handles and plans, kernels for unaligned buffers. Libraries
keep those per thread, so the capturing thread makes a first call of its own.

Numbers are part of the graph. A call without a graph runs as it is; `why_not` says why there will never be one.
`training_cuda_graphs` handles calls with gradients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from ... import events
from ...foundation.torch_private import increment_version
from .cuda_graph_capturable import witnessed
from .cuda_graph_memory import Outcome, copy, place_of
from .cuda_graph_recording import Engine, RecordingRefused

MOST = 64
"""Graphs of one program: for the parameters of several models or repeated blocks, and for several numbers. Calls beyond
this run without one."""

T = TypeVar("T")


class CapturedGraphs(Generic[T]):
    """The graphs captured for one program, by what must be the same in a call. `fixed` are the inputs that stay in
    place."""

    def __init__(self, fixed: Collection[int], engine: Engine, name: str):
        self.fixed, self.engine, self.name = sorted(fixed), engine, name
        self.recorded: dict[tuple, T] = {}
        self.begun: dict[tuple, int] = {}
        """By the same key, the thread that has made such a call."""
        self.why_not: str | None = None

    def key_of(self, inputs: Sequence[Any]) -> tuple:
        # As text: 2, 2.0 and True are equal, and so are 0.0 and -0.0.
        numbers = tuple(repr(x) for x in inputs if not isinstance(x, torch.Tensor))
        return (self.engine.stream(), numbers, *(inputs[k].data_ptr() for k in self.fixed))

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether a graph may be captured or replayed now; other threads are excluded meanwhile. If the body raises
        `RecordingRefused`, the reason is reported once and the call runs as it is."""
        is_alone = self.why_not is None and not self.engine.is_recording() and self.engine.alone.begin()
        refused = None
        try:
            yield is_alone
        except RecordingRefused as why:
            refused = str(why)
        finally:
            if is_alone:
                self.engine.alone.end()
        if refused is not None:
            self.refuse(refused)

    def is_first(self, key: tuple) -> bool:
        """Whether this is this thread's first such call, which is to be checked."""
        if self.begun.get(key) == threading.get_ident():
            return False
        if key not in self.begun and len(self.begun) >= MOST:
            # A number that differs in each call, such as a learning rate, should not use up the limit.
            once = next((old for old in self.begun if old not in self.recorded), None)
            if once is None:
                return False
            del self.begun[once]
        self.begun[key] = threading.get_ident()
        return True

    def found(self, key: tuple, record: Callable[[], T]) -> T | None:
        """The graph for such a call, captured now if there is none yet."""
        if key not in self.recorded and key in self.begun:
            self.recorded[key] = record()
        return self.recorded.get(key)

    def looked_at(self, program: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Run it as it is, and check whether it can be captured."""
        device = self.engine.device
        far = [
            f"input {k} is on {x.device}"
            for k, x in enumerate(inputs)
            if isinstance(x, torch.Tensor) and x.device != device
        ]
        if far:
            self.refuse(far[0])
            return program(*inputs)
        made, why = witnessed(program, inputs, device)
        if why is not None:
            self.refuse(why)
        return made

    def refuse(self, why: str) -> None:
        if self.why_not is None:
            self.why_not = why
            self.recorded.clear()
            self.tell(why)

    def tell(self, why: str) -> None:
        events.emit("runtime.cuda_graphs", text=f"{self.name} runs without a CUDA graph: {why}", why=why)


@dataclass(slots=True)
class Recorded:
    replay: Callable[[], None]
    places: dict[int, torch.Tensor]
    """Where the graph reads the inputs that do not stay in place."""
    outcome: Outcome
    counted: list[int]
    """The inputs that it writes to and whose versions autograd counts."""

    def replayed(self, inputs: Sequence[Any]) -> tuple:
        with torch.no_grad():
            copy(list(self.places.values()), [inputs[k] for k in self.places])
            self.replay()
        if self.counted:
            increment_version([inputs[k] for k in self.counted])
        return self.outcome.handed_out(inputs)


def recorded(
    program: Callable[..., Any],
    inputs: Sequence[Any],
    graphs: CapturedGraphs[Any],
    written: Sequence[int] = (),
    count: int | None = None,
    memory: Any = None,
) -> Recorded:
    """`count` of the results, or all, are copied out of the graph's memory."""
    places, moving = list(inputs), {}
    before = versions(inputs, written)
    try:
        for k, x in enumerate(inputs):
            if isinstance(x, torch.Tensor) and k not in graphs.fixed:
                places[k] = moving[k] = place_of(x)
        with torch.no_grad():
            copy(list(moving.values()), [inputs[k] for k in moving])
            replay, result = graphs.engine.capture(lambda: program(*places), memory)
    except RuntimeError as error:
        raise RecordingRefused(f"it could not be recorded: {first_of(error)}") from error
    counted = [k for k, old, new in zip(written, before, versions(inputs, written), strict=True) if old != new]
    return Recorded(replay, moving, Outcome(result, places, graphs.engine.device, count), counted)


def versions(inputs: Sequence[Any], written: Sequence[int]) -> list[int]:
    return [0 if inputs[k].is_inference() else inputs[k]._version for k in written]


def first_of(error: BaseException) -> BaseException:
    """The first error: a capture that fails also fails to end."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return error


class CudaGraphProgram:
    """`fixed` are the inputs that stay in place, `written` those of them that are written to."""

    takes_gradients = False

    def __init__(self, program: Any, fixed: Collection[int], written: Sequence[int], engine: Engine, name: str):
        self.program, self.written = program, list(written)
        self.graphs: CapturedGraphs[Any] = CapturedGraphs({*fixed, *written}, engine, name)
        self.has_no_overlap: Callable[[Sequence[Any]], bool] = getattr(program, "has_no_overlap", lambda inputs: True)
        """Whether the written inputs do not overlap other inputs in a call. Otherwise the program runs eagerly."""

    @property
    def source(self) -> str:
        found: str = self.program.source
        return found

    def __call__(self, *inputs: Any) -> Any:
        graphs, is_first = self.graphs, False
        with graphs.alone() as is_alone:
            if is_alone and self.has_no_overlap(inputs):
                key = graphs.key_of(inputs)
                is_first = key not in graphs.recorded and graphs.is_first(key)
                if not is_first:
                    found = graphs.found(key, lambda: recorded(self.program, inputs, graphs, self.written))
                    if found is not None:
                        return found.replayed(inputs)
        return graphs.looked_at(self.program, inputs) if is_first else self.program(*inputs)
