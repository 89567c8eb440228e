"""Serialize plain values of an exported graph as JSON, and read them back: numbers, words, dtypes, containers.

    encode((x, 1.5, slice(0, 2)), {x: "x"})   {"tuple": [{"node": "x"}, {"float": "1.5"}, {"slice": [0, 2, null]}]}
    decode(written, {"x": x})                 the tuple

None, bool, int and str are JSON values; any other value is an object with one entry, which names its kind. Reading
makes objects of the types listed here and no others. The reader trusts nothing: a value of another type, a name that
is not in the list, or containers nested deeper than `DEEPEST` are refused with a `UserError`.
"""

from __future__ import annotations

import collections
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.fx

from ..errors import UserError
from .allowed_operators import Unwritable

DEEPEST = 32
"""Nesting depth of containers. Python's own parser takes some 100 brackets, and the graph is printed as Python."""

MOST_DIGITS = 40
"""Digits of a number's text: `float.hex`, `repr` and torch's largest integers have fewer."""

PLAIN = frozenset((type(None), bool, int, str))
CONSTANTS: dict[type, tuple[str, ...]] = {
    torch.dtype: tuple(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)),
    torch.layout: tuple(name for name in dir(torch) if isinstance(getattr(torch, name), torch.layout)),
    torch.memory_format: ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"),
}
STRUCTS: dict[str, type] = {
    name: kind for name, kind in vars(torch.return_types).items() if isinstance(kind, type) and issubclass(kind, tuple)
}
DEVICE = re.compile(r"[a-z0-9_]{1,20}(:\d{1,3})?", re.ASCII)


# ---- writing


Each = Callable[[Any], Any]
"""Writes a part of a value."""


def in_turn(values: Iterable[Any], each: Each) -> list[Any]:
    return [each(value) for value in values]


def pairs(value: Mapping[Any, Any], each: Each) -> list[Any]:
    return [[each(key), each(part)] for key, part in value.items()]


def constant(value: Any, each: Each) -> str:
    return str(value).removeprefix("torch.")


WRITERS: dict[type, tuple[str, Callable[[Any, Each], Any]]] = {
    float: ("float", lambda value, each: repr(value)),
    complex: ("complex", lambda value, each: [repr(value.real), repr(value.imag)]),
    bytes: ("bytes", lambda value, each: value.hex()),
    list: ("list", in_turn),
    torch.Size: ("size", lambda value, each: list(value)),
    tuple: ("tuple", in_turn),
    dict: ("dict", pairs),
    torch.fx.immutable_collections.immutable_dict: ("dict", pairs),
    collections.OrderedDict: ("ordered", pairs),
    slice: ("slice", lambda value, each: in_turn((value.start, value.stop, value.step), each)),
    type(Ellipsis): ("ellipsis", lambda value, each: True),
    torch.device: ("device", lambda value, each: str(value)),
    **{kind: (kind.__name__, constant) for kind in CONSTANTS},
    **{
        kind: ("struct", lambda value, each: [type(value).__name__, in_turn(value, each)])
        for name, kind in STRUCTS.items()
        if kind.__name__ == name
    },
}
"""By type: the name of the kind, and the function that gives the written form of a value."""


