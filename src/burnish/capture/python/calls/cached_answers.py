"""Functions behind ``functools.lru_cache`` that are called with symbolic sizes or other live numbers.

    @functools.lru_cache
    def halves(n):
        return [n // 2, 2]

    x.reshape(halves(x.shape[0]))       the first size is a formula, and no constant

If the function is pure, it is interpreted, and called as well. If both results agree, the program goes on with the
interpreted one, whose numbers are live. A later run calls the function too, once all other guards hold, and compares
its result with the formulas. So the cache counts each call, and a result that was computed from other state, or has
been changed since, is noticed.

The interpreted containers stand for those in the cache. What the traced run leaves to the program are the cached ones
(``concretize_scalars``). No segment can do that: if such a container leaves it, is changed, or is asked for its
identity, then none is made, and the next trace calls the function with constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import torch

from ....concurrency.outside_errors import reraise_from_outside
from ... import breaks
from ...engine.break_signals import Unrebuildable
from ...guards.guard_function import write_by_statement
from ...guards.guards import Guard
from ...guards.value_or_identity import has_fixed_meaning
from ...interpreter.frames import MISSING, RAISES, Raised
from ...numbers.live_scalars import PLAIN, Expression, Live, plain_of
from ..operators import user_keys

ATOMS = frozenset((int, float, str, bytes, bool, type(None), torch.dtype, torch.device))
SEQUENCES = frozenset((list, tuple, torch.Size))
CONTAINERS = SEQUENCES | {dict}
DEEPEST = 10
VALUE, OPERAND, SEQUENCE, TABLE = range(4)
"""The kinds of nodes: a constant, the place of an operand, and a container with the nodes of its parts."""


class ContainerStandIn:
    """An interpreted container, for one in the cache."""

    __slots__ = ("cached", "content", "function", "made")

    def __init__(self, made: Any, cached: Any, function: Any):
        self.made, self.cached, self.function = made, cached, function
        self.content = content_of(made)

    @property
    def is_changed(self) -> bool:
        now = content_of(self.made)
        return len(now) != len(self.content) or not all(map(operator.is_, now, self.content))

    def write_back(self, clean: Callable) -> None:
        """Change the cached container as the program has changed its stand-in."""
        if not self.is_changed:
            return
        self.content = content_of(self.made)
        if type(self.made) is list:
            self.cached[:] = map(clean, self.made)
        else:
            found = {clean(key): clean(value) for key, value in self.made.items()}
            self.cached.clear()
            self.cached.update(found)


def content_of(container: Any) -> list:
    return [part for item in container.items() for part in item] if type(container) is dict else [*container]


class CachedAnswers:
    """The calls of one trace."""

    def __init__(self) -> None:
        self.refused: set[Any] = set()
        """Functions whose results no segment could hold."""
        self.calls: list[Expression] = []
        """What calls the function and compares its result, in later runs."""
        self.stand_ins: dict[int, ContainerStandIn] = {}
        self.by_cached: dict[int, ContainerStandIn] = {}
        """The same by the id of the cached object."""
        self.by_result: dict[int, Answer] = {}
        """Calls by the id of what the cache holds for them."""

    def same(self, left: Any, right: Any) -> bool:
        """``left is right`` for two objects, at least one of which may be a stand-in."""
        found = [stand_in for x in (left, right) if (stand_in := self.stand_ins.get(id(x))) is not None]
        if not found or type(left) is not type(right):
            return False
        self.refused.update(stand_in.function for stand_in in found)
        return self.original(left) is self.original(right)

    def original(self, value: Any) -> Any:
        stand_in = self.stand_ins.get(id(value))
        return value if stand_in is None else stand_in.cached

    def add(self, stand_in: ContainerStandIn) -> None:
        self.stand_ins[id(stand_in.made)] = self.by_cached[id(stand_in.cached)] = stand_in

    def meet(self, m: Any, value: Any) -> None:
        """The program finds an object outside. Under that name it would not see changes of a stand-in for it."""
        stand_in = self.by_cached.get(id(value))
        if stand_in is not None:
            self.refused.add(stand_in.function)
            m.stop(breaks.OPAQUE_CALL, f"an object in the cache of {stand_in.function.__qualname__} has another name")

    def put_back(self, memo: dict[int, Any], clean: Callable) -> None:
        """The trace has ended: ``memo`` gets, by id, what the program is to find in place of stand-ins."""
        memo.update((at, stand_in.cached) for at, stand_in in self.stand_ins.items())
        for stand_in in self.stand_ins.values():
            stand_in.write_back(clean)

    def refuse_to_leave(self, value: Any) -> None:
        """``value`` is about to become a part of what a segment leaves to the program."""
        stand_in = self.stand_ins.get(id(value))
        if stand_in is not None:
            self.refused.add(stand_in.function)
            raise Unrebuildable(value, f"what the cache of {stand_in.function.__qualname__} holds leaves the graph")

    def check(self, heap: Any) -> None:
        """At the end of the trace: Unrebuildable if the segment would have to know which objects are cached."""
        changed = {type(o.obj) for o in heap.origins.values() if type(o.obj) in (list, dict) and is_changed(heap, o)}
        for stand_in in self.stand_ins.values():
            # In another run, an object that the program changes may be one of the cache, under another name.
            if stand_in.is_changed or type(stand_in.cached) in changed:
                self.refused.add(stand_in.function)
        if self.refused:
            raise Unrebuildable(None, "what the cache of a function holds is changed, or compared by identity")

    def verifying(self, check: Callable) -> Callable:
        """``check``, which calls the functions in the end."""
        if not self.calls:
            return check
        agree = write_by_statement([Guard("outcome", None, (call, True)) for call in self.calls], [], [])

        def check_and_call(slots: list) -> Any:
            found = check(slots)
            return None if found is None or agree(slots) is None else found

        check_and_call.__source__ = getattr(check, "__source__", "")  # type: ignore[attr-defined]
        return check_and_call


def is_changed(heap: Any, origin: Any) -> bool:
    return origin.source.kind not in ("members", "own_members") and heap.changed(origin)


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> tuple[Any, Any]:
    """The result of a call with live numbers; MISSING where they are to be constants. And what the function returned;
    MISSING if it has not been called."""
    inside = function.__dict__.get("__wrapped__")
    if (
        not any(map(holds_live, (*args, *kwargs.values())))
        or type(inside) is not FunctionType
        or function in m.capabilities.called_as_is
        or m.options.exports
        or m.modes
        or m.region is not None  # it may be given up
        or m.heap.has_written()  # which it could read
    ):
        return MISSING, MISSING
    places = Places(m)
    given = places.arguments((args, tuple(kwargs.items())))
    if given is None:
        return MISSING, MISSING
    made, why = m.interpret_purely(with_keywords, (inside, args, kwargs))
    if why is not None or made is RAISES:
        return MISSING, MISSING
    plain_args, plain_kwargs = made_of(given, [*map(plain_of, places.values)])
    try:
        cached = m.plainly(function, *plain_args, **dict(plain_kwargs))
    except Raised:
        return MISSING, MISSING
    answers = m.cached_answers = m.cached_answers or CachedAnswers()
    earlier = answers.by_result.get(id(cached))
    if earlier is not None and earlier.is_the_same(function, given, places):
        answers.calls.append(earlier.expression)
        return earlier.made, cached
    count = len(places.values)
    node = places.result(made, cached)
    if node is None or any(m.heap.origin_of(one) is not None for _, one in places.containers):
        return MISSING, cached
    if any(id(one) in answers.by_cached for _, one in places.containers):
        m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} returns what another call has returned")
    for container, one in places.containers:
        answers.add(ContainerStandIn(container, one, function))
    expression = Expression(Agreement(function, given, node), tuple(places.expressions))
    answers.calls.append(expression)
    if places.containers:
        answers.by_result[id(cached)] = Answer(function, given, places.values[:count], made, expression)
    return made, cached


class Answer(NamedTuple):
    """A call that returned a container."""

    function: Any
    given: tuple
    operands: list[Any]
    made: Any
    expression: Expression

    def is_the_same(self, function: Any, given: tuple, places: Places) -> bool:
        """Whether another call has equal arguments, as is guarded then: it returns the same object."""
        if function is not self.function or given != self.given:
            return False
        pairs = [*zip(self.operands, places.values, strict=True)]
        plain = [(plain_of(one), plain_of(other)) for one, other in pairs]
        if not all(one is other or type(one) in ATOMS and is_equal(one, other) for one, other in plain):
            return False
        return all(one is other or bool(one == other) for one, other in pairs)


def with_keywords(function, args, kwargs):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call."""
    return function(*args, **kwargs)


