"""Recorded torch calls as data, and handles: what stands for a value of the graph in their arguments."""

from __future__ import annotations

from typing import Any, NamedTuple


class Call(NamedTuple):
    target: Any  # a callable, or the name of a tensor method
    args: tuple
    kwargs: dict
    line: str | None


class Handle:
    """A value of the graph: an input (``call`` is None), the result of a call, or a part of it."""

    __slots__ = ("call", "key", "path", "source")

    def __init__(self, call: int | None, path: tuple = (), source: Any = None, key: Any = None):
        self.call, self.path, self.source, self.key = call, path, source, key


class NotRecordable(Exception):
    """An argument cannot be represented in a graph."""
