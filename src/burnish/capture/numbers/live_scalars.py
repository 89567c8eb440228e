"""Live scalars: numbers and strings whose value may differ on every run.

A number that was read from a tensor is not a constant of the segment. While tracing it is an instance of a subclass of
``int``, ``float`` or ``str`` that holds this run's value and an expression over the segment's sources. Arithmetic on it
makes new live values. A comparison or truth test guards only its outcome. Everything that needs the value itself
(hashing, indexing a list, formatting by C code) calls ``settle``, which specializes: it guards the value and makes it a
constant.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ..guards.object_sources import Source


class Expression:
    """A small formula over sources that recomputes a live value on the next run. Without an operation, it is what a
    source holds; of a slot, the operands are the source and the value in the trace."""

    __slots__ = ("depth", "operands", "operation", "size")
    in_graph = False  # whether it is a graph number, unknown until the graph has run

    def __init__(self, operation: Callable | None, operands: tuple):
        self.operation, self.operands = operation, operands
        self.depth = self.size = 1
        for operand in operands:
            if isinstance(operand, Expression):
                self.depth, self.size = max(self.depth, 1 + operand.depth), self.size + operand.size

    def render(self, writer: Any) -> str:
        if self.operation is None:
            return writer.load(self.operands[0])
        parts = [o.render(writer) if isinstance(o, Expression) else writer.constant(o) for o in self.operands]
        return f"{writer.constant(self.operation)}({', '.join(parts)})"

    def value(self, read: Callable[[Source], Any]) -> Any:
        """Its value where ``read`` gives those at the sources."""
        if self.operation is None:
            return read(self.operands[0])
        return self.operation(*[o.value(read) if isinstance(o, Expression) else o for o in self.operands])

    def sources(self) -> list[Source]:
        if self.operation is None:
            return [self.operands[0]]
        return [s for o in self.operands if isinstance(o, Expression) for s in o.sources()]

    def words(self) -> str:
        if self.operation is None:
            return str(self.operands[0])
        parts = [o.words() if isinstance(o, Expression) else repr(o) for o in self.operands]
        symbol = SYMBOLS.get(self.operation)
        if symbol and len(parts) == 2:
            return f"{parts[0]} {symbol} {parts[1]}"
        return f"{getattr(self.operation, '__name__', self.operation)}({', '.join(parts)})"


SYMBOLS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}


def is_arithmetic_on(sources: set[int], expression: Any) -> bool:
    """Whether it is computed from the numbers at these sources, by id, and from constants."""
    if not isinstance(expression, Expression):
        return True
    if expression.operation is None:
        return id(expression.operands[0]) in sources
    is_known = not expression.in_graph and getattr(expression.operation, "__module__", None) == operator.add.__module__
    return is_known and all(is_arithmetic_on(sources, operand) for operand in expression.operands)


class Live:
    """Base of the three live kinds."""

    __slots__ = ()
    expression: Expression
    tracer: Any
    is_read = False  # whether it was read from a tensor: torch makes a new object of it each time
    original: Any = None
    """The program's own object, whose identity may matter; None of a number that is computed or read from a tensor."""

    def plain(self) -> Any:
        """This run's value, without a guard. Only for inspection."""
        raise NotImplementedError

    def settle(self) -> Any:
        """Guard the value and return it as a constant."""
        value = self.plain()
        self.tracer.guard_value(self.expression, value)
        return value


class LiveInt(int, Live):
    def plain(self) -> int:
        return int.__pos__(self) if self.original is None else self.original


class LiveFloat(float, Live):
    def plain(self) -> float:
        return float.__pos__(self) if self.original is None else self.original


class LiveStr(str, Live):
    def plain(self) -> str:
        return str.__add__("", str.__getitem__(self, slice(None)))


KINDS: dict[type, type] = {int: LiveInt, float: LiveFloat, str: LiveStr}
PLAIN = {LiveInt: int, LiveFloat: float, LiveStr: str}
for _live, _plain in PLAIN.items():
    _live.__name__ = _plain.__name__  # Python's messages about operands name their types


def make(value: Any, expression: Expression, tracer: Any) -> Any:
    kind = KINDS.get(type(value))
    if kind is None:
        return None
    made = kind.__new__(kind, value)
    made.expression, made.tracer = expression, tracer
    return made


def of_slot(value: Any, source: Source, tracer: Any) -> Any:
    """The live value of a local variable that a break leaves behind."""
    number = make(value, Expression(None, (source, value)), tracer)
    if type(number) is LiveInt and tracer.symbolic_sizes is not None:
        tracer.symbolic_sizes.offer_slot(number, source)
    return number


def _operand(value: Any) -> Any:
    return value.expression if issubclass(type(value), Live) else value


def plain_of(value: Any) -> Any:
    return value.plain() if issubclass(type(value), Live) else value


def has_result(operation: Callable, *operands: Any) -> bool:
    """Whether the operation has a result for these values."""
    try:
        operation(*map(plain_of, operands))
    except Exception as error:  # the program's: only its occurrence matters
        reraise_from_outside(error)
        return False
    return True


