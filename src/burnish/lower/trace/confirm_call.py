"""Asks eager whether it accepts a call: shape rules give types, and refuse less than kernels do.

    confirm(torch.ops.aten.unfold.default, (x, 0, 9, 1), {})           Untraceable if x has fewer than nine rows

Eager has run a graph for the sizes it was captured with. For any others nothing but this says that a window is not
larger than what it slides over. Kernels for tensors without data check as those with data do. Where there are none,
the kernel itself runs on zeros, if they are few.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from ...ir.graph import Value, map_values, values_in
from ...ir.infer_types import example_of
from ...ir.untraceable_graph import Untraceable
from ...tensors.tensor_types import NumberType

MOST_ELEMENTS = 1 << 16
"""Of the operands of a kernel that runs only to see whether it does."""


def confirm(func: OpOverload, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raises Untraceable where eager raises. `args` are values of a graph."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        return
    if func.name().startswith("aten::as_strided") and func.name() != "aten::as_strided_scatter":
        confirm_strides(*args, **kwargs)
    is_without_data = has_meta_kernel(func.name())
    if not is_without_data and elements_of((args, tuple(kwargs.values()))) > MOST_ELEMENTS:
        return
    try:
        with _disable_current_modes():  # the program's own modes must not see these calls
            if is_without_data:
                given, named = map_values((args, tuple(kwargs.values())), without_data)
                named = dict(zip(kwargs, named, strict=True))
                func(*given, **{**named, **({"device": "meta"} if named.get("device") is not None else {})})
            else:
                names = [argument.name for argument in func._schema.arguments[: len(args)]]
                given = [example_of(name, arg) for name, arg in zip(names, args, strict=True)]
                with torch.random.fork_rng(devices=[]):
                    func(*given, **{name: example_of(name, arg) for name, arg in kwargs.items()})
    except Exception as error:
        raise Untraceable(f"{func} is refused: {error}") from error


def confirm_strides(
    x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None, **_: Any
) -> None:
    """Tensors without data have memory without end. Here it ends with the last element."""
    last = (storage_offset or 0) + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    end = sum((n - 1) * step for n, step in zip(x.type.shape, x.type.stride, strict=True))
    if min(size, default=1) > 0 and last > end:
        raise Untraceable(f"as_strided reads {last - end} elements behind a tensor")


@functools.cache
def has_meta_kernel(name: str) -> bool:
    """Whether a call without data runs in C++. Kernels that torch has in Python import Dynamo, which takes seconds."""
    kernels = dict(line.split(": ", 1) for line in torch._C._dispatch_dump(name).splitlines() if ": " in line)
    meta = kernels.get("Meta")
    return "CompositeExplicitAutograd[alias]" in kernels if meta is None else ".py:" not in meta


def elements_of(tree: Any) -> int:
    """How many elements there are, counting a number among the arguments as that many of the result."""
    return sum(value.type.numel for value in values_in(tree)) + max(
        (part for part in flat(tree) if type(part) is int), default=0
    )


def flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in flat(part)] if isinstance(tree, (tuple, list)) else [tree]


def without_data(value: Value) -> Any:
    if isinstance(value.type, NumberType):
        return value.type.example
    return torch.empty_strided(value.type.shape, value.type.stride, dtype=value.type.dtype, device="meta")
