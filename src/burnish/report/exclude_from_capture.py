"""Functions that observe compiled code. In the body of a compiled function they are graph breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def exclude_from_capture(function: F) -> F:
    """Keep ``function`` out of compiled code: it replaces the functions of segments, and takes locks that the compiler
    takes as well. The marks are those of ``burnish.disable``."""
    vars(function).update(_burnish_disable=True, _burnish_disable_reason="it observes compiled code")
    return function
