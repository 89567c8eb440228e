"""Concretize live scalars: after a trace, the user's objects hold plain numbers in place of live ones.

The traced run is a real run: its result, the objects it made and the outside objects it wrote to stay with the user.
Each live value in them is replaced by its plain value: in the object itself if that is mutable, else in an equal new
one.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, FunctionType, MappingProxyType, MethodType
from typing import Any

import torch

from ..guards import set_iteration_order
from ..guards.read_native_iterators import VIEWS, container_of, reduced, table_of
from ..interpreter.frames import Frame, Generator, cell_value
from ..interpreter.reads_past_overrides import dict_of
from ..numbers import min_max_of_tensors
from ..numbers.live_scalars import Live
from ..python import template_strings
from ..python.operators.iteration import ITERATORS
from ..python.operators.value_kinds import SIMPLE
from .rebuild_containers import TABLE_ITERATORS
from .rebuild_instances import slots_of
from .shown_iterators import as_native, bound, is_shown
from .template_runtime import attributes_of_partial, set_state


def concretize(tracer: Any, *roots: Any, leaves: bool = False) -> list:
    """``roots`` with all objects reachable from them, and every outside object that the trace wrote to. ``leaves``:
    they return to plain Python, so iterators of ours become Python's own where possible."""
    with deep_recursion():
        return _concretize(tracer, roots, leaves)


DEEPEST = 1_000_000
FOR_A_TRACE = 18
"""About as many calls of ours are around a call of the program that is traced, which is to find the room it has in
plain Python."""
LOOKED_THROUGH = 32
"""How many numbers at the start of a thread's state are looked through for the count."""
MOST = 2**31 - 1
DEPTH = 3


@contextlib.contextmanager
def deep_recursion(calls: int = DEEPEST) -> Iterator[None]:
    """The program's objects may be nested in each other as deep as in a long linked list. ``sys.setrecursionlimit`` is
    no help: it is of the whole process. The program would see it, and a recursion without an end in another thread
    would overflow the C stack instead of raising its error. CPython also counts for each thread how many more calls it
    may nest. So the thread that walks is lent some, and gives them back."""
    if PLACE_OF_COUNT is None:
        yield
        return
    left = ctypes.c_int.from_address(thread_state() + PLACE_OF_COUNT)
    more = min(calls, MOST - left.value)
    left.value += more  # no other thread runs between the reading and the writing: nothing is called there
    try:
        yield
    finally:
        left.value -= more


def thread_state() -> int:
    return _thread_state()  # type: ignore[no-any-return]


_thread_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))


def place_of_count() -> int | None:
    """Where a thread's state has the number of calls left: it is less in nested calls, and the limit follows it. None
    if that is not so in this Python."""
    above, below, limit = numbers(0), numbers(DEPTH), sys.getrecursionlimit()
    found = [
        i
        for i in range(LOOKED_THROUGH - 1)
        if above[i] - below[i] == DEPTH and above[i] <= limit and above[i + 1] == below[i + 1] == limit
    ]
    return found[0] * ctypes.sizeof(ctypes.c_int) if len(found) == 1 else None


def numbers(depth: int) -> list[int]:
    if depth:
        return numbers(depth - 1)
    return list((ctypes.c_int * LOOKED_THROUGH).from_address(thread_state()))


PLACE_OF_COUNT = place_of_count()


def _concretize(tracer: Any, roots: tuple, leaves: bool) -> list:
    concretizer = ScalarConcretizer(tracer, leaves)
    cleaned = [concretizer.clean(v) for v in roots]
    for hook in tracer.hooks.values():
        concretizer.clean(hook.function)
    for origin in list(tracer.heap.origins.values()):
        if not origin.is_written and origin.snapshot is None:
            continue
        if issubclass(type(origin.obj), (list, dict, set, collections.deque)):
            concretizer.clean(origin.obj)
        elif type(origin.obj) is CellType:
            concretizer.cell(origin.obj)
        elif type(origin.obj) is MappingProxyType:
            concretizer.attributes_of_class(origin)
        else:
            concretizer.slots(origin.obj)
    concretizer.is_hidden = True
    for reference, _ in tracer.heap.taken_over:
        concretizer.clean(reference())
    return cleaned


