"""``torch.vmap`` over other objects than tensors: torch's own Python is interpreted, down to its native calls.

    torch.vmap(call, (0, None))(params, x)        params: a TensorDict, or another object that has parts of its own

Torch takes such arguments apart and makes them again from batched tensors, by functions of the program: those that are
registered as nodes of trees, or put in the place of torch's own, as tensordict does. So they have to be interpreted:
what they read is guarded, and what they make is known to the trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

import torch

from ....foundation.torch_private import (
    add_batch_dim,
    get_dynamic_layer_stack_depth,
    is_batchedtensor,
    pop_dynamic_layer_stack,
    remove_batch_dim,
)
from ...interpreter.frames import MISSING, cell_value
from ...python.operators import guard_before_native_read
from ..opaque_nodes import IMMEDIATE
from .native_callbacks import call_nested

NATIVE, INTERPRETED = "torch._functorch.predispatch", "torch._functorch.vmap"
"""The modules of torch's that `vmap` is made of."""


def is_needed(function: FunctionType, args: tuple) -> bool:
    """Whether ``function`` is ``vmap(f)``, and takes one of the arguments apart by functions of the program."""
    if function.__code__.co_qualname != "vmap.<locals>.wrapped":
        return False
    dims = next(cell_value(cell) for name, cell in named_cells(function) if name == "in_dims")
    return any(
        has_other_parts(value, dims[place] if type(dims) is tuple and place < len(dims) else dims)
        for place, value in enumerate(args)
    )


def has_other_parts(value: Any, dim: Any) -> bool:
    kind = type(value)
    if kind in (tuple, list):
        return any(has_other_parts(part, dim) for part in value)
    if kind is dict:
        return any(has_other_parts(part, dim) for part in value.values())
    if issubclass(kind, (torch.Tensor, *IMMEDIATE)):
        return False
    return dim is not None or not callable(value)


def named_cells(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def run(region: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """Call ``vmap(f)`` in a region. What leaves it early leaves the levels of its own as well."""
    depth = get_dynamic_layer_stack_depth()
    held = {name: region.held_by(cell) for name, cell in named_cells(function)}
    given = [held[name] for name in ("func", "in_dims", "out_dims", "randomness", "chunk_size")]
    outer, region.lowered.current = region.lowered.current, None
    try:
        return call_nested(region.m, function.__globals__["vmap_impl"], (*given, *args), kwargs)
    except BaseException:
        while get_dynamic_layer_stack_depth() > depth:  # one by one: at once, PyTorch 2.11 pops one too many
            pop_dynamic_layer_stack()
        raise
    finally:
        region.lowered.current = outer


def is_part(m: Any, function: FunctionType) -> bool:
    """Whether it is a function of torch's that `vmap_impl` calls, in a region."""
    return is_lowered(m) and function.__globals__["__name__"] in (NATIVE, INTERPRETED)


def is_lowered(m: Any) -> bool:
    return getattr(m.region, "lowers", False)


def call(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """MISSING if the function is interpreted."""
    return call_native(function, m, args, kwargs) if function.__globals__["__name__"] == NATIVE else MISSING


def call_native(function: Callable, m: Any, args: tuple, kwargs: dict) -> Any:
    if not is_lowered(m):
        return MISSING
    guard_before_native_read.settle_all(m, (args, kwargs))
    value = m.plainly(function, *args, **kwargs)
    m.region.meet(value)
    return value


HANDLERS = {
    function: functools.partial(call_native, function)
    for function in (add_batch_dim, remove_batch_dim, is_batchedtensor)
}