def holds_live(value: Any, depth: int = 0) -> bool:
    if type(value) in (tuple, torch.Size):
        return depth < DEEPEST and any(holds_live(part, depth + 1) for part in value)
    return issubclass(type(value), Live)


class Places:
    """Describes the arguments and the result of a call by nodes, in which live numbers and objects from outside are
    operands."""

    def __init__(self, m: Any):
        self.m = m
        self.values: list[Any] = []
        self.expressions: list[Expression] = []
        self.containers: list[tuple[Any, Any]] = []
        """Those of the result, and what they stand for."""
        self.given: set[int] = set()
        """Tuples among the arguments, by id."""

    def operand(self, value: Any, expression: Expression) -> tuple | None:
        if expression.in_graph:
            return None
        self.values.append(value)
        self.expressions.append(expression)
        return OPERAND, len(self.values) - 1

    def arguments(self, value: Any, depth: int = 0) -> tuple | None:
        """None if a later run could not make such an argument, or Python code would be called to look it up."""
        kind = type(value)
        if kind in ATOMS:
            return VALUE, value
        if issubclass(kind, Live):
            return self.operand(value, value.expression)
        if kind in (tuple, torch.Size) and depth < DEEPEST:
            self.given.add(id(value))
            parts = [self.arguments(part, depth + 1) for part in value]
            return None if None in parts else (SEQUENCE, kind, parts)
        if kind.__hash__ is None or user_keys.hashes_in_python(self.m, kind):
            return None
        return self.outside(value)

    def outside(self, value: Any) -> tuple | None:
        """An object that is the same in later runs, or is found again."""
        origin = self.m.heap.origin_of(value)
        if origin is not None and not origin.source.is_pinned:
            return self.operand(value, Expression(None, (origin.source,)))
        if origin is not None or has_fixed_meaning(value) and self.m.is_constant(value):
            return VALUE, value
        return None

    def result(self, made: Any, cached: Any, depth: int = 0) -> tuple | None:
        """None if the interpreted result is not the cached one, or holds other objects than containers."""
        kind = type(made)
        if issubclass(kind, Live):
            is_it = kind in PLAIN and is_equal(made.plain(), cached)
            return self.operand(made, made.expression) if is_it else None
        if kind in ATOMS:
            return (VALUE, made) if is_equal(made, cached) else None
        if self.m.heap.origin_of(made) is not None or made is cached:
            return self.outside(made) if made is cached else None
        if kind not in CONTAINERS or kind is not type(cached) or len(made) != len(cached) or depth > DEEPEST:
            return None
        if id(made) in self.given or any(a is made or b is cached for a, b in self.containers):
            return None
        self.containers.append((made, cached))
        if kind in SEQUENCES:
            parts = [self.result(a, b, depth + 1) for a, b in zip(made, cached, strict=True)]
            return None if None in parts else (SEQUENCE, kind, parts)
        keys, others = tuple(made), tuple(cached)
        if not all(type(key) in (int, str) for key in keys) or not all(map(is_equal, keys, others)):
            return None
        parts = [self.result(made[key], cached[key], depth + 1) for key in keys]
        return None if None in parts else (TABLE, keys, parts)


