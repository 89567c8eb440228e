"""Asks eager whether it accepts a call: shape rules give types, and refuse less than kernels do.

    confirm(torch.ops.aten.unfold.default, (x, 0, 9, 1), {})           Untraceable if x has fewer than nine rows

Eager has run a graph for the sizes it was captured with. For any others nothing but this says that a window is not
larger than what it slides over. Kernels for tensors without data check as those with data do. Where there are none,
the kernel itself runs on zeros, if that is cheap and cannot be seen (`is_harmless`). Other calls are left to
the shape rules. Elementwise operators are not asked: shapes that can be broadcast are accepted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ...captured_graph.warnings_already_given import call_quietly
from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import OpOverload, disable_current_modes
from ...ir.graph import Value, map_values, values_in
from ...ir.infer_types import example_of, without_data
from ...ir.side_effect_free_kernels import crashes, draws, has_meta_kernel, is_of_user, warns
from ...ir.untraceable_graph import Untraceable
from ...ops.operator_record import NoRule, broadcast_shape
from ...tensors.tensor_types import TensorType
from .schema_facts import signature_of

MOST_ELEMENTS = 1 << 13
"""Of the operands and results of a kernel that runs only to see whether it does."""

ACCEPT_ALL = frozenset(
    "arange empty eye full linspace logspace ones scalar_tensor tril_indices triu_indices zeros".split()
)
"""Makers of tensors: all they could refuse is a negative size. Like ``zeros_like``, which imports much of torch if it
is called without data."""


def verify_accepted_by_eager(func: OpOverload, args: tuple, kwargs: dict[str, Any], result: Any = ()) -> None:
    """Raises Untraceable where eager raises. `args` are values of a graph, `result` is the type of the result, if it
    is new."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        return
    base = base_name(func)
    if torch.Tag.pointwise in func.tags:
        confirm_broadcast(func, args, kwargs)
    elif base in ACCEPT_ALL or base.endswith("_like") or base.startswith("new_"):
        confirm_sizes(func, args)
    elif not (draws(func) or is_of_user(func)):
        if base in ("as_strided", "as_strided_", "as_strided_copy"):
            confirm_strides(*args, **kwargs)
        if has_meta_kernel(func.name()):
            run(func, args, kwargs, True)
            return
        confirm_dims(func, args, kwargs)
        if is_harmless(func) and is_small(args, kwargs, result) and not is_dilated_up(base, args):
            run(func, args, kwargs, False)


def base_name(func: OpOverload) -> str:
    return func._schema.name.partition("::")[2]


def run(func: OpOverload, args: tuple, kwargs: dict[str, Any], is_without_data: bool) -> None:
    try:
        with disable_current_modes():  # the program's own modes must not see these calls
            if is_without_data:
                given, named = map_values((args, tuple(kwargs.values())), without_data)
                named = dict(zip(kwargs, named, strict=True))
                call_quietly(func, given, {**named, **({"device": "meta"} if named.get("device") is not None else {})})
            else:
                names = [argument.name for argument in func._schema.arguments[: len(args)]]
                given = [example_of(name, arg) for name, arg in zip(names, args, strict=True)]
                call_quietly(func, given, {name: example_of(name, arg) for name, arg in kwargs.items()})
    except Exception as error:
        reraise_from_outside(error)
        raise Untraceable(f"{func} is refused: {error}") from error


@functools.cache
def is_harmless(func: OpOverload) -> bool:
    """Whether the kernel may run on zeros. Public ones check their operands, private ones do not."""
    base = base_name(func)
    return not (func.namespace != "aten" or base.startswith("_") or "backward" in base or crashes(func) or warns(func))


def is_dilated_up(base: str, args: tuple) -> bool:
    """Whether it is a kernel that writes outside of its result, with dilation and ``ceil_mode``."""
    return base.startswith("max_pool") and len(args) > 5 and args[5] and set(args[4]) != {1}


def is_small(args: tuple, kwargs: dict[str, Any], result: Any) -> bool:
    types = [value.type for value in values_in((args, tuple(kwargs.values())))]
    results = result if isinstance(result, (tuple, list)) else (result,)
    sizes, made = ([type.numel for type in some if isinstance(type, TensorType)] for some in (types, results))
    return 0 not in sizes and sum(sizes) + sum(made) <= MOST_ELEMENTS


def confirm_broadcast(func: OpOverload, args: tuple, kwargs: dict[str, Any]) -> None:
    operands = values_in((args, tuple(kwargs.values())))
    shapes = [value.type.shape for value in operands if isinstance(value.type, TensorType)]
    try:
        shape = broadcast_shape(shapes) if shapes else ()
    except NoRule as error:
        raise Untraceable(f"{func} is refused: {error}") from error
    for at in signature_of(func).written:
        written = args[at] if isinstance(at, int) else kwargs[at]
        if written.type.shape != shape:
            raise Untraceable(f"{func} has a result of {list(shape)} for {list(written.type.shape)}")


def confirm_dims(func: OpOverload, args: tuple, kwargs: dict[str, Any]) -> None:
    """A number of the program may be a dimension."""
    x = args[0] if args else None
    if not isinstance(x, Value) or not isinstance(x.type, TensorType):
        return
    rank = max(x.type.ndim, 1)
    names = [argument.name for argument in func._schema.arguments[: len(args)]]
    for name, arg in (*zip(names, args, strict=True), *kwargs.items()):
        dims = arg if isinstance(arg, (tuple, list)) else (arg,)
        if name in ("dim", "dims") and any(type(dim) is int and not -rank <= dim < rank for dim in dims):
            raise Untraceable(f"{func} of dimension {arg}, and there are {rank}")


def confirm_sizes(func: OpOverload, args: tuple) -> None:
    for argument, arg in zip(func._schema.arguments, args, strict=False):
        sizes = arg if isinstance(arg, (tuple, list)) else (arg,)
        if argument.name in ("size", "n", "m") and any(type(size) is int and size < 0 for size in sizes):
            raise Untraceable(f"{func} of a negative size")


def confirm_strides(
    x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None, **_: Any
) -> None:
    """Tensors without data have memory without end. Here it ends with the last element."""
    last = (storage_offset or 0) + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    end = sum((n - 1) * step for n, step in zip(x.type.shape, x.type.stride, strict=True))
    if min(size, default=1) > 0 and last > end:
        raise Untraceable(f"as_strided reads {last - end} elements behind a tensor")
