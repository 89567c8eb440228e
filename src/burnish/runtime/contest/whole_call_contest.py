"""Contest of whole calls: time all segments of a call together against plain Python.

    segment.contest = CallContest(compiled, eager, name)
    segment.contest(slots, args, kwargs)          the first calls run one or the other, timed; then the faster one stays

Each graph has had its own contest, which does not count the time around graphs: checking guards, replaying effects,
executing the instruction at a break, many small graphs where the program has one loop. A function that reads a value
in each iteration of a loop may lose more there than its graphs gain, and so may one that computes next to nothing.

It begins when the contests of the graphs are decided. Unlike a graph's work, that of a call with breaks may depend on
the data. So there are more timed calls and no early decision, and eager has to be faster in all of them; or both in
the best case and in the median.

Without breaks there is little around the graph. Where calls take long, the contest then ends at the first one that is
as fast as eager was in the graph's contest: mostly the first of all, before any call of eager.

Where results require gradients, most of the work comes later, in backward: it is timed as `TrainingContest` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..program import arena_memory
from ..segment_records import EAGER_STAYS
from . import compile_activity_counter
from .inference_contest import COMPILED, SLOWER, Contest
from .synchronized_clock import synchronized_clock
from .training_contest import Run

ORDER, LARGE_ORDER = "ccCCCeEEEccccccCCCeEEE", "cccCCCeEEEccccccCCCeEEE"
"""As those of `Contest`, with several calls of each in a row: plain Python leaves objects (gradients, the state of an
optimizer) that are not those of compiled code, whose guards are then checked slowly for some calls. The same happens
to either side at most twice."""

ROUNDS = 3
"""This many timed calls of each may decide for compiled code, if it was always faster."""

USUALLY_SLOWER = 1.1
"""Where eager was not always faster: it is kept if compiled code's median takes more than this factor of its median."""

SHORT = 1e-3
"""Seconds. Shorter calls are compared to the end: a disturbance may take longer than they do, and eager costs
little."""


MOST_WAITING = 64
"""After this many calls of others, a contest that has not been called loses its turn."""


class OneAtATime:
    """Of the contests of a program only one is held: plain Python in one of them slows compiled code in the others."""

    def __init__(self) -> None:
        self.held: CallContest | None = None
        self.waited = 0

    def admits(self, contest: CallContest) -> bool:
        if self.held is not contest:
            self.waited += 1
            if self.held is not None and self.waited <= MOST_WAITING:
                return False
        self.held, self.waited = contest, 0
        return True

    def end(self, contest: CallContest) -> None:
        if self.held is contest:
            self.held = None


class CallContest(Contest):
    orders, few = (ORDER, LARGE_ORDER), ROUNDS

    def __init__(
        self,
        compiled: Callable[..., Any],
        eager: Callable[..., Any],
        name: str,
        settle: Callable[[object], object],
        clock: Callable[[], float] = synchronized_clock,
        share: float = 0.0,
        contests: OneAtATime | None = None,
    ):
        """`settle` is called with what replaces this contest: `EAGER_STAYS` or None. `share`: of the time that eager
        took in the contest of the graph; compiled code stays as soon as a whole call takes no longer."""
        super().__init__(CompiledCall(compiled, self.withdraw, share, clock), eager, name, clock)
        self.early.is_open = False
        self.settle, self.eager, self.is_unbroken = settle, eager, share > 0
        self.contests = OneAtATime() if contests is None else contests
        self.runs: tuple[list[Run], list[Run]] = ([], [])
        """The timed calls of each."""
        self.have_backward = False

    def take_turn(self, inputs: Sequence[Any]) -> Any:
        players = self.players
        if players is not None and not self.contests.admits(self):
            return players[COMPILED](*inputs)
        return super().take_turn(inputs)

    def prepared(self, turn: int) -> str:
        if turn == 0 and arena_memory.count_large_arenas():
            self.order = self.orders[1]  # large arenas were made by earlier calls
        return super().prepared(turn)

    def note(self, which: int, seconds: float, inputs: Sequence[Any], result: Any) -> None:
        run = Run(clock=self.clock)
        run.forward = seconds
        found = tensors_with_gradients(result) if torch.is_grad_enabled() else None
        if found:
            self.have_backward = True
            given = (*inputs[0], *(inputs[1] or ()))
            run.watch(found, [x for each in given for x in tensors_with_gradients(each, 1) or ()])
        self.runs[which].append(run)

    def decide(self, turn: int) -> dict[str, Any] | None:
        ended = [[run.forward + run.backward for run in each if run.backward is not None] for each in self.runs]
        counts_backward = self.have_backward and (all(ended) or turn < len(self.order) - 1)
        for times, each, complete in zip(self.times, self.runs, ended, strict=True):
            times[:] = complete if counts_backward else [run.forward for run in each]
        return super().decide(turn)

    def is_slower(self, is_last: bool) -> bool | None:
        compiled, eager = self.times
        if max(compiled) <= SLOWER * min(eager):
            return False
        if not is_last:
            return None  # other programs may have slowed one of the two for some calls
        if self.is_unbroken or min(compiled) > SLOWER * max(eager):
            return min(compiled) > SLOWER * min(eager)
        from statistics import median_low  # the upper half may be what other programs have slowed

        return min(compiled) > SLOWER * min(eager) and median_low(compiled) > USUALLY_SLOWER * median_low(eager)

    def hand_over(self, decided: Callable[..., Any]) -> None:
        self.contests.end(self)
        self.settle(EAGER_STAYS if decided is self.eager else None)

    def withdraw(self) -> None:
        """Keep compiled code and stop measuring."""
        with self.lock:
            if self.players is not None:
                self.decided, self.players = self.players[COMPILED], None
                self.contests.end(self)
                self.settle(None)


class CompiledCall:
    """The whole call of a compiled function, as one of two players."""

    def __init__(
        self, call: Callable[..., Any], withdraw: Callable[[], object], share: float, clock: Callable[[], float]
    ):
        self.call, self.withdraw, self.share, self.clock = call, withdraw, share, clock
        self.bound: float | None = None

    @property
    def served(self) -> int:
        """Changes during a call that is still warming up: that turn is repeated."""
        return compile_activity_counter.steps()

    def __call__(self, *inputs: Any) -> Any:
        before, start = self.served, self.clock()
        compile_activity_counter.take_bound()  # of another program
        result = self.call(*inputs)
        if self.served != before:
            self.bound = compile_activity_counter.take_bound()
        elif self.share and self.bound is not None and SHORT < self.clock() - start <= self.share * self.bound:
            self.withdraw()
        if torch.is_grad_enabled() and tensors_with_gradients(result) is None:
            self.withdraw()
        return result


def tensors_with_gradients(result: Any, depth: int = 3) -> list[torch.Tensor] | None:
    """Those in a result from which the caller may run backward. None where it is nested too deeply to tell."""
    if issubclass(type(result), torch.Tensor):
        return [result] if result.requires_grad else []
    if issubclass(type(result), dict):
        parts = [*dict.values(result)]
    elif issubclass(type(result), (tuple, list)):
        parts = [*(list if isinstance(result, list) else tuple).__iter__(result)]  # type: ignore[arg-type]
    else:
        parts = [*getattr(result, "__dict__", {}).values()]
    if depth == 0 and parts:
        return None
    found: list[torch.Tensor] = []
    for part in parts:
        inside = tensors_with_gradients(part, depth - 1)
        if inside is None:
            return None
        found += inside
    return found
