"""Result types of operators that are registered from Python, as capture has observed them.

    note(op, (x, 2.0), {}, y)                                   capture: the program has called it
    types_of_result(op, (TensorType.of(x), 2.0), {})            compiler: f32[3], without a run on an example

Such an operator may print or count. So the compiler runs it only if nothing was seen: in other sizes, or in another
process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..foundation.torch_private import OpOverload
from ..tensors.dtypes import NAMES
from ..tensors.tensor_types import TensorType

MOST = 1000
PLAIN = frozenset((int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, TensorType))

_seen: dict[Any, Any] = {}


def note(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    key = call_key(operator, args, kwargs)
    types = type_of(result) if key is not None else None
    if types is not None:
        if len(_seen) >= MOST:
            _seen.clear()
        _seen[key] = types


def types_of_result(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The type of the result, a tuple of types, or None if nothing is known."""
    return _seen.get(call_key(operator, args, kwargs)) if _seen else None


def call_key(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The operator and its arguments by name, without defaults; None if one is not a constant."""
    operator = getattr(operator, "default", operator)
    if not isinstance(operator, OpOverload):
        return None
    parameters = operator._schema.arguments
    if len(args) > len(parameters):
        return None
    given = {parameter.name: value for parameter, value in zip(parameters, args, strict=False)} | dict(kwargs)
    defaults = {parameter.name: parameter.default_value for parameter in parameters if parameter.has_default_value()}
    try:
        named = {name: constant(value) for name, value in given.items()}
    except TypeError:
        return None
    kept = {name: value for name, value in named.items() if name not in defaults or value != constant(defaults[name])}
    return operator, tuple(sorted(kept.items()))


def constant(value: Any) -> Any:
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        return TensorType.of(value)
    if kind in (list, tuple):
        return tuple(map(constant, value))
    if kind in PLAIN:
        return value
    raise TypeError(kind)


def type_of(result: Any) -> Any:
    """None where the compiler has to say why it cannot compile the call."""
    if isinstance(result, (list, tuple)):
        types = tuple(map(type_of, result))
        return None if None in types else types
    if type(result) is not torch.Tensor or result.layout is not torch.strided or result.dtype not in NAMES:
        return None
    return TensorType.of(result)
