"""Object lifetimes: objects whose finalization a program can observe.

Python destroys an object when its last reference goes. That is observable if code runs then (``__del__``, the
``finally`` of a suspended generator), or through a weak reference. The tracer's own records must not keep such objects
alive, and frames must not release them before their function returns.
"""

from __future__ import annotations

import collections
import gc
import io
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..guards.object_sources import Source
from ..guards.set_iteration_order import ByIdentity
from ..interpreter.frames import Generator
from ..interpreter.reads_past_overrides import shows_other_dict, store_class_fact
from ..numbers import numpy_tables
from .interpreted_or_native import find_on_type, module_of

PLAIN_CONTAINERS = frozenset((list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict))
EXACT = frozenset((dict, list, tuple, collections.deque, collections.OrderedDict, types.MappingProxyType))
NEVER, ALWAYS, IF_REFERENCED, UNREFERENCED = 0, 1, 2, 3
FUNCTION = types.FunctionType
_kinds: dict[type, int] = {}


def has_observable_finalization(value: Any) -> bool:
    """Whether a program can observe the finalization of ``value``."""
    rule = rule_of(type(value))
    return rule == ALWAYS or rule == IF_REFERENCED and is_referenced_weakly(value)


MOST_LOOKED_AT = 4096


def with_lifetimes(parts: Sequence, depth: int = 2) -> list:
    """What plain containers hold whose end the program may notice, now or once it is referenced weakly. Only
    the first level counts where they hold much."""
    kinds = set(map(type, parts))
    lasting = {kind for kind in kinds if rule_of(kind) != NEVER}
    found = [part for part in parts if type(part) in lasting] if lasting else []
    if depth and not kinds.isdisjoint(PLAIN_CONTAINERS):
        inside: list = []
        for part in parts:
            if type(part) in PLAIN_CONTAINERS and len(part) <= MOST_LOOKED_AT:
                inside += gc.get_referents(part)
                if len(inside) > MOST_LOOKED_AT:
                    return found
        found += with_lifetimes(inside, depth - 1)
    return found


def leaving_sequence(items: list | collections.deque, method: str, args: tuple) -> Sequence | None:
    """What a method takes out of a list or deque; None if that is not known."""
    base = list if issubclass(type(items), list) else collections.deque
    if method in TAKES_NOTHING_OUT:
        return () if base is list or vars(base)["maxlen"].__get__(items) is None else None
    if method == "popleft":
        place = 0
    elif method == "pop" and not args:
        place = -1
    elif method in ("pop", "__setitem__", "__delitem__") and type(args[0]) is int:
        place = args[0]
    else:
        return None
    length = base.__len__(items)
    return [base.__getitem__(items, place)] if -length <= place < length else ()


TAKES_NOTHING_OUT = frozenset("append appendleft extend extendleft insert reverse rotate sort __iadd__".split())


def is_referenced_weakly(value: Any) -> bool:
    """By the program, not only by guards."""
    return weakref.getweakrefcount(value) > 0 and any(
        type(reference) is not ByIdentity for reference in weakref.getweakrefs(value)
    )


def may_be_referenced_weakly(value: Any) -> bool:
    """Whether the finalization of such an object becomes observable with a weak reference."""
    return rule_of(type(value)) == IF_REFERENCED


def rule_of(kind: type) -> int:
    rule = _kinds.get(kind)
    return store_class_fact(_kinds, kind, _rule(kind)) if rule is None else rule


def has_lifetime(value: Any) -> bool:
    """Whether the program may notice when such an object goes, now or once it is referenced weakly."""
    return rule_of(type(value)) != NEVER


def is_missed(value: Any) -> bool:
    """Whether the program notices when the object goes, also if the tracer cannot reference it weakly."""
    return has_observable_finalization(value) or rule_of(type(value)) == UNREFERENCED


def _rule(kind: type) -> int:
    if kind is Generator or kind is memoryview or runs_code_at_the_end(kind):
        return ALWAYS  # without a view, the buffer may change its size again
    if (
        kind.__weakrefoffset__ == 0
        and kind.__flags__ & (1 << 9)
        and isinstance(find_on_type(kind, "__del__"), FUNCTION)
    ):
        return UNREFERENCED  # such as a subclass of int
    if kind.__weakrefoffset__ == 0 or issubclass(kind, (torch.Tensor, torch.nn.Module, type)):
        return NEVER
    return IF_REFERENCED


