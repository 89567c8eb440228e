"""Never slower: compiled code has to prove itself against eager.

    call = Contest(compiled, eager, name)
    call(x)          the first calls run one or the other, some of them timed; then the faster one stays

    compiled eager compiled  EAGER COMPILED  compiled  EAGER COMPILED  compiled compiled compiled  …   timed in capitals

Both compute the same from the same inputs, so a call runs just one of them and every call is useful. What writes to
its inputs, draws random numbers or raises does so once.

A round times one after the other, each of them where the other one has just been: both find the caches full of
somebody else's data. Rounds lie further and further apart, so that no single disturbance spoils all of them; two of
them decide where the difference is clear. A call that another thread's call overlaps is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from .. import events
from . import forks
from .segment import Holders

WARM_EAGER = 1
"""The number of eager's first call, untimed, as its code is generated then. Compiled code's before the first round are
not timed either: they make the arena, pack weights, bring code into the caches."""

ROUNDS = (3, 6, 11, 19)
"""The numbers of eager's timed calls. Compiled code's come right behind them, all others are compiled code's too."""

FEW = 2
"""So many timed calls of each may decide, if the difference is clear."""

CLEAR = 1.3
"""Nobody who takes so many times as long is still thought to be the faster one."""

SLOWER = 1.03
"""Eager takes over where compiled code takes more than this much of its time. Less is noise."""

SIMILAR = 1.25
"""Calls whose work differs by no more than this factor may be compared, by their seconds for a unit of it."""

COMPILED, EAGER = 0, 1


class Contest:
    """Calls `compiled` or `eager`. Once it is decided, `decided` is the one that stays, and the other is let go."""

    def __init__(self, compiled: Callable, eager: Callable, name: str, clock: Callable[[], float] = perf_counter,
                 work: Callable[[Sequence[Any]], float] | None = None):
        """`work` tells how much there is to do for some inputs, where that is not the same for all."""
        self.work, self.last = work, 0.0
        self.players: tuple[Callable, Callable] | None = (compiled, eager)
        self.name, self.clock = name, clock
        self.calls = self.running = 0
        self.times: tuple[list[float], list[float]] = ([], [])
        self.lock = forks.lock()
        self.decided: Callable | None = None
        self.holders = Holders()

    def __call__(self, *inputs: Any) -> Any:
        decided = self.decided
        return self.take_turn(inputs) if decided is None else decided(*inputs)

    def take_turn(self, inputs: Sequence[Any]) -> Any:
        with self.lock:
            turn, players = self.calls, self.players
            if players is not None:
                self.calls += 1
                self.running += 1
                is_alone = self.running == 1
        if players is None:
            return self.decided(*inputs)  # type: ignore[misc]
        which = EAGER if turn == WARM_EAGER or turn in ROUNDS else COMPILED
        seconds = None
        served = getattr(players[which], "served", 0)
        start = self.clock()
        try:
            result = players[which](*inputs)
            seconds = self.clock() - start
        finally:
            with self.lock:
                self.running -= 1
                if self.calls == turn + 1 and getattr(players[which], "served", 0) != served:
                    self.calls = turn  # it packed the weights of one more module: the turn is taken again
                is_timed = seconds is not None and is_alone and self.calls == turn + 1
                if self.work is not None and seconds is not None:
                    amount = self.work(inputs)
                    seconds /= max(amount, 1.0)
                    is_timed = self.is_pair(turn, amount) and is_timed
                if is_timed and (turn in ROUNDS or turn - 1 in ROUNDS):
                    self.times[which].append(seconds)  # type: ignore[arg-type]
                told = self.decide(turn) if turn - 1 in ROUNDS or turn > ROUNDS[-1] else None
        if told is not None:
            # A listener may call what is compiled: nothing is locked meanwhile.
            events.emit("runtime.contest", **told)
        return result

    def is_pair(self, turn: int, amount: float) -> bool:
        """Whether a call may be compared with that of the other player. Eager's, which comes first, is taken back where
        compiled code had far less or far more to do."""
        if turn in ROUNDS:
            self.last = amount
        elif turn - 1 in ROUNDS and not 1 / SIMILAR <= amount / max(self.last, 1.0) <= SIMILAR:
            if len(self.times[EAGER]) > len(self.times[COMPILED]):
                self.times[EAGER].pop()
            return False
        return True

    def decide(self, turn: int) -> dict[str, Any] | None:
        """At the end of a round: settle it if that can be done, and answer what there is to tell of it."""
        if self.players is None:
            return None
        is_last = turn > ROUNDS[-1]
        count = min(map(len, self.times))
        if not is_last and count < FEW:
            return None
        compiled, eager = (min(times) for times in self.times) if count else (None, None)
        is_slower = False
        if compiled is not None and eager is not None:
            if not is_last and compiled <= CLEAR * eager and eager <= CLEAR * compiled:
                return None
            is_slower = compiled > SLOWER * eager
        self.decided = self.players[EAGER if is_slower else COMPILED]
        self.players = None
        self.holders.hand_over(self, self.decided)
        kept = "eager" if is_slower else "compiled"
        unit = 1.0 if self.work is None else max(self.last, 1.0)
        compiled, eager = (seconds and seconds * unit for seconds in (compiled, eager))
        text = f"{self.name}: {comparison(compiled, eager)}: {'eager' if is_slower else 'compiled code'} stays"
        return {"text": text, "compiled": compiled, "eager": eager, "kept": kept}


def comparison(compiled: float | None, eager: float | None) -> str:
    if compiled is None or eager is None:
        return "no call could be timed by itself"
    return f"compiled {compiled * 1e3:.3f} ms, eager {eager * 1e3:.3f} ms a call"
