"""Type inference for operator results: by the shape rule, or by running the eager kernel on an example.

>>> result_types(lookup(torch.ops.aten.mm.default), (x, y), {})
f32[2, 4]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..captured_graph.observed_custom_operator_types import types_of_result
from ..captured_graph.warnings_already_given import call_quietly
from ..concurrency.outside_errors import reraise_from_outside
from ..foundation.torch_private import OpOverload, disable_current_modes, dispatch_has_kernel_for_dispatch_key
from ..ops import import_all_operators  # noqa: F401  (fills the records)
from ..ops.operator_record import NoRule, Op, lookup
from ..tensors.device_facts import CPU
from ..tensors.dtypes import NAMES
from ..tensors.tensor_types import NumberType, TensorType
from .frozen_values import is_attention_without_dropout
from .graph import Value, map_values, types_of, values_in
from .side_effect_free_kernels import PIVOTS, crashes, draws, is_of_user, place_of_generator, warns, with_own_generator
from .untraceable_graph import Untraceable


def result_types(op: Op, args: tuple, kwargs: dict) -> Any:
    """The type of the result, or a tuple of types: None for a missing result, the number for a result that is one."""
    if op.shape is not None and not (isinstance(op.target, OpOverload) and asks_kernel(op.target, args)):
        try:
            return op.shape(*types_of(args), **{name: types_of(arg) for name, arg in kwargs.items()})
        except NoRule:
            pass
    return probed_types(op.target, args, kwargs)


def types_without_data(func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """The same of an overload, for all data: what a kernel of the user's has returned once does not count."""
    if torch.Tag.data_dependent_output in func.tags:
        raise Untraceable(f"what {func} returns depends on data")
    return types_of_user(func, args, kwargs) if is_of_user(func) else result_types(lookup(func), args, kwargs)


def asks_kernel(func: OpOverload, args: tuple) -> bool:
    """Whether a tensor has no elements. Many kernels refuse to reduce one, which no shape rule says."""
    return has_empty_operand(args) and not (draws(func) or crashes(func) or warns(func))


def has_empty_operand(args: tuple) -> bool:
    return any(isinstance(value, Value) and 0 in value.type.shape for value in args)


def probed_types(func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Run the eager kernel on tensors of zeros (ones for pivots) and read the type of its result, unless the trace has
    seen one. Kernels of the user's never run: theirs for tensors without data does."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        raise Untraceable(f"the shape of {func}'s result depends on data")
    observed = types_of_result(func, types_of(args), {name: types_of(arg) for name, arg in kwargs.items()})
    if observed is not None:
        return observed
    if is_of_user(func):
        return types_of_user(func, args, kwargs)
    generator = place_of_generator(func)
    if draws(func) and generator is None and not is_attention_without_dropout(func, args, kwargs):
        raise Untraceable(f"{func} draws from the generator of the program")
    if crashes(func) and has_empty_operand(args):
        raise Untraceable(f"{func} with an empty operand")
    names = [argument.name for argument in func._schema.arguments[: len(args)]]
    given = [example_of(name, arg) for name, arg in zip(names, args, strict=True)]
    named = {name: example_of(name, arg) for name, arg in kwargs.items()}
    if generator is not None:
        given, named = with_own_generator(func, given, named, generator, device_of(args, kwargs))
    return types_answered(func, given, named, None)


def types_of_user(func: OpOverload, args: tuple, kwargs: dict) -> Any:
    if not dispatch_has_kernel_for_dispatch_key(func.name(), "Meta"):
        raise Untraceable(f"no function is registered that computes the result types of {func}")
    given, named = map_values((args, tuple(kwargs.values())), without_data)
    with disable_current_modes():  # the program's own modes must not see this call
        return types_answered(func, given, dict(zip(kwargs, named, strict=True)), device_of(args, kwargs))


def types_answered(func: OpOverload, given: Sequence[Any], named: dict[str, Any], device: torch.device | None) -> Any:
    try:
        found = call_quietly(func, given, named)
    except Exception as error:
        reraise_from_outside(error)
        raise Untraceable(f"{func} cannot be asked for its result's type: {error}") from error
    if isinstance(found, torch.Tensor):
        return type_of(found, device)
    return tuple(part if isinstance(part, int) else type_of(part, device) for part in found)


def device_of(args: tuple, kwargs: dict) -> torch.device:
    """That of the operands with dimensions, or of all."""
    devices = {
        (value.type.ndim > 0, value.type.device)
        for value in values_in((args, tuple(kwargs.values())))
        if isinstance(value.type, TensorType)
    }
    found = {device for has_dimensions, device in devices if has_dimensions} or {device for _, device in devices}
    if len(found) > 1:
        raise Untraceable("operands on several devices")
    return found.pop() if found else torch.device(kwargs.get("device") or CPU)


def example_of(name: str, arg: Any) -> Any:
    """A concrete argument of the same type that the eager kernel accepts under this name."""
    number = 1 if name in PIVOTS else 0
    return map_values(arg, lambda value: filled(value.type, number))


def without_data(value: Value) -> Any:
    if isinstance(value.type, NumberType):
        return value.type.example
    return torch.empty_strided(value.type.shape, value.type.stride, dtype=value.type.dtype, device="meta")


def type_of(tensor: torch.Tensor | None, device: torch.device | None = None) -> TensorType | None:
    """With `device`, that of a tensor that would have been there, had it data."""
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor):
        raise Untraceable(f"an operator with a {type(tensor).__name__} among its results")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise Untraceable(f"a tensor of the layout {tensor.layout}")
    if tensor.dtype not in NAMES:
        raise Untraceable(f"a tensor of {tensor.dtype}")
    found = TensorType.of(tensor)
    return found if device is None or found.device.type != "meta" else replace(found, device=device)


def filled(type: TensorType | NumberType, number: int) -> torch.Tensor | int | float:
    if isinstance(type, NumberType):
        return type.example
    return torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device).fill_(number)
