"""Optimizers (torch.optim) while tracing: interpreted like other Python, except for wrappers made for Dynamo.

``torch.optim`` is decorated for ``torch._dynamo``: it imports it, asks it for graph breaks, excludes ``zero_grad`` from
it. Here the functions inside the decorators are called, and the other work of the decorators is done:

    opt.zero_grad()     _disable_dynamo(zero_grad)               the function itself
    opt.step()          _use_grad_for_differentiable(step)       ``step_in_grad_mode``: gradients off, as in eager
    ...                 _group_tensors_by_device_and_dtype       runs unchanged: it reads facts and groups

If torch.compile has been used in the process, Dynamo has marked more functions as disabled: ``is_kept_from_dynamo``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from ....foundation.torch_private import (
    disable_dynamo,
    group_tensors_by_device_and_dtype,
    maybe_opt_step,
    use_grad_for_differentiable,
)
from ....foundation.torch_private import sparse_adam as torch_sparse_adam
from ....settings import current
from ...interpreter.frames import MISSING
from .. import opaque_nodes


def step_in_grad_mode(step, args, kwargs):  # type: ignore[no-untyped-def]
    """``_use_grad_for_differentiable`` without its Dynamo queries."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return step(*args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def _step(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    if getattr(m.options.backend, "asked", {}).get("cuda_graphs", current().cuda_graphs):
        make_capturable(args[0])
    return m.call(step_in_grad_mode, (function.__wrapped__, args, kwargs), {})  # type: ignore[attr-defined]


def make_capturable(optimizer: torch.optim.Optimizer) -> None:
    """A recorded step must not read the step count on the CPU: from here on the optimizer counts on the GPU, as with
    its option `capturable`. An optimizer made with the option is unchanged."""
    for group in optimizer.param_groups:
        if group.get("capturable") is not False or group.get("fused") or not all(map(is_on_gpu, group["params"])):
            continue
        group["capturable"] = True
        optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]  # torch warns of it once
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            if isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].to(p.device)


def is_on_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda


def _undisabled(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """Functions that torch excludes from Dynamo for reasons that, outside torch.optim, apply here too; but for
    constructors of tensors."""
    inside = function.__wrapped__  # type: ignore[attr-defined]
    is_open = inside.__module__.startswith("torch.optim.") or args and m.subclasses.wrapper(args[0]) is not None
    return m.call(inside, args, kwargs) if is_open else MISSING


def is_kept_from_dynamo(marks: dict) -> bool:
    """Whether a torch.compiler.disable mark in torch.optim comes from Dynamo itself, on its first compilation."""
    inside = marks.get("_torchdynamo_orig_callable")
    return (
        isinstance(inside, FunctionType)
        and inside.__module__.startswith("torch.optim.")
        and (inside.__name__.startswith(("_init_group", "_fused_")) or _is_step_kept_from_dynamo(inside, marks))
    )


def _is_step_kept_from_dynamo(inside: FunctionType, marks: dict) -> bool:
    """A user may exclude the step of an optimizer as well, so the reason that Dynamo gives decides."""
    reason = marks.get("_torchdynamo_disable_msg") or ""
    return inside.__name__ == "step" and reason.endswith("step not supported")


def _code_inside(function: Callable, name: str) -> CodeType | None:
    """The code of the function that a decorator returns."""
    found = (
        c
        for c in getattr(getattr(function, "__code__", None), "co_consts", ())
        if isinstance(c, CodeType) and c.co_name == name
    )
    return next(found, None)


# Torch's decorators, by the code of the function they return.
BY_CODE: dict[CodeType | None, Callable] = {
    _code_inside(disable_dynamo, "inner"): _undisabled,
    _code_inside(use_grad_for_differentiable, "_use_grad"): _step,
}
BY_CODE.pop(None, None)
BY_ADDRESS = {id(code): handler for code, handler in BY_CODE.items()}  # hashing a code object reads all of it


def call_decorated(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A call of a function with ``__wrapped__``: MISSING unless it is one of the decorators above."""
    handler = BY_ADDRESS.get(id(function.__code__))
    return MISSING if handler is None else handler(m, function, args, kwargs)


def group_tensors(m: Any, args: tuple, kwargs: dict) -> Any:
    """Groups lists of tensors by device and type, which are guarded. It returns the tensors themselves."""
    m.heap.expose(args)
    return m.plainly(group_tensors_by_device_and_dtype, *args, **kwargs)


class SparseUpdate(opaque_nodes.OpaqueCall):
    """One parameter's step of SparseAdam, as a node: it computes with as many values as the gradient happens to have.
    It writes to its arguments, whose metadata stays as it is, and returns nothing."""

    def __init__(self) -> None:
        super().__init__(update_sparsely, "sparse_adam")
        self.numbers_vary = True

    def is_compared(self) -> bool:
        return False


def sparse_adam(m: Any, args: tuple, kwargs: dict) -> Any:
    """``sparse_adam(params, grads, exp_avgs, exp_avg_sqs, state_steps, eps=…)``, which SparseAdam calls."""
    if not m.options.runs_python or m.region is not None or len(args) != 5 or any(type(a) is not list for a in args):
        return MISSING
    if len(set(map(len, args))) > 1 or any(not m.knows(x) for values in args[:4] for x in values):
        return MISSING
    return m.call(update_each, args, kwargs)


def update_each(parameters, gradients, averages, squares, steps, **options):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call: an error in one update leaves those before as they are."""
    for k in range(len(parameters)):
        update_sparsely(parameters[k], gradients[k], averages[k], squares[k], steps[k], **options)


def update_sparsely(parameter: Any, gradient: Any, average: Any, square: Any, step: int, **options: Any) -> None:
    torch_sparse_adam([parameter], [gradient], [average], [square], [step], **options)


def step_unless_infinite(m: Any, args: tuple, kwargs: dict) -> Any:
    from . import skippable_optimizer_steps  # few programs scale their losses

    return skippable_optimizer_steps.step_unless_infinite(m, args, kwargs)


HANDLERS = {
    maybe_opt_step: step_unless_infinite,
    torch_sparse_adam: sparse_adam,
    update_sparsely: lambda m, args, kwargs: opaque_nodes.call_in_graph(m, SparseUpdate(), args, kwargs, reads=False),
}