IN_MEMORY = (io.StringIO, io.BytesIO)
"""Files whose ``__del__`` closes nothing."""


def runs_code_at_the_end(kind: type) -> bool:
    """False without weak reference support (``os.scandir()``): only a holder could observe the end of those."""
    if kind in IN_MEMORY:
        return False
    return bool(kind.__flags__ & (1 << 9)) and find_on_type(kind, "__del__") is not None and kind.__weakrefoffset__ != 0


NO_ENTRIES: Mapping = types.MappingProxyType({})


def members_source(source: Source, obj: Any) -> Source:
    kind = type(obj)
    by_user = isinstance(find_on_type(kind, "__getattribute__"), FUNCTION) or shows_other_dict(kind)
    return source.own_members if by_user else source.members


class Origin:
    """An object from outside the segment."""

    __slots__ = """
        after_steps appended_from appended_to complete earlier is_changed_here known lasting members obj
        order set_order snapshot source steps written
    """.split()

    def __init__(self, obj: Any, source: Source):
        self.obj = obj
        self.source = source
        # Most origins are never read by key or written, so these tables are made on first use.
        # Keys, indices or field names read before their first write, with the address of the value found there.
        # Another thread may replace that value. A guard or an origin keeps the object at the address alive.
        self.known: Mapping = NO_ENTRIES
        self.written: Mapping = NO_ENTRIES  # keys or fields written; True where the old entry was deleted first
        self.order: tuple | None = None  # a dictionary's keys before the first of them was written
        self.earlier: Mapping = NO_ENTRIES  # old values of written keys, where they are recorded
        self.complete = False  # the whole content has been guarded
        self.snapshot: Any = None  # the content before the segment, set once it is complete
        self.is_changed_here = False  # the program has asked to change it; otherwise another thread made the change
        self.appended_from: int | None = None  # length before appends to a list that has not been read
        self.appended_to: int | None = None  # and after the last of them: another thread may append, too
        self.lasting: Sequence = ()  # objects in the snapshot whose end the program may notice
        self.set_order: Any = None  # of a set: the order in which it was found
        self.steps: tuple = ()  # the changes of a set: methods with their arguments
        self.after_steps: list | None = None  # the elements after the last of them
        self.members: Origin | None = None  # of an instance: the origin of its dictionary, once that has been read

    def entry(self, key: Any) -> Source:
        """The source of a container's element; a subclass's own ``__getitem__`` must not be called."""
        return self.source.item(key) if type(self.obj) in EXACT else self.source.child("entry", key)

    def note_read(self, key: Any, value: Any) -> None:
        if self.known is NO_ENTRIES:
            self.known = {key: id(value)}
        else:
            self.known[key] = id(value)  # type: ignore[index]

    def note_written(self, key: Any, deletes: bool = False) -> None:
        if self.written is NO_ENTRIES:
            self.written = {}
        self.written[key] = self.written.get(key, False) or deletes  # type: ignore[index]

    def keep_earlier(self, key: Any, value: Any) -> None:
        if self.earlier is NO_ENTRIES:
            self.earlier = {}
        self.earlier[key] = value  # type: ignore[index]

    def by_base(self, kind: str, expected: Any) -> tuple[str, Source, Any]:
        """A guard about the content that calls no methods of a subclass."""
        return kind if type(self.obj) in EXACT else f"{kind} by base", self.source, expected

    @property
    def is_written(self) -> bool:
        return bool(self.written) or self.appended_from is not None


class WeakOrigin(Origin):
    """An outside object with an observable end, so only weakly referenced."""

    __slots__ = ("reference",)

    def __init__(self, obj: Any, source: Source, forget: Callable):
        self.reference = weakref.ref(obj, forget)
        super().__init__(obj, source)

    @property
    def obj(self) -> Any:
        return self.reference()

    @obj.setter
    def obj(self, value: Any) -> None:
        """Only the weak reference is kept."""


# ---- dead locals

