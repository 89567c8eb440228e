"""Numbers that have no formula of the sizes: a symbol each.

    height = int(x.shape[2] * 1.3)              no polynomial or quotient of the size
    F.interpolate(x, size=(height, height))     height is a symbol of its own: one graph for all sizes of x

The program with the symbol is right for any pair of a size and such a number. It is made where the calls of the trace
can be repeated then. ``x.view(n // 8 * 8, ...)`` and the like need the relation, and keep it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...tensors.fit_size_formulas import LEAST, NoFormula
from ..engine.torch_call_records import Handle, handles_in
from ..numbers import live_scalars
from .example_inputs import evaluated
from .linear_sizes import LeafSize
from .meta_shape_replay import substitute_handles, succeeds
from .size_symbols import MOST_SIZE

if TYPE_CHECKING:
    from .dynamic_dimensions import SymbolicSizes
    from .size_symbols import SizeSymbols

MOST_SYMBOLS = 4
"""With more symbols in all, ranges of sizes have too many corners."""


def make_symbols(sizes: SymbolicSizes) -> bool:
    """Make symbols of the integers that calls take and that have no formula. Whether there is one more."""
    symbols, is_any = sizes.symbols, False
    if sizes.tracer.options.exports:
        return False  # which declares its symbols
    for handle in sizes.tracer.recorder.inputs:
        if len(symbols.hints) - len(symbols.settled) >= MOST_SYMBOLS:
            break
        if is_without_formula(symbols, handle.source):
            is_any |= make_symbol(sizes, handle.source)
    return is_any


def is_without_formula(symbols: SizeSymbols, expression: Any) -> bool:
    """Whether it is an integer that is computed from sizes, and differs at their points as no formula of them does."""
    if not isinstance(expression, live_scalars.Expression) or id(expression) in symbols.of_leaf:
        return False
    if symbols.symbols_of(expression) & symbols.numbers:
        return False
    return symbols.at_all_points(has_no_formula, symbols, expression)


def has_no_formula(symbols: SizeSymbols, expression: live_scalars.Expression) -> bool:
    values = symbols.values(expression)
    return values is not None and len(set(values)) > 1 and symbols.fitted(values) is None


def make_symbol(sizes: SymbolicSizes, expression: live_scalars.Expression) -> bool:
    """Whether the number is a symbol from now on. One of 0 or 1 is guarded by value, as such sizes are. A limit of a
    slice may be at most the size, as it is now."""
    symbols, tracer = sizes.symbols, sizes.tracer
    hint, number = evaluated(expression, symbols.of_leaf, symbols.hints), len(symbols.hints)
    if hint < 0:
        return False
    equal = list(numbers_equal_to(symbols, expression))
    known = dict(symbols.canonical), set(symbols.compared)
    symbols.hints.append(hint)
    symbols.leaves.append(expression)
    symbols.places.append([])
    symbols.moves.append(None)
    symbols.of_leaf.update((id(each), LeafSize(number)) for each in (expression, *equal))
    if hint < LEAST:
        symbols.settled.add(number)
    for most in (MOST_SIZE, hint):
        symbols.most[number] = most
        symbols.forget()
        if is_possible(sizes):
            for each in equal:
                tracer.guard_outcome(live_scalars.Expression(operator.eq, (each, expression)), True)
            if hint < LEAST:
                tracer.guard_value(expression, hint)
                write_constant(sizes, (expression, *equal), hint)
            else:
                tracer.guard_outcome(live_scalars.Expression(operator.ge, (expression, LEAST)), True)
            return True
    for each in (expression, *equal):
        del symbols.of_leaf[id(each)]
    for columns in (symbols.hints, symbols.leaves, symbols.places, symbols.moves):
        columns.pop()
    symbols.settled.discard(number)
    del symbols.most[number]
    symbols.forget()
    symbols.canonical.update(known[0])
    symbols.compared.update(known[1])
    return False


def write_constant(sizes: SymbolicSizes, expressions: Sequence[Any], value: int) -> None:
    """Write a number that is guarded by value into the calls that were recorded with it as an input."""
    calls = sizes.tracer.recorder.calls

    def written(handle: Handle) -> Any:
        is_it = handle.call is None and any(handle.source is each for each in expressions)
        return value if is_it else handle

    for at, call in enumerate(calls):
        if any(written(handle) is not handle for handle in handles_in((call.args, call.kwargs))):
            args, kwargs = substitute_handles(call.args, written), substitute_handles(call.kwargs, written)
            calls[at] = call._replace(args=args, kwargs=kwargs)
    sizes.replay.parts.clear()


def numbers_equal_to(symbols: SizeSymbols, expression: live_scalars.Expression) -> Iterator[live_scalars.Expression]:
    """Those that it stands for: they were the same at all points."""
    for pair in symbols.equal:
        for one, other in (pair, pair[::-1]):
            if one is expression and isinstance(other, live_scalars.Expression) and id(other) not in symbols.of_leaf:
                yield other


def is_possible(sizes: SymbolicSizes) -> bool:
    """Whether all calls can be repeated, and the sizes that the program has seen follow their formulas."""
    symbols, replay = sizes.symbols, sizes.replay
    try:
        others = range(1, len(symbols.points()))
        for handle in map(Handle, range(len(sizes.tracer.recorder.calls))):
            if succeeds(replay.at, handle, 0):
                for number in others:
                    replay.at(handle, number)
        return all(symbols.values(one) == symbols.values(other) for one, other in symbols.equal) and all(
            (size,) * len(values) == values if type(size) is int else symbols.values(size) == values
            for (_, _, dim), (handle, size) in sizes.claims.items()
            for values in [tuple([replay.shape_at(handle, number)[dim] for number in (0, *others)])]
        )
    except NoFormula:
        return False
