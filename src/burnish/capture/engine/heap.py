"""The heap: the objects from outside that a segment uses, with their sources, guards on reads, and writes.

Capture runs on the real objects, so reads and writes are plain Python. This module keeps records of them. The first
read of an outside object adds a guard. A container's content before the segment is kept, so that a change can be
replayed as an effect when the segment runs again. An object that is not in ``origins`` was made by the segment.
"""

from __future__ import annotations

import enum
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..guards.changing_numbers import CHANGING_NAMES, NUMBERS
from ..guards.container_reads_past_overrides import base_of, has_key, items_of, length_of
from ..guards.guards import Guard
from ..guards.object_sources import Source, Sources
from ..guards.tensor_metadata import TENSOR_TYPES, facts_of, global_state, is_tensor, tensor_facts
from ..guards.value_or_identity import (
    ATOMS,
    FIXED_WITH_STATE,
    PLAIN_KINDS,
    SINGLETON_IDS,
    has_fixed_meaning,
    is_compared_by_value,
    is_made_by_call,
    is_plain_kind,
    is_setting,
)
from ..interpreter.frames import MISSING, NULL, UNBOUND, Generator
from ..interpreter.generator_delegation import runs_code_when_closed
from ..interpreter.reads_past_overrides import PLAIN_TABLES, dict_of
from ..numbers import decimal_context, live_number_reads, live_scalars, numpy_tables, object_addresses
from . import container_changes, guard_object_parts
from .object_lifetimes import (
    EXACT,
    NO_ENTRIES,
    Origin,
    WeakOrigin,
    has_observable_finalization,
    members_source,
    runs_code_at_the_end,
)

MOST_REMEMBERED = 64
"""The largest dictionary whose old values are kept when keys of it are written."""

_new_guard = tuple.__new__


