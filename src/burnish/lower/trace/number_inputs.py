"""Live scalars in the trace: Python numbers that change from call to call, passed through C++ that needs a number.

    y = x * lr        =>        y = aten.mul.Tensor x, lr          lr: number f64

During the trace, such a number is a float that no other number equals (a stand-in). It is recognised when it appears in
the arguments of an ATen call. If C++ computes with it on the way, the result is another number, which would become a
constant. So the graph is traced twice with different stand-ins: a difference between the graphs shows that a number was
lost.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir.graph import Graph, Value
from ...ir.untraceable_graph import NumberLost, Untraceable
from ...ops.elementwise.python_number_operators import NUMBER, name_of, result_for_examples
from ...ops.operator_record import lookup
from ...tensors.tensor_types import NumberType
from .trace_tensor import TraceTensor

APART = 1e-7
"""Relative distance of stand-ins from their numbers: small, so that C++ makes the same decisions."""

LARGE = 1 << 40
"""Integer stand-ins are larger than any number in programs, and negative in the other trace. So if C++ accepts them as
sizes and positions, the two graphs differ."""


class NumberInputs:
    """The numbers of one trace. `salt` makes its stand-ins differ from those of the other trace."""

    def __init__(self, graph: Graph, salt: int):
        self.graph, self.salt = graph, salt
        self.known: dict[float, Value] = {}
        self.are_hidden = False
        """Whether `item()` is not traced: Python code of the program would decide by its stand-in."""

    def input(self, example: float, name: str) -> float:
        if isinstance(example, int):
            example += self.salt  # so that a type made of it, such as a size, differs in the other trace
        value = Value(NumberType.of(example), self.graph.fresh_name(name))  # type: ignore[arg-type]
        self.graph.inputs.append(value)
        return self.stand_in(value)

    def stand_in(self, value: Value) -> Any:
        example = value.type.example  # type: ignore[union-attr]
        if not math.isfinite(example):
            raise NumberLost(f"{value} is {example}")
        k = len(self.known) * 2 + self.salt + 1
        found = (
            (LARGE + 7919 * k) * (-1) ** self.salt
            if isinstance(example, int)
            else example * (1 + APART * k)
            if abs(example) > 1e-30
            else APART * k
        )
        assert found not in self.known
        self.known[found] = value
        return found

    def is_known(self, x: Any) -> bool:
        return type(x) in (float, int) and x in self.known

    def any_in(self, tree: Any) -> bool:
        if not self.known:
            return False
        if isinstance(tree, dict):
            tree = tuple(tree.values())
        if not isinstance(tree, (tuple, list)):
            return self.is_known(tree)
        # The steps of optimizers take lists of all their tensors.
        return any(type(part) is not TraceTensor and self.any_in(part) for part in tree)

    def unwrapped(self, x: Any) -> Any:
        return x if not self.known else self.known[x] if self.is_known(x) else x

    def item(self, tensor: Value, line: str | None) -> Any:
        """The result of `item()`."""
        op = lookup(torch.ops.aten._local_scalar_dense.default)
        if tensor.dtype is torch.bool or tensor.dtype.is_complex:
            raise Untraceable(f"a number of {tensor.dtype} is read")
        if self.are_hidden:
            raise Untraceable("a custom autograd function reads a number from a tensor")
        return self.stand_in(self.graph.add(op, (tensor,), {}, op.shape(tensor.type), line, "item"))  # type: ignore

    def call(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """Records arithmetic of numbers only, and returns a stand-in; None for other calls."""
        if kwargs or any(isinstance(arg, torch.Tensor) for arg in args):
            if "dropout" in getattr(target, "__name__", ""):
                raise NumberLost("dropout decides by its probability what it does")
            return None
        name = name_of(target)
        if name is None:
            return None
        operands = tuple(map(self.unwrapped, args))
        examples = [x.type.example if isinstance(x, Value) else x for x in operands]
        found = result_for_examples(target, examples)
        if type(found) not in (float, int):
            raise NumberLost(f"{name} makes something that is not a number")
        return self.stand_in(self.graph.add(NUMBER, (name, *operands), {}, NumberType.of(found)))  # type: ignore


def tensor_of_number(
    value: Any, *, dtype: torch.dtype | None = None, device: torch.device | None = None, **_: Any
) -> torch.Tensor:
    """`_to_copy` of a number. Torch makes a tensor of its Python type."""
    return torch.scalar_tensor(value, dtype=dtype or FULL[type(value)], device=device)


FULL = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtypes that hold all numbers of a Python type."""
