"""Collectives in the graph: functional operators of torch.distributed, and in-place calls rewritten to them.

    dist.all_reduce(y)               y.copy_(wait_tensor(all_reduce(y, "sum", group)))

A trace runs on the program's tensors, so each rank communicates once in it, as in every later call. A group is guarded
by identity; its rank, size and names are constants. Calls without a functional form are breaks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ...runtime.argument_trees import tensors_in
from .. import breaks
from ..interpreter.frames import MISSING
from ..python.operators import guard_before_native_read
from ..python.polyfills import object_polyfills
from . import opaque_nodes

IN_PLACE = {
    "all_reduce": "all_reduce_inplace",
    "all_gather": "all_gather_inplace",
    **dict.fromkeys("all_gather_into_tensor all_gather_single _all_gather_base".split(), "all_gather_tensor_inplace"),
    **dict.fromkeys(
        "reduce_scatter_tensor reduce_scatter_single _reduce_scatter_base".split(), "reduce_scatter_tensor_inplace"
    ),
    "all_to_all_single": "all_to_all_inplace",
}
"""In-place calls, and torch's functions that do the same by functional operators and a copy."""


def call_in_place(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A call through the wrapper that logs each in-place collective."""
    rewritten = functional_form(function, args, kwargs)
    if rewritten is None:
        return m.stop(breaks.COLLECTIVE_CALL, f"{function.__qualname__}()")
    return m.call(object_polyfills.call_for_effect, rewritten, {})


def functional_form(function: Any, args: tuple, kwargs: dict) -> tuple[Callable, dict[str, Any]] | None:
    """The function and the arguments that take the place of an in-place call; None if nothing does."""
    name = IN_PLACE.get(function.__name__)
    if name is None or getattr(torch.distributed, function.__name__, None) is not function:
        return None
    from ...foundation.torch_private import functional_collectives as functional

    given = inspect.signature(function).bind(*args, **kwargs).arguments
    if given.pop("async_op", False) or torch.is_grad_enabled() and any(x.requires_grad for x in tensors_in(given)):
        return None  # a handle that the program waits for; or a write that eager's autograd does not see
    if "op" in given:
        given["op"] = functional.REDUCE_OP_TO_STR.get(given["op"])
        if given["op"] is None:
            return None
    if any(x.shape != given["tensor"].shape for x in given.get("tensor_list", ())):
        return None
    return getattr(functional, name), given


def call_functional(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """Functional collectives are interpreted. In a trace they wait at once, and return no class of their own."""
    return True if function.__name__ == "_are_we_tracing" else MISSING


DIFFERENTIABLE = "torch.distributed.nn.functional"
WITHOUT_WRITES = frozenset("_AllReduce _AllGather _Broadcast _Gather _Scatter _Reduce".split())
"""Its autograd functions that write to none of their arguments."""


def apply(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """``_AllReduce.apply(op, group, tensor)``: a node of its tensors, with the group and the operation in it."""
    places = [k for k, value in enumerate(args) if isinstance(value, torch.Tensor)]
    if kwargs or function.__name__ not in WITHOUT_WRITES or not places:
        return MISSING
    for value in args:
        origin = None if isinstance(value, torch.Tensor) else m.heap.origin_of(value)
        if origin is not None:
            m.heap.guard("is", origin.source, value)
    given = guard_before_native_read.settled([None if k in places else value for k, value in enumerate(args)])

    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        return function.apply(*[next(rest) if k in places else value for k, value in enumerate(given)])

    return opaque_nodes.call_in_graph(
        m, opaque_nodes.OpaqueCall(call, function.__name__), tuple([args[k] for k in places]), {}, reads=False
    )


def fact_of_group(method: Callable) -> Callable:
    def answer(m: Any, args: tuple, kwargs: dict) -> Any:
        for group in args:
            origin = m.heap.origin_of(group)
            if origin is not None:
                m.heap.guard("is", origin.source, group)
        return m.plainly(method, *args, **kwargs)

    return answer


BY_MODULE = {
    "torch.distributed._functional_collectives": call_functional,
    "torch.distributed.c10d_logger": call_in_place,
}
BUILTINS: dict[Any, Callable] = {}
"""What a process group says about itself: the same each time."""

if torch.distributed.is_available():
    _members = vars(torch.distributed.ProcessGroup)
    _methods = [_members[name].__func__ for name in ("rank", "size", "name")]
    _methods += [member.fget for member in _members.values() if isinstance(member, property)]
    BUILTINS = {method: fact_of_group(method) for method in _methods}