MOST_VISITED = 64
MOST_PLAIN = 1024
MADE_IN_C = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
LEAVES = (torch.Tensor, torch.nn.Module, type, types.ModuleType, types.CodeType, str, bytes, int, float, complex)
"""Objects that are not looked into: mostly, something else holds a module or a class."""
SIZED = (list, tuple, dict, set, frozenset, collections.deque)
SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
HARMLESS = frozenset(
    """builtins collections _collections functools _functools itertools operator _operator re datetime decimal _decimal
    types typing fractions enum abc weakref torch numpy""".split()
)
"""Packages of types in C with objects whose end has no effect of its own."""

IS_PLAIN, IS_LEAF, IS_HARMLESS, HAS_EFFECT = range(4)  # a plain one is a leaf that needs no look at weak references
_ends: dict[type, int] = {}


def ends_unseen(value: Any) -> bool:
    """Whether a dead local may go before its function returns: nothing can notice the end of what it holds.

    Plain Python keeps a local until its function returns. A frame that is taken apart at a break drops those that
    nothing reads any more, so that their memory is free: a list of texts, but not a list of open files. Where it is not
    known, the local is kept, also where it holds so much that a look at each break would take long."""
    if end_of(type(value)) == IS_PLAIN:
        return True
    waiting, seen = [value], {id(value)}
    while waiting:
        held = waiting.pop()
        end = end_of(type(held))
        if end == HAS_EFFECT or is_referenced_weakly(held) or shows_foreign_memory(held):
            return False
        if end == IS_LEAF:
            continue
        parts = parts_of(held)
        if parts is None or issubclass(type(held), weakref.ref) and parts:  # it calls a function at another's end
            return False
        if len(parts) > MOST_VISITED and end_of(type(parts[0])) != IS_PLAIN:
            return False
        ends = {kind: end_of(kind) for kind in set(map(type, parts))}
        worst = max(ends.values(), default=IS_PLAIN)
        if worst == IS_PLAIN:
            continue
        if worst == HAS_EFFECT or len(seen) + len(parts) > 2 * MOST_VISITED:
            return False
        for part in parts:
            if ends[type(part)] != IS_PLAIN and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return True


def parts_of(held: Any) -> Sequence | None:
    """What it holds; None if that is too much."""
    kind = type(held)
    if kind is FUNCTION:
        return parts_of_function(held)
    if issubclass(kind, SIZED):
        base = next(base for base in SIZED if issubclass(kind, base))
        if base.__len__(held) > MOST_PLAIN:
            return None
        is_long = base in (list, tuple) and base.__len__(held) > MOST_VISITED
        if is_long and end_of(type(next(base.__iter__(held), None))) != IS_PLAIN:
            return None
    if kind is numpy_tables.ARRAY and held.dtype.hasobject:
        return list(held.flat) if held.dtype == object and held.size <= MOST_VISITED else None
    return gc.get_referents(held)


def parts_of_function(function: types.FunctionType) -> tuple:
    """Without its globals."""
    annotate = getattr(function, "__annotate__", None)
    return function.__closure__, function.__defaults__, function.__kwdefaults__, function.__dict__, annotate


def end_of(kind: type) -> int:
    end = _ends.get(kind)
    return store_class_fact(_ends, kind, _end_of(kind)) if end is None else end


def _end_of(kind: type) -> int:
    rule = rule_of(kind)
    if rule == ALWAYS:
        return HAS_EFFECT  # one that is UNREFERENCED goes: the tracer would hold it beyond its variable
    if issubclass(kind, LEAVES) or kind in (types.FrameType, types.TracebackType):
        return IS_LEAF if rule == IF_REFERENCED else IS_PLAIN
    if kind in IN_MEMORY:
        return IS_HARMLESS
    if issubclass(kind, SUSPENDED) or kind in weakref.ProxyTypes:
        return HAS_EFFECT  # code of a generator may run; a proxy may have a callback
    for base in kind.__mro__:
        is_in_c = not base.__flags__ & MADE_IN_PYTHON or base.__flags__ & MADE_IN_C
        if is_in_c and module_of(base).partition(".")[0] not in HARMLESS:
            return HAS_EFFECT  # it may own a file, a socket, a lock
    return IS_HARMLESS


def shows_foreign_memory(value: Any) -> bool:
    """Whether it is an array in the memory of another object, which cannot change its size meanwhile."""
    base = value.base if type(value) is numpy_tables.ARRAY else None
    return base is not None and not issubclass(type(base), (numpy_tables.ARRAY, torch.Tensor))
