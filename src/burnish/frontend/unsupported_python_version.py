"""On a Python whose bytecode Burnish does not know, it warns once, and everything runs as plain Python."""

from __future__ import annotations

import functools
import warnings

from ..capture.interpreter.versions.behavior import why_not_interpreted
from ..errors import UserError


@functools.cache
def stays_plain() -> bool:
    why = why_not_interpreted()
    if why is not None:
        warnings.warn(f"burnish: {why} Nothing is compiled: functions and modules run as plain Python.", stacklevel=4)
    return why is not None


def refuse_unknown_python() -> None:
    """For what has no meaning in plain Python, such as a report about graphs."""
    why = why_not_interpreted()
    if why is not None:
        raise UserError(why)
