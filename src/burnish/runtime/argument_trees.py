"""Map a function over nested arguments: tuples, lists, dictionaries and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mapped(tree: Any, sought: type, change: Callable[[Any], Any]) -> Any:
    """Returns the same arguments with every value of type `sought` replaced by `change(value)`."""
    kind = type(tree)
    if kind is sought:
        return change(tree)
    if kind is tuple or kind is list:
        return kind(mapped(part, sought, change) for part in tree)
    if kind is dict:
        return {key: mapped(part, sought, change) for key, part in tree.items()}
    if kind is slice:
        return slice(*(mapped(part, sought, change) for part in (tree.start, tree.stop, tree.step)))
    return tree
