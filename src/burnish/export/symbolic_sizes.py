"""The symbolic sizes of an exported graph, as data: their ranges, the sizes of inputs, and conditions on them.

    x: f32[b, 2*b + 1]                SymbolicSize("b"), SymbolicSize("b", 2, 1)
    b from 2 to 64                    SizeRange("b", example=4, least=2, most=64)
    b % 8 == 0, line 12               Condition(("eq", ("mod", "b", 8), 0), True, "model.py, line 12")

A call determines the symbols from the shapes of its tensors, and everything is checked before the graph runs. Formulas
are trees of these few operations on numbers, so that they can be written to a file and read as data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..capture.numbers.graph_numbers import is_word

Term = Any
"""A number, the name of a symbol, or (operation, *operands)."""

LARGEST_POWER = 8


def power(base: Any, exponent: Any) -> Any:
    if not (isinstance(exponent, (int, float)) and abs(exponent) <= LARGEST_POWER):
        raise ValueError(f"the exponent {exponent}")
    return base**exponent


def is_int(value: Any) -> bool:
    return type(value) is int


def is_float(value: Any) -> bool:
    return type(value) is float


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in "add sub mul floordiv mod truediv neg pos abs".split()},
    **{name: getattr(operator, name) for name in "lt le gt ge eq ne truth".split()},
    **{name: getattr(operator, name) for name in "and_ or_ xor".split()},
    **{function.__name__: function for function in (min, max, round, int, float, math.sqrt, math.floor, math.ceil)},
    "pow": power,
    "is_word": is_word,
    "is_int": is_int,
    "is_float": is_float,
}
SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**"}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
NOT = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class SymbolicSize:
    """The size of a dimension: ``factor * symbol + added``."""

    symbol: str
    factor: int = 1
    added: int = 0

    def at(self, values: Mapping[str, Any]) -> Any:
        """For the values of symbols, or other things that can be multiplied and added."""
        size = values[self.symbol]
        size = size if self.factor == 1 else self.factor * size
        return size + self.added if self.added else size

    def solved(self, size: int) -> int | None:
        """The symbol's value for a size of the dimension."""
        value, rest = divmod(size - self.added, self.factor)
        return None if rest else value

    @property
    def term(self) -> Term:
        made: Term = self.symbol if self.factor == 1 else ("mul", self.factor, self.symbol)
        return made if not self.added else ("add", made, self.added)

    def __str__(self) -> str:
        return text_of(self.term)


@dataclass(frozen=True, slots=True)
class SizeRange:
    """A symbol, with its value in the example, and the values for which the graph was found to hold."""

    name: str
    example: int
    least: int = 0
    most: int | None = None
    """None: there is no limit."""
    is_named: bool = True
    """Whether it is a ``Dim`` of the caller's, and not one for each dimension (``Dim.AUTO``)."""
    below: str = ""
    """Why it holds for no smaller sizes, if it is the program that does not."""
    above: str = ""

    def holds(self, value: int) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)

    @property
    def limits(self) -> str:
        return f"from {self.least} on" if self.most is None else f"from {self.least} to {self.most}"

    def widened(self, value: int) -> str:
        """A declaration whose range holds a value, as the user would write it, or why there is none."""
        why = self.below if value < self.least else self.above
        if why:
            return f"The program does other things there: {why}"
        most = None if self.most is None else max(self.most, value)
        made = declaration(self.name if self.is_named else None, min(self.least, value), most)
        return f"To take it: {made} in dynamic_shapes"


def declaration(name: str | None, least: int, most: int | None) -> str:
    limits = [f"min={least}"] * (least > 0) + [f"max={most}"] * (most is not None)
    if name is None:
        return f"torch.export.Dim.AUTO({', '.join(limits)})" if limits else "torch.export.Dim.AUTO"
    return f"torch.export.Dim({', '.join([repr(name), *limits])})".replace("'", '"')


