"""Class lookup: what a class has under a name, in the order of its bases.

    lookup(m, Model, "forward")        # (the function, the class in Model.__mro__ that defines it)

Where classes may change, the result and the order of the bases are guarded.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...engine.interpreted_or_native import is_trusted_type
from ...engine.object_lifetimes import members_source
from ...guards.object_sources import Source
from ...interpreter.frames import MISSING
from ...interpreter.reads_past_overrides import table_of_class


def lookup(m: Any, kind: type, name: str) -> tuple[Any, type | None]:
    """(what the class has under ``name``, the class that has it), guarded where classes may change."""
    key = (kind, name)
    found = m.lookups.get(key)
    if found is None:
        found = (MISSING, None)
        for base in kind.__mro__:
            table = table_of_class(base)
            if name in table:
                found = (table[name], base)
                break
        m.lookups[key] = found
        value, owner = found
        guard_order(m, kind)
        if owner is not None:
            guard_absent(m, kind, name, owner)
        if owner is not None and is_trusted_type(owner):
            m.heap.adopt(value)
        elif owner is not None and id(owner) not in m.heap.fresh:
            source = table_of(m, owner)
            if hasattr(type(value), "__get__"):
                m.heap.guard("is", source.item(name), value)
                m.heap.guard_kind(value)
                m.heap.adopt_pinned(value)
                if type(value) is FunctionType:
                    m.heap.pinned_functions.add(id(value))
    return found


def table_of(m: Any, cls: type) -> Source:
    """The source of a class's dictionary."""
    return members_source(m.heap.sources.pin(cls), cls)


def guard_order(m: Any, kind: type) -> None:
    """That a class keeps its metaclass and its bases: ``__class__`` and ``__bases__`` may be assigned, its own or
    those of a class that it inherits from."""
    if (kind, "the order of its bases") not in m.lookups:
        m.lookups[kind, "the order of its bases"] = (MISSING, None)
        if not is_trusted_type(kind) and id(kind) not in m.heap.fresh:
            order = type.__dict__["__mro__"].__get__(kind)
            m.heap.guard("is", m.heap.sources.pin(kind).attr("__mro__"), order)
            m.heap.guard("type", m.heap.sources.pin(kind), type(kind))


def forget(m: Any, kind: type) -> None:
    """A class made in this trace changes: what has been found for it and its subclasses may be another value now."""
    for table in (m.lookups, m.lookups_after, m.plans):
        for key in [key for key in table if isinstance(key[0], type) and issubclass(key[0], kind)]:
            del table[key]


def guard_absent(m: Any, kind: type, name: str, owner: type | None = None) -> None:
    """That no class before ``owner`` is given the name, which would come first then."""
    for base in kind.__mro__:
        if base is owner:
            return
        if not is_trusted_type(base) and id(base) not in m.heap.fresh:
            m.heap.guard("absent", table_of(m, base), name)


def lookup_after(m: Any, kind: type, start: type, name: str) -> tuple[Any, type | None]:
    """As ``lookup``, in the classes that follow ``start`` in the order of ``kind``."""
    key = (kind, start, name)
    found = m.lookups_after.get(key)
    if found is None:
        guard_order(m, kind)
        mro = kind.__mro__
        base = next((base for base in mro[mro.index(start) + 1 :] if name in table_of_class(base)), None)
        found = m.lookups_after[key] = (MISSING, None) if base is None else (lookup(m, base, name)[0], base)
    return found
