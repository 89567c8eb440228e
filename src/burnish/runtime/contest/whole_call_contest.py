"""Contest of whole calls with graph breaks: time all segments of a call together against plain Python.

    segment.contest = CallContest(compiled, eager, name)
    segment.contest(slots, args, kwargs)          the first calls run one or the other, timed; then the faster one stays

Each graph has had its own contest, which does not count the time between graphs: finding the next segment, executing
the instruction at the break, many small graphs where the program has one loop. A function that reads a value in each
iteration of a loop may lose more there than its graphs gain.

It begins when the contests of the graphs are decided. Unlike a graph's work, that of a call may depend on the data.
So there are more rounds and no early decision, and eager has to be faster in all of them; or, at the end, both in the
best case and in the median.

Where results require gradients, most of the work comes later, in backward. The time of such calls decides nothing,
and compiled code stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..program import arena_memory
from ..segment_records import EAGER_STAYS
from . import compile_activity_counter
from .inference_contest import COMPILED, SLOWER, Contest
from .synchronized_clock import synchronized_clock

ORDER, LARGE_ORDER = "cecECcECcECcECccccECcccccccEC", "ceEcCceEcCceEcCceEcCcccceEcCcccccceEcC"
"""As those of `Contest`, with more rounds."""

ROUNDS = 4
"""This many timed calls of each may decide, if one of them was always faster."""

USUALLY_SLOWER = 1.1
"""Where eager was not always faster: it is kept if compiled code's median takes more than this factor of its median."""


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
        """`settle` is called with what replaces this contest: `EAGER_STAYS` or None."""
        super().__init__(CompiledCall(compiled, self.withdraw), eager, name, clock)
        self.early.is_open = False
        self.settle, self.eager = settle, eager

    def prepared(self, turn: int) -> str:
        if turn == 0 and arena_memory.count_large_arenas():
            self.order = LARGE_ORDER  # large arenas were made by earlier calls
        return super().prepared(turn)

    def is_slower(self, is_last: bool) -> bool | None:
        compiled, eager = self.times
        if min(compiled) > SLOWER * max(eager):
            return True
        if max(compiled) <= SLOWER * min(eager):
            return False
        if not is_last:
            return None
        from statistics import median

        return min(compiled) > SLOWER * min(eager) and median(compiled) > USUALLY_SLOWER * median(eager)

    def hand_over(self, decided: Callable[..., Any]) -> None:
        self.settle(EAGER_STAYS if decided is self.eager else None)

    def withdraw(self) -> None:
        """Keep compiled code and stop measuring."""
        with self.lock:
            if self.players is not None:
                self.decided, self.players = self.players[COMPILED], None
                self.settle(None)


class CompiledCall:
    """The whole call of a compiled function, as one of two players."""

    def __init__(self, call: Callable[..., Any], withdraw: Callable[[], object]):
        self.call, self.withdraw = call, withdraw

    @property
    def served(self) -> int:
        """Changes during a call that is still warming up: that turn is repeated."""
        return compile_activity_counter.steps()

    def __call__(self, *inputs: Any) -> Any:
        result = self.call(*inputs)
        if torch.is_grad_enabled() and carries_gradients(result):
            self.withdraw()
        return result


def carries_gradients(result: Any, depth: int = 3) -> bool:
    """Whether the caller may run backward from a result, or from something in it."""
    if issubclass(type(result), torch.Tensor):
        return result.requires_grad
    if depth == 0:
        return True  # nested too deeply: assume so
    if issubclass(type(result), dict):
        parts = [*dict.values(result)]
    elif issubclass(type(result), (tuple, list)):
        parts = [*(list if isinstance(result, list) else tuple).__iter__(result)]  # type: ignore[arg-type]
    else:
        parts = [*getattr(result, "__dict__", {}).values()]
    return any(carries_gradients(part, depth - 1) for part in parts)