def is_equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (repr(one) == repr(other) if type(one) is float else one == other)


def made_of(node: tuple, operands: Any) -> Any:
    if node[0] == SEQUENCE:
        return node[1]([made_of(part, operands) for part in node[2]])
    return node[1] if node[0] == VALUE else operands[node[1]]


def agrees(node: tuple, value: Any, operands: tuple) -> bool:
    """Whether ``value`` is what the node describes."""
    if node[0] == SEQUENCE:
        if type(value) is not node[1] or len(value) != len(node[2]):
            return False
        return all(agrees(part, each, operands) for part, each in zip(node[2], value, strict=True))
    if node[0] == TABLE:
        if type(value) is not dict or len(value) != len(node[1]) or not all(map(is_equal, node[1], value)):
            return False
        return all(agrees(part, each, operands) for part, each in zip(node[2], value.values(), strict=True))
    expected = node[1] if node[0] == VALUE else operands[node[1]]
    return value is expected or type(value) in ATOMS and is_equal(value, expected)


class Agreement:
    """Calls a function, and compares its result."""

    def __init__(self, function: Any, given: tuple, result: tuple):
        self.function, self.given, self.result = function, given, result

    def __call__(self, *operands: Any) -> bool:
        args, kwargs = made_of(self.given, operands)
        try:
            found = self.function(*args, **dict(kwargs))
        except Exception as error:  # the next trace meets it
            reraise_from_outside(error)
            return False
        return agrees(self.result, found, operands)
