"""Burnish's own operators in eager torch, one at a time: for those that are not part of a kernel."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from ...foundation.torch_private import is_alias_of
from ...tensors.quantized_linear_reference import quantized_linear
from . import ctc_loss, eager_philox, recurrent_layers


def view(x: torch.Tensor, maps: Sequence[Any]) -> torch.Tensor:
    """A copy of the view that `maps` make of x. The maps are matched by name, so that this does not import the
    compiler."""
    for step in maps:
        match type(step).__name__:
            case "Reshape":
                x = x.reshape(step.shape)
            case "Permute":
                x = x.permute(step.dims)
            case "Expand":
                x = x.expand(step.shape)
            case "Slice":
                last = step.start + step.step * (step.size - 1)
                if step.step > 0:
                    x = x.narrow(step.dim, step.start, max(last + 1 - step.start, 0))[
                        (slice(None),) * step.dim + (slice(None, None, step.step),)
                    ]
                else:
                    x = x.narrow(step.dim, last, step.start + 1 - last).flip(step.dim)[
                        (slice(None),) * step.dim + (slice(None, None, -step.step),)
                    ]
            case "Diagonal":
                x = x.diagonal(step.shift, step.a, step.b).narrow(-1, 0, step.size)
    return x


def put(x: torch.Tensor, value: torch.Tensor, maps: Sequence[Any]) -> torch.Tensor:
    made = x.clone()
    shown = view(made, maps)
    if is_alias_of(made, shown):
        shown.copy_(value)
        return made
    # Its layout differs from eager's, so torch had to copy where no view is possible: write to the original positions.
    places = view(torch.arange(x.numel(), device=x.device).view(x.shape), maps)
    return made.copy_(x.flatten().index_put((places,), value.expand(places.shape)).view(x.shape))


def convert(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype, copy=True)


def restride(x: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device).copy_(x)


def reduce_sum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return x.sum(dims, keepdim=True, dtype=x.dtype) if dims else x.clone()


def reduce_prod(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in dims:
        x = x.prod(dim, keepdim=True, dtype=x.dtype)
    return x if dims else x.clone()


def reduce_max(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    if _is_over_nothing(x, dims):
        return x.new_full(_kept_shape(x, dims), -torch.inf if x.is_floating_point() else _limits(x).min)
    return x.amax(dims, keepdim=True) if dims else x.clone()


def reduce_min(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    if _is_over_nothing(x, dims):
        return x.new_full(_kept_shape(x, dims), torch.inf if x.is_floating_point() else _limits(x).max)
    return x.amin(dims, keepdim=True) if dims else x.clone()


def reduce_any(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return torch.any(x, dim=dims, keepdim=True) if dims else x.clone()


def reduce_all(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return torch.all(x, dim=dims, keepdim=True) if dims else x.clone()


def reduce_argmax(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return _position(torch.argmax, x, dims)


def reduce_argmin(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return _position(torch.argmin, x, dims)


def running_sum(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.cumsum(dim, dtype=x.dtype)


def running_prod(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.cumprod(dim, dtype=x.dtype)


def running_max(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.cummax(dim).values


def running_min(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.cummin(dim).values


def running_argmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.cummax(dim).indices


def running_argmin(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.cummin(dim).indices


def _position(find: Any, x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    shape = _kept_shape(x, dims)
    if x.numel() == 0:
        return torch.zeros(shape, dtype=torch.int64, device=x.device)
    rest = [k for k in range(x.ndim) if k not in dims]
    flat = x.permute(*rest, *dims).reshape(*(x.shape[k] for k in rest), -1)
    return find(flat, -1).reshape(shape)


def _kept_shape(x: torch.Tensor, dims: tuple[int, ...]) -> list[int]:
    return [1 if k in dims else n for k, n in enumerate(x.shape)]


def _is_over_nothing(x: torch.Tensor, dims: tuple[int, ...]) -> bool:
    """Then a reduction returns its identity, where torch raises."""
    return any(x.shape[k] == 0 for k in dims)


def _limits(x: torch.Tensor) -> torch.iinfo:
    return torch.iinfo(torch.uint8 if x.dtype is torch.bool else x.dtype)


def check(wrong: torch.Tensor, name: str, args: tuple, kwargs: Sequence[tuple[str, Any]], about: tuple) -> None:
    """If data is wrong, the operator itself raises, such as "aten.index.Tensor". Before its arguments are computed,
    this check raises."""
    if not wrong.item():
        return
    if args:
        operator: Any = torch.ops
        for part in name.split("."):
            operator = getattr(operator, part)
        operator(*args, **dict(kwargs))
    match about[0]:
        case "in_range":
            raise IndexError(f"{name}: an index is out of range")
        case "not_zero":
            raise RuntimeError("ZeroDivisionError")
        case _:
            raise RuntimeError(f"{name}: a probability is not in 0 … 1")


def number(name: str, *operands: float) -> float:
    """Arithmetic on Python numbers: `operator.pow`, `math.sqrt`."""
    module, _, function = name.partition(".")
    return getattr(MODULES[module], function)(*operands)


def held(x: torch.Tensor, after: Any) -> torch.Tensor:
    return x


MODULES = {"operator": operator, "math": math, "builtins": builtins}
FUNCTIONS = {
    "number": number,
    "view": view,
    "put": put,
    "convert": convert,
    "restride": restride,
    "sum": reduce_sum,
    "prod": reduce_prod,
    "max": reduce_max,
    "min": reduce_min,
    "any": reduce_any,
    "all": reduce_all,
    "argmax": reduce_argmax,
    "argmin": reduce_argmin,
    "running_sum": running_sum,
    "running_prod": running_prod,
    "running_max": running_max,
    "running_min": running_min,
    "running_argmax": running_argmax,
    "running_argmin": running_argmin,
    "check": check,
    "held": held,
    "quantized_linear": quantized_linear,
    **ctc_loss.FUNCTIONS,
    **recurrent_layers.FUNCTIONS,
    **eager_philox.FUNCTIONS,
}
