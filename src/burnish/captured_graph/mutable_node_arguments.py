"""Converts the arguments of a ``torch.fx`` node into plain mutable containers for a call of its target.

A ``torch.fx`` node stores immutable lists and dictionaries, and ``map_arg`` returns immutable ones. The target of an
opaque node is arbitrary Python and may write to a dictionary argument, as ``torch.func.functional_call`` does to its
own copy. So each call gets new plain containers:

    call_functional(immutable_dict({"weight": w}), x)        call_functional({"weight": <a tensor>}, <a tensor>)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg


def arguments_of(node: Node, value_of: Callable[[Node], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple([plain(arg) for arg in map_arg(node.args, value_of)])
    return args, {name: plain(arg) for name, arg in map_arg(node.kwargs, value_of).items()}


def plain(value: Any) -> Any:
    """The same value in mutable containers. Named tuples and values that are not containers are returned unchanged."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return tuple([plain(part) for part in value]) if type(value) is tuple else value
