"""Operators that a call of a function transform performs, in a form that can be compared with those at other sizes.

    aten.expand(ones, [5, 4])           its function, and ((Place(2), [5, 4]), {}): a tensor is its place in the order
    aten.expand(ones, [6, 4])           the same operator: sizes differ

`Operators` is filled by the call itself (`lowered_calls`), or by a `Listener` when it is repeated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...foundation.torch_private import TorchDispatchMode
from ...runtime.argument_trees import tensors_in
from ..numbers.live_scalars import Expression, Live, make, plain_of
from .meta_shape_replay import NotRepeatable

NumberOf = Callable[[Expression], Any]
"""The value of a number at a point; None if it is not computed from sizes."""

DETACH = torch.ops.aten.detach.default


class Number(NamedTuple):
    """A live scalar, without the trace that it belongs to."""

    expression: Expression
    value: Any

    @classmethod
    def of(cls, number: Live) -> Number:
        return cls(number.expression, plain_of(number))

    def at(self, number_of: NumberOf) -> Any:
        found = number_of(self.expression)
        return self.value if found is None else found


class Operator(NamedTuple):
    function: Any
    given: tuple
    """Its arguments, with numbers in place of tensors. What it returned, if it is no tensor."""


class Place(NamedTuple):
    """A tensor, by its order among all that operators have met."""

    number: int


class Operators:
    """The operators that were performed, in a form that can be compared."""

    def __init__(self) -> None:
        self.all: list[Operator] = []
        self.places: dict[int, Place] = {}
        self.count = 0
        self.kept: list[torch.Tensor] = []
        """No other tensor has the id of one of them."""

    def note(self, function: Any, args: tuple, kwargs: dict, made: Any) -> None:
        """Autograd detaches what it saves, more often if an input requires gradients."""
        if function is DETACH:
            self.kept.append(made)
            self.places[id(made)] = self.place_of(args[0])
            return
        given = self.seen(args), {name: self.seen(value) for name, value in kwargs.items()}
        self.all.append(Operator(function, (*given, made if type(made) is bool else None)))
        self.seen(made)

    def place_of(self, tensor: torch.Tensor) -> Place:
        place = self.places.get(id(tensor))
        if place is None:
            self.count += 1
            place = self.places[id(tensor)] = Place(self.count)
            self.kept.append(tensor)
        return place

    def seen(self, tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            return self.place_of(tree)
        return type(tree)(map(self.seen, tree)) if type(tree) in (tuple, list) else tree


class Listener(TorchDispatchMode):
    """Notes the operators that a repetition performs."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import Dynamo, to exclude this class from it."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.operators = Operators()
        self.bases: dict[int, torch.Tensor] = {}
        """Of views, by id."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        question = QUESTIONS.get(func)
        made = func(*args, **(kwargs or {})) if question is None else question(self, *args)
        if func._schema.returns and func._schema.returns[0].alias_info is not None:
            self.bases.update({id(view): self.base_of(args[0]) for view in tensors_in(made)})
        self.operators.note(func, args, kwargs or {}, made)
        return made

    def base_of(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.bases.get(id(tensor), tensor)

    def is_same_size(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        return one.shape == other.shape

    def has_same_storage_size(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Of tensors without data, which have no storage: the size of what they are views of."""
        return span_of(self.base_of(one)) == span_of(self.base_of(other))


def span_of(tensor: torch.Tensor) -> int:
    """How many elements there are from the first to the last one."""
    steps = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return 1 + sum(steps) if tensor.numel() else 0


QUESTIONS = {
    torch.ops.aten.is_same_size.default: Listener.is_same_size,
    torch.ops.aten._has_same_storage_numel.default: Listener.has_same_storage_size,
}
"""Operators that return no tensor. The compiler's trace does not know them."""


def compare_functions(own: Sequence[Operator], others: Sequence[Operator]) -> None:
    if [one.function for one in own] != [other.function for other in others]:
        raise NotRepeatable("other operators")


def fit_numbers(symbols: Any, own: Any, others: Sequence[Any]) -> Any:
    """The arguments of an operator with formulas in place of numbers that differ between the points. ``others``: those
    at the points, the first of which has the observed sizes."""
    if isinstance(own, Live):
        values = symbols.values(own.expression)
        if list(values or [plain_of(own)] * len(others)) != list(others):
            raise NotRepeatable("another number")
        return own
    if is_alike_all(own, others):
        return own
    if type(own) in (int, float) and all(type(other) is type(own) for other in others) and others[0] == own:
        return symbols.size(tuple(others)) if type(own) is int else quotient(symbols, others)
    return along(lambda own, others: fit_numbers(symbols, own, others), own, others)


def compare_numbers(number_of: NumberOf, own: Any, others: Sequence[Any]) -> None:
    """Raises NotRepeatable if arguments differ from the fitted ones."""
    if type(own) is Number:
        own = own.at(number_of)
    if not is_alike_all(own, others):
        along(lambda own, others: compare_numbers(number_of, own, others), own, others)


def quotient(symbols: Any, values: Sequence[float]) -> Any:
    """A number that is a constant divided by a size, as in the gradients of means and variances."""
    for constant in (1.0, 2.0):
        sizes = [round(constant / value) if value else 0 for value in values]
        if all(size and constant / size == value for size, value in zip(sizes, values, strict=True)):
            expression = Expression(operator.truediv, (constant, symbols.size(tuple(sizes)).expression))
            return make(values[0], expression, symbols.tracer)
    raise NotRepeatable("a number that is no quotient of a size")


def is_alike_all(own: Any, others: Sequence[Any]) -> bool:
    return all(type(other) is type(own) and other == own for other in others)


def along(change: Callable[[Any, Sequence[Any]], Any], own: Any, others: Sequence[Any]) -> Any:
    """Calls a function with the parts of a container and those of others."""
    kind = type(own)
    if kind not in (tuple, list, dict) or any(type(x) is not kind or len(x) != len(own) for x in others):
        raise NotRepeatable("other arguments of an operator")
    if kind is dict:
        return {key: change(value, [other[key] for other in others]) for key, value in own.items()}
    return kind([change(part, [other[at] for other in others]) for at, part in enumerate(own)])
