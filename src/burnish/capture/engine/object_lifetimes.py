"""Object lifetimes: objects whose finalization a program can observe.

Python destroys an object when its last reference goes. That is observable if code runs then (``__del__``, the
``finally`` of a suspended generator), or through a weak reference. The tracer's own records must not keep such objects
alive, and frames must not release them before their function returns.
"""

from __future__ import annotations

import collections
import io
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..guards.object_sources import Source
from ..interpreter.frames import Generator
from .interpreted_or_native import find_on_type

EXACT = frozenset((dict, list, tuple, collections.deque, collections.OrderedDict, types.MappingProxyType))
NEVER, ALWAYS, IF_REFERENCED, UNREFERENCED = 0, 1, 2, 3
FUNCTION = types.FunctionType
_kinds: dict[type, int] = {}


def store_class_fact(table: dict[type, Any], kind: type, fact: Any) -> Any:
    """Store a fact about a class and return it. Classes made on the fly must not be kept forever, because the methods
    of a class inside a function may close over large objects, such as a model."""
    if "<locals>" not in kind.__qualname__:
        if len(table) > 4096:
            table.clear()
        table[kind] = fact
    return fact


def has_observable_finalization(value: Any) -> bool:
    """Whether a program can observe the finalization of ``value``."""
    rule = rule_of(type(value))
    return rule == ALWAYS or rule == IF_REFERENCED and weakref.getweakrefcount(value) > 0


def may_be_referenced_weakly(value: Any) -> bool:
    """Whether the finalization of an object of the program's class becomes observable with a weak reference."""
    return rule_of(type(value)) == IF_REFERENCED and bool(type(value).__flags__ & (1 << 9))


def rule_of(kind: type) -> int:
    rule = _kinds.get(kind)
    return store_class_fact(_kinds, kind, _rule(kind)) if rule is None else rule


def has_finalizer(value: Any) -> bool:
    """Whether code runs when the object goes, also for those that the tracer cannot reference weakly."""
    return rule_of(type(value)) in (ALWAYS, UNREFERENCED)


def _rule(kind: type) -> int:
    if kind is Generator or kind in RELEASES or runs_code_at_the_end(kind):
        return ALWAYS
    if (
        kind.__weakrefoffset__ == 0
        and kind.__flags__ & (1 << 9)
        and isinstance(find_on_type(kind, "__del__"), FUNCTION)
    ):
        return UNREFERENCED  # such as a subclass of int
    if kind.__weakrefoffset__ == 0 or issubclass(kind, (torch.Tensor, torch.nn.Module, type)):
        return NEVER
    return IF_REFERENCED


RELEASES = (memoryview, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
"""Classes of C code: the buffer may change its size again, or the ``finally`` of the function runs."""
IN_MEMORY = (io.StringIO, io.BytesIO)
"""Files whose ``__del__`` closes nothing."""


def runs_code_at_the_end(kind: type) -> bool:
    """False without weak reference support (``os.scandir()``): only a holder could observe the end of those."""
    if kind in IN_MEMORY:
        return False
    return bool(kind.__flags__ & (1 << 9)) and find_on_type(kind, "__del__") is not None and kind.__weakrefoffset__ != 0


NO_ENTRIES: Mapping = types.MappingProxyType({})


class Origin:
    """An object from outside the segment."""

    __slots__ = (
        "appended_from",
        "complete",
        "earlier",
        "is_changed_here",
        "keeps_finalizers",
        "known",
        "members",
        "obj",
        "order",
        "snapshot",
        "source",
        "written",
    )

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
        self.keeps_finalizers = False  # whether the snapshot holds objects that run code when they go
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
