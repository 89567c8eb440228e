"""Planning of a native watch: guards on fixed state become words in memory, the rest is checked in Python.

    made = WatchPlan(guards, inputs, values, slots, new_watch(), frozenset()).make()
    made.check(slots)              what the check of these guards returns, or None

A source is Fixed if it is found at an address that earlier words of the watch keep alive: an entry of a pinned object's
dictionary, a global, a function's default. For each step from one Fixed object to the next, the watch records the words
of memory that keep the second one Fixed; for each guard on a Fixed object, the words that keep the guard true.
Everything else (a container made for the call, an attribute that code computes) is read in Python. If such an object is
the same on every call, it is pinned and Fixed from there on. If it is a tensor, the watch checks its facts.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple

import torch

from ...runtime.state_watch.native_watch import (
    ORDER,
    Unwatchable,
    Watch,
    argument,
    dictionary_behind,
    function_field,
    name_field,
    order_field,
    slot_offset,
)
from ...runtime.state_watch.tensor_guard_layout import tensor_layout, word_at
from ...runtime.state_watch.torch_switch_queries import switches
from ..numbers import numpy_tables
from ..numbers.live_scalars import Expression
from .guards import HOOK_TABLES, CheckWriter, Guard, read
from .object_sources import Source
from .read_native_iterators import READABLE
from .tensor_metadata import WithoutRules, has_plain_facts, is_comparable

Wanted = Source | Expression
Place = tuple[Any, bool, bool]
"""The object at a source; whether it is Fixed; and whether it can only be this object. If another object may have been
made at the same address, its type is checked again before anything else."""

TABLES = (dict, collections.OrderedDict)
ORDERED = (dict, collections.defaultdict)
"""Dictionaries that keep their keys and values in order while their content is the same."""


class Entries(tuple):
    """The keys or the values of a dictionary when the watch is made. The check has a list of them, made on each call:
    the watch requires the dictionary's content instead. It is not kept, since it holds what is in it alive."""


ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes))
NEVER_PINNED = (
    *(tuple, list, dict, set, frozenset, collections.deque, MappingProxyType, torch.Tensor, *ATOMS),
    *READABLE,
    *((numpy_tables.ARRAY,) if numpy_tables.ARRAY is not None else ()),
)
FIELDS = {
    FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__"),
    MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
}
CONTENT = frozenset(("keys", "truth", "no hooks", "keys by base", "has", "absent", "length")) | frozenset(
    ("has by base", "absent by base", "length by base")
)
"""Guards on the content of a container, not on its identity or type."""


class BuiltWatch(NamedTuple):
    check: FunctionType
    """``check(slots, refused=refuse)``"""
    watch: Callable
    """The native function."""
    states: dict[int, Any]
    """State that is watched and may turn out to be fickle, by source."""


