"""The event stream: what the compiler does, as it happens.

Base module. Capture, runtime and other parts `emit`; reports, logs and tests `subscribe`. Without subscribers an
event costs one function call.

    seen = []
    stop = subscribe(seen.append)
    emit("breaks", text="if on a tensor, model.py:12")
    stop()
    seen[0].data["text"]

An event's kind starts with its stage, one of `settings.STAGES`, as in "guards" or "guards.missed". The datum `text`,
if there is one, describes the event in words. The datum `fallback` marks an event after which something runs slower
than intended (see `report.collect_fallbacks`). Work needed only for an event is guarded by `is_watched(kind)`.

    @stage("schedule")
    def make_plan(graph): ...

A stage emits "stage.begin" with its name, and "stage.end" with its name and its seconds, in the same thread; stages
may be inside one another.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from .concurrency.outside_errors import reraise_from_outside
from .foundation.torch_private import DisableTorchFunction


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: its kind, its time (`time.perf_counter`), and its data."""

    kind: str
    time: float
    data: dict[str, Any]


Subscriber = Callable[[Event], None]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    """Compared by identity: one function may subscribe twice, and each of its subscriptions ends separately."""

    fn: Subscriber
    kinds: frozenset[str] | None
    """None: all of them."""


# Replaced, never changed in place, so that emit reads it without the lock.
_subscriptions: tuple[_Subscription, ...] = ()
_lock = threading.Lock()


def emit(kind: str, /, **data: Any) -> None:
    """Notify every subscriber, in the emitting thread, in order of subscription."""
    if _subscriptions:
        _deliver(Event(kind, time.perf_counter(), data))


def is_watched(kind: str | None = None) -> bool:
    """Whether a subscriber takes events of this kind; without a kind, of every kind. Checked before gathering data that
    costs more than a call."""
    return any(s.kinds is None or kind in s.kinds for s in _subscriptions)


def is_asked_for(kind: str) -> bool:
    """Whether a subscriber has named this kind. Those that take every event are content with the events there are."""
    return any(s.kinds is not None and kind in s.kinds for s in _subscriptions)


def stage(name: str, first: str | None = None) -> Callable[[F], F]:
    """Make a function a stage. `first`: the datum of "stage.begin" that holds its first argument."""

    def around(fn: F) -> F:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not _subscriptions:
                return fn(*args, **kwargs)
            emit("stage.begin", stage=name, **({} if first is None else {first: args[0]}))
            start = time.perf_counter()
            try:
                return fn(*args, **kwargs)
            finally:
                emit("stage.end", stage=name, seconds=time.perf_counter() - start)

        return cast(F, run)

    return around


def subscribe(fn: Subscriber, kinds: Collection[str] | None = None) -> Callable[[], None]:
    """Call `fn` with every event from now on, or with those of `kinds`. The result ends the subscription; calling it
    again does nothing.

    `fn` runs in the emitting thread, with torch function modes off: its tensor operations are not recorded into a
    graph that is being captured. A subscriber that raises is dropped with a warning, since observers must not change
    what the program does.
    """
    global _subscriptions
    subscription = _Subscription(fn, None if kinds is None else frozenset(kinds))
    with _lock:
        _subscriptions = (*_subscriptions, subscription)
    return lambda: _drop(subscription)


def _drop(subscription: _Subscription) -> None:
    global _subscriptions
    with _lock:
        _subscriptions = tuple(s for s in _subscriptions if s is not subscription)


def _deliver(event: Event) -> None:
    with DisableTorchFunction():
        for subscription in _subscriptions:
            if subscription.kinds is not None and event.kind not in subscription.kinds:
                continue
            try:
                subscription.fn(event)
            except Exception as error:
                reraise_from_outside(error)
                _drop(subscription)
                warnings.warn(
                    f"The event subscriber {subscription.fn!r} raised {type(error).__name__}: {error}. "
                    f"It will not be called again. The event was of kind '{event.kind}'.",
                    RuntimeWarning,
                    stacklevel=3,
                )
