"""Example inputs of other sizes, for backends that compile a graph with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...tensors.fit_size_formulas import Formula, NoFormula, Point, Space
from ..guards.tensor_metadata import TENSOR_TYPES
from ..numbers import live_scalars
from .linear_sizes import LeafSize, multiple_of_symbol
from .size_symbols import SizeSymbols

if TYPE_CHECKING:
    from ...captured_graph.symbolic_example_inputs import SymbolicExampleInputs


def unsettled_symbols(symbols: SizeSymbols) -> list[int]:
    return [k for k in range(len(symbols.hints)) if k not in symbols.settled]


def computation(symbols: SizeSymbols, left: Sequence[int]) -> Callable[[Any], Callable[[Point], Any]]:
    """Makes a function of a point, which has the sizes of the symbols `left`, from the formula of a number."""
    leaves, hints = dict(symbols.of_leaf), tuple(symbols.hints)

    def number(expression: live_scalars.Expression) -> Callable[[Point], Any]:
        def at(point: Point) -> Any:
            whole = list(hints)
            for k, value in zip(left, point, strict=True):
                whole[k] = value
            return evaluated(expression, leaves, whole)

        return at

    return number


def symbolic_example_inputs(
    symbols: SizeSymbols, recorder: Any, tensors: Mapping[int, Any], left: Sequence[int]
) -> SymbolicExampleInputs | None:
    """With the symbols `left`. None if every size turned out to be a constant."""
    if not left:
        return None
    from ...captured_graph.symbolic_example_inputs import Like, SymbolicExampleInputs

    space = symbols.space_of(left)
    number = computation(symbols, left)
    shapes, orders, numbers, followed = {}, {}, {}, {}
    for k, sizes in symbolic_parts(symbols, recorder, tensors):
        if sizes is None:
            numbers[k] = number(recorder.inputs[k].source)
            formula = formula_of(
                multiple_of_symbol(recorder.inputs[k].source, symbols.of_leaf), numbers[k], space, left
            )
            if formula is not None:
                followed[k] = formula
        else:
            shapes[k] = [
                size if type(size) is int else space.fit(list(map(number(size.expression), space.points)))
                for size in sizes
            ]
            orders[k] = tensors[id(recorder.examples[k])][2]
    likes = [Like.of(x) if is_plain(x) else x for x in recorder.examples]
    piecewise = {k for k in numbers.keys() - followed if type(recorder.examples[k]) is int}
    return SymbolicExampleInputs(space, likes, shapes, orders, numbers, followed, piecewise)


def formula_of(
    known: LeafSize | None, number: Callable[[Point], Any], space: Space, left: Sequence[int]
) -> Formula | None:
    """The formula of a number: as it is made of a symbol, or that of its values if they differ at the points."""
    if known is not None:
        none = (0,) * len(left)
        powers = tuple([int(k == known.symbol) for k in left])
        return Formula(space.names, ((known.factor, powers), *([(known.added, none)] if known.added else [])))
    try:
        values = list(map(number, space.points))
        found = space.fit(values) if all(type(value) is int for value in values) else None
    except (NoFormula, ArithmeticError, TypeError, ValueError):  # some sizes have no such number
        return None
    return found if isinstance(found, Formula) else None


def symbolic_parts(
    symbols: SizeSymbols, recorder: Any, tensors: Mapping[int, Any]
) -> Iterator[tuple[int, Sequence[Any] | None]]:
    """The inputs of a graph that depend on symbols: the sizes of a tensor, None for a number."""
    for k, (handle, example) in enumerate(zip(recorder.inputs, recorder.examples, strict=True)):
        if isinstance(example, torch.Tensor):
            given = tensors.get(id(example))
            if given is not None and any(isinstance(size, live_scalars.LiveInt) for size in given[1]):
                yield k, given[1]
        elif symbols.follows(handle.source) and not symbols.symbols_of(handle.source) <= symbols.settled:
            yield k, None  # the others are constants of the graph


def read_symbols(symbols: SizeSymbols, recorder: Any, tensors: Mapping[int, Any]) -> set[int]:
    """Those that inputs of a graph depend on. Python has read the others, or nothing has."""
    found: set[int] = set()
    for k, sizes in symbolic_parts(symbols, recorder, tensors):
        for size in (recorder.inputs[k].source,) if sizes is None else sizes:
            found |= symbols.symbols_of(size.expression if isinstance(size, live_scalars.LiveInt) else size)
    return found - symbols.settled


def is_plain(x: Any) -> bool:
    """Whether an example can replace the tensor. The compiler rejects others."""
    if type(x) not in TENSOR_TYPES or x.layout is not torch.strided:
        return False
    return not (x.is_conj() or x.is_neg() or x._is_zerotensor())


def evaluated(expression: Any, leaves: Mapping[int, LeafSize], point: Sequence[int]) -> Any:
    if not isinstance(expression, live_scalars.Expression):
        return expression
    leaf = leaves.get(id(expression))
    if leaf is not None:
        return leaf.of(point[leaf.symbol])
    return expression.operation(*(evaluated(operand, leaves, point) for operand in expression.operands))
