"""Type inference for operator results: by the shape rule, or by running the eager kernel on an example.

>>> result_types(lookup(torch.ops.aten.mm.default), (x, y), {})
f32[2, 4]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from ..ops import import_all_operators  # noqa: F401  (fills the records)
from ..ops.operator_record import NoRule, Op
from ..tensors.dtypes import NAMES
from ..tensors.observed_library_results import types_of_result
from ..tensors.tensor_types import NumberType, TensorType
from .graph import Value, map_values, types_of, values_in
from .untraceable_graph import Untraceable


def result_types(op: Op, args: tuple, kwargs: dict) -> Any:
    """The type of the result, or a tuple of types: None for a missing result, the number for a result that is one."""
    if op.shape is not None and not (isinstance(op.target, OpOverload) and has_empty_operand(args)):
        try:
            return op.shape(*types_of(args), **{name: types_of(arg) for name, arg in kwargs.items()})
        except NoRule:
            pass
    return probed_types(op.target, args, kwargs)


def has_empty_operand(args: tuple) -> bool:
    """Whether a tensor has no elements. Many kernels refuse to reduce one, which no shape rule says."""
    return any(isinstance(value, Value) and 0 in value.type.shape for value in args)


def probed_types(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Run the eager kernel on tensors of zeros (ones for pivots) and read the type of its result, unless the trace has
    seen one."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:  # type: ignore
        raise Untraceable(f"the shape of {func}'s result depends on data")
    observed = types_of_result(func, types_of(args), {name: types_of(arg) for name, arg in kwargs.items()})
    if observed is not None:
        return observed
    gpus = {
        value.type.device.index or 0
        for value in values_in((args, tuple(kwargs.values())))
        if value.type.device.type == "cuda"
    }
    with torch.random.fork_rng(devices=gpus, device_type="cuda"):
        names = [argument.name for argument in func._schema.arguments[: len(args)]]
        given = [example_of(name, arg) for name, arg in zip(names, args, strict=True)]
        try:
            found = func(*given, **{name: example_of(name, arg) for name, arg in kwargs.items()})
        except Exception as error:
            raise Untraceable(f"{func} cannot be asked for its result's type: {error}") from error
    if isinstance(found, torch.Tensor):
        return type_of(found)
    return tuple(part if isinstance(part, int) else type_of(part) for part in found)


PIVOTS = ("pivots", "LU_pivots")
"""Arguments with row numbers from one. `linalg.ldl_solve` of torch 2.11 does not check them, and zeros would make it
write before the first row. Later versions and other kernels raise."""


def example_of(name: str, arg: Any) -> Any:
    """A concrete argument of the same type that the eager kernel accepts under this name."""
    number = 1 if name in PIVOTS else 0
    return map_values(arg, lambda value: filled(value.type, number))


def type_of(tensor: torch.Tensor | None) -> TensorType | None:
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor):
        raise Untraceable(f"an operator that answers a {type(tensor).__name__} among others")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise Untraceable(f"a tensor of the layout {tensor.layout}")
    if tensor.dtype not in NAMES:
        raise Untraceable(f"a tensor of {tensor.dtype}")
    return TensorType.of(tensor)


def filled(type: TensorType | NumberType, number: int) -> torch.Tensor | int | float:
    if isinstance(type, NumberType):
        return type.example
    return torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device).fill_(number)
