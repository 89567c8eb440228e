"""Contest in training: time forward and backward together against eager and keep the faster one.

    call = TrainingContest(compiled, eager, name)
    call(x, w).backward()       the first calls run one or the other, timed, in turns; then the faster one stays

The caller starts backward, so autograd hooks time it: from entering the outputs until it leaves for what the inputs
were computed from, or until it ends. Both contestants are timed like this; the hooks change neither.

A call is over when the next one begins. Two of eager decide where they are long and compiled code is far ahead
(`early_decision`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from ... import events
from ...concurrency import thread_locks
from ...foundation.torch_private import execution_engine
from ..segment_records import SegmentsToUpdate
from . import compile_activity_counter
from .early_decision import EarlyDecision
from .inference_contest import EAGER, SLOWER, outcome
from .synchronized_clock import is_recorded

WARM_CALLS = 2
"""Compiled code's first calls, which are not timed."""

ROUNDS = 3
"""Timed calls of each."""

PATIENCE = 24
"""After this many calls, calls without a backward count too: forward alone decides."""

SLOWER_BY_WORK = 1.2
"""In place of `SLOWER` where the amount of work differs between calls, and seconds per unit of work are compared."""


class TimedCall:
    """One timed call: seconds of its forward, and of its backward once that has run."""

    def __init__(self, work: float = 1.0, clock: Callable[[], float] = perf_counter) -> None:
        self.work, self.clock = max(work, 1.0), clock
        self.forward = 0.0
        self.backward: float | None = None
        self.entered: float | None = None

    def watch(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        sources = [x.grad_fn for x in inputs if isinstance(x, torch.Tensor) and x.grad_fn is not None]
        for out in outputs:
            if isinstance(out, torch.Tensor) and out.grad_fn is not None and out.grad_fn not in sources:
                out.grad_fn.register_prehook(self.enter if sources else self.enter_last)
        for source in sources:
            source.register_prehook(self.leave)

    def enter(self, gradients: tuple) -> None:
        if self.entered is None:
            self.entered = self.clock()

    def enter_last(self, gradients: tuple) -> None:
        if self.entered is None:
            self.entered = self.clock()
            execution_engine.queue_callback(self.leave)

    def leave(self, gradients: tuple = ()) -> None:
        if self.entered is not None:
            self.backward = self.clock() - self.entered

    def seconds(self) -> float:
        """Per unit of work."""
        return (self.forward + (self.backward or 0.0)) / self.work


class TrainingContest:
    def __init__(
        self,
        compiled: Callable[..., Any],
        eager: Callable[..., Any],
        name: str,
        work: Callable[[Sequence[Any]], float] | None = None,
        clock: Callable[[], float] = perf_counter,
    ):
        """`work` returns the amount of work for some inputs, if it differs between calls."""
        self.work, self.clock = work, clock
        self.compiled, self.eager, self.name = compiled, eager, name
        self.calls = 0
        self.runs: tuple[list[TimedCall], list[TimedCall]] = ([], [])
        self.last: tuple[int, TimedCall] | None = None
        # The trace has run eager's forward, which generates its code, but not its backward.
        self.early = EarlyDecision(is_open=work is None, trusts_first=False)
        self.lock = thread_locks.lock()
        self.decided: Callable[..., Any] | None = None
        self.holders = SegmentsToUpdate()

    def __call__(self, *inputs: Any) -> Any:
        if self.decided is not None:
            return self.decided(*inputs)
        if is_recorded():
            return self.compiled(*inputs)  # the measured time would be that of CUDA graph capture
        with self.lock:
            turn = self.calls
            self.calls += 1
        if torch.is_grad_enabled():
            compile_activity_counter.count_step()
        if turn < WARM_CALLS or not torch.is_grad_enabled():
            return self.compiled(*inputs)
        which, run = turn % 2, TimedCall(1.0 if self.work is None else self.work(inputs), self.clock)
        self.begin(which, run)
        start = self.clock()
        result = (self.eager if which else self.compiled)(*inputs)
        run.forward = self.clock() - start
        run.watch(result, inputs)
        self.runs[which].append(run)
        with self.lock:
            decision = self.decide(turn)
        if decision is not None:
            events.emit("runtime.contest", **decision)
        return result

    def begin(self, which: int, run: TimedCall) -> None:
        """The preceding call is over now. What its threads waited for cores since it began is all counted as its own,
        as the program goes on between its forward and its backward."""
        with self.lock:
            last, self.last = self.last, (which, run)
            if last is not None:
                self.early.end(last[0] == EAGER, None if last[1].backward is None else last[1].seconds())
            self.early.begin(which == EAGER)

    def decide(self, turn: int) -> dict[str, Any] | None:
        """Decide if possible, and return the fields of the event to emit."""
        if self.decided is not None:
            return None
        timed = [[run for run in runs if run.backward is not None] for runs in self.runs]
        if min(map(len, timed)) < ROUNDS and not self.early.keeps_compiled():
            if turn < PATIENCE:
                return None
            timed = list(self.runs)
        compiled, eager = (min((run.seconds() for run in runs), default=0.0) for runs in timed)
        slower = SLOWER if self.work is None else SLOWER_BY_WORK
        self.decided = self.eager if compiled > slower * eager > 0 else self.compiled
        self.holders.hand_over(self, self.decided)
        return outcome(f"{self.name}, forward and backward", compiled, eager, self.decided is self.eager)
