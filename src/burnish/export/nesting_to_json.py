"""Serialize the structure of arguments and results as JSON, and read it back: pytrees of torch.utils._pytree.

    (x, {"a": y})                          {"tuple": [0, {"dict": [["a", 0]]}]}, with a 0 for each leaf
    ModelOutput(logits=x)                  {"class": ["transformers.modeling_outputs.ModelOutput", context, [0]]}

A class that is registered with torch.utils._pytree is written by its name. The reader looks the name up among the
classes that this process has registered; it imports nothing, and calls nothing of the class. The context that a
class keeps besides its parts, such as names of fields, is read as a plain value.
"""

from __future__ import annotations

import collections
from typing import Any

import torch

from ..errors import UserError
from ..foundation.torch_private import pytree
from .allowed_operators import Unwritable
from .values_to_json import DEEPEST, decode, encode, parts, text

CONTAINERS: dict[str, type] = {"tuple": tuple, "list": list, "size": torch.Size}
MAPPINGS: dict[str, type] = {"dict": dict, "ordered": collections.OrderedDict}
NAMES: dict[type, str] = {kind: name for name, kind in {**CONTAINERS, **MAPPINGS}.items()}
LEAF = 0


def encode_nesting(nesting: Any) -> Any:
    if nesting.is_leaf():
        return LEAF
    children = [encode_nesting(child) for child in nesting.children()]
    name = NAMES.get(nesting.type)
    if name in MAPPINGS:
        keys = [encode(key, {}) for key in nesting.context]
        return {name: [list(pair) for pair in zip(keys, children, strict=True)]}
    if name is not None:
        return {name: children}
    name = name_of(nesting.context if nesting.type is collections.namedtuple else nesting.type)
    if registered().get(name) is not nesting.type:
        raise Unwritable(f"a {name}")
    return {"class": [name, encode(nesting.context, {}), children]}


def name_of(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def registered() -> dict[str, type]:
    """The classes that may be named: of two of one name, neither. Of torch's own only what its functions return."""
    names = collections.Counter(map(name_of, pytree.SUPPORTED_NODES))
    return {name_of(kind): kind for kind in pytree.SUPPORTED_NODES if names[name_of(kind)] == 1 and is_nameable(kind)}


def is_nameable(kind: type) -> bool:
    root = kind.__module__.partition(".")[0]
    return root not in ("builtins", "collections", "torch") or kind.__module__ == torch.return_types.__name__


def decode_nesting(written: Any, depth: int = 0) -> Any:
    if written == LEAF and type(written) is int:
        return pytree.tree_structure(LEAF)
    if type(written) is not dict or len(written) != 1:
        raise UserError(f"{written!r:.60} stands where the structure of a value should")
    if depth == DEEPEST:
        raise UserError(f"it holds containers nested more than {DEEPEST} deep")
    ((name, content),) = written.items()
    if name in CONTAINERS:
        return spec(CONTAINERS[name], None, [decode_nesting(part, depth + 1) for part in parts(content)])
    if name in MAPPINGS:
        pairs = [parts(pair, 2) for pair in parts(content)]
        keys = [decode(key, {}) for key, _ in pairs]
        try:
            is_unique = len({*keys}) == len(keys)
        except TypeError:
            raise UserError("it has a dictionary with a key that cannot be one") from None
        if not is_unique:
            raise UserError("it holds a dictionary that has a key twice")
        return spec(MAPPINGS[name], keys, [decode_nesting(part, depth + 1) for _, part in pairs])
    if name != "class":
        raise UserError(f"it holds a structure of the unknown kind {name!r:.60}")
    name, context, children = parts(content, 3)
    kind = registered().get(text(name, "the name of a class", 1000))
    if kind is None:
        raise UserError(
            f"it holds a {name!r:.100}, which is not a class that this program registered with torch.utils._pytree. "
            f"If you know it, import it (and what registers it) before you load the file"
        )
    fields = getattr(kind, "n_sequence_fields", None)  # of what a function of torch returns
    return spec(kind, decode(context, {}), [decode_nesting(part, depth + 1) for part in parts(children, fields)])


def spec(kind: type, context: Any, children: list[Any]) -> Any:
    return pytree.TreeSpec(kind, context, children)
