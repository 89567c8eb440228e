"""Object sources: where an object that existed before the segment comes from.

A source is a path from the segment's slots (the values the continuation starts with) or from a pinned object:
``S[0].layers[3].weight``. Equal paths are one object, so sources compare by identity. Guards read them, graph inputs
and effects are addressed by them, and messages show them the way the user would write them.
"""

from __future__ import annotations

from typing import Any

MEMBERS = ("members", type(None), None)
WORDS = {
    "attr": "{base}.{key}",
    "entry": "{base}[{key!r}]",
    **dict.fromkeys(("members", "own_members"), "{base}.__dict__"),
    "keys": "list({base})",
    "values": "list({base}.values())",
    "call": "{base}()",
    "count": "len({base})",
    "plain": "{base}.as_subclass(torch.Tensor)",
    "array": "torch.from_numpy({base})",
    **{kind: f"{kind} of {{base}}" for kind in ("rest", "parts", "container")},
}
"""Sources as users would write them, by kind."""


class Source:
    __slots__ = ("base", "children", "key", "kind", "label")

    def __init__(self, base: Source | None, kind: str, key: Any):
        self.base, self.kind, self.key = base, kind, key
        self.children: dict[Any, Source] | None = None  # most have none
        self.label = ""  # of a cell: the variable's name

    def child(self, kind: str, key: Any = None) -> Source:
        if kind == "item":
            return self.item(key)
        return self._child((kind, type(key), key))

    def _child(self, at: tuple) -> Source:
        children = self.children
        if children is None:
            children = self.children = {}
        found = children.get(at)
        if found is None:
            found = children[at] = Source(self, at[0], at[2])
        return found

    def attr(self, name: str) -> Source:
        return self.child("attr", name)

    def item(self, key: Any) -> Source:
        """Called most often, and mostly with names, which are their own keys."""
        at = key if type(key) is str else ("item", type(key), key)
        children = self.children
        if children is None:
            children = self.children = {}
        found = children.get(at)
        if found is None:
            found = children[at] = Source(self, "item", key)
        return found

    @property
    def members(self) -> Source:
        """The instance dictionary."""
        return self._child(MEMBERS)

    @property
    def own_members(self) -> Source:
        """The same of an object whose class has a ``__getattribute__`` in Python, which is not asked."""
        return self.child("own_members", None)

    def path(self) -> tuple:
        """A key that is the same for the same place in another trace of the same code."""
        key = self.key[0] if self.kind == "slot" else id(self.key) if self.kind == "const" else self.key
        if self.base is None:
            return ((self.kind, key),)
        return (*self.base.path(), (self.kind, key.path() if isinstance(key, Source) else key))

    @property
    def is_pinned(self) -> bool:
        return self.kind == "const"

    def __str__(self) -> str:
        """The source as the user would write it."""
        base = self.base
        if self.label:
            return self.label
        if self.kind == "slot":
            return self.key[1]
        if self.kind == "const":
            return (
                getattr(self.key, "__qualname__", None) or getattr(self.key, "__name__", None) or _namespace(self.key)
            )
        if self.kind == "cell":
            if isinstance(base, Source) and base.label:
                return base.label
            return (
                f"{base}.cell_contents"
                if not isinstance(base, Source) or base.kind != "item"
                else f"closure[{base.key}]"
            )
        if self.kind == "at":
            return f"{base}[{self.key.words()}]"
        if self.kind in WORDS:
            return WORDS[self.kind].format(base=base, key=self.key)
        assert base is not None
        if base.kind == "members":
            return f"{base.base}.{self.key}"
        if base.kind == "const" and isinstance(base.key, dict):
            return str(self.key)
        if (
            base.kind == "item"
            and base.base is not None
            and base.base.kind == "members"
            and base.key in ("_parameters", "_buffers", "_modules")
        ):
            return f"{base.base.base}.{self.key}" if not str(self.key).isdigit() else f"{base.base.base}[{self.key}]"
        return f"{base}[{self.key!r}]"

    def __repr__(self) -> str:
        return f"<Source {self}>"


def is_module_state(source: Any) -> bool:
    """Whether a path leads to a module's own parameter or buffer. These are mostly the same in every call."""
    base = source.base if isinstance(source, Source) and source.kind == "item" else None
    return (
        isinstance(base, Source)
        and base.kind == "item"
        and base.key in ("_parameters", "_buffers")
        and base.base is not None
        and base.base.kind == "members"
    )


def _namespace(obj: Any) -> str:
    if isinstance(obj, dict) and "__name__" in obj:
        return f"globals of {obj['__name__']}"
    return f"<{type(obj).__name__}>"


class Sources:
    """The roots of one segment's sources."""

    def __init__(self) -> None:
        self.slots: dict[int, Source] = {}
        self.pinned: dict[int, tuple[Any, Source]] = {}

    def slot(self, index: int, label: str) -> Source:
        found = self.slots.get(index)
        if found is None:
            found = self.slots[index] = Source(None, "slot", (index, label))
        return found

    def pin(self, obj: Any) -> Source:
        """The source of an object that is itself part of the segment (a module's globals, a class, a function)."""
        found = self.pinned.get(id(obj))
        if found is None:
            found = self.pinned[id(obj)] = (obj, Source(None, "const", obj))
        return found[1]
