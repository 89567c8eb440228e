"""Live scalars in a graph: results of `item()` and Python arithmetic on them.

    step = aten._local_scalar_dense.default t           : number f64
    p    = number 'operator.pow', 0.9, step             : number f64
    y    = aten.mul.Tensor x, p

The driver computes them exactly as Python does, and kernels read them.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tensors.tensor_types import NumberType, TensorType
from ..operator_record import NoRule, Op, record, shape

NUMBER: Op = record("number")
ITEM = "aten._local_scalar_dense.default"
MODULES = {"operator": operator, "math": math, "builtins": builtins}
BUILTINS = ("abs", "min", "max", "float", "int", "round", "pow")


def name_of(function: Any) -> str | None:
    """The name that a graph uses for a function of numbers; None if the function is not supported."""
    module = {"_operator": "operator"}.get(found := getattr(function, "__module__", None) or "", found)
    name = getattr(function, "__name__", "")
    if module not in MODULES or module == "builtins" and name not in BUILTINS:
        return None
    return f"{module}.{name}" if getattr(MODULES[module], name, None) is function else None


def function_of(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(".")
    return getattr(MODULES[module], function)


def result_for_examples(function: Callable[..., Any], operands: Sequence[int | float]) -> Any:
    """The result for some numbers, whose type it has for all. `math.sqrt(1 - x)` may have none for these."""
    try:
        return function(*operands)
    except (ValueError, ArithmeticError):
        if getattr(function, "__module__", None) != math.__name__ and function is not operator.truediv:
            raise
        return SOME


SOME = 1.5


@shape("number")
def number(name: str, *operands: int | float) -> NumberType:
    return NumberType.of(result_for_examples(function_of(name), operands))


@shape("aten._local_scalar_dense.default")
def item(x: TensorType) -> NumberType:
    if x.dtype is torch.bool or x.dtype.is_complex:
        raise NoRule(f"a number of {x.dtype}")
    return NumberType.of(1.5 if x.dtype.is_floating_point else 3)
