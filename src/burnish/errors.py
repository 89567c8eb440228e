"""The errors Burnish raises: their docstrings are the user's documentation.

Base module: everything may import it, it imports nothing from Burnish. Three families, by who has to act:

    BurnishError
    ├── UserError          the call or a setting asks for something that does not exist: change it
    │   └── BackendError   the backend that was named raised: it, or the choice of it, has to change
    ├── Unsupported        code that does not fit into one graph, where one graph was demanded
    └── InternalError      a defect of Burnish: report it

An exception that the user's own code raises is none of these. It leaves compiled code as it would leave eager code.

Constructor arguments are positional and stored in `Exception.args`, so that every error survives pickling, as it
must to cross from a worker process.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import sys
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def hide_own_frames(error: BaseException) -> None:
    """Leave the user's lines alone in its traceback."""
    entries: list[types.TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(OURS):
            entries.append(entry)
        entry = entry.tb_next
    made = None
    for entry in reversed(entries):
        made = types.TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = made


class Reason(Protocol):
    """Why a graph broke. `burnish.capture.breaks` makes these."""

    def render(self) -> str:
        """What happened, at which line of the user's, why, and what to do, as text."""
        ...


class BurnishError(Exception):
    """Every error of Burnish's own is one of these.

    Code that is to run with and without the compiler can catch this one class:

        try:
            step = burnish.compile(step, backend=name)
        except burnish.errors.BurnishError as error:
            log.warning("running without the compiler: %s", error)
    """


class UserError(BurnishError):
    """A call or a setting asks for something that does not exist. The message says what would be accepted.

    Broken:

        burnish.compile(model, backend="inducter")
        # UserError: There is no backend called "inducter". Did you mean "inductor"? ...

    Fixed:

        burnish.compile(model, backend="inductor")

    An environment variable that cannot be read is a UserError too. It is raised when the settings are first
    needed, not at import. Broken: `BURNISH_CHECK=maybe`. Fixed: `BURNISH_CHECK=1`.
    """


class BackendError(UserError):
    """A backend raised while it compiled a graph, or gave back something that cannot be called.

    The backend's own exception is the cause (`__cause__`) and is printed above this one. `backend` is the
    backend's name.

    Broken:

        def count_nodes(gm, example_inputs):
            print(len(gm.graph.nodes))          # forgets to give back a callable

        burnish.compile(model, backend=count_nodes)(x)
        # BackendError: The backend "count_nodes" returned None, which cannot be called. ...

    Fixed:

        def count_nodes(gm, example_inputs):
            print(len(gm.graph.nodes))
            return gm.forward
    """

    def __init__(self, backend: str, message: str) -> None:
        super().__init__(backend, message)
        self.backend = backend
        self.message = message

    def __str__(self) -> str:
        return self.message


class Unsupported(BurnishError):
    """The code does not fit into one graph, and `fullgraph=True` demanded one.

    Without `fullgraph=True` this is not an error: the graph ends there, the line runs as plain Python, and the next
    graph starts behind it. `reason` is the break: `reason.render()` is the text printed here, and
    `burnish breaks CODE` explains each kind of break at length.

    Broken:

        @burnish.compile(fullgraph=True)
        def f(x):
            if x.sum() > 0:                     # Python needs the value to choose a branch
                return x
            return -x

    Fixed, with the choice as a tensor operation:

        @burnish.compile(fullgraph=True)
        def f(x):
            return torch.where(x.sum() > 0, x, -x)

    Fixed, with the break accepted: leave out `fullgraph=True`.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason.render()


class InternalError(BurnishError):
    """Burnish itself failed. The program is not at fault.

    By default this is never raised: the function runs eagerly, with one warning. It is raised where the setting
    `on_error` is "raise". `stage` names the step that failed (`capture`, `guards`, ...). `dump` is the file or
    directory that holds what the step was given, or None where the setting `dump` is not set.

    To go on at once, let the function run eagerly. Broken:

        BURNISH_ON_ERROR=raise python train.py

    Fixed, until the defect is:

        python train.py

    To help mend it, run once with `BURNISH_DUMP=some/directory` and send that directory with the report.
    """

    def __init__(self, stage: str, message: str, dump: Path | None = None) -> None:
        super().__init__(stage, message, dump)
        self.stage = stage
        self.message = message
        self.dump = dump

    def __str__(self) -> str:
        if self.dump is None:
            todo = "set BURNISH_DUMP=directory, run again, and report this with that directory."
        else:
            todo = f"report this with {self.dump}, which holds what the stage was given."
        return (
            f"Burnish failed in its stage '{self.stage}': {self.message}\n"
            f"This is a defect of Burnish, not of your program. What to do: {todo}\n"
            f"Until then BURNISH_ON_ERROR=fallback (the default) runs the function eagerly."
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to a message about an unknown name: the nearest known ones, or nothing.

    >>> did_you_mean("inducter", ["eager", "inductor"])
    ' Did you mean "inductor"?'
    """
    quoted = [f'"{near}"' for near in difflib.get_close_matches(name, list(known), n=2)]
    return f" Did you mean {' or '.join(quoted)}?" if quoted else ""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line: the nearest caller outside Burnish and torch, which calls compiled modules."""
    torch = sys.modules.get("torch")
    ours = (OURS, contextlib.__file__)  # which calls a function that a context decorates
    not_the_users = ours if torch is None else (*ours, os.path.dirname(os.path.abspath(str(torch.__file__))) + os.sep)
    level = 1
    at = inspect.currentframe()
    while at is not None and at.f_code.co_filename.startswith(not_the_users):
        level, at = level + 1, at.f_back
    warnings.warn(message, category, stacklevel=level if at is not None else 2)
