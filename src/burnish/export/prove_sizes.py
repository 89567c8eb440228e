"""For which sizes an exported graph is right: compares what the program needs with what the caller has declared.

The trace knows for which symbols the program needs one value, and its conditions on the others (``DeclaredSizes``). The
conditions on one symbol give the interval around the example in which they hold. There, the recorded calls are repeated
without data (``SizeBox``): at both ends, at 0 and 1, and where two symbols are equal. A condition that does not hold is

* an error, with the user's line and a declaration that holds, if the range was declared with a ``Dim``;
* a narrower range, for ``Dim.AUTO`` and ``Dim.DYNAMIC``, and from below where 0 was not declared but is the default;
* checked in each call, if it relates several symbols.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..capture.numbers import live_scalars
from ..capture.symbolic_sizes.declared_dimensions import DeclaredSizes
from ..capture.symbolic_sizes.verified_size_ranges import SizeBox
from ..errors import UserError
from .dynamic_shapes import Declared
from .symbolic_sizes import (
    COMPARISONS,
    OPERATIONS,
    Condition,
    SizeRange,
    Term,
    affine,
    declaration,
    names_in,
    polynomial,
    simplified,
)

LARGEST = 1 << 40
"""The largest size that conditions are evaluated for."""

MOST_ELEMENTS, FARTHEST = 1 << 26, 256
"""Of the inputs for which the calls are repeated, and how many times the example's size: some calls, such as that of an
LSTM, take a step for each."""

OTHER_CALLS = "the recorded calls do other things there, or are refused"

NAMES = {function: name for name, function in OPERATIONS.items()}
NAMES[operator.pow] = "pow"


@dataclass
class Proven:
    """The sizes that a graph is for."""

    ranges: list[SizeRange]
    conditions: list[Condition]
    constants: dict[str, int]
    """Symbols that turned out to have one value."""
    united: dict[str, str]
    """Symbols that turned out to be equal to another."""


def term_of(sizes: DeclaredSizes, expression: Any) -> Term:
    """A formula of the trace as data, in the names of symbols."""
    return simplified(plain_term(sizes, expression))


def plain_term(sizes: DeclaredSizes, expression: Any) -> Term:
    if not isinstance(expression, live_scalars.Expression):
        if type(expression) not in (int, float, bool):
            raise inexpressible(sizes, repr(expression))
        return expression
    known = sizes.symbols.of_leaf.get(id(expression))
    if known is not None:
        return sizes.symbols.declared[known.symbol].name
    operation = expression.operation
    if operation is live_scalars.is_type and expression.operands[1] in (int, float):
        return (f"is_{expression.operands[1].__name__}", plain_term(sizes, expression.operands[0]))
    name = NAMES.get(operation)
    if name is None:
        raise inexpressible(sizes, getattr(operation, "__name__", repr(operation)))
    return (name, *[plain_term(sizes, part) for part in expression.operands])


def inexpressible(sizes: DeclaredSizes, what: str) -> UserError:
    names = ", ".join(symbol.name for symbol in sizes.symbols.declared)
    return UserError(
        f"burnish.export: the program computes {what} of a dynamic size ({names}), which a graph cannot hold: it holds "
        f"numbers, computed by arithmetic, min, max, round and sqrt. What to do: leave that out while "
        f"burnish.is_compiling() is True, or declare the size with torch.export.Dim.STATIC."
    )


def prove(sizes: DeclaredSizes, declared: Declared, name: str) -> Proven:
    """Raises a `UserError` where the declaration asks for more than the program can do."""
    return Prover(sizes, declared, name).proven()


class Prover:
    def __init__(self, sizes: DeclaredSizes, declared: Declared, name: str):
        self.sizes, self.declared, self.name = sizes, declared, name
        self.symbols = sizes.symbols
        self.wrong: list[str] = []
        self.ranges = dict(declared.ranges)
        self.asked = self.ranges
        """As declared: a range may be narrowed by conditions, and then by calls."""
        self.conditions: list[Condition] = []
        self.box: SizeBox | None = None
        self.order: list[str] = []

    def proven(self) -> Proven:
        symbols = self.symbols
        names = [symbol.name for symbol in symbols.declared]
        for number, (line, why) in symbols.reasons.items():
            if self.declared.hints.get(names[number]) != "AUTO":
                self.refuse_constant(names[number], symbols.hints[number], line, why)
        for other, (one, line) in symbols.pairs.items():
            if self.is_named(names[other]) and self.is_named(names[one]):
                self.refuse_equality(names[one], names[other], line)
        constants = {names[k]: symbols.hints[k] for k in symbols.settled - symbols.united}
        united = {names[other]: names[one] for other, (one, _) in symbols.pairs.items()}
        self.order = [names[k] for k in self.sizes.left()]
        for one, other in ((one, other) for other, one in united.items() if one in self.ranges):
            self.ranges[one] = intersection(self.ranges[one], self.ranges[other])
        self.asked = dict(self.ranges)
        self.raise_if_wrong()
        self.collect_conditions(constants)
        for symbol in self.order:
            self.bound_by_conditions(symbol)
        self.raise_if_wrong()
        self.box = self.sizes.box
        if self.box is not None:
            for symbol in self.order:
                self.bound_by_calls(symbol)
            self.raise_if_wrong()
            self.try_together()
        self.raise_if_wrong()
        left = [self.ranges[symbol] for symbol in self.order]
        return Proven(left, [c for c in self.conditions if not self.is_implied(c)], constants, united)

    # ---- conditions

    def collect_conditions(self, constants: Mapping[str, int]) -> None:
        found_out = [(term_of(self.sizes, each), value, line) for each, value, line in self.sizes.conditions()]
        # Numbers that were equal at the sizes that were tried, so that the graph has one of them.
        found_out += [
            (("eq", term_of(self.sizes, one), term_of(self.sizes, other)), True, None)
            for one, other in self.symbols.equal
        ]
        for term, value, line in found_out:
            found = [name for name in names_in(term) if name in self.order]
            if not found:
                continue
            condition = Condition(simplified(with_constants(term, constants)), value, line)
            if is_always(condition) or any(c.term == condition.term and c.value is value for c in self.conditions):
                continue
            self.conditions.append(condition)
            if len(found) == 2 and is_equality(condition) and all(map(self.is_named, found)):
                self.refuse_relation(condition)
        self.raise_if_wrong()

    def bound_by_conditions(self, symbol: str) -> None:
        own = [c for c in self.conditions if [n for n in names_in(c.term)] == [symbol]]
        declared = self.ranges[symbol]

        def why_not(value: int) -> Condition | None:
            return next((c for c in own if not c.holds({symbol: value})), None)

        if not own:
            return
        steps = next((s for s in range(2, 65) if is_multiple(why_not, declared, s)), None)
        if why_not(declared.example + 1) is not None and steps is not None and declared.holds(declared.example + 1):
            self.refuse_multiple(symbol, steps, why_not(declared.example + 1))
            return
        most, above = last_good(why_not, declared.example, LARGEST if declared.most is None else declared.most)
        least, below = last_good_below(why_not, declared.example, declared.least)
        self.narrow(symbol, least, most if above is not None else declared.most, below, above)

    def narrow(self, symbol: str, least: int, most: int | None, below: Any, above: Any) -> None:
        """Take over the range that holds, or refuse the declared one. `below` and `above` say why it ends there."""
        known, declared = self.ranges[symbol], self.asked[symbol]
        fits_above, fits_below = most == declared.most, least == declared.least or declared.least == 0
        if self.is_named(symbol) and not (fits_above and fits_below):
            asked_least = declared.least if fits_below else least
            if least > asked_least:
                asked_least = 0
            shown = declaration(symbol, asked_least, most)
            why = above if not fits_above else below
            self.wrong.append(
                f"{self.place(symbol)} is declared by {symbol} {declared.limits}, and the program holds "
                f"{SizeRange(symbol, 0, least, most).limits}: {reason(why)}. What to do: {shown}."
            )
        self.ranges[symbol] = replace(
            known,
            least=least,
            most=most,
            below=reason(below) if least != known.least else known.below,
            above=reason(above) if most != known.most else known.above,
        )

    # ---- calls

    def bound_by_calls(self, symbol: str) -> None:
        found = self.ranges[symbol]

        def why_not(value: int) -> str | None:
            return None if self.is_valid({symbol: value}) else OTHER_CALLS

        far = self.farthest(symbol) if found.most is None else min(self.farthest(symbol), found.most)
        # What is possible at the end is possible before it, so most ranges need no search.
        is_possible = why_not(far) is None and why_not((found.example + far) // 2) is None
        most, above = (far, None) if is_possible else last_good(why_not, found.example, far)
        least, below = last_good_below(why_not, found.example, found.least, 4)
        self.narrow(symbol, least, most if above is not None else found.most, below, above)

    def try_together(self) -> None:
        """All symbols at their ends, and equal ones."""
        if len(self.order) < 2:
            return
        for end in ("least", "most"):
            values = {s: self.end(s, end) for s in self.order}
            if not self.is_possible(values):
                continue
            if not self.is_valid(values) and end == "least":
                for s in self.order:
                    least = max(self.ranges[s].least, min(2, self.ranges[s].example))
                    self.narrow(s, least, self.ranges[s].most, OTHER_CALLS, OTHER_CALLS)
                values = {s: self.end(s, end) for s in self.order}
            if not self.is_valid(values):
                self.wrong.append(
                    f"for {', '.join(f'{s} = {v}' for s, v in values.items())} together the recorded calls do other "
                    f"things, or are refused. What to do: narrower ranges, or Dims that depend on each other (2*dim)."
                )
                return
        for at, one in enumerate(self.order):
            for other in self.order[at + 1 :]:
                values = {one: self.ranges[one].example, other: self.ranges[one].example}
                if self.ranges[other].holds(values[other]) and self.is_possible(values) and not self.is_valid(values):
                    self.conditions.append(Condition(("ne", one, other), True))

    def end(self, symbol: str, which: str) -> int:
        found = self.ranges[symbol]
        if which == "least":
            return found.least
        far = self.farthest(symbol, len(self.order))
        return far if found.most is None else min(far, found.most)

    def is_possible(self, values: Mapping[str, int]) -> bool:
        whole = {s: values.get(s, self.ranges[s].example) for s in self.order}
        return all(c.holds(whole) for c in self.conditions)

    def is_valid(self, values: Mapping[str, int]) -> bool:
        assert self.box is not None
        point = tuple([values.get(s, self.ranges[s].example) for s in self.order])
        is_known = self.box.facts is not None or self.box.learn()
        return is_known and self.is_equal_at(point) and self.box.is_valid_at(point)

    def is_equal_at(self, point: tuple[int, ...]) -> bool:
        assert self.box is not None
        try:
            return all(first(point) == second(point) for first, second in self.box.equal)
        except (ArithmeticError, TypeError, ValueError):
            return False

    def farthest(self, symbol: str, together: int = 1) -> int:
        """A size at which inputs are not too large, if as many symbols are as far from the example."""
        times = min(FARTHEST, (MOST_ELEMENTS / self.sizes.most_elements) ** (1 / together))
        return int(self.ranges[symbol].example * max(1, times))

    # ---- errors

    def is_named(self, symbol: str) -> bool:
        return symbol not in self.declared.hints

    def is_implied(self, condition: Condition) -> bool:
        """Whether the range says it. A comparison of a symbol with a constant holds on one side of it."""
        term = condition.term
        found = difference(term)
        if found is None or len(found[0]) != 1:
            return False
        ((symbol, factor),) = found[0].items()
        known = self.ranges[symbol]
        if term[0] in ("eq", "ne"):
            at, rest = divmod(-found[1], factor)
            return not is_equality(condition) and (bool(rest) or not known.holds(at))
        ends = (known.least, LARGEST if known.most is None else known.most)
        return all(condition.holds({symbol: end}) for end in ends)

    def place(self, symbol: str) -> str:
        return self.declared.places[symbol]

    def refuse_constant(self, symbol: str, value: int, line: str | None, why: str) -> None:
        fix = f"torch.export.Dim.STATIC, None or {value} in its place in dynamic_shapes"
        self.wrong.append(
            f"{self.place(symbol)} is declared dynamic ({symbol}), and the program needs it to be "
            f"{value}{place_of(line)}: {why}. What to do: {fix}, or code that works for every size."
        )

    def refuse_equality(self, one: str, other: str, line: str | None) -> None:
        self.wrong.append(
            f"{self.place(one)} and {self.place(other)} must be equal{place_of(line)}, and are declared by the two "
            f"Dims {one} and {other}. What to do: the same Dim {one} for both."
        )

    def refuse_relation(self, condition: Condition) -> None:
        one, other = names_in(condition.term)
        is_same = condition.term[1:] == (one, other)
        fix = f"the same Dim {one} for both" if is_same else "a Dim computed from the other, such as 2*dim"
        self.wrong.append(
            f"the program needs {condition}{place_of(condition.line)}, and {self.place(one)} and {self.place(other)} "
            f"are declared by two Dims, {one} and {other}. What to do: {fix}."
        )

    def refuse_multiple(self, symbol: str, steps: int, why: Condition | None) -> None:
        found = self.ranges[symbol]
        rest = found.example % steps
        derived = f"{steps}*_{symbol}" + (f" + {rest}" if rest else "")
        if self.is_named(symbol):
            self.wrong.append(
                f"{self.place(symbol)} is declared by {symbol}, and the program does not hold for every size: "
                f'{reason(why)}. What to do: _{symbol} = torch.export.Dim("_{symbol}") and {derived} in place of '
                f"{symbol}."
            )

    def raise_if_wrong(self) -> None:
        if self.wrong:
            raise UserError(f"burnish.export of {self.name}: " + "\n".join(self.wrong))


def with_constants(term: Term, constants: Mapping[str, int]) -> Term:
    if isinstance(term, str):
        return constants.get(term, term)
    return (
        tuple([term[0], *[with_constants(part, constants) for part in term[1:]]]) if isinstance(term, tuple) else term
    )


def difference(term: Term) -> tuple[dict[str, int], int] | None:
    """Of the two sides of a comparison, as a sum of multiples of symbols."""
    is_comparison = isinstance(term, tuple) and term[0] in COMPARISONS and len(term) == 3
    return affine(("sub", *term[1:])) if is_comparison else None


def is_always(condition: Condition) -> bool:
    """Whether it says nothing about sizes: a sum of whole numbers is one."""
    term = condition.term
    is_comparison = isinstance(term, tuple) and term[0] in COMPARISONS
    found = polynomial(("sub", *term[1:])) if is_comparison else None
    if found is not None and not any(found):
        return condition.holds(dict.fromkeys(names_in(term), 0))
    return isinstance(term, tuple) and term[0] == "is_int" and condition.value and is_whole(term[1])


def is_whole(term: Term) -> bool:
    if not isinstance(term, tuple):
        return isinstance(term, (str, int))
    if term[0] in ("floordiv", "mod"):
        return is_whole(term[1]) and isinstance(term[2], int) and term[2] > 0
    return term[0] in ("add", "sub", "mul", "neg", "pos", "abs") and all(map(is_whole, term[1:]))


def is_equality(condition: Condition) -> bool:
    term = condition.term
    return isinstance(term, tuple) and (term[0], condition.value) in (("eq", True), ("ne", False))


def is_multiple(why_not: Callable[[int], Any], declared: SizeRange, steps: int) -> bool:
    """Whether it holds for every so many sizes, and for none in between."""
    near = [why_not(declared.example + k) is None for k in range(2 * steps + 1) if declared.holds(declared.example + k)]
    return len(near) > steps and all(found == (k % steps == 0) for k, found in enumerate(near))


def last_good(why_not: Callable[[int], Any], start: int, end: int) -> tuple[int, Any]:
    """The size nearest to the end that it holds for, and why not beyond; None if it holds at the end."""
    good, step, sign = start, 1, 1 if end >= start else -1
    while good != end:
        tried = good + sign * min(step, abs(end - good))
        why = why_not(tried)
        if why is not None:
            while abs(tried - good) > 1:
                middle = (tried + good) // 2
                found = why_not(middle)
                if found is None:
                    good = middle
                else:
                    tried, why = middle, found
            return good, why
        good, step = tried, 2 * step
    return good, None


def last_good_below(why_not: Callable[[int], Any], start: int, end: int, apiece: int = 16) -> tuple[int, Any]:
    """The same downwards, where each of the last few sizes is tried: 0 and 1 have meanings of their own."""
    least, why = last_good(why_not, start, max(end, min(start, apiece)))
    while why is None and least > end:
        why = why_not(least - 1)
        least -= why is None
    return least, why


def intersection(one: SizeRange, other: SizeRange) -> SizeRange:
    most = min((x for x in (one.most, other.most) if x is not None), default=None)
    return replace(one, least=max(one.least, other.least), most=most)


def reason(why: Any) -> str:
    if not isinstance(why, Condition):
        return str(why)
    return f"it needs {why}{place_of(why.line)}"


def place_of(line: str | None) -> str:
    return f" at{line.strip().removeprefix('File')}" if line else ""
