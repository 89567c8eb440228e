"""Pattern matching: the mapping and class patterns of ``match`` statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .frames import MISSING, Raised

if TYPE_CHECKING:
    from .instruction_loop import Machine

MATCH_SELF = 1 << 22  # type flag: a class pattern with one positional sub-pattern matches the subject itself


def match_keys(machine: Machine, subject: Mapping, keys: tuple) -> tuple | None:
    found, seen = [], set()
    for key in keys:
        if key in seen:
            raise Raised(ValueError(f"mapping pattern checks duplicate key ({key!r})"))
        seen.add(key)
        value = subject.get(key, MISSING)
        if value is MISSING:
            return None
        found.append(value)
    return tuple(found)


def match_class(machine: Machine, subject: Any, cls: Any, count: int, names: tuple) -> Any:
    if not isinstance(cls, type):
        raise Raised(TypeError("called match pattern must be a class"))
    if not machine.is_instance(subject, cls):
        return None
    found = []
    if count:
        fields = machine.plain_attr(cls, "__match_args__")
        whole = fields is MISSING and cls.__flags__ & MATCH_SELF  # int(x) and the like: the subject itself
        fields = () if fields is MISSING else fields
        if type(fields) is not tuple:
            raise Raised(TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(fields).__name__})"))
        allowed = 1 if whole else len(fields)
        if allowed < count:
            patterns = f"{allowed} positional sub-pattern{'s' * (allowed != 1)}"
            raise Raised(TypeError(f"{cls.__name__}() accepts {patterns} ({count} given)"))
        if whole:
            found.append(subject)
        else:
            names = fields[:count] + names
    for i, name in enumerate(names):
        if type(name) is not str:
            raise Raised(TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})"))
        if name in names[:i]:
            raise Raised(TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}"))
        value = machine.plain_attr(subject, name)
        if value is MISSING:
            return None
        found.append(value)
    return tuple(found)