class WatchPlan:
    """Builds one watch of the state reachable from ``slots``."""

    def __init__(
        self,
        guards: list[Guard],
        inputs: Sequence[Wanted],
        values: Sequence[Source],
        slots: list,
        watch: Watch,
        unwatched: frozenset[int],
    ):
        """``unwatched``: sources that change too often to be Fixed."""
        self.guards, self.inputs, self.values = guards, inputs, values
        self.slots, self.watch, self.unwatched = slots, watch, unwatched
        self.places: dict[int, Place] = {}
        self.states: dict[int, Any] = {}  # of containers and pinned objects, by source: may turn out to be fickle
        self.arguments: dict[int, int] = {}  # of the watch, by source
        self.order: list[Wanted] = []
        self.pinned: list[Source] = []
        self.looked_at: list[tuple[Source, tuple[int, ...]]] = []  # tensors that are passed to the watch
        self.kept: list[Any] = []  # plain values, kept alive so that their addresses are not reused
        self.descriptions: dict[tuple, tuple[int, ...] | None] = {}

    def make(self) -> BuiltWatch:
        in_python = [guard for guard in self.guards if not self.is_watched(guard)]
        inputs, values = self.results(self.inputs), self.results(self.values)
        for source in self.pinned:
            self.watch.pin(self.argument(source), id(self.places[id(source)][0]))
        for source, description in self.looked_at:
            self.watch.tensor(argument(self.argument(source)), description)
        self.watch.arguments = len(self.order)
        watch = self.watch.function(inputs, values)
        check = self.written(watch, in_python)
        check.kept = self.kept  # type: ignore[attr-defined]
        return BuiltWatch(check, watch, self.states)

    # ---- places

    def locate(self, source: Source) -> Place:
        place = self.places.get(id(source))
        if place is None:
            place = self.places[id(source)] = self.found(source)
        return place

    def found(self, source: Source) -> Place:
        if source.base is None:
            if source.kind == "const":
                return source.key, True, True
            return self.read(source, self.slots[source.key[0]])
        base, is_fixed, is_certain = self.locate(source.base)
        if source.kind == "at":
            return base[source.key.value(lambda one: self.locate(one)[0])], False, False
        if is_fixed and id(source.base) not in self.unwatched:
            reader = FIXED.get(source.kind)
            if reader is not None:
                try:
                    value, is_certain = reader(self, source.base, base, source.key, is_certain)
                except Unwatchable:
                    pass
                else:
                    return value, True, is_certain
        return self.read(source, read(source, base))

    def read(self, source: Source, value: Any) -> Place:
        """A value read in Python on every call. An object that is read from is pinned: it is probably the same."""
        if not source.children or issubclass(type(value), NEVER_PINNED) or id(source) in self.unwatched:
            return value, False, False
        self.pinned.append(source)
        self.states[id(source)] = id(value)
        return value, True, False

    def content(self, source: Source, table: dict, is_certain: bool) -> bool:
        """Watch the whole content of a dictionary. Returns whether its values are certain to be these objects."""
        if not is_certain:
            self.watch.type(table)
        holds = self.watch.dictionary(table)
        self.states[id(source)] = (id(table), self.watch.versions[id(table)])
        return holds

    def behind(self, source: Source, proxy: Any) -> dict:
        """The dictionary that a read-only view shows."""
        table = dictionary_behind(proxy)
        if source.kind != "members":  # a class makes a new view on each access, always of the same dictionary
            self.watch.field(proxy, self.where(proxy, table), table)
        return table

    def members_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        if issubclass(type(base), type):
            return type.__dict__["__dict__"].__get__(base), is_certain
        return self.watch.members(base), True

    def item_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        kind = type(base)
        if kind is MappingProxyType:
            base = self.behind(source, base)
            kind = type(base)
        if kind is Entries and type(key) is int:
            return base[key], is_certain
        if kind in TABLES:
            holds = self.content(source, base, is_certain)  # its version before its items, see `Watch.dictionary`
            return base[key], holds
        if kind is list:
            return self.of_list(source, base, key), False
        if issubclass(type(base), tuple) and kind.__getitem__ is tuple.__getitem__ and type(key) is int:
            self.watch.tuple_item(base, key)
            return base[key], is_certain
        raise Unwatchable

    def of_list(self, source: Source, base: list, key: Any) -> Any:
        if type(key) is not int:
            raise Unwatchable
        value = list.__getitem__(base, key)
        self.watch.list_item(base, key, value)
        self.states[id(source)] = (id(base), list.__len__(base))
        return value

    def keys_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        return self.entries_of(source, base, is_certain, dict.keys)

    def values_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        return self.entries_of(source, base, is_certain, dict.values)

    def entries_of(
        self, source: Source, base: Any, is_certain: bool, entries: Callable[[dict], Any]
    ) -> tuple[Entries, bool]:
        if type(base) not in ORDERED:
            raise Unwatchable
        holds = self.content(source, base, is_certain)  # its version before its entries
        return Entries(entries(base)), holds

    def entry_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        if issubclass(type(base), dict):
            self.watch.type(base)
            holds = self.content(source, base, is_certain)
            return dict.__getitem__(base, key), holds
        if issubclass(type(base), list):
            return self.of_list(source, base, key), False
        if issubclass(type(base), tuple) and type(key) is int:
            self.watch.tuple_item(base, key)
            return tuple.__getitem__(base, key), is_certain
        raise Unwatchable

    def cell_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        if type(base) is not CellType:
            raise Unwatchable
        value = base.cell_contents
        self.watch.cell(base, value)
        return value, False

    def field_of(self, source: Source, base: Any, key: Any, is_certain: bool) -> tuple[Any, bool]:
        kind = type(base)
        if key == "__mro__" and issubclass(type(base), type):
            value = ORDER.__get__(base)
            self.watch.field(base, order_field(), value)
            return value, False
        if key in ("__name__", "__qualname__") and issubclass(type(base), type):
            value = type.__dict__[key].__get__(base)
            self.watch.field(base, name_field(key, base), value)
            return value, False
        if key in FIELDS.get(kind, ()):
            value = getattr(base, key)
            self.watch.field(base, function_field(key) if kind is FunctionType else self.where(base, value), value)
            return value, False
        if kind.__getattribute__ is not object.__getattribute__ or hasattr(kind, "__getattr__"):
            raise Unwatchable
        self.watch.type(base)
        for parent in kind.__mro__:
            table = dictionary_behind(type.__dict__["__dict__"].__get__(parent))
            if parent.__flags__ & 1 << 9:  # the dictionary of a class made in Python, to which attributes can be added
                self.watch.dictionary(table)
            if key in table:
                if type(table[key]) is not MemberDescriptorType:
                    break
                value = table[key].__get__(base)
                self.watch.field(base, slot_offset(table[key]), value)
                return value, False
        raise Unwatchable

    def where(self, obj: Any, value: Any) -> int:
        """The offset of the one field of a small C object that holds ``value``."""
        at = [8 * k for k in range(2, type(obj).__basicsize__ // 8) if word_at(id(obj) + 8 * k) == id(value)]
        if len(at) != 1:
            raise Unwatchable
        return at[0]

    # ---- guards

    def is_watched(self, guard: Guard) -> bool:
        """Whether the watch ensures that a guard holds. If not, it is tested in Python."""
        kind, source, expected = guard
        if kind == "state":
            return self.watch_state()
        if kind == "outcome":
            for one in expected[0].sources():
                self.locate(one)
            return False
        if kind == "distinct":
            return all([self.locate(one)[1] for one in expected])
        assert source is not None
        obj, is_fixed, is_certain = self.locate(source)
        if kind in ("same", "unlike"):
            return self.locate(expected)[1] and is_fixed
        if not is_fixed:
            return kind == "tensor" and self.looks_at(source, obj, expected)
        if type(obj) is Entries:
            return kind in ("type", "length", "truth")  # as long as the dictionary's content is the same
        if kind in CONTENT and id(source) in self.unwatched:
            return False
        rule = RULES.get(kind)
        try:
            return rule is not None and rule(self, source, obj, expected, is_certain)
        except Unwatchable:
            return False

    def watch_state(self) -> bool:
        asked = switches()
        if asked is None:
            return False
        from ...foundation.torch_private import (
            default_device_module as keeper,  # often the only importer, and its globals may be set later
        )

        for one in asked:
            self.watch.call(*one)
        self.watch.dictionary(vars(keeper))
        self.kept.append(keeper)
        return True

    def looks_at(self, source: Source, obj: Any, facts: tuple) -> bool:
        description = self.description(obj, facts)
        if description is not None:
            self.looked_at.append((source, description))
        return description is not None

    def description(self, obj: torch.Tensor, facts: tuple) -> tuple[int, ...] | None:
        layout = tensor_layout()
        if layout is None or not is_comparable(facts) and not has_plain_facts(obj, facts):
            return None
        with WithoutRules():
            key = (facts, word_at(obj._cdata), word_at(obj._cdata + 8 * layout.keys))
            if key not in self.descriptions:
                found = layout.describe(obj)
                self.descriptions[key] = None if found is None else tuple(found)
        return self.descriptions[key]

    def is_type(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        if type(obj) is not MappingProxyType:
            self.watch.type(obj)
        return True

    def is_it(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        return True  # it is expected[0], which the guard keeps alive, at its known address

    def is_value(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        self.kept.append(obj)
        return True

    def is_tensor(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        description = self.description(obj, expected)
        if description is not None:
            self.watch.tensor(id(obj), description)
        return description is not None

    def has_length(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        if issubclass(type(obj), list):
            self.watch.list_length(obj)
            self.states[id(source)] = (id(obj), list.__len__(obj))
            return True
        if issubclass(type(obj), tuple):
            self.watch.tuple_length(obj)
            return True
        return self.has_content(source, obj, expected, is_certain)

    def has_content(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        if type(obj) is MappingProxyType:
            obj = self.behind(source, obj)
        if not issubclass(type(obj), dict):
            return False
        self.content(source, obj, is_certain)
        return True

    def has_keys(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        # An OrderedDict has an order of its own, which can change while its version does not.
        return not issubclass(type(obj), collections.OrderedDict) and self.has_content(
            source, obj, expected, is_certain
        )

    def has_truth(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        if type(obj) in ATOMS:
            return self.is_value(source, obj, expected, is_certain)
        if type(obj) in TABLES:
            if not is_certain:
                self.watch.type(obj)
            self.watch.entries(obj)
            return True
        return type(obj) in (list, tuple) and self.has_length(source, obj, expected, is_certain)

    def has_no_hooks(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        if type(obj) is not dict:
            return False
        holds = self.content(source, obj, is_certain)
        tables = [obj[name] for name in HOOK_TABLES]
        if not all(type(table) in TABLES for table in tables):
            return False
        for table in tables:
            if not holds:
                self.watch.type(table)
            self.watch.entries(table)
        return True

    def is_set(self, source: Source, obj: Any, expected: Any, is_certain: bool) -> bool:
        return type(obj) is frozenset and self.is_value(source, obj, expected, is_certain)

    # ---- results, and the Python code around the watch

    def results(self, wanted: Sequence[Wanted]) -> list[int]:
        found = []
        for one in wanted:
            if not isinstance(one, Expression):
                obj, is_fixed, _ = self.locate(one)
                if is_fixed and type(obj) not in (MappingProxyType, Entries):  # new objects on each access
                    found.append(id(obj))
                    continue
            found.append(argument(self.argument(one)))
        return found

    def argument(self, wanted: Wanted) -> int:
        """The number of an argument of the watch."""
        at = self.arguments.get(id(wanted))
        if at is None:
            at = self.arguments[id(wanted)] = len(self.order)
            self.order.append(wanted)
        return at

    def written(self, watch: Callable, in_python: list[Guard]) -> Callable:
        """The function that reads and tests the values that are new in each call, and calls the watch."""
        writer = CheckWriter()
        writer.kept.update(map(id, self.order))
        tested, needed = set(map(id, in_python)), self.needed(in_python)
        for guard in self.guards:
            if guard.kind == "distinct" and id(guard) in tested:
                writer.conditions += self.not_distinct(writer, guard.expected)
            elif id(guard) in tested:
                writer.guard(guard)
            elif guard.kind in ("type", "is") and id(guard.source) in needed:
                writer.guard(guard)  # later reads rely on it
        writer.compare_tensors()
        shown = [one.render(writer) if isinstance(one, Expression) else writer.load(one) for one in self.order]
        return writer.function(
            "check", "S, refused=refuse", f"{writer.constant(watch)}({', '.join(shown)}) or refused(S)", "refused(S)"
        )

    def not_distinct(self, writer: CheckWriter, sources: Sequence[Source]) -> list[str]:
        """Conditions under which a value read in Python is the same object as another such value, or as a Fixed one."""
        fixed = frozenset(id(obj) for obj, is_fixed, _ in map(self.locate, sources) if is_fixed)
        names = [f"id({writer.load(source)})" for source in sources if not self.locate(source)[1]]
        found = [f"not {writer.constant(fixed)}.isdisjoint(({''.join(f'{name}, ' for name in names)}))"]
        return found if len(names) < 2 else [*found, f"len({{{', '.join(names)}}}) != {len(names)}"]

    def needed(self, in_python: list[Guard]) -> set[int]:
        """Sources from which something is read in Python."""
        read: list[Source] = []
        for one in self.order:
            read += one.sources() if isinstance(one, Expression) else [one]
        for guard in in_python:
            if guard.kind == "outcome":
                read += guard.expected[0].sources()
            elif guard.kind == "distinct":
                read += [source for source in guard.expected if not self.locate(source)[1]]
            elif guard.source is not None:
                read.append(guard.source)
                if guard.kind in ("same", "unlike"):
                    read.append(guard.expected)
        found: set[int] = set()
        for source in read:
            at = source.base
            while at is not None and id(at) not in found:
                found.add(id(at))
                at = at.base
        return found


# By source kind: the step from an object at a Fixed place to the next one, entered in the watch.
FIXED: dict[str, Callable[[WatchPlan, Source, Any, Any, bool], tuple[Any, bool]]] = {
    "members": WatchPlan.members_of,
    "own_members": WatchPlan.members_of,
    "item": WatchPlan.item_of,
    "entry": WatchPlan.entry_of,
    "keys": WatchPlan.keys_of,
    "values": WatchPlan.values_of,
    "cell": WatchPlan.cell_of,
    "attr": WatchPlan.field_of,
}

# By guard kind, for guards on Fixed objects: enters in the watch what makes the guard hold, or returns False.
RULES: dict[str, Callable[[WatchPlan, Source, Any, Any, bool], bool]] = {
    "type": WatchPlan.is_type,
    "is": WatchPlan.is_it,
    "equal": WatchPlan.is_value,
    "equal set": WatchPlan.is_set,
    "set layout": WatchPlan.is_set,
    "tensor": WatchPlan.is_tensor,
    "length": WatchPlan.has_length,
    "length by base": WatchPlan.has_length,
    "has": WatchPlan.has_content,
    "absent": WatchPlan.has_content,
    "has by base": WatchPlan.has_content,
    "absent by base": WatchPlan.has_content,
    "keys": WatchPlan.has_keys,
    "keys by base": WatchPlan.has_keys,
    "truth": WatchPlan.has_truth,
    "no hooks": WatchPlan.has_no_hooks,
}
