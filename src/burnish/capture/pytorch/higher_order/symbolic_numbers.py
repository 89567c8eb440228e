"""Numbers that may differ in the next call, handed to torch's C++ by function transforms.

    r * n           under vmap        =>        aten.mul.Tensor(x, n)          n: an input of the graph

Such a number enters C++ as a `torch.SymInt` or `torch.SymFloat`. Autograd's formulas and batching rules compute with
it by asking its node (`NumberNode`), so the results are live scalars again. Where C++ needs the value, to choose what
it does, it asks for a guard: the number is settled. So what is recorded holds for all numbers that pass the guards.

Where C++ wants a tensor, it makes one with a meaningless value, which a dispatch mode gets as the number. No such
tensor may outlive the call: a transformed function whose results autograd still follows is traced with constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ...numbers.graph_numbers import fits_in_64_bits
from ...numbers.live_scalars import Live, LiveStr, plain_of, settled

SYMBOLIC = (torch.SymInt, torch.SymFloat)


class NumberNode:
    """What C++ asks about a number: the methods of torch's own `SymNode`."""

    def __init__(self, value: Any):
        self.value = value
        """A live scalar, or a constant."""

    def is_int(self) -> bool:
        return isinstance(self.value, int) and not isinstance(self.value, bool)

    def is_float(self) -> bool:
        return isinstance(self.value, float)

    def is_bool(self) -> bool:
        return isinstance(self.value, bool)

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True

    def maybe_as_int(self) -> None:
        return None

    def guard(self, file: str = "", line: int = 0) -> Any:
        return settled(self.value)

    guard_int = guard_float = guard_bool = guard_size_oblivious = guard_or_false = guard_or_true = expect_true = guard

    def wrap(self, value: Any) -> NumberNode:
        return NumberNode(value)

    wrap_int = wrap_float = wrap_bool = wrap

    def sym_float(self) -> NumberNode:
        return NumberNode(self.value * 1.0 if self.is_int() else self.value)

    def clone(self) -> NumberNode:
        return self

    def str(self) -> str:
        return repr(plain_of(self.value))

    _graph_repr = str


def asks(operation: Callable) -> Callable:
    return lambda self, *others: NumberNode(operation(self.value, *[other.value for other in others]))


for _name in "add sub mul truediv floordiv mod pow eq ne lt le gt ge neg".split():
    setattr(NumberNode, _name, asks(getattr(operator, _name)))
for _name, _operation in {"int_floordiv": operator.floordiv, "float_truediv": operator.truediv}.items():
    setattr(NumberNode, _name, asks(_operation))


def symbolic(number: Live) -> Any:
    """The number as C++ is given it; a constant if it cannot be symbolic."""
    if isinstance(number, LiveStr) or isinstance(number, int) and not fits_in_64_bits(number):
        return number.settle()
    return (torch.SymInt if isinstance(number, int) else torch.SymFloat)(NumberNode(number))


def number_of(value: Any) -> Any:
    """The live scalar, or the constant, that a number of C++ stands for."""
    return value.node.value if isinstance(value, SYMBOLIC) else value


def may_stand_for_number(value: torch.Tensor) -> bool:
    """Whether a tensor of unknown origin may be one that C++ has made for a symbolic number."""
    return value.dim() == 0 and value.dtype in (torch.int64, torch.float64, torch.bool)


def meaningless() -> None:
    """Stands for such a tensor. No result may depend on it."""


def takes_scalar(schema: Any, at: int | str) -> bool:
    """Whether an argument of an operator, by position or name, is a number that changes data only."""
    argument = schema.arguments[at] if isinstance(at, int) else next(a for a in schema.arguments if a.name == at)
    kind = argument.type
    if isinstance(kind, torch.OptionalType):
        kind = kind.getElementType()
    is_value = isinstance(kind, torch.NumberType) or argument.name == "other" and isinstance(kind, torch.TensorType)
    return is_value and schema.name.removeprefix("aten::") not in DECIDING


DECIDING = frozenset("arange range linspace logspace full new_full full_like fill fill_".split())
"""Operators with sizes by scalars, or that check them."""
