"""CUDA graphs: all launches of a call recorded once, and started as one from then on.

    call = Graphed(program, fixed, written, engine, name)
    call(x)      the first time as it is, the second time recorded, then replayed

A graph works on the memory that it was recorded with. Parameters and what is written to stay where they are: a call in
which they lie elsewhere is recorded anew. Any other input is copied to its place before a replay. Results are copied
out behind it, so that they are the caller's for good and `g(f(x))` needs no care: what is between lives in memory that
all graphs of a stream share, as one runs after the other there. So a replay and the copies behind it are one step: no
other thread's replay comes between.

The first call is looked at: what in it cannot be recorded is a reason not to try (`cuda_graph_witness`). It also makes
what is made once, and cannot be while something is recorded: libraries' handles and plans, kernels for buffers that lie
anywhere. Libraries keep such things for each thread, so that first call is one of the thread that records.

Numbers are part of what is recorded. Where there is no graph for a call it runs as it stands; `why_not` says why there
never will be one. Calls that gradients flow through are those of `cuda_graphs_of_training`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from ... import events
from .cuda_graph_capturable import witnessed
from .cuda_graph_memory import Outcome, copy, place_of
from .cuda_graph_recording import Engine, Refused

MOST = 64
"""Graphs of one program: for the parameters of several models, or of a model's equal blocks, and for several numbers.
Calls beyond run without."""

T = TypeVar("T")


class Graphs(Generic[T]):
    """What has been recorded of one program, by what must be the same in a call. `fixed` are the inputs that stay where
    they are."""

    def __init__(self, fixed: Collection[int], engine: Engine, name: str):
        self.fixed, self.engine, self.name = sorted(fixed), engine, name
        self.recorded: dict[tuple, T] = {}
        self.begun: dict[tuple, int] = {}
        """By the same, the thread that has made such a call."""
        self.why_not: str | None = None

    def key_of(self, inputs: Sequence[Any]) -> tuple:
        # As texts: 2, 2.0 and True are equal, and so are 0.0 and -0.0.
        numbers = tuple(repr(x) for x in inputs if not isinstance(x, torch.Tensor))
        return (self.engine.stream(), numbers, *(inputs[k].data_ptr() for k in self.fixed))

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether something may be recorded or replayed now; nobody else does so meanwhile. That it cannot be recorded
        is told once, and where that came up the call runs as it stands."""
        is_alone = self.why_not is None and not self.engine.is_recording() and self.engine.alone.begin()
        refused = None
        try:
            yield is_alone
        except Refused as why:
            refused = str(why)
        finally:
            if is_alone:
                self.engine.alone.end()
        if refused is not None:
            self.refuse(refused)

    def is_first(self, key: tuple) -> bool:
        """Whether it is this thread's first such call, which is to be looked at."""
        if self.begun.get(key) == threading.get_ident():
            return False
        if key not in self.begun and len(self.begun) >= MOST:
            # A number that is another one in each call, as a learning rate may be, is not to keep others out.
            once = next((old for old in self.begun if old not in self.recorded), None)
            if once is None:
                return False
            del self.begun[once]
        self.begun[key] = threading.get_ident()
        return True

    def found(self, key: tuple, record: Callable[[], T]) -> T | None:
        """For such a call, recorded now if it has not been."""
        if key not in self.recorded and key in self.begun:
            self.recorded[key] = record()
        return self.recorded.get(key)

    def looked_at(self, program: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Run it as it stands, and see whether it can be recorded."""
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
    """Where the graph finds the inputs that do not stay where they are."""
    outcome: Outcome
    counted: list[int]
    """The inputs that it writes to, of which autograd counts that."""

    def replayed(self, inputs: Sequence[Any]) -> tuple:
        with torch.no_grad():
            copy(list(self.places.values()), [inputs[k] for k in self.places])
            self.replay()
        if self.counted:
            torch._C._increment_version([inputs[k] for k in self.counted])
        return self.outcome.handed_out(inputs)


def recorded(
    program: Callable[..., Any],
    inputs: Sequence[Any],
    graphs: Graphs[Any],
    written: Sequence[int] = (),
    count: int | None = None,
    memory: Any = None,
) -> Recorded:
    """`count` of the results leave the graph's memory, or all of them."""
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
        raise Refused(f"it could not be recorded: {first_of(error)}") from error
    counted = [k for k, old, new in zip(written, before, versions(inputs, written), strict=True) if old != new]
    return Recorded(replay, moving, Outcome(result, places, graphs.engine.device, count), counted)


def versions(inputs: Sequence[Any], written: Sequence[int]) -> list[int]:
    return [0 if inputs[k].is_inference() else inputs[k]._version for k in written]


def first_of(error: BaseException) -> BaseException:
    """What went wrong before all else did: a recording that fails also fails to end."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return error


class Graphed:
    """`fixed` are the inputs that stay where they are, `written` those of them that are written to."""

    takes_gradients = False

    def __init__(self, program: Any, fixed: Collection[int], written: Sequence[int], engine: Engine, name: str):
        self.program, self.written = program, list(written)
        self.graphs: Graphs[Recorded] = Graphs({*fixed, *written}, engine, name)
        self.lies_apart = lies_apart_in(program)

    @property
    def source(self) -> str:
        found: str = self.program.source
        return found

    def __call__(self, *inputs: Any) -> Any:
        graphs, is_first = self.graphs, False
        with graphs.alone() as is_alone:
            if is_alone and self.lies_apart(inputs):
                key = graphs.key_of(inputs)
                is_first = key not in graphs.recorded and graphs.is_first(key)
                if not is_first:
                    found = graphs.found(key, lambda: recorded(self.program, inputs, graphs, self.written))
                    if found is not None:
                        return found.replayed(inputs)
        return graphs.looked_at(self.program, inputs) if is_first else self.program(*inputs)


def lies_apart_in(program: Any) -> Callable[[Sequence[Any]], bool]:
    """Whether what a program writes to lies apart from its other inputs in a call, so that it runs at all."""
    found: Callable[[Sequence[Any]], bool] = getattr(program, "lies_apart", lambda inputs: True)
    return found


__all__ = ["Graphed", "Graphs", "Recorded", "first_of", "lies_apart_in", "recorded"]
