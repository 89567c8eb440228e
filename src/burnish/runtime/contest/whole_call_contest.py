"""Never slower, for calls with breaks in them: the whole call has to prove itself against plain Python.

    segment.contest = CallContest(compiled, eager, name)
    segment.contest(slots, args, kwargs)          the first calls run one or the other, timed; then the faster one stays

Each graph has had a contest of its own. What lies between the graphs is nobody's there: looking up the next segment,
executing the instruction at the break, many small graphs where the program has one loop. A function that reads a value
in every turn of a loop may lose more by that than its graphs gain.

It begins when its graphs are settled. What one call has to do may depend on the data, unlike a graph's, so it takes
more rounds, and eager has to be the faster one in all of them; or, at the end, both in the best case and in the usual.

Where results carry gradients the better part of the work comes later, in backward: such calls are not judged by the
time they take, and compiled code stays.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from ..program import arena_memory
from . import warmup_status
from .inference_contest import COMPILED, SLOWER, Contest
from .synchronized_clock import synchronized_clock

ORDER, LARGE_ORDER = "cecECcECcECcECccccECcccccccEC", "ceEcCceEcCceEcCceEcCcccceEcCcccccceEcC"
"""As a contest's, with more rounds."""

EAGER_STAYS = object()
"""In the place of a contest that eager has won: it is called as it is."""

ROUNDS = 4
"""So many timed calls of each may decide, if one of them was always the faster."""

USUALLY_SLOWER = 1.1
"""Eager takes over, where it was not always the faster, if compiled code's median takes more than this much of its."""


class CallContest(Contest):
    orders, few = (ORDER, LARGE_ORDER), ROUNDS

    def __init__(
        self,
        compiled: Callable[..., Any],
        eager: Callable[..., Any],
        name: str,
        settle: Callable[[object], object],
        clock: Callable[[], float] = synchronized_clock,
    ):
        """`settle` is told what is to be in this one's place from now on: `EAGER_STAYS`, or nothing."""
        super().__init__(Compiled(compiled, self.withdraw), eager, name, clock)
        self.settle, self.eager = settle, eager

    def prepared(self, turn: int) -> str:
        if turn == 0 and arena_memory.made():
            self.order = LARGE_ORDER  # they were made by earlier calls
        return super().prepared(turn)

    def is_slower(self, is_last: bool) -> bool | None:
        compiled, eager = self.times
        if min(compiled) > SLOWER * max(eager):
            return True
        if max(compiled) <= SLOWER * min(eager):
            return False
        if not is_last:
            return None
        return min(compiled) > SLOWER * min(eager) and median(compiled) > USUALLY_SLOWER * median(eager)

    def hand_over(self, decided: Callable[..., Any]) -> None:
        self.settle(EAGER_STAYS if decided is self.eager else None)

    def withdraw(self) -> None:
        """Compiled code stays, and nothing more is measured."""
        with self.lock:
            if self.players is not None:
                self.decided, self.players = self.players[COMPILED], None
                self.settle(None)


class Compiled:
    """A compiled function's whole call, as one of two players."""

    def __init__(self, call: Callable[..., Any], withdraw: Callable[[], object]):
        self.call, self.withdraw = call, withdraw

    @property
    def served(self) -> int:
        """Differs before and after a call in which something was not settled: that turn is taken again."""
        return warmup_status.so_far()

    def __call__(self, *inputs: Any) -> Any:
        result = self.call(*inputs)
        if torch.is_grad_enabled() and carries_gradients(result):
            self.withdraw()
        return result


def carries_gradients(result: Any, depth: int = 3) -> bool:
    """Whether somebody may go backward from a result, or from something in it."""
    if isinstance(result, torch.Tensor):
        return result.requires_grad
    if depth == 0:
        return True  # who knows
    if isinstance(result, dict):
        parts = [*dict.values(result)]
    elif isinstance(result, (tuple, list)):
        parts = [*(list if isinstance(result, list) else tuple).__iter__(result)]  # type: ignore[arg-type]
    else:
        parts = [*getattr(result, "__dict__", {}).values()]
    return any(carries_gradients(part, depth - 1) for part in parts)
