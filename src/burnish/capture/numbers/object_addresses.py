"""``id()``: addresses as live numbers.

    seen = {id(x)}                    x is an argument: in another run it may be at another address
    made = x + 1
    if id(made) not in seen: ...      the objects are different ones, which is guarded if both are from outside
    return id(made)                   the address of the object of this run

As a key of containers that are made here, an address says no more than which object it is. So its value is guarded
only if it meets numbers from outside. That of an object made here is unknown before the segment has run: it may be
compared, be a key, and be returned. Arithmetic with it, its order, and its use as a key of a container from outside end
the graph.
"""

from __future__ import annotations

import collections
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .. import breaks
from ..engine.object_lifetimes import ALWAYS, IF_REFERENCED, rule_of
from ..guards.container_reads_past_overrides import elements_of, items_of
from ..guards.object_sources import Source
from ..interpreter.frames import Generator
from . import live_scalars
from .live_scalars import Expression


class Address(Expression):
    """The address of an object. ``source``: where the object comes from, if it is from outside. An object whose end the
    program can see is not kept alive."""

    __slots__ = ("kind", "reference", "source")

    def __init__(self, obj: Any, source: Source | None):
        super().__init__(id, ())
        self.kind, self.source = type(obj), source
        is_seen = rule_of(self.kind) in (ALWAYS, IF_REFERENCED)
        self.reference: Callable[[], Any] = weakref.ref(obj) if is_seen else lambda: obj

    @property
    def is_gone(self) -> bool:
        return type(self.reference) is weakref.ref and self.reference() is None

    def render(self, writer: Any) -> str:
        return f"id({writer.load(self.source)})" if self.source is not None else writer.address(self)

    def sources(self) -> list[Source]:
        return [] if self.source is None else [self.source]

    def words(self) -> str:
        made = f"a {self.kind.__qualname__} that is made here"
        return f"id({made if self.source is None else self.source})"


def of(m: Any, value: Any) -> Any:
    """``id(value)``, or None if it is the address of a value without identity, such as a number."""
    origin = m.heap.origin_of(value)
    value = m.heap.originals.get(id(value), value)
    if origin is not None and origin.source.is_pinned or m.heap.has_fixed_meaning(value) or value is None:
        return id(value)
    is_value = m.heap.is_compared_by_value(type(value)) or issubclass(type(value), (bool, live_scalars.Live))
    if origin is None and is_value:
        return None
    return live_scalars.make(id(value), Address(value, None if origin is None else origin.source), m)


def hash_of(m: Any, value: Any) -> Any:
    """``object.__hash__(value)``, or None if it is the hash of a value without identity."""
    address = of(m, value)
    return (
        live_scalars.apply(hash_of_address, address)
        if isinstance(address, live_scalars.Live)
        else address and object.__hash__(value)
    )


def hash_of_address(address: int) -> int:
    """The address, rotated by the bits that are the same for all objects."""
    bits = sys.hash_info.width
    rotated = (address >> 4 | address << bits - 4) & (1 << bits) - 1
    signed = rotated - (rotated >> bits - 1 << bits)
    return -2 if signed == -1 else signed


def text_of(m: Any, value: Any) -> Any:
    """``object.__repr__(value)``, which ends with the address; None where ``hash_of`` is None."""
    address, text = of(m, value), (Generator if type(value) is Generator else object).__repr__(value)
    if not isinstance(address, live_scalars.Live):
        return address and text
    return live_scalars.apply(text_with_address, text[: text.rindex(" 0x")], address)


def text_with_address(before: str, address: int) -> str:
    return f"{before} {address:#x}>"


def parts_of(expression: Any) -> Iterator[Any]:
    """The expression and all within it, without recursion: a long sum is nested deeper than calls can be."""
    left = [expression]
    while left:
        part = left.pop()
        yield part
        if not isinstance(part, Address):
            left += [operand for operand in part.operands if isinstance(operand, Expression)]


def is_in(expression: Any) -> bool:
    return any(isinstance(part, Address) for part in parts_of(expression))


