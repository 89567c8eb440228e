"""Find a module's tensors by name with one native call, as long as the module has not changed.

    find = owned(module, ["0.weight", "0.bias"], watch)      None where memory cannot show changes
    find(module)                                             ((weight, bias), ()), or None where something has changed

Reading an attribute of a nested module takes a microsecond; here a few words are compared (`native_watch`). A
replaced tensor, or one of another type or size, is a change; new values in a tensor are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .native_watch import Unwatchable, Watch
from .tensor_guard_layout import tensor_layout

TABLES = ("_parameters", "_buffers")


def tensors_of_module(module: torch.nn.Module, names: Sequence[str], watch: Watch) -> Callable[..., Any] | None:
    layout = tensor_layout()
    if layout is None:
        return None
    watch.arguments = 1
    watch.pin(0, id(module))
    found = []
    try:
        for name in names:
            *path, last = name.split(".")
            owner = module
            for part in path:
                owner = content(watch, owner, "_modules")[part]
            tensor = tensor_in(watch, owner, last)
            description = layout.describe(tensor)
            if description is None:
                return None
            watch.tensor(id(tensor), tuple(description))
            found.append(id(tensor))
    except (Unwatchable, KeyError, AttributeError):
        return None
    return watch.function(found, [])


def tensor_in(watch: Watch, owner: torch.nn.Module, name: str) -> torch.Tensor:
    places = (members(watch, owner), *(content(watch, owner, table) for table in TABLES))
    tensor = next((place[name] for place in places if name in place), None)
    if not isinstance(tensor, torch.Tensor):
        raise Unwatchable
    return tensor


def members(watch: Watch, owner: torch.nn.Module) -> dict:
    """Its attributes. They take precedence over its tables."""
    table = watch.members(owner)
    watch.dictionary(table)
    return table


def content(watch: Watch, owner: torch.nn.Module, name: str) -> dict:
    """One of its tables."""
    table = members(watch, owner)[name]
    if type(table) is not dict:
        raise Unwatchable
    watch.type(table)
    watch.dictionary(table)
    return table
