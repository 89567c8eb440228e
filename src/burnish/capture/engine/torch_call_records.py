"""Recorded torch calls as data, and handles: what stands for a value of the graph in their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class TorchCall(NamedTuple):
    target: Any  # a callable, or the name of a tensor method
    args: tuple
    kwargs: dict
    line: str | None


class Handle:
    """A value of the graph: an input (``call`` is None), the result of a call, or a part of it."""

    __slots__ = ("call", "key", "path", "source")

    def __init__(self, call: int | None, path: tuple = (), source: Any = None, key: Any = None):
        self.call, self.path, self.source, self.key = call, path, source, key


def handles_in(tree: Any) -> Iterator[Handle]:
    if isinstance(tree, Handle):
        yield tree
    elif type(tree) in (tuple, list):
        for part in tree:
            yield from handles_in(part)
    elif type(tree) is dict:
        yield from handles_in(tuple(tree.values()))
    elif type(tree) is slice:
        yield from handles_in((tree.start, tree.stop, tree.step))


class NotRecordable(Exception):
    """An argument cannot be represented in a graph."""
