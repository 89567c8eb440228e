"""Never slower: compiled code has to prove itself against eager.

    call = Contest(compiled, eager, name)
    call(x)          the first calls run one or the other, timed, in turns; then the faster one stays

Both compute the same from the same inputs, so a call runs just one of them and every call is useful.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from .. import events

WARM_CALLS = 2
"""Compiled code's first calls, untimed: they make the arena, pack weights, bring code into the caches."""

ROUNDS = 4
"""Timed calls of each."""

SLOWER = 1.03
"""Eager takes over where compiled code takes more than this much of its time. Less is noise."""


class Contest:
    """Calls `compiled` or `eager`. Once it is decided, `decided` is the one that stays."""

    def __init__(self, compiled: Callable, eager: Callable, name: str):
        self.compiled, self.eager, self.name = compiled, eager, name
        self.calls = 0
        self.times: tuple[list[float], list[float]] = ([], [])
        self.lock = threading.Lock()
        self.decided: Callable | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self.decided is not None:
            return self.decided(*inputs)
        with self.lock:
            turn = self.calls
            self.calls += 1
        if turn < WARM_CALLS:
            return self.compiled(*inputs)
        which = turn % 2
        start = perf_counter()
        result = (self.eager if which else self.compiled)(*inputs)
        self.times[which].append(perf_counter() - start)
        if turn >= WARM_CALLS + 2 * ROUNDS - 1:
            self.decide()
        return result

    def decide(self) -> None:
        compiled, eager = (min(times, default=0.0) for times in self.times)
        is_slower = compiled > SLOWER * eager > 0
        self.decided = self.eager if is_slower else self.compiled
        events.emit(
            "runtime.contest",
            text=f"{self.name}: compiled {compiled * 1e3:.3f} ms, eager {eager * 1e3:.3f} ms a call: "
                 f"{'eager' if is_slower else 'compiled code'} stays",
            compiled=compiled, eager=eager, kept="eager" if is_slower else "compiled",
        )
