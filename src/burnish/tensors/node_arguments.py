"""The arguments of a node, as its target is to be given them.

A ``torch.fx`` node holds its lists and dictionaries as immutable ones, and so does what ``map_arg`` makes of them. The
target of an opaque node is Python of any kind, which may write to a dictionary that it is given, as
``torch.func.functional_call`` does to a copy of its own. So each call is given plain containers, made for it:

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
    """The same in containers that can be written to. Named tuples, and what is no container, stay as they are."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return tuple([plain(part) for part in value]) if type(value) is tuple else value
