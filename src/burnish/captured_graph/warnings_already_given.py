"""Warnings that the program's own lines have given while its graph was recorded.

    y = torch.std(x[:1])          UserWarning: std(): degrees of freedom is <= 0, once for this line

A graph repeats the calls from lines of generated code, and so does the compiler. Python would take these for other
lines, and give the warnings once more. It knows the warnings of a module by ``__warningregistry__`` in its globals.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from ..concurrency import thread_locks
from ..concurrency.outside_errors import Suppressing
from ..concurrency.own_builtins import OWN

REGISTRY = "__warningregistry__"
VERSION = "version"
CALL: Any = lambda function, args, kwargs: function(*args, **kwargs) if kwargs else function(*args)  # noqa: E731
"""In one line. C code passes modes None for no keywords at all, and a dictionary for an empty one."""
_quiet: dict[Any, Any] = {}
call_quietly: Any = FunctionType(CALL.__code__, {"__builtins__": OWN, "__name__": __name__, REGISTRY: _quiet})
"""Calls a function that the program has called before, for facts about it: it gives no warning that is known."""


def note(known: dict[Any, Any], registry: dict[Any, Any], line: int) -> None:
    """Add what the registry of a module says about a line."""
    if type(registry) is not dict:
        return
    seen = _looks.get(id(registry))
    if seen is None or seen.registry is not registry:
        if len(_looks) >= MOST_REGISTRIES:
            _looks.clear()
        seen = _looks[id(registry)] = Look(registry)
    seen.update()
    found = seen.by_line.get(line)
    if found and (known.get(VERSION, known) != seen.version or not known.keys() >= set(found)):
        known.update({VERSION: seen.version, **dict.fromkeys(found, True)})
        _quiet.update(registry_for(known, [CALL.__code__.co_firstlineno]))


class Look:
    """What a registry holds, by lines. It grows, or is emptied when the filters change: other versions."""

    def __init__(self, registry: dict[Any, Any]):
        self.registry, self.count = registry, 0
        self.version: Any = None
        self.last: Any = None
        self.by_line: dict[int, list[tuple]] = {}

    def update(self) -> None:
        more, version = len(self.registry) - self.count, self.registry.get(VERSION)
        if not more and version == self.version:
            return
        latest = []
        if self.count and more > 0 and version == self.version:
            with Suppressing(RuntimeError):  # another thread warns just now
                latest = list(itertools.islice(reversed(self.registry), more + 1))[::-1]
        if not latest or latest[0] is not self.last:
            latest, self.by_line = [None, *self.registry.copy()], {}
            more = len(latest) - 1
            self.count = 0
        for key in latest[1:]:
            # Under the filters "once" and "module" there are keys without a line, too.
            if type(key) is tuple and len(key) == 3 and type(key[2]) is int:
                self.by_line.setdefault(key[2], []).append(key)
        self.count, self.last, self.version = self.count + more, latest[-1], version


MOST_REGISTRIES = 32
_looks: dict[int, Look] = {}
"""The last look at each registry."""


def registry_for(known: dict[Any, Any], lines: Iterable[int]) -> dict[Any, Any]:
    """A registry in which these lines have given the known warnings."""
    texts, lines = {key[:2] for key in known if key != VERSION}, set(lines)
    return {VERSION: known[VERSION]} | {(*text, line): True for text in texts for line in lines}


_lock = thread_locks.rlock()


@contextlib.contextmanager
def filtered(action: Any) -> Iterator[list[warnings.WarningMessage]]:
    """Like ``warnings.catch_warnings(record=True, action=action)``, which however lets each module forget what it has
    warned about: the program would warn once more."""
    seen: list[warnings.WarningMessage] = []
    module: Any = warnings
    with _lock:
        before = module.filters, module._showwarnmsg_impl, module.showwarning
        module.filters = [(action, None, Warning, None, 0)]
        module._showwarnmsg_impl, module.showwarning = seen.append, module._showwarning_orig
        try:
            yield seen
        finally:
            module.filters, module._showwarnmsg_impl, module.showwarning = before
