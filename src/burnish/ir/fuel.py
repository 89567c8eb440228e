"""Optimization fuel: how many rewrites may be made, so that bisection finds the one that is wrong.

    if fuel.allows("fuse_loops", node, "in the loops of", root):        asked right before a rewrite is made
        group.become(trial)

Base module. The setting `fuel` is the number of rewrites; without it everything is allowed and nothing is counted. Only
rewrites that the program is right without are asked for: single decisions of passes and of the schedule. The count goes
over the whole process, so the program that the fuel n makes differs from that of n - 1 by one rewrite. `burnish bisect`
relies on it. Each rewrite that is made is an event of the kind "fuel".
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

from .. import events
from ..settings import current

T = TypeVar("T")

_lock = threading.Lock()
_used = 0


def allows(rewrite: str, before: object, *after: object) -> bool:
    """Whether a rewrite may be made; if so, it is counted. `before` is the node or kernel, or words for it, and `after`
    what becomes of it. Lists are printed line by line, functions are called, and all that only if somebody listens."""
    fuel = current().fuel
    if fuel is None:
        return True
    global _used
    with _lock:
        if _used >= fuel:
            return False
        _used += 1
        number = _used
    if events.is_watched("fuel"):
        line = getattr(before, "line", None) or ""  # as in a traceback
        text = "\n".join(
            [f"{number} {rewrite} {line.strip()}".rstrip(), _print(before), "=>", " ".join(map(_print, after))]
        )
        events.emit("fuel", text=text, number=number)
    return True


def same_for_each(items: Iterable[T]) -> Iterable[T]:
    """The items, each with the fuel that the first has. Symbolic sizes are compiled at several sizes, and what is
    decided at each must be the same."""
    return items if current().fuel is None else _refilled(items)


def refill() -> None:
    """Start counting from nothing, as a new process does."""
    global _used
    _used = 0


def _refilled(items: Iterable[T]) -> Iterator[T]:
    global _used
    begin = most = _used
    for item in items:
        _used = begin
        yield item
        most = max(most, _used)
    _used = most


def _print(what: object) -> str:
    if callable(what):
        return str(what())
    return "\n".join(map(str, what)) if isinstance(what, list) else str(what)