class ScalarConcretizer:
    def __init__(self, tracer: Any, leaves: bool = False):
        self.tracer, self.fresh, self.leaves = tracer, tracer.heap.fresh, leaves
        self.is_hidden = False
        self.memo: dict[int, Any] = dict(tracer.heap.originals)
        self.keep: list[Any] = []  # the owners of the memo's ids
        for chosen in tracer.chosen:  # those of an operand come before
            operand = min_max_of_tensors.choose_operand(chosen.at, chosen.operands)
            self.memo[id(chosen.result)] = self.memo.get(id(operand), operand)
        if tracer.cached_answers is not None:
            tracer.cached_answers.put_back(self.memo, self.clean)

    def clean(self, value: Any) -> Any:
        """The replacement of ``value``: itself, if it could be cleaned in place."""
        kind = type(value)
        if kind in SIMPLE and kind is not slice and kind is not torch.Size:
            return value
        if issubclass(kind, Live):
            return value.plain()
        known = self.memo.get(id(value))
        if known is not None:
            return known
        self.memo[id(value)] = value
        self.keep.append(value)
        handler = HANDLERS.get(kind) or self.handler(value, kind)
        if handler is None:
            return value
        new = self.memo[id(value)] = handler(self, value)
        return new

    def handler(self, value: Any, kind: type) -> Callable | None:
        if issubclass(kind, type):
            return ScalarConcretizer.class_
        for base in (tuple, list, dict, set, collections.deque, BaseException, torch.Tensor):
            if issubclass(kind, base):
                return HANDLERS[base]
        if kind in ITERATORS or kind.__module__ == "itertools":
            return ScalarConcretizer.iterator
        return ScalarConcretizer.instance if id(value) in self.fresh else None

    def is_untouched(self, value: Any) -> bool:
        """A container from outside that was not written to holds no live values."""
        origin = self.tracer.heap.origin_of(value)
        return origin is not None and not origin.is_written and origin.snapshot is None

    def attributes_of_class(self, origin: Any) -> None:
        """The attributes of a class that the program has assigned."""
        base = origin.source.base
        for name in origin.written if base is not None and issubclass(type(base.key), type) else ():
            value = origin.obj.get(name)
            if issubclass(type(value), Live):
                type.__setattr__(base.key, name, value.plain())

    # ---- one method per kind: returns the replacement

    def size(self, value: torch.Size) -> torch.Size:
        parts, changed = self.parts(value)
        return torch.Size(parts) if changed else value

    def tuple_(self, value: tuple) -> tuple:
        parts, changed = self.parts(tuple.__iter__(value))
        if changed:
            value = (
                tuple(parts) if type(value) is tuple else self.attributes_of(value, tuple.__new__(type(value), parts))
            )
        return value

    def attributes_of(self, value: Any, new: Any) -> Any:
        if hasattr(value, "__dict__"):
            new.__dict__.update(value.__dict__)
        return new

    def frozenset_(self, value: frozenset) -> frozenset:
        parts, changed = self.parts(value)
        steps = set_iteration_order.how_to_make(value) if changed else None
        if not changed:
            return value
        return frozenset(parts) if steps is None else set_iteration_order.make(frozenset, steps, parts)

    def list_(self, value: list) -> list:
        if not self.is_untouched(value):
            parts, changed = self.parts(list.__iter__(value))
            if changed:
                list.__setitem__(value, slice(None), parts)
        return self.instance(value)

    def dict_(self, value: dict) -> dict:
        if self.is_untouched(value):
            return value
        kind = collections.OrderedDict if issubclass(type(value), collections.OrderedDict) else dict
        keys, keys_changed = self.parts(dict.keys(value))  # which asks no key of an ordered dictionary for its hash
        values, values_changed = self.parts(dict.values(value))
        if keys_changed:
            keys, values = self.parts(kind.keys(value))[0], self.parts(kind.values(value))[0]
            kind.clear(value)
        if keys_changed or values_changed:
            for k, v in zip(keys, values, strict=True):
                kind.__setitem__(value, k, v)
        return self.instance(value)

    def set_(self, value: set) -> set:
        if not self.is_untouched(value):
            parts, changed = self.parts(set.__iter__(value))
            if changed:
                steps = set_iteration_order.how_to_make(value)
                set.clear(value)
                if steps is None:
                    set.update(value, parts)
                else:
                    set_iteration_order.fill(value, steps, parts)
        return self.instance(value)

    def deque(self, value: collections.deque) -> collections.deque:
        if not self.is_untouched(value):
            parts, changed = self.parts(collections.deque.__iter__(value))
            if changed:
                collections.deque.clear(value)
                collections.deque.extend(value, parts)
        return self.instance(value)

    def slice_(self, value: slice) -> slice:
        parts, changed = self.parts((value.start, value.stop, value.step))
        return slice(*parts) if changed else value

    def method(self, value: MethodType) -> MethodType:
        (function, owner), changed = self.parts((value.__func__, value.__self__))
        return bound(function, owner) if changed else value

    def builtin_method(self, value: BuiltinFunctionType) -> Any:
        owner = value.__self__
        new = self.clean(owner)
        return value if new is owner else getattr(new, value.__name__)

    def partial(self, value: functools.partial) -> functools.partial:
        (function, args), changed = self.parts((value.func, value.args))
        self.clean(value.keywords)
        attributes = attributes_of_partial(value)
        if attributes is not None:
            self.clean(attributes)
        if changed:
            value.__setstate__((function, args, value.keywords, attributes))
        return value

    def function(self, value: FunctionType) -> FunctionType:
        if id(value) in self.fresh:
            value.__defaults__ = self.clean(value.__defaults__)
            annotate = getattr(value, "__annotate__", None)
            for part in (value.__kwdefaults__, value.__dict__, value.__closure__, annotate):
                self.clean(part)
        return value

    def own_cell(self, value: CellType) -> CellType:
        return self.cell(value) if id(value) in self.tracer.own_cells else value

    def cell(self, value: CellType) -> CellType:
        content = cell_value(value)
        new = self.clean(content)
        if new is not content:
            value.cell_contents = new
        return value

    def frame(self, value: Frame) -> Frame:
        value.locals[:], _ = self.parts(value.locals)
        value.stack[:], _ = self.parts(value.stack)
        self.clean(value.handling)
        if value.code.is_body:
            self.clean(value.namespace)
        return value

    def generator(self, value: Generator) -> Any:
        self.clean(value.frame)
        return as_native(value) if is_shown(self, self.tracer.heap, value) else value

    def exception(self, value: BaseException) -> BaseException:
        args, changed = self.parts(value.args)
        if changed:
            value.args = tuple(args)
        if issubclass(type(value), StopIteration):
            value.value = self.clean(value.value)
        for other in (value.__cause__, value.__context__):
            self.clean(other)
        return self.instance(value)

    def view(self, value: Any) -> Any:
        self.clean(container_of(value))
        return value

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        self.clean(value.__dict__)
        return value

    def iterator(self, value: Any) -> Any:
        """A builtin iterator shows its parts by the pickle protocol. Rebuild it if they cannot change in place."""
        if type(value) in TABLE_ITERATORS:
            self.clean(table_of(value))
            return value
        if self.tracer.heap.origin_of(value) is not None:
            return value
        try:
            maker, args, *state = reduced(value)
        except (TypeError, AttributeError):  # the program may have deleted `builtins.iter`
            return value
        parts, changed = self.parts(args)
        if changed:
            value = maker(*parts)
            if state and state[0] is not None:
                set_state(value, self.clean(state[0]))
        return value

    def instance(self, value: Any) -> Any:
        """Attributes of an instance of a user class."""
        self.clean(dict_of(value))
        if id(value) in self.fresh:
            self.slots(value)
            if id(type(value)) in self.fresh:
                self.clean(type(value))
        return value

    def class_(self, value: type) -> type:
        """The functions of a class made here may close over live values."""
        for part in vars(value).values() if id(value) in self.fresh else ():
            parts = (part.fget, part.fset, part.fdel) if type(part) is property else (part,)
            for function in parts:
                self.clean(getattr(function, "__func__", function))
        return value

    def slots(self, value: Any) -> None:
        for descriptor in slots_of(type(value)):
            try:
                part = descriptor.__get__(value)
            except AttributeError:
                continue
            new = self.clean(part)
            if new is not part:
                descriptor.__set__(value, new)

    def parts(self, values: Any) -> tuple[list, bool]:
        before = list(values)
        now = [self.clean(v) for v in before]
        return now, any(a is not b for a, b in zip(now, before, strict=True))


HANDLERS: dict[type, Callable] = {
    tuple: ScalarConcretizer.tuple_,
    torch.Size: ScalarConcretizer.size,
    frozenset: ScalarConcretizer.frozenset_,
    list: ScalarConcretizer.list_,
    dict: ScalarConcretizer.dict_,
    set: ScalarConcretizer.set_,
    collections.deque: ScalarConcretizer.deque,
    slice: ScalarConcretizer.slice_,
    MethodType: ScalarConcretizer.method,
    BuiltinFunctionType: ScalarConcretizer.builtin_method,
    FunctionType: ScalarConcretizer.function,
    functools.partial: ScalarConcretizer.partial,
    CellType: ScalarConcretizer.own_cell,
    Frame: ScalarConcretizer.frame,
    Generator: ScalarConcretizer.generator,
    BaseException: ScalarConcretizer.exception,
    **dict.fromkeys(VIEWS, ScalarConcretizer.view),
    **dict.fromkeys(template_strings.KINDS, ScalarConcretizer.iterator),
    torch.Tensor: ScalarConcretizer.tensor,
    torch.nn.Parameter: ScalarConcretizer.tensor,
}