@dataclass(frozen=True, slots=True)
class Condition:
    """What the program found out about the symbols, and did accordingly: the graph is for sizes where it is so."""

    term: Term
    value: bool
    line: str | None = None

    def why_not(self, values: Mapping[str, int]) -> str | None:
        if self.holds(values):
            return None
        at = f" ({self.line.strip()})" if self.line else ""
        return f"the graph holds where {self}{at}, and {', '.join(f'{n} is {values[n]}' for n in names_in(self.term))}"

    def holds(self, values: Mapping[str, int]) -> bool:
        try:
            return bool(value_of(self.term, values)) is self.value
        except (ArithmeticError, TypeError, ValueError, LookupError):
            return False

    def __str__(self) -> str:
        term = self.term
        if not self.value and isinstance(term, tuple) and term[0] in NOT:
            return text_of((NOT[term[0]], *term[1:]))
        return text_of(term) if self.value else f"not ({text_of(term)})"


def value_of(term: Term, values: Mapping[str, Any]) -> Any:
    if isinstance(term, str):
        return values[term]
    if not isinstance(term, tuple):
        return term
    return OPERATIONS[term[0]](*[value_of(part, values) for part in term[1:]])


def names_in(term: Term) -> list[str]:
    if isinstance(term, str):
        return [term]
    parts: Iterable[Any] = term[1:] if isinstance(term, tuple) else ()
    return list(dict.fromkeys(name for part in parts for name in names_in(part)))


Polynomial = dict[tuple[str, ...], int]
"""Factors of products of symbols; of the empty product, what is added."""

Affine = tuple[dict[str, int], int]
"""Factors of symbols, and what is added."""


def polynomial(term: Term) -> Polynomial | None:
    """A formula as a sum of multiples of products, if it is one: equal ones are the same number for all sizes."""
    if isinstance(term, str):
        return {(term,): 1}
    if type(term) is int:
        return {(): term} if term else {}
    if not isinstance(term, tuple) or term[0] not in ("add", "sub", "mul", "neg", "pos"):
        return None
    parts = [polynomial(part) for part in term[1:]]
    if any(part is None for part in parts):
        return None
    one, other = (parts[0] or {}, parts[1] or {}) if len(parts) == 2 else ({}, parts[0] or {})
    total: Polynomial = {}
    if term[0] == "mul":
        for names, factor in one.items():
            for more, by in other.items():
                product = tuple(sorted((*names, *more)))
                total[product] = total.get(product, 0) + factor * by
    else:
        sign = -1 if term[0] in ("sub", "neg") else 1
        total = {names: one.get(names, 0) + sign * other.get(names, 0) for names in {**one, **other}}
    return {names: factor for names, factor in total.items() if factor}


def affine(term: Term) -> Affine | None:
    """A formula as a sum of multiples of symbols, if it is one."""
    found = polynomial(term)
    if found is None or any(len(names) > 1 for names in found):
        return None
    return {names[0]: factor for names, factor in found.items() if names}, found.get((), 0)


def simplified(term: Term) -> Term:
    """The same in fewer operations."""
    if not isinstance(term, tuple):
        return term
    found = affine(term)
    if found is None:
        return (term[0], *map(simplified, term[1:]))
    factors, added = found
    made: Term = None
    for name, factor in sorted(factors.items(), key=lambda item: (item[1] < 0, item[0])):
        part = name if abs(factor) == 1 else ("mul", abs(factor), name)
        first = part if factor > 0 else ("neg", part)
        made = first if made is None else ("add" if factor > 0 else "sub", made, part)
    if made is None:
        return added
    return made if not added else ("add" if added > 0 else "sub", made, abs(added))


def text_of(term: Term, is_inside: bool = False) -> str:
    if not isinstance(term, tuple):
        return str(term)
    name, *parts = term
    sign = SYMBOLS.get(name) or COMPARISONS.get(name)
    if sign is None:
        return f"{name}({', '.join(map(text_of, parts))})"
    text = (sign if name == "mul" else f" {sign} ").join(text_of(part, True) for part in parts)
    return f"({text})" if is_inside and name != "mul" else text
