"""Contest in inference: time compiled code against eager in the first calls and keep the faster one.

    call = Contest(compiled, eager, name)
    call(x)          the first calls run one or the other, some of them timed; then the faster one stays

    c e c  E C  c  E C  c c c  E C  c c c c c c  E C  c c c …       compiled code and eager, timed in capitals

Both compute the same from the same inputs, so each call runs only one of them and no call is wasted. Writes to
inputs, random draws and exceptions happen once.

A round times one after the other, each right after the other has run: both find the caches filled with other data.
The distance between rounds grows, so that one disturbance cannot spoil all of them. Two rounds decide where the
difference is clear, and less where calls are long (`early_decision`). A call that overlaps with a call of another
thread is not timed.

A process should need memory for only one of them (`arena_memory`). So a large arena of compiled code is returned to
the system before eager runs, and eager's memory afterwards. Touching returned pages again takes time, so each then
runs twice and is timed the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from ... import events
from ...concurrency import thread_locks
from ..program import arena_memory
from ..segment_records import SegmentsToUpdate
from . import compile_activity_counter
from .early_decision import EarlyDecision
from .synchronized_clock import is_recorded

ORDER, LARGE_ORDER = "cecECcECcccECccccccEC", "ceEcCccccceEcCcccccceEcCccccccceEcC"
"""Which one runs: C is compiled code, E is eager. Capitals are timed. The first calls of each are not timed: compiled
code allocates its arena, packs weights and fills the caches; eager's code is generated. After the last, compiled code
runs. In the second order a round costs two calls of eager, so the next one comes later."""

FEW = 2
"""This many timed calls of each may decide, if the difference is clear."""

CLEAR = 1.3
"""If one takes more than this many times as long as the other, the difference is clear."""

SLOWER = 1.03
"""Eager is kept if compiled code takes more than this factor of its time. Smaller differences are noise."""

SIMILAR = 1.25
"""Calls whose work differs by no more than this factor may be compared, by their seconds per unit of work."""

COMPILED, EAGER = 0, 1


class Contest:
    """Calls `compiled` or `eager`. After the decision, `decided` is the one that is kept; the other is released."""

    orders, few = (ORDER, LARGE_ORDER), FEW

    def __init__(
        self,
        compiled: Callable,
        eager: Callable,
        name: str,
        clock: Callable[[], float] = perf_counter,
        work: Callable[[Sequence[Any]], float] | None = None,
    ):
        """`work` returns the amount of work for some inputs, if it differs between calls."""
        self.work, self.last = work, 0.0
        self.players: tuple[Callable, Callable] | None = (compiled, eager)
        self.name, self.clock = name, clock
        self.calls = self.running = 0
        self.order, self.made_before = self.orders[0], 0
        self.times: tuple[list[float], list[float]] = ([], [])
        self.lock = thread_locks.lock()
        self.decided: Callable | None = None
        self.holders = SegmentsToUpdate()
        self.early = EarlyDecision(is_open=work is None)

    def __call__(self, *inputs: Any) -> Any:
        decided = self.decided
        return self.take_turn(inputs) if decided is None else decided(*inputs)

    def take_turn(self, inputs: Sequence[Any]) -> Any:
        players = self.players
        if players is not None and is_recorded():
            return players[COMPILED](*inputs)  # the measured time would be that of CUDA graph capture
        with self.lock:
            turn, players = self.calls, self.players
            if players is not None:
                self.calls += 1
                self.running += 1
                is_alone = self.running == 1
        if players is None:
            return self.decided(*inputs)  # type: ignore[misc]
        compile_activity_counter.count_step()
        player = self.prepared(turn)
        which = EAGER if player in "eE" else COMPILED
        seconds = None
        served = getattr(players[which], "served", 0)
        self.early.begin(which == EAGER)
        start = self.clock()
        try:
            result = players[which](*inputs)
            seconds = self.clock() - start
        finally:
            with self.lock:
                self.running -= 1
                if self.calls == turn + 1 and getattr(players[which], "served", 0) != served:
                    self.calls = turn  # it packed the weights of another module: repeat the turn
                is_timed = seconds is not None and is_alone and self.calls == turn + 1
                self.early.end(which == EAGER, seconds if is_timed else None)
                if self.work is not None and seconds is not None:
                    amount = self.work(inputs)
                    seconds /= max(amount, 1.0)
                    is_timed = self.is_pair(player, amount) and is_timed
                if is_timed and player.isupper():
                    self.times[which].append(seconds)  # type: ignore[arg-type]
                is_clear = self.early.keeps_compiled()
                decision = self.decide(turn) if is_clear or player == "C" or turn >= len(self.order) else None
        if decision is not None:
            # A listener may call compiled code, so the lock is not held here.
            events.emit("runtime.contest", **decision)
        return result

    def prepared(self, turn: int) -> str:
        """Which one runs now. The memory that the other one needed has been returned to the system."""
        if turn == 0:
            self.made_before = arena_memory.count_large_arenas()
        elif turn == 1 and arena_memory.count_large_arenas() > self.made_before:
            self.order = self.orders[1]
        player = self.order[turn] if turn < len(self.order) else "c"
        if self.order is self.orders[1]:
            if player == "e":
                arena_memory.give_back()
            elif turn <= len(self.order) and self.order[turn - 1] == "E":
                arena_memory.trim()
        return player

    def is_pair(self, player: str, amount: float) -> bool:
        """Whether a call may be compared with the preceding one of the other player. Eager's call comes first; its time
        is removed if compiled code had far less or far more work."""
        if player == "E":
            self.last = amount
        elif player == "C" and not 1 / SIMILAR <= amount / max(self.last, 1.0) <= SIMILAR:
            if len(self.times[EAGER]) > len(self.times[COMPILED]):
                self.times[EAGER].pop()
            return False
        return True

    def decide(self, turn: int) -> dict[str, Any] | None:
        """Called at the end of a round, or earlier: decide if possible, and return the fields of the event to emit."""
        if self.players is None:
            return None
        if self.early.keeps_compiled():
            compiled, eager, is_slower = min(self.early.compiled), min(self.early.eager), False
        else:
            is_last = turn >= len(self.order) - 1
            count = min(map(len, self.times))
            if not is_last and count < self.few:
                return None
            compiled, eager = (min(times) for times in self.times) if count else (None, None)
            is_slower = self.is_slower(is_last) if count else False
            if is_slower is None:
                return None
        self.decided = self.players[EAGER if is_slower else COMPILED]
        self.players = None
        self.hand_over(self.decided)
        unit = 1.0 if self.work is None else max(self.last, 1.0)
        return outcome(self.name, *(seconds and seconds * unit for seconds in (compiled, eager)), is_slower)

    def is_slower(self, is_last: bool) -> bool | None:
        """Whether compiled code is slower, by the times so far. None: not clear yet."""
        compiled, eager = map(min, self.times)
        if not is_last and compiled <= CLEAR * eager and eager <= CLEAR * compiled:
            return None
        return compiled > SLOWER * eager

    def hand_over(self, decided: Callable) -> None:
        """The callers of this contest call the winner from now on."""
        self.holders.hand_over(self, decided)


def outcome(name: str, compiled: float | None, eager: float | None, is_slower: bool) -> dict[str, Any]:
    """The fields of the event that says how a contest has ended."""
    times = "no call could be timed by itself"
    if compiled is not None and eager is not None:
        times = f"compiled {compiled * 1e3:.3f} ms, eager {eager * 1e3:.3f} ms a call"
    kept = "eager" if is_slower else "compiled"
    text = f"{name}: {times}: {'eager' if is_slower else 'compiled code'} stays"
    return {"text": text, "compiled": compiled, "eager": eager, "kept": kept}
