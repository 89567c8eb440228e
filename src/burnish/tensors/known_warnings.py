"""Warnings that the program's own lines have given while its graph was recorded.

    y = torch.std(x[:1])          UserWarning: std(): degrees of freedom is <= 0, once for this line

A graph repeats the calls from lines of generated code, and so does the compiler. Python would take these for other
lines, and give the warnings once more. It knows the warnings of a module by ``__warningregistry__`` in its globals.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from ..concurrency import fork_safe_locks
from ..own_builtins import OWN

REGISTRY = "__warningregistry__"
VERSION = "version"
CALL: Any = lambda function, args, kwargs: function(*args, **kwargs) if kwargs else function(*args)  # noqa: E731
"""In one line. C code passes modes None for no keywords at all, and a dictionary for an empty one."""
_quiet: dict[Any, Any] = {}
call_quietly: Any = FunctionType(CALL.__code__, {"__builtins__": OWN, "__name__": __name__, REGISTRY: _quiet})
"""Calls a function that the program has called before, for facts about it: it gives no warning that is known."""


def note(known: dict[Any, Any], registry: dict[Any, Any], line: int) -> None:
    """Add what the registry of a module says about a line."""
    found = [key for key in registry if key != VERSION and key[2] == line]
    if found:
        known.update({VERSION: registry.get(VERSION), **dict.fromkeys(found, True)})
        _quiet.update(registry_for(known, [CALL.__code__.co_firstlineno]))


def registry_for(known: dict[Any, Any], lines: Iterable[int]) -> dict[Any, Any]:
    """A registry in which these lines have given the known warnings."""
    texts, lines = {key[:2] for key in known if key != VERSION}, set(lines)
    return {VERSION: known[VERSION]} | {(*text, line): True for text in texts for line in lines}


_lock = fork_safe_locks.rlock()


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
