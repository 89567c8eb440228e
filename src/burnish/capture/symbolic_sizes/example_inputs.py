"""Example inputs of other sizes, for backends that compile a graph with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import construct_storage_from_data_pointer
from ...tensors.device_facts import is_host
from ...tensors.eager_strides import packed_stride
from ...tensors.fit_size_formulas import FollowedSize, Formula, GivenSize, NoFormula, Point, Space
from ..guards.tensor_metadata import TENSOR_TYPES
from ..numbers import live_scalars
from .linear_sizes import LeafSize, multiple_of_symbol
from .size_symbols import SizeSymbols


class Like(NamedTuple):
    """The properties of a tensor that its example must have. Does not keep the tensor alive."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    offset: int
    is_inference: bool

    @classmethod
    def of(cls, x: torch.Tensor) -> Like:
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, x.storage_offset(), x.is_inference())

    def made(self) -> torch.Tensor:
        """Made of untouched memory, which costs nothing on a CPU. On a GPU it has no memory."""
        with torch.inference_mode(self.is_inference):
            if not is_host(self.device) and self.device.type != "meta":
                x = hollow(self)
            elif not self.offset:
                x = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
            else:
                far = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)) + 1
                x = torch.empty(self.offset + max(far, 0), dtype=self.dtype, device=self.device).as_strided(
                    self.shape, self.stride, self.offset
                )
        return x.requires_grad_() if self.requires_grad else x


def hollow(like: Like) -> torch.Tensor:
    """A tensor without memory; its data must not be read. Examples far from the observed size may not fit on a GPU."""
    far = sum(max(size - 1, 0) * step for size, step in zip(like.shape, like.stride, strict=True)) + 1
    storage = construct_storage_from_data_pointer(NOWHERE, like.device, (like.offset + far) * like.dtype.itemsize)
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(storage, like.offset, like.shape, like.stride)


NOWHERE = 64
"""An address without memory behind it."""


@dataclass(frozen=True, slots=True)
class SymbolicExampleInputs:
    """Information for a backend about a graph with symbolic sizes: the possible examples besides the observed one."""

    space: Space
    given: Sequence[Any]
    """The original inputs: a Like for each plain tensor, and numbers. Any other tensor is stored itself, and the
    backend must not ask for examples of other sizes."""
    shapes: Mapping[int, Sequence[int | Formula]]
    """For the inputs that are tensors with symbolic dimensions."""
    orders: Mapping[int, tuple[int, ...]]
    """The order of their dimensions in memory, from the fastest to the slowest."""
    numbers: Mapping[int, Callable[[Point], Any]]
    """For the inputs that are numbers computed from the sizes: the computation."""
    followed: Mapping[int, Formula] = field(default_factory=dict)
    """The formulas of those that are known to follow one wherever the graph runs. Other sizes may have another value:
    ``p & 31`` is ``p`` as far as 31."""
    piecewise: Container[int] = ()
    """The integers that have no formula at the points, as a remainder: programs are checked at every size."""

    def examples(self, point: Point) -> list[Any]:
        """The inputs for these sizes."""
        made: list[Any] = []
        for k, like in enumerate(self.given):
            if k in self.shapes:
                sizes = tuple([size if isinstance(size, int) else size.at(point) for size in self.shapes[k]])
                like = like._replace(shape=sizes, stride=packed_stride(sizes, self.orders[k]))
            if isinstance(like, Like):
                try:
                    made.append(like.made())
                except (RuntimeError, MemoryError) as error:
                    reraise_from_outside(error)
                    raise NoFormula(f"no example of other sizes: {error}") from error
            else:
                made.append(self.number(k, point) if k in self.numbers else like)
        return made

    def number(self, k: int, point: Point) -> Any:
        if k in self.followed:
            return FollowedSize(self.followed[k].at(point))
        number = self.numbers[k](point)
        return GivenSize(number) if type(number) is int else number

    def equal(self, places: Sequence[int]) -> list[tuple[Callable[[Point], Any], Callable[[Point], Any]]]:
        """The numbers, and the formulas that they have to follow, as functions of a point that has the symbols at
        `places`."""

        def of_whole(function: Callable[[Point], Any]) -> Callable[[Point], Any]:
            return lambda point: function(tuple([point[place] for place in places]))

        return [(of_whole(self.numbers[k]), of_whole(formula.at)) for k, formula in self.followed.items()]


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