class Heap:
    is_compared_by_value = staticmethod(is_compared_by_value)
    has_fixed_meaning = staticmethod(has_fixed_meaning)
    is_constant_key = staticmethod(container_changes.is_constant_key)
    complete = container_changes.complete
    expose = container_changes.expose
    expose_items = container_changes.expose_items
    items_read_at_once = container_changes.items_read_at_once
    appending = container_changes.appending
    changing_set = container_changes.changing_set
    read_order = container_changes.read_order
    changed = container_changes.changed
    check_lifetimes = container_changes.check_lifetimes
    note_changes = container_changes.note_changes
    why_not_readable = container_changes.why_not_readable
    guard_kind = guard_object_parts.guard_kind
    ends_unseen_in_each_call = guard_object_parts.ends_unseen_in_each_call
    changing_number = live_number_reads.changing_number
    admit_slot = live_number_reads.admit_slot
    live_element = live_number_reads.live_element
    read_length = live_number_reads.read_length
    was_appended = container_changes.was_appended

    def __init__(self, tracer: Any):
        self.tracer = tracer
        self.sources = Sources()
        self.arguments = 0  # how many slots, from the first, are arguments of the call, which the caller holds
        self.origins: dict[int, Origin] = {}
        self.guards: list[Guard] = []
        self._guard_keys: set = set()
        self.fresh: dict[int, Any] = {}  # objects made by the segment (instances, functions)
        self.pinned_functions: set[int] = set()
        self.names_seen: set[tuple[int, str]] = set()
        self.by_value: dict[int, tuple[Any, Source]] = {}  # slices and the like, which stay the objects they are
        self.in_sets: set[int] = set()  # elements of outside sets, which are guarded
        self.identity_matters: set[type] = set()  # classes whose objects' identity decided something
        self.generators: list[weakref.ref] = []  # those that the segment has made
        self.taken_over: list[tuple[weakref.ref, Source]] = []  # outside generators whose frames run in this trace
        self.of_classes: dict[int, Origin] = {}  # by class: each read of its ``__dict__`` makes another proxy
        self.live_numbers: dict[int, Any] = {}  # by source, with tuples that hold some
        self.originals: dict[int, tuple] = {}  # the program's own tuples, by those with live numbers in their place
        self.readings: dict[int, Any] = {}  # of native iterators from outside: see outside_iterators
        self.shown: set[int] = set()  # builtin iterators that plain Python sees: see shown_iterators
        self.received: dict[int, list] = {}  # lists to which effects of the segment append: see refuse_received
        self.raced: str | None = None  # a value that another thread changed between two reads
        self.dropped: str | None = None  # an object whose finalization ran code
        self.has_decimals = self.has_marked = False  # the decimal context is guarded; tensors made here have attributes
        self.guard("state", None, global_state())

    # ---- guards

    def guard(self, kind: str, source: Source | None, expected: Any = None) -> None:
        try:
            key = (kind, id(source), type(expected), expected)
            if key in self._guard_keys:
                return
        except TypeError:  # it has no hash
            key = (kind, id(source), type(expected), id(expected))
            if key in self._guard_keys:
                return
        self._guard_keys.add(key)
        self.guards.append(_new_guard(Guard, (kind, source, expected)))

    def guard_answer(self, question: Callable, source: Source, *args: Any, answer: bool = True) -> None:
        """Guard what a function returns for the value at ``source`` and these constants."""
        asked = live_scalars.Expression(question, (live_scalars.Expression(None, (source,)), *args))
        self.guard("outcome", None, (asked, answer))

    def add(self, kind: str, source: Source, expected: Any = None) -> None:
        """Add a guard without a search for an equal one, because its source is read for the first time."""
        self.guards.append(_new_guard(Guard, (kind, source, expected)))

    # ---- admission: an object is met for the first time

    def admit(self, value: Any, source: Source, is_slot: bool = False) -> Any:
        """Record the source of ``value`` and guard its kind or value. Returns the value to continue with."""
        kind, key = type(value), id(value)
        if key not in self.origins:
            if kind in TENSOR_TYPES:
                symbolic_sizes = self.tracer.symbolic_sizes
                opened = None if symbolic_sizes is None else symbolic_sizes.admit(value, source)
                self.guards.append(opened or _new_guard(Guard, ("tensor", source, facts_of(value))))
                self.origins[key] = Origin(value, source)
                return value
            if PLAIN_KINDS.get(kind) or is_plain_kind(kind):
                self.guards.append(_new_guard(Guard, ("type", source, kind)))
                self.origins[key] = self.new_origin(value, source)
                return value
        if key in SINGLETON_IDS:
            if not (is_slot and value in (NULL, UNBOUND)):
                self.add("is", source, value)
            return value
        if is_compared_by_value(kind) and not (kind in numpy_tables.NUMBERS and self.is_varying(kind, source, is_slot)):
            return self.admit_by_value(value, source, is_slot)
        origin = self.origins.get(key)
        if origin is not None:
            if origin.source is not source:
                if origin.source.is_pinned:
                    self.guard("is", source, value)
                else:
                    self.guard("same", source, origin.source)
            return value
        if has_fixed_meaning(value) and not (
            kind is types.FunctionType and is_made_by_call(value) and (is_slot or source.path() in self.tracer.changing)
        ):
            self.add("is", source, value)
            if kind is not types.FunctionType:
                self.guard_kind(value)
                return value
            self.pinned_functions.add(key)
            source = self.sources.pin(value)
        elif is_tensor(value):
            self.add("tensor", source, tensor_facts(value))
        else:
            self.add("type", source, kind)
        self.origins[key] = self.new_origin(value, source)
        admit_parts = guard_object_parts.parts_of(kind)
        if admit_parts is not None:
            admit_parts(self, value, source)
        return value

    def admit_by_value(self, value: Any, source: Source, is_slot: bool) -> Any:
        kind = type(value)
        if is_slot and kind in live_scalars.KINDS:
            self.guard("type", source, kind)
            return live_scalars.of_slot(value, source, self.tracer)
        if kind not in numpy_tables.NUMBERS:
            self.add("equal", source, value)
            if kind not in ATOMS and (first := self.by_value.setdefault(id(value), (value, source))[1]) is not source:
                self.guard("same", source, first)
            if decimal_context.is_decimal(kind):
                decimal_context.guard_context(self)
        else:
            self.guard_numpy_number(value, source)
        return value

    def guard_numpy_number(self, value: Any, source: Source) -> None:
        if value:
            self.add("equal", source, value)
        else:  # zeros have a sign
            self.guard_answer(numpy_tables.is_same, source, value)

    def is_varying(self, kind: type, source: Source, is_slot: bool) -> bool:
        """Whether only the type of a NumPy number is guarded, because its value may differ in the next call."""
        return kind not in live_scalars.KINDS if is_slot else source.path() in self.tracer.changing

    def new_origin(self, value: Any, source: Source) -> Origin | WeakOrigin:
        """That of an outside object with an observable finalization is weak: only the program holds it."""
        if self.tracer.cached_answers is not None:
            self.tracer.cached_answers.meet(self.tracer, value)
        if not has_observable_finalization(value):
            return Origin(value, source)
        key, kind = id(value), type(value)
        # A proxy has no readable callback.
        references = [each for each in weakref.getweakrefs(value) if issubclass(type(each), weakref.ref)]
        calls = any(each.__callback__ is not None for each in references)

        def forget(_: Any) -> None:
            self.origins.pop(key, None)
            self.note_end(kind)
            if calls:
                self.dropped = f"a {kind.__qualname__}, whose weak references call a function then,"

        if kind is Generator:
            value.noted_by = weakref.ref(self)
        return WeakOrigin(value, source, forget)

    def adopt(self, value: Any) -> Any:
        """A mutable object found under a fixed name of torch or the standard library: pinned, its content guarded."""
        key, kind = id(value), type(value)
        if (
            not (key in self.origins or key in self.fresh or key in SINGLETON_IDS)
            and not self.is_compared_by_value(kind)
            and not self.has_fixed_meaning(value)
        ):
            self.origins[key] = Origin(value, self.sources.pin(value))
            if kind is types.MethodType or kind is types.BuiltinFunctionType:
                self.adopt(value.__self__)  # `random.uniform` is a method of an object that `random` holds
        return value

    def adopt_named(self, namespace: dict, name: str, value: Any) -> Any:
        """The value of a name in a trusted module. Functions and constants stay, ``sys.stdout`` may be replaced."""
        self.adopt(value)
        if (id(value) in self.origins or is_setting(namespace, name, value)) and (
            id(namespace),
            name,
        ) not in self.names_seen:
            self.names_seen.add((id(namespace), name))
            self.guard("equal" if type(value) is str else "is", self.sources.pin(namespace).item(name), value)
        return value

    def adopt_pinned(self, value: Any) -> None:
        """An object found in a class under a guarded name (a descriptor with state, for one)."""
        if (
            id(value) not in self.origins
            and id(value) not in self.fresh
            and hasattr(value, "__dict__")
            and not issubclass(type(value), (types.FunctionType, type, property, staticmethod, classmethod))
        ):
            self.origins[id(value)] = Origin(value, self.sources.pin(value))

    def origin_of(self, value: Any) -> Origin | None:
        origin = self.origins.get(id(value))
        return origin if origin is not None and origin.obj is value else None

    def members(self, obj: Any) -> Origin | None:
        """The origin of an outside object's instance dictionary."""
        if issubclass(type(obj), type) and id(obj) in self.of_classes:
            return self.of_classes[id(obj)]
        origin = self.origin_of(obj)
        if origin is None and (not issubclass(type(obj), FIXED_WITH_STATE) or id(obj) in self.fresh):
            return None
        table = dict_of(obj)
        if origin is not None:
            members = origin.members
            return members if members is not None and members.obj is table else self.members_in(origin, table)
        found = self.origins.get(id(table))
        if found is None:
            found = self.origins[id(table)] = Origin(table, members_source(self.sources.pin(obj), obj))
        if issubclass(type(obj), type):
            self.of_classes[id(obj)] = found
        return found

    def members_in(self, origin: Origin, table: Any) -> Origin:
        """``members`` of an object whose instance dictionary is now ``table``, and was another one before."""
        found = self.origins.get(id(table))
        if found is None:
            found = self.origins[id(table)] = Origin(table, members_source(origin.source, origin.obj))
        origin.members = found
        return found

    def namespace(self, table: dict) -> Origin:
        """The origin of a module's globals."""
        found = self.origin_of(table)
        if found is None:
            found = self.origins[id(table)] = Origin(table, self.sources.pin(table))
        return found

    # ---- reading

    def read_key(self, origin: Origin, key: Any) -> Any:
        """``obj[key]`` of a dictionary, or MISSING; guarded the first time."""
        table = origin.obj
        if self.tracer.addresses:
            object_addresses.check_key(self.tracer, key)
        if type(table) is dict:
            value = table.get(key, MISSING)
        elif type(table) in PLAIN_TABLES:  # a subclass may override reads; its methods are not called
            value = table[key] if key in table else MISSING  # noqa: SIM401
        else:
            value = dict.get(table, key, MISSING)
        known, written = origin.known, origin.written
        if origin.complete or written is not NO_ENTRIES and key in written:
            return value
        if key in known:
            return self.read_again(origin, key, value)
        if value is MISSING:
            kind = "absent" if type(table) in EXACT else "absent by base"
            self.guards.append(_new_guard(Guard, (kind, origin.source, key)))
        else:
            source = origin.source.item(key) if type(table) in EXACT else origin.entry(key)
            if type(value) in NUMBERS or type(value) is tuple:
                number = self.changing_number(value, source, key in CHANGING_NAMES)
                if number is not None:
                    return number  # not in ``known``, so that each read comes here
            self.admit(value, source)
        if known:
            known[key] = id(value)  # type: ignore[index]
        else:
            origin.note_read(key, value)
        return value

    def read_again(self, origin: Origin, key: Any, value: Any) -> Any:
        """``value``, found where the trace has read before. If it differs, another thread has changed it: the guards
        would describe the first value, and the graph would use both."""
        if origin.known[key] != id(value):
            self.raced = f"{origin.source}: {key!r}"
        return value

    def module_table(self, members: Origin, name: str, table: dict) -> Origin:
        """One of the dictionaries in which an ``nn.Module`` keeps parameters, buffers and submodules."""
        origin = self.origins.get(id(table))
        if origin is None:
            origin = self.origins[id(table)] = Origin(table, members.source.item(name))
            members.note_read(name, table)
        return origin

    def read_index(self, origin: Origin, index: int) -> Any:
        """``obj[index]`` of a list that has not been written to."""
        self.refuse_received(origin)
        value = base_of(origin.obj).__getitem__(origin.obj, index)
        if not origin.complete and origin.appended_from is None:
            if index not in origin.known:
                number = self.changing_number(value, origin.entry(index))
                if number is not None:
                    return number  # not in ``known``, so that each read comes here
                origin.note_read(index, value)
                self.admit(value, origin.entry(index))
            else:
                self.read_again(origin, index, value)
        elif not origin.complete:
            self.complete(origin)
        return value

    def read_field(self, obj: Any, name: str, read: Callable) -> Any:
        """A slot or C-level field of an object."""
        value, origin = read(), self.origin_of(obj)
        if origin is None and type(obj) is property and id(obj) not in self.fresh:
            origin = self.origins[id(obj)] = Origin(obj, self.sources.pin(obj))
        if origin is not None and name not in origin.known and name not in origin.written:
            source = origin.source.attr(name)
            if type(value) in NUMBERS and (number := self.changing_number(value, source)) is not None:
                return number  # a tuple keeps its identity
            origin.note_read(name, value)
            self.admit(value, source)
        return value

    def refuse_received(self, origin: Origin) -> None:
        """Stop where the program uses a list that records warnings, after some: each run gives them at its end."""
        if id(origin.obj) in self.received:
            self.tracer.refuse_state("the list of recorded warnings was used after the segment had given some")

    # ---- writing

    def will_write_key(self, origin: Origin, key: Any, deletes: bool = False) -> None:
        if self.tracer.addresses:
            object_addresses.check_key(self.tracer, key)
        if origin.complete:
            self.check_lifetimes(origin, (dict.get(origin.obj, key),) if issubclass(type(origin.obj), dict) else None)
            origin.is_changed_here = True
            return
        if key not in origin.written and key not in origin.known:
            # The presence of the key decides the order of the keys later.
            if has_key(origin.obj, key):
                self.guard(*origin.by_base("has", key))
            else:
                self.guard(*origin.by_base("absent", key))
        if not origin.written and issubclass(type(origin.obj), dict) and length_of(origin.obj) <= MOST_REMEMBERED:
            order = tuple(k for k, _ in items_of(origin.obj))
            origin.order = order if all(map(self.is_constant_key, order)) else None
        if origin.order is not None and key not in origin.written and key in origin.order:
            old = dict.__getitem__(origin.obj, key)
            if self.is_remembered(old):
                origin.keep_earlier(key, old)
        origin.note_written(key, deletes)

    def is_remembered(self, value: Any) -> bool:
        """Whether the old value of a key is kept when the key is written. Objects with an observable lifetime are not
        kept, nor numbers, which change from call to call and must not be guarded."""
        kind, origin = type(value), self.origin_of(value)
        return (
            kind not in NUMBERS
            and kind is not tuple
            and (
                self.is_compared_by_value(kind)
                or issubclass(kind, enum.Enum)
                or origin is not None
                and not isinstance(origin, WeakOrigin)
            )
        )

    def will_write(self, value: Any, an_item: bool = False, leaving: Sequence | None = None) -> None:
        """Called before a change of a container that only its whole content can describe. ``leaving``: what it loses,
        if that is known."""
        origin = self.origin_of(value)
        if origin is not None:
            self.complete(origin, with_live=an_item)
            self.check_lifetimes(origin, leaving)
            origin.is_changed_here = True

    def has_written(self) -> bool:
        """Whether the program has changed anything that code inside its graph could read."""
        return (
            self.has_marked
            or any(not getattr(effect.function, "writes_nothing", False) for effect in self.tracer.effects)
            or any(map(self.changed, self.origins.values()))
        )

    # ---- questions

    def is_outside_iterator(self, value: Any) -> bool:
        return id(value) in self.origins and self.origins[id(value)].obj is value and not self.runs_here(value)

    def take_over(self, generator: Generator) -> None:
        origin = self.origin_of(generator)
        assert origin is not None
        self.taken_over.append((weakref.ref(generator), origin.source))

    def runs_here(self, generator: Any) -> bool:
        """Whether an outside generator's frame has become part of this trace."""
        return any(generator is reference() for reference, _ in self.taken_over)

    def make(self, value: Any) -> Any:
        kind = type(value)
        if kind is Generator:  # not kept here: Python closes a generator when the program drops it
            value.noted_by = weakref.ref(self)
            self.generators.append(weakref.ref(value))
        elif issubclass(kind, BaseException):
            pass  # nor an error, which ends with its handler, and what it holds with it
        elif runs_code_at_the_end(kind):
            self.fresh[id(value)] = value
            self.let_go(value)
        else:
            self.fresh[id(value)] = value
        return value

    def let_go(self, value: Any) -> None:
        """Keep only a weak reference to an object made here, so that its finalization is observable."""
        key, kind = id(value), type(value)
        if self.fresh.get(key) is value and kind.__weakrefoffset__:

            def forget(_: Any) -> None:
                self.fresh.pop(key, None)
                self.note_end(kind)

            self.fresh[key] = weakref.ref(value, forget)

    def note_end(self, kind: type) -> None:
        if kind is not Generator and runs_code_at_the_end(kind):
            self.dropped = f"a {kind.__qualname__}, whose __del__ runs then,"

    def note_dropped(self, generator: Generator) -> None:
        """The program dropped a generator, which is closed now."""
        if runs_code_when_closed(generator):
            self.dropped = f"the generator {generator.__qualname__} inside try or with"