def encode(value: Any, nodes: dict[torch.fx.Node, str]) -> Any:
    """A value as JSON: itself where JSON has the same type, else an object with one entry that names its kind."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, torch.fx.Node):
        return {"node": nodes[value]}
    if isinstance(value, list):  # an immutable list, in a graph
        kind = list
    if kind not in WRITERS:
        raise Unwritable(f"a {kind.__module__}.{kind.__qualname__}")
    name, write = WRITERS[kind]
    return {name: write(value, lambda part: encode(part, nodes))}


# ---- reading


def decode(value: Any, nodes: Mapping[str, torch.fx.Node], depth: int = 0) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is not dict or len(value) != 1:
        raise UserError(f"{value!r:.60} stands where a value should")
    if depth == DEEPEST:
        raise UserError(f"it holds containers nested more than {DEEPEST} deep")
    ((what, content),) = value.items()
    make = READERS.get(what)
    if make is None:
        raise UserError(f"it holds a value of the unknown kind {what!r:.60}")
    return make(content, nodes, depth + 1)


Nodes = Mapping[str, torch.fx.Node]


def read_node(content: Any, nodes: Nodes, depth: int) -> torch.fx.Node:
    found = nodes.get(content) if type(content) is str else None
    if found is None:
        raise UserError(f"it reads the result of {content!r:.60}, which is not computed before")
    return found


def read_number(content: Any) -> float:
    try:
        return float(text(content, "a number", MOST_DIGITS))
    except ValueError:
        raise UserError(f"{content!r:.60} stands where a number should") from None


def read_complex(content: Any, nodes: Nodes, depth: int) -> complex:
    real, imaginary = map(read_number, parts(content, 2))
    return complex(real, imaginary)


def read_bytes(content: Any, nodes: Nodes, depth: int) -> bytes:
    try:
        return bytes.fromhex(text(content, "bytes", 1 << 20))
    except ValueError:
        raise UserError(f"{content!r:.60} stands where bytes should") from None


def read_list(content: Any, nodes: Nodes, depth: int) -> list[Any]:
    return [decode(part, nodes, depth) for part in parts(content)]


def read_size(content: Any, nodes: Nodes, depth: int) -> torch.Size:
    return torch.Size(sizes(content, "a size"))


def read_slice(content: Any, nodes: Nodes, depth: int) -> slice:
    return slice(*[decode(part, nodes, depth) for part in parts(content, 3)])


def read_dict(content: Any, nodes: Nodes, depth: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for pair in parts(content):
        key, value = parts(pair, 2)
        key = decode(key, {}, depth)
        try:
            known = key in found
        except TypeError:
            raise UserError(f"{key!r:.60} stands where the key of a dictionary should") from None
        if known:
            raise UserError(f"it holds a dictionary that has the key {key!r:.60} twice")
        found[key] = decode(value, nodes, depth)
    return found


def read_ellipsis(content: Any, nodes: Nodes, depth: int) -> Any:
    return ...


def read_device(content: Any, nodes: Nodes, depth: int) -> torch.device:
    if type(content) is str and DEVICE.fullmatch(content):
        try:
            return torch.device(content)
        except RuntimeError:
            pass
    raise UserError(f"{content!r:.60} stands where a device should")


def read_struct(content: Any, nodes: Nodes, depth: int) -> Any:
    name, fields = parts(content, 2)
    kind = STRUCTS.get(name) if type(name) is str else None
    if kind is None:
        raise UserError(f"it holds a value of the unknown kind {name!r:.60}")
    found = read_list(fields, nodes, depth)
    if len(found) != kind.n_sequence_fields:  # type: ignore[attr-defined]
        raise UserError(f"it holds a {name} of {len(found)} parts, and one has {kind.n_sequence_fields}")  # type: ignore[attr-defined]
    return kind(found)


def constant_reader(kind: type) -> Callable[[Any, Nodes, int], Any]:
    known = {name: getattr(torch, name) for name in CONSTANTS[kind]}

    def read(content: Any, nodes: Nodes, depth: int) -> Any:
        found = known.get(content) if type(content) is str else None
        if found is None:
            raise UserError(f"it holds {content!r:.60}, a value of the unknown kind {kind.__name__!r}")
        return found

    return read


READERS: dict[str, Callable[[Any, Nodes, int], Any]] = {
    "node": read_node,
    "float": lambda content, nodes, depth: read_number(content),
    "complex": read_complex,
    "bytes": read_bytes,
    "list": read_list,
    "tuple": lambda *args: tuple(read_list(*args)),
    "size": read_size,
    "slice": read_slice,
    "dict": read_dict,
    "ordered": lambda *args: collections.OrderedDict(read_dict(*args)),
    "ellipsis": read_ellipsis,
    "device": read_device,
    "struct": read_struct,
    **{kind.__name__: constant_reader(kind) for kind in CONSTANTS},
}


# ---- the parts of a description


def entry(written: Any, name: str) -> Any:
    """The value of a name in an object of the description."""
    if type(written) is not dict or name not in written:
        raise UserError(f"it is damaged, or was not written by Exported.save: there is no {name!r} in {written!r:.60}")
    return written[name]


def parts(content: Any, count: int | None = None) -> list[Any]:
    if type(content) is not list or count is not None and len(content) != count:
        raise UserError(f"{content!r:.60} stands where a list{'' if count is None else f' of {count}'} should")
    return content


def text(content: Any, what: str, longest: int = 10_000) -> str:
    if type(content) is not str or len(content) > longest:
        raise UserError(f"{content!r:.60} stands where {what} should")
    return content


def shown(content: Any, what: str, longest: int = 10_000) -> str:
    """Text that is printed for people, without control characters for the terminal."""
    found = text(content, what, longest)
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in found)


def flag(content: Any, what: str) -> bool:
    if type(content) is not bool:
        raise UserError(f"{content!r:.60} stands where {what} should: true or false")
    return content


def whole(content: Any, what: str, below: int = 1 << 63) -> int:
    if type(content) is not int or not 0 <= content < below:
        raise UserError(f"{content!r:.60} stands where {what} should: a whole number from 0 to {below - 1}")
    return content


def sizes(content: Any, what: str) -> tuple[int, ...]:
    return tuple([whole(part, what) for part in parts(content)])


def identifier(name: Any) -> str:
    """A plain name. The graph is printed as Python source where it runs uncompiled, so nothing else is allowed."""
    if (
        type(name) is not str
        or not name.isascii()
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or name.startswith("__")
        or len(name) > 200
    ):
        raise UserError(f"{name!r:.60} stands where a name should")
    return name
