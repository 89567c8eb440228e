"""Arguments for element-wise operators, made from their schemas: special values, dtypes, layouts.

>>> next(calls_of(torch.ops.aten.leaky_relu.default, special_values, torch.float32))
(tensor([0.0, -0.0, 1.0, ...]), 0.5), {}
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

INF, NAN = math.inf, math.nan

NUMBERS: dict[str, list] = {
    "other": [2, 0, 1, 3, -3, 7, 0.1, -2.5, INF, -INF, NAN, 1000],
    "exponent": [2, 0, 1, 3, 0.5, -0.5, -1, -2, 1.7, -3, 5, 8, 0.0, INF, -INF, NAN, -1.3],
    "self": [2, 1, -1, -2.0, 0.5, 0.1, INF, NAN, -0.0],
    "min": [0, None, 0.3, -INF, INF, NAN, -0.0, 3, -2],
    "max": [1, None, 0, INF, -INF, NAN, 0.7, 2],
    "value": [1, 0, 0.3, -2, INF, NAN, 5, 2],
    "weight": [0.25, 0.5, 0.49, 0.0, 1.0, -1.3, 2.0, 0.7],
    "decimals": [1, 0, 2, -1, 3, 8],
    "threshold": [0, 0.1, 20, -1],
    "alpha": [1, 2, 0.3, -1, 0],
    "scale": [1, 1.3],
    "input_scale": [1, 0.7],
    "is_result": [False, True],
    "self_is_result": [False],
    "beta": [1, 0.3, 2],
    "delta": [1.0, 0.4],
    "lambd": [0.5, 0.1, 0.0],
    "eps": [None, 1e-3, 0.1, 0.0],
    "rounding_mode": ["floor", None, "trunc"],
    "approximate": ["none", "tanh"],
    "negative_slope": [0.5, 0.01, 0.0, -0.2],
    "min_val": [0, 0.1, -1],
    "max_val": [1, 6, 0.3],
    "nan": [None, 3.0],
    "posinf": [None, 5.0],
    "neginf": [None, -5.0],
    "reduction": [0, 2],
}
"""By the argument's name; the first one goes with all dtypes and layouts."""

BOOL_TENSORS = {"condition", "mask"}
NUMBER_TENSORS = {("masked_fill", "value"), ("fill", "value")}
"""Tensors that must have no dimensions."""

HALF_EMPTY = {"weight", "pos_weight"}
"""Optional tensors that are left out."""

INTEGER_OPERATORS = ("bitwise", "shift", "gcd", "lcm", "__")
ONE_DTYPE = ("gelu_backward",)
"""Eager's library kernel reads past the end of operands that differ in shape."""


