"""Keys whose class hashes and compares in Python: a frozen dataclass, or one with its own ``__hash__`` and ``__eq__``.

    table = {Point(0, 1): x}          Point.__hash__ is interpreted here, then called by the dictionary
    table[Point(0, 1)]                so is Point.__eq__, because the hashes are equal

C code calls the methods of a key. So they are interpreted before: what they read is guarded, and if they write, print
or break, the graph ends. When C code calls them after that, they find what has been read.
"""

from __future__ import annotations

from types import FunctionType, MemberDescriptorType
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import is_trusted_type
from ...interpreter.frames import MISSING, RAISES
from ...interpreter.reads_past_overrides import dict_of
from ...numbers.live_scalars import settled
from ..attributes.class_lookup import lookup
from ..polyfills import operator_protocol_polyfills


def hashes_in_python(m: Any, kind: type) -> bool:
    method, owner = lookup(m, kind, "__hash__")
    return isinstance(method, FunctionType) and not is_trusted_type(owner)


def check(m: Any, key: Any) -> Any:
    """Interpret the methods of a key that a dictionary or set is about to call. RAISES if its hash raises an error: C
    code calls it next, and so raises that."""
    kind = type(key)
    number = interpreted(m, kind, lookup(m, kind, "__hash__")[0], key)
    m.known_codes.add(lookup(m, kind, "__hash__")[0].__code__)
    if number is RAISES:
        return RAISES
    others = m.user_keys.setdefault(number, [])
    if any(other is key for other in others):
        return None
    if isinstance(lookup(m, kind, "__eq__")[0], FunctionType):
        for other in others:
            interpreted(m, kind, operator_protocol_polyfills.compare, other, key, "__eq__", "__eq__")
            interpreted(m, kind, operator_protocol_polyfills.compare, key, other, "__eq__", "__eq__")
    others.append(key)
    m.user_key_attributes.setdefault(id(key), attributes_of(key))
    method = lookup(m, kind, "__eq__")[0]
    if isinstance(method, FunctionType):
        m.known_codes.add(method.__code__)
    return None


def attributes_of(key: Any) -> list[Any]:
    members = [member for each in type(key).__mro__ for member in each.__dict__.values()]
    slots = [slot_value(member, key) for member in members if type(member) is MemberDescriptorType]
    return [*(dict_of(key) or {}).values(), *slots]


def slot_value(slot: MemberDescriptorType, key: Any) -> Any:
    try:
        return slot.__get__(key)
    except AttributeError:
        return MISSING


def has_changed(m: Any, key: Any) -> bool:
    """Whether a key had other attributes when it was added. A dictionary keeps the hash of that time."""
    before, now = m.user_key_attributes[id(key)], attributes_of(key)
    return len(before) != len(now) or any(a is not b for a, b in zip(before, now, strict=True))


def interpreted(m: Any, kind: type, function: Any, *args: Any) -> Any:
    answer, why = m.interpret_purely(function, args)
    if why is not None:
        m.stop(breaks.USER_HASH, f"a {kind.__qualname__} as key: {why}")
    return settled(answer)
