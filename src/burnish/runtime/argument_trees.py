"""Walks over nested arguments: tuples, lists, dictionaries and slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def mapped(tree: Any, sought: type, change: Callable[[Any], Any]) -> Any:
    """Returns the same arguments with every value of type `sought` replaced by `change(value)`."""
    kind = type(tree)
    if issubclass(kind, sought):
        return change(tree)
    if kind is tuple or kind is list:
        return kind(mapped(part, sought, change) for part in tree)
    if kind is dict:
        return {key: mapped(part, sought, change) for key, part in tree.items()}
    if kind is slice:
        return slice(*(mapped(part, sought, change) for part in (tree.start, tree.stop, tree.step)))
    return tree


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from tensors_in(part)
    elif type(tree) is dict:
        for part in tree.values():
            yield from tensors_in(part)
    elif torch.Tensor in type(tree).__mro__:  # does not ask the object itself for its class
        yield tree
