"""Errors that a program written for torch.compile catches: ours are instances of Dynamo's classes as well.

    try:
        compiled(x)
    except torch._dynamo.exc.Unsupported:      # a burnish.Unsupported of fullgraph=True arrives here, too
        ...

A class of Dynamo's can only be met where Dynamo is loaded. An installed ``torch.compile`` loads it when such an error
is raised (``load_dynamo``), because the ``except`` may be the first that names it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..errors import Reason, Unsupported

EXCEPTIONS = "torch._dynamo.exc"

load_dynamo: Callable[[], object] | None = None
"""Set while torch.compile is replaced by Burnish."""


def made(name: str, reason: Reason, also: type[BaseException] | None = None) -> Unsupported:
    """``Unsupported`` that is an instance of Dynamo's class of this name, too. ``also``: of this class, if possible."""
    if load_dynamo is not None:
        load_dynamo()
    theirs = getattr(sys.modules.get(EXCEPTIONS), name, None)
    for others in ((theirs, also), (also,), (theirs,)):
        wanted = tuple(each for each in others if isinstance(each, type))
        kind = _joined(wanted) if wanted else None
        if kind is not None:
            return kind(reason)
    return Unsupported(reason)


@functools.cache
def _joined(others: tuple[type[BaseException], ...]) -> type[Unsupported] | None:
    """A subclass of ``Unsupported`` and of these; None where Python has no such class."""
    try:
        return type(
            "Unsupported",
            (Unsupported, *others),
            {"__module__": "burnish.errors", "__init__": _init, "__reduce__": _reduce},
        )
    except TypeError:  # their layouts in memory differ
        return None


def _init(error: Any, reason: Reason) -> None:
    """In place of the other classes' constructors, which take other arguments. Dynamo's have ``msg`` and
    ``real_stack``."""
    Exception.__init__(error, reason)
    error.reason, error.msg, error.real_stack = reason, reason.render(), None


def _reduce(error: Unsupported) -> tuple[object, ...]:
    """Pickled as the plain class: the other one may not exist where it is read."""
    return Unsupported, (error.reason,)