def arguments(
    func: Any, tensor: Callable[[str], torch.Tensor], numbers: dict[str, Any] | None = None
) -> tuple[tuple, dict[str, Any]]:
    """A call of an overload: `tensor(name)` makes its tensors, `numbers` are the others if not the first of NUMBERS."""
    args, kwargs = [], {}
    for argument in func._schema.arguments:
        name, kind = argument.name, str(argument.type)
        if kind == "Tensor" or (kind == "Optional[Tensor]" and name not in HALF_EMPTY):
            value = tensor(name)
        elif kind == "Optional[Tensor]":
            value = None
        elif numbers is not None and name in numbers:
            value = numbers[name]
        elif argument.has_default_value() and (argument.kwarg_only or name not in NUMBERS):
            value = argument.default_value
        else:
            value = NUMBERS[name][0]
        if argument.kwarg_only:
            kwargs[name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def tensor_names(func: Any) -> list[str]:
    return [
        a.name
        for a in func._schema.arguments
        if str(a.type) == "Tensor" or (str(a.type) == "Optional[Tensor]" and a.name not in HALF_EMPTY)
    ]


def number_choices(func: Any) -> Iterator[dict[str, Any]]:
    """Each number in turn through all its values, the others staying; pairs of bounds together."""
    names = [a.name for a in func._schema.arguments if a.name in NUMBERS and "Tensor" not in str(a.type)]
    if len(names) <= 2:
        for chosen in itertools.product(*(NUMBERS[name] for name in names)):
            if not (None in chosen and func._opname in ("clamp_min", "clamp_max")):
                yield dict(zip(names, chosen, strict=True))
        return
    first = {name: NUMBERS[name][0] for name in names}
    yield first
    for name in names:
        yield from ({**first, name: value} for value in NUMBERS[name][1:])


# -- special values ----------------------------------------------------------------------------------------------------


def special_calls(func: Any, dtype: torch.dtype) -> Iterator[tuple[tuple, dict[str, Any]]]:
    """All combinations of special values, with each choice of numbers."""
    names = tensor_names(func)
    columns = combinations(
        [special_values(func, torch.bool if name in BOOL_TENSORS else dtype, len(names)) for name in names]
    )
    given = dict(zip(names, columns, strict=True))
    for name in names:
        if (func._opname, name) in NUMBER_TENSORS:
            given[name] = given[name][3]
    for numbers in number_choices(func):
        yield arguments(func, given.__getitem__, numbers)


def special_values(func: Any, dtype: torch.dtype, operands: int) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        found: list = [0, 1, 2, 3, 5, 7, 8, 31, 63, info.max, info.max - 1, info.min + 1]
        found += [-1, -2, -3, -7, -8] if info.min else [200, 254]
        if "div" not in func._opname:  # the smallest one divided by -1 stops the process
            found.append(info.min)
    else:
        info = torch.finfo(dtype)
        smallest = info.smallest_normal * info.eps
        found = [0.0, 1.0, 0.5, 0.1, 2.5, 1.5, 3.0, 3.1, 7.3, 20.5, 100.0, 1e4, INF, 0.75]
        if func._opname not in ("remainder", "fmod"):  # torch's vectorized ones give NaN where the quotient is huge
            found += [info.max, info.tiny, smallest]
        found = [sign * x for x in found for sign in (1, -1)]
        found += [NAN, 6.0, info.eps, 1 - info.eps, 1 + info.eps, 0.25, math.pi, 1e-3, 0.999]
    return torch.tensor(found if operands < 3 else found[::3] + found[-1:], dtype=dtype)


def combinations(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """All of all, as columns that fill whole vectors: eager's plain code for the rest differs now and then."""
    grids = torch.meshgrid(*(torch.arange(len(x)) for x in values), indexing="ij")
    columns = [x[grid.reshape(-1)] for x, grid in zip(values, grids, strict=True)]
    missing = -len(columns[0]) % 64
    return [torch.cat([column, column[:1].expand(missing)]) for column in columns]


# -- dtypes and layouts ------------------------------------------------------------------------------------------------


def dtype_calls(func: Any, dtypes: Sequence[torch.dtype]) -> Iterator[tuple[tuple, dict[str, Any]]]:
    """The first tensor of each dtype with the others of each."""
    names = tensor_names(func)
    counted = [name for name in names if name not in BOOL_TENSORS]
    for first, others in itertools.product(dtypes, dtypes):
        if len(counted) < 2 and first is not others:
            continue

        def ones(name: str) -> torch.Tensor:
            dtype = torch.bool if name in BOOL_TENSORS else first if name == counted[0] else others
            return torch.ones(() if (func._opname, name) in NUMBER_TENSORS else 3, dtype=dtype)

        for choice in (
            None,
            {
                name: float(values[0])
                for name, values in NUMBERS.items()
                if type(values[0]) is int and name not in ("decimals", "reduction")
            },
        ):
            yield arguments(func, ones, choice)


def layout_calls(func: Any, every: int = 1) -> Iterator[tuple[tuple, dict[str, Any]]]:
    """All combinations of layouts of the tensors, or a fraction of them."""
    names = tensor_names(func)
    dtype = torch.int64 if any(part in func._opname for part in INTEGER_OPERATORS) else torch.float32
    kinds = [list(layouts(torch.bool if name in BOOL_TENSORS else dtype)) for name in names]
    for number, chosen in enumerate(itertools.product(*kinds)):
        is_one_shape = len({tensor.shape for tensor in chosen}) == 1
        if not is_one_shape and (number % (every if len(names) < 3 else 41 * every) or func._opname in ONE_DTYPE):
            continue
        yield arguments(func, dict(zip(names, chosen, strict=True)).__getitem__)


def layouts(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    def of(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype)

    yield of()
    yield of(1)
    yield of(3, 4, 5)
    yield of(2, 3, 4, 5)
    yield of(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield of(2, 3, 5, 4).transpose(2, 3)
    yield of(5, 4, 3, 2).permute(3, 2, 1, 0)
    yield of(2, 3, 4, 10)[..., ::2]
    # broadcast
    yield of(3, 1, 5)
    yield of(3, 1, 1).expand(3, 4, 5)
    yield of(2, 3, 4, 1).expand(2, 3, 4, 5)
    yield of().expand(2, 3, 4, 5)
    yield of(1, 4)
    yield of(4, 1).t()
    # dimensions of one element
    yield of(2, 1, 4, 5).to(memory_format=torch.channels_last)
    yield of(1, 3, 4, 5).to(memory_format=torch.channels_last)
    yield of(2, 3, 1, 1).to(memory_format=torch.channels_last)
    yield of(2, 1, 1, 3).permute(0, 3, 1, 2)
    # no elements
    yield of(0, 1, 3)
    yield of(3, 0).t()
    yield of(0, 3, 4, 5).to(memory_format=torch.channels_last)
