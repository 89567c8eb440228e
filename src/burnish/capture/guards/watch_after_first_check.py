"""Native guard checks: after the guards held once, a check becomes one look at memory until something changes.

Most of the state that guards read is the same on every call: the modules, their settings, hooks and parameters,
globals, functions and their closures. So when a check has passed, the state it read is entered in a ``Watch``: the
version of each dictionary on the way, the facts of each tensor, and so on. From then on the check is

    def check(S, refused):
        v0 = S[0]
        v1 = S[1]
        if type(v1) is not tuple or len(v1) != 1: return refused(S)
        v2 = v1[0]
        return watch(v0, v2) or refused(S)  # v0 is that module, v2 such a tensor, and all the rest is as it was

Values that are new in every call (arguments, items of containers made for the call, numbers that differ) are read and
tested in Python, or passed to the watch, which checks that they are the expected tensor or object. Everything else is
Fixed: found at an address that earlier checked words keep alive.

The watch is only a shortcut. When it fails, the full check runs; if that passes, a new watch is made. The full check
also runs right after a watch was made, before its first use, and on every call under the setting ``check``: a watch
must not accept what the full check refuses.

State that changes between every two calls is not watched as a whole. Reads from it are repeated in Python, and their
values passed to the watch. State that the segment itself writes (the layers of a growing cache) is known from the
start; the rest is learned.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from ...backends.guard_watch_for_capture import is_at_hand, new_watch
from ...concurrency import thread_locks
from ...concurrency.outside_errors import reraise_from_outside
from ...errors import InternalError
from ...runtime.segment_records import SegmentsToUpdate
from ...runtime.state_watch.native_watch import Unwatchable, hits
from .guards import MISSING_ERRORS, Guard
from .native_watch_plan import ATOMS, BuiltWatch, Wanted, WatchPlan
from .object_sources import Source

UNPREPARED = 64
"""Calls without a watch before part of the compiler is loaded for it, when nothing else has loaded it."""

WORTH = 32
"""Calls that a watch must serve to have been worth making."""

LONGEST_WAIT = 4096
FICKLE = 2
"""When the same state has invalidated this number of watches in a row, it is no longer watched."""

MOST_MODULES = 256
"""Modules with a watch each, per check."""

FEW = 8
"""If more than this changed, as by ``model.eval()``, the cause is not one thing that changes on every call."""


def watched(
    full: Callable,
    guards: list[Guard],
    inputs: list[Wanted],
    values: list[Source],
    is_verified: bool = False,
    written: frozenset[int] = frozenset(),
) -> Callable:
    """``full`` with a watch in front of it. ``is_verified``: both run each time and must agree. ``written``: sources,
    by id, whose value changes with each run."""
    manager = WatchManager(full, guards, inputs, values, is_verified, written)

    def check(slots: list) -> Any:
        fast = manager.fast if manager.others is None else manager.others.get(id(slots[0]), manager).fast
        if fast is not None:
            found = fast(slots)
            if found is not None:
                return found
        return manager.ask(slots)

    manager.general = weakref.ref(check)
    return manager.marked(check)


class WatchManager:
    """Makes and renews the watch of one check. If several modules go through one check, as the equal blocks of a model
    do, each of them gets its own watch."""

    def __init__(
        self,
        full: Callable,
        guards: list[Guard],
        inputs: list[Wanted],
        values: list[Source],
        is_verified: bool,
        written: frozenset[int],
    ):
        self.full, self.guards, self.inputs, self.values = full, guards, inputs, values
        self.is_verified, self.written = is_verified, written
        self.fast: Callable | None = None
        self.made: BuiltWatch | None = None
        self.passed = 0  # since the last watch was made
        self.wait = 1 if is_verified else 2
        self.fickle: collections.Counter[int] = collections.Counter()  # sources, by how often they invalidated a watch
        self.module: int | None = None
        self.others: dict[int, WatchManager] | None = None
        """Managers for further modules, by id. If another module takes over an address, its watch notices."""
        self.general: Callable[[], Callable | None] = lambda: None
        """The check that picks the watch of the given module. A weak reference: its callers keep it alive."""
        self.holders = SegmentsToUpdate()
        self.renewing = thread_locks.lock()

    def ask(self, slots: list) -> Any:
        found = self.full(slots)
        if found is not None:
            self.of_module(slots).count(slots)
        return found

    def of_module(self, slots: list) -> WatchManager:
        if not slots or not issubclass(type(slots[0]), torch.nn.Module):
            return self
        module = id(slots[0])
        if self.module is None:
            self.module = module
        if self.module == module:
            return self
        if self.others is None:
            self.others = {}
            general = self.general()
            if general is not None:
                self.holders.replace_check(general)
        others = self.others
        if module not in others and len(others) < MOST_MODULES:
            others[module] = WatchManager(
                self.full, self.guards, self.inputs, self.values, self.is_verified, self.written
            )
        return others.get(module, self)

    def count(self, slots: list) -> None:
        self.passed += 1
        if (
            self.passed >= self.wait
            and (self.passed >= UNPREPARED or self.is_verified or is_at_hand())
            and self.renewing.acquire(blocking=False)
        ):
            try:  # one thread makes a watch, and the others do not wait for it
                self.renew(slots)
            finally:
                self.renewing.release()

    def renew(self, slots: list) -> None:
        """Make a watch of the state in which the check has just passed."""
        before, self.fast, self.made = self.made, None, None
        self.passed = 0
        was_worth_it = before is not None and hits(before.watch) >= WORTH
        self.wait = 2 if was_worth_it else min(2 * self.wait, LONGEST_WAIT)
        watch = new_watch()
        if watch is None:
            self.wait = LONGEST_WAIT
            return
        unwatched = self.written.union(source for source, times in self.fickle.items() if times >= FICKLE)
        try:  # `plan` stays alive below, because it holds the objects
            plan = WatchPlan(self.guards, self.inputs, self.values, slots, watch, unwatched)
            made = plan.make()
        except (Unwatchable, RuntimeError, *MISSING_ERRORS) as error:
            reraise_from_outside(error)
            return
        if was_worth_it:
            self.fickle = collections.Counter(dict.fromkeys(unwatched - self.written, FICKLE))
        elif before is not None:
            changed = [source for source, state in made.states.items() if before.states.get(source, state) != state]
            if len(changed) <= FEW:
                self.fickle.update(changed)
        # Something may have changed during the construction. The plan holds every object it has met, so nothing that
        # the watch returns is freed yet. If other objects are there now, another thread has put them there.
        found = made.check(slots)
        again = None if found is None else self.full(slots)
        if again is not None and are_same(found, again) and made.check(slots) is not None:
            self.made = made
            self.fast = self.verified(made.check) if self.is_verified else made.check
            general = self.general()
            if general is not None and self.others is None and not self.is_verified:
                # Saves one Python call: the watch's own check, which calls the general one only on failure.
                straight = FunctionType(made.check.__code__, made.check.__globals__, "check", (self.refused,))
                straight.general = general  # it may have no other holder from here on
                straight.kept = made.check.kept  # type: ignore[attr-defined]  # it outlives `made`
                self.holders.replace_check(self.marked(straight))

    def refused(self, slots: list) -> Any:
        """Called after the watch has failed."""
        general = None if self.others is None else self.general()
        return self.ask(slots) if general is None else general(slots)

    def marked(self, check: Callable) -> Callable:
        check.__source__ = getattr(self.full, "__source__", "")  # type: ignore[attr-defined]
        check.watch_manager, check.holders = self, self.holders  # type: ignore[attr-defined]
        return check

    def verified(self, fast: Callable) -> Callable:
        def check(slots: list) -> Any:
            found = fast(slots)
            if found is None:
                return None
            again = self.full(slots)
            if again is not None and are_same(found, again):
                return found
            if fast(slots) is None:
                return None  # another thread has just changed something
            if again is None:
                raise InternalError("checking guards", "the watched state has not changed, and the guards do not hold")
            raise InternalError("checking guards", "the watch hands out another object than the check")

        return check


def are_same(found: tuple, again: tuple) -> bool:
    """Whether two checks return the same objects. Plain values only need to be equal: some are made for each call, and
    so are plain tensors that show those of subclasses."""
    return all(
        mine is other
        or type(mine) in ATOMS
        or type(mine) is tuple
        and mine == other
        or type(mine) is type(other) is torch.Tensor
        and show_same(mine, other)
        for ours, theirs in zip(found, again, strict=True)
        for mine, other in zip(ours, theirs, strict=True)
    )


def show_same(mine: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        mine.layout is other.layout is torch.strided
        and mine._is_view()
        and other._is_view()
        and mine._base is other._base
        and (mine.shape, mine.stride(), mine.storage_offset()) == (other.shape, other.stride(), other.storage_offset())
    )