def apply(operation: Callable, *operands: Any) -> Any:
    """A new live value, or a specialized one if the result is neither a number nor a string."""
    live = next(o for o in operands if issubclass(type(o), Live))
    operation = IN_PLACE.get(operation, operation)
    for operand in operands:
        if issubclass(type(operand), Live) and operand.expression.in_graph:
            return live.tracer.apply_in_graph(operation, operands)
    if operation is divmod and has_result(divmod, *operands):
        return apply(operator.floordiv, *operands), apply(operator.mod, *operands)
    try:
        value = operation(*map(plain_of, operands))
    except Exception:
        for operand in operands:
            settled(operand)  # the error belongs to this value
        raise
    if value is NotImplemented:
        return value
    expression = Expression(operation, tuple(map(_operand, operands)))
    if expression.depth > DEEPEST_FORMULA or expression.size > LARGEST_FORMULA:
        for operand in operands:
            settled(operand)
        return value
    if type(value) in KINDS:
        # Later code relies on the existence of a result and on its type (1 / n; 2 ** n is a float for n < 0).
        if operation not in TOTAL:
            live.tracer.guard_outcome(Expression(is_type, (expression, type(value))), True)
        made = make(value, expression, live.tracer)
        if operation is max or operation is min:
            made.original = value  # one of the operands
        return made
    if isinstance(value, bool):
        live.tracer.guard_outcome(expression, value)
        return value
    for operand in operands:
        settled(operand)
    return value


def without_live(value: Any, depth: int = 0) -> Any:
    """The value, or a copy of a container in which live scalars are plain: code with effects must not meet them, since
    it cannot run again where one of them ends the segment."""
    if issubclass(type(value), Live):
        return value.plain()
    if type(value) not in (list, tuple, dict) or depth > DEEPEST:
        return value
    parts = list(value.values()) if type(value) is dict else value
    found = [without_live(part, depth + 1) for part in parts]
    if all(a is b for a, b in zip(parts, found, strict=True)):
        return value
    return dict(zip(value, found, strict=True)) if type(value) is dict else type(value)(found)


DEEPEST = 20
DEEPEST_FORMULA = 100  # formulas are walked by recursion; in a long loop the number is constant
LARGEST_FORMULA = 256  # operations as written out: a number that is used twice in each round doubles them


def settled(value: Any) -> Any:
    return value.settle() if issubclass(type(value), Live) else value


# Operations that return a result of the same type for all numbers (or strings).
TOTAL = frozenset(map(vars(operator).get, "add sub mul neg pos abs invert and_ or_ xor".split())) | {str, repr, format}
IN_PLACE = {
    getattr(operator, f"i{name}"): getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow lshift rshift xor".split()
} | {operator.iand: operator.and_, operator.ior: operator.or_}


def is_type(value: Any, kind: type) -> bool:
    return type(value) is kind


def same_value(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and repr(value) == repr(expected)


def leaves_of(expression: Any) -> list[Expression]:
    """The numbers from outside that a formula is made of; none if it is made of a tensor's data."""
    if not isinstance(expression, Expression) or expression.in_graph:
        return []
    if expression.operation is None:
        return [expression]
    return [leaf for operand in expression.operands for leaf in leaves_of(operand)]


NUMBERS = (int, float, complex)


def _binary(operation: Callable, swap: bool) -> Callable:
    def method(self: Any, other: Any) -> Any:
        if not issubclass(type(other), NUMBERS):
            return NotImplemented
        return apply(operation, other, self) if swap else apply(operation, self, other)

    return method


def _compare(operation: Callable) -> Callable:
    def method(self: Any, other: Any) -> Any:
        if not issubclass(type(other), NUMBERS):
            return NotImplemented
        return apply(operation, self, other)

    return method


def _unary(operation: Callable) -> Callable:
    return lambda self: apply(operation, self)


def _settled(name: str, base: type) -> Callable:
    method = getattr(base, name)
    return lambda self, *args: method(self.settle(), *args)


_BINARY = {name: getattr(operator, name) for name in "add sub mul truediv floordiv mod pow".split()}
_BITS = {name.rstrip("_"): getattr(operator, name) for name in "and_ or_ xor lshift rshift".split()}
_COMPARE = {name: getattr(operator, name) for name in "lt le gt ge eq ne".split()}

for _kind, _base in ((LiveInt, int), (LiveFloat, float)):
    for _name, _operation in (_BINARY | (_BITS if _base is int else {})).items():
        setattr(_kind, f"__{_name}__", _binary(_operation, False))
        setattr(_kind, f"__r{_name}__", _binary(_operation, True))
    for _name, _operation in _COMPARE.items():
        setattr(_kind, f"__{_name}__", _compare(_operation))
    for _name, _operation in {"neg": operator.neg, "abs": operator.abs, "pos": operator.pos}.items():
        setattr(_kind, f"__{_name}__", _unary(_operation))
    _kind.__bool__ = lambda self: apply(operator.truth, self)  # type: ignore[attr-defined]
    for _name, _swap in (("__divmod__", False), ("__rdivmod__", True)):
        setattr(_kind, _name, _binary(divmod, _swap))
    for _name in ("__hash__", "__repr__", "__str__", "__format__", "__reduce_ex__"):
        setattr(_kind, _name, _settled(_name, _base))
LiveInt.__invert__ = _unary(operator.invert)  # type: ignore[method-assign,assignment]
# C code calls __index__, __int__ and __float__ only on objects other than int and float: the call rules settle those.
for _name in """
    __hash__ __repr__ __format__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __contains__ __iter__ __len__ __getitem__
    __mod__ __mul__ __rmul__ __reduce_ex__
""".split():
    setattr(LiveStr, _name, _settled(_name, str))
LiveStr.__add__ = lambda self, other: apply(operator.add, self, other)  # type: ignore[method-assign,assignment]


def guard_fit(number: Live, dtype: Any) -> None:
    """Guard whether a number is in the range of a dtype that a call fills a tensor of. None for other calls."""
    if dtype is not None and dtype.is_floating_point and type(number) is LiveFloat and not number.expression.in_graph:
        largest = torch.finfo(dtype).max
        if largest < sys.float_info.max:
            fits = Expression(_is_within, (number.expression, largest))
            number.tracer.guard_outcome(fits, _is_within(number.plain(), largest))


def _is_within(number: float, largest: float) -> bool:
    return not largest < abs(number) < math.inf