def is_made_here(expression: Any) -> bool:
    """Whether the address of an object that is made here is a part of the expression."""
    return any(isinstance(part, Address) and part.source is None for part in parts_of(expression))


def is_computed(expression: Any) -> bool:
    """Whether a hash or a text is a part of the expression: a guard on it would hold for one object only."""
    return any(part.operation in (hash_of_address, text_with_address) for part in parts_of(expression))


def settle(m: Any, expression: Expression, value: int) -> bool:
    """Python needs the number: as a key, or to compare it. Returns whether no guard on its value is needed now."""
    if isinstance(expression, Address):
        m.addresses[value] = expression
        return True
    if is_made_here(expression) or is_computed(expression):
        m.stop(breaks.OPAQUE_CALL, f"a value is computed from {expression.words()}")
    return False


def decide(m: Any, expression: Expression) -> bool:
    """Returns whether the outcome of a comparison is the same in each run."""
    # A settled one is compared where it is a key.
    operands = [m.addresses.get(part, part) if type(part) is int else part for part in expression.operands]
    if expression.operation in EQUALITY and all(isinstance(operand, Address) for operand in operands):
        if any(operand.is_gone for operand in operands):
            m.stop(breaks.OPAQUE_CALL, f"the address of a {operands[0].kind.__qualname__} that is gone is compared")
        m.same(operands[0].reference(), operands[1].reference())
        return True
    if not is_made_here(expression):
        return False
    if expression.operation in ORDER:
        m.stop(breaks.OPAQUE_CALL, f"the order of addresses: {expression.words()}")
    if expression.operation is not live_scalars.is_type and not all(map(is_unique, expression.operands)):
        m.stop(breaks.OPAQUE_CALL, f"a comparison with {expression.words()}")
    return True


def is_unique(operand: Any) -> bool:
    """Whether no two objects have this number, if it is one of an object: an address or a hash, not a number computed
    from it."""
    if not isinstance(operand, Expression) or not is_in(operand):
        return True
    return isinstance(operand, Address) or operand.operation is hash_of_address


EQUALITY = frozenset((operator.eq, operator.ne))
ORDER = frozenset((operator.lt, operator.le, operator.gt, operator.ge))


def check_key(m: Any, key: Any) -> None:
    """A dictionary from outside is asked for a key."""
    address = m.addresses.get(key) if type(key) is int else None
    if address is None:
        return
    if address.source is None:
        m.stop(breaks.OPAQUE_CALL, f"{address.words()} is a key of a dictionary from outside")
    guard(m, address, key)


def is_part_of(m: Any, value: Any) -> bool:
    """Whether a constant is the address of an object, or holds one."""
    if type(value) is int:
        return value in m.addresses
    return type(value) in (tuple, frozenset, slice, list, dict) and any(
        is_part_of(m, part) for part in (value if type(value) is not slice else (value.start, value.stop, value.step))
    )


def guard(m: Any, address: Address, value: int) -> None:
    m.heap.guard("outcome", None, (Expression(operator.eq, (address, value)), True))


def guard_keys(m: Any) -> None:
    """At the end of the segment: what addresses from outside that were keys have decided."""
    if not m.addresses:
        return
    meets_others = any(map(holds_addresses, list(m.heap.origins.values())))
    for value, address in m.addresses.items():
        m.heap.identity_matters.add(address.kind)
        if address.source is not None and meets_others:
            guard(m, address, value)


def holds_addresses(origin: Any) -> bool:
    """Whether the program has looked into a container from outside that holds numbers like addresses."""
    if not origin.complete:
        return any(map(is_large, origin.known)) or any(map(is_large, origin.written))
    if isinstance(origin.obj, dict):
        return any(is_large(key) or is_large(value) for key, value in items_of(origin.obj))
    containers = (list, tuple, set, frozenset, collections.deque)
    return isinstance(origin.obj, containers) and any(map(is_large, elements_of(origin.obj)))


def is_large(value: Any) -> bool:
    return issubclass(type(value), int) and value >= SMALLEST


SMALLEST = 1 << 20
"""Smaller numbers are not addresses of objects."""
