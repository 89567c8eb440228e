"""Tensor object state that a graph can express: hooks, ``retain_grad``, ``.data``.

    x.register_hook(f)           a leaf from outside: registered again each time the segment has run
    y.register_hook(f)           computed in the graph: slot, handle = register_hook(y)     a step of the graph
                                                        fill(slot, f)                           when the segment has run
    y.retain_grad()                                     retain_grad(y)
    p.data = value                                      set_data_(p, value)
    x.requires_grad_()                                  x.requires_grad_(True)

A hook is a user function that autograd calls later, outside of captured code. The objects it closes over may be new in
each run. So the graph registers an empty slot, and the end of the segment makes the function and stores it there. That
is too late for a backward pass in the same segment, so the segment ends before one.

The steps are in ``runtime/eager/tensor_object_change_nodes.py``. Backends without Python get none of them, but torch's
own operator for some hooks (``higher_order/traced_gradient_hooks.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from ...runtime.eager import tensor_object_change_nodes as steps
from ...runtime.program.restore_inputs_on_error import INDEXING, has_failing_name, is_of_torch, name_of_function
from ...tensors.tensor_types import is_leaf
from .. import breaks
from ..engine.torch_call_records import Handle, TorchCall, handles_in
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Live
from ..segments.effects import Effect
from . import writes_of_calls


class Hook(NamedTuple):
    """A hook on a leaf: how it is registered, and the handle that represents it until the segment ends."""

    handle: RemovableHandle
    register: Callable
    tensor: torch.Tensor
    function: Any


def register_hook(m: Any, args: tuple, kwargs: dict) -> Any:
    """``tensor.register_hook(function)``."""
    tensor, function = split_two_arguments(args, kwargs)
    answer = hook_in_graph(m, tensor, function)
    if answer is MISSING and not m.options.runs_python and type(tensor) is torch.Tensor:
        note_uses(m, tensor)
    return answer


def note_uses(m: Any, tensor: torch.Tensor) -> None:
    """The hook is registered after a graph. If the graph has used the tensor, a compiler leaves no trace of that in the
    tensor's own gradient. So the next trace ends before the first use."""
    handle = m.recorder.handle_of(tensor)
    if handle is not None and isinstance(handle.call, int):
        uses = (at for at, call in enumerate(m.recorder.calls) if handle in handles_in((call.args, call.kwargs)))
        m.hooked_late = next(uses, None)


def hook_in_graph(m: Any, tensor: Any, function: Any) -> Any:
    if function is MISSING or not can_be_hook(m, function) or not takes_steps(m, tensor):
        return MISSING
    if is_outer_leaf(m, tensor):
        return on_leaf(m, torch.Tensor.register_hook, tensor, function)
    if not is_unchanged(m, tensor):
        return MISSING
    if not m.options.runs_python:
        from .higher_order import traced_gradient_hooks

        return traced_gradient_hooks.register(m, tensor, function)
    node = m.recorder.tensor(tensor)
    handle = m.plainly(tensor.register_hook, function)
    slot = steps.HookSlot()
    place = step(m, steps.register_hook, node)
    m.recorder.register_object(slot, Handle(place, (0,)))
    m.recorder.register_object(handle, Handle(place, (1,)))
    m.hooks[id(handle)] = Hook(handle, steps.register_hook, tensor, function)
    m.effects.append(Effect.of(m, steps.fill, (slot, function)))
    return handle


def register_post_accumulate_grad_hook(m: Any, args: tuple, kwargs: dict) -> Any:
    """``parameter.register_post_accumulate_grad_hook(function)``."""
    tensor, function = split_two_arguments(args, kwargs)
    if function is MISSING or not can_be_hook(m, function) or not (takes_steps(m, tensor) and is_outer_leaf(m, tensor)):
        return MISSING
    return on_leaf(m, torch.Tensor.register_post_accumulate_grad_hook, tensor, function)


def on_leaf(m: Any, register: Callable, tensor: torch.Tensor, function: Any) -> Any:
    m.recorder.tensor(tensor)
    handle = m.made(m.plainly(register, tensor, function))
    m.hooks[id(handle)] = Hook(handle, register, tensor, function)
    m.effects.append(Effect.of(m, is_registered, (handle,)))
    return handle


def is_registered(handle: RemovableHandle) -> None:
    """Rebuilding the handle already registers the hook."""


def build_handle(rebuilder: Any, handle: RemovableHandle) -> str:
    """The handle of a hook on a leaf, in the code that ends a segment."""
    hook = rebuilder.tracer.hooks.get(id(handle))
    if hook is None:
        text: str = rebuilder.other(handle)
        return text
    tensor, function = rebuilder.build(hook.tensor), rebuilder.build(hook.function)
    made: str = rebuilder.name(handle, f"{rebuilder.constant(hook.register)}({tensor}, {function})")
    return made


def before_hooks(handler: Callable) -> Callable:
    """A handler of a backward pass: the segment ends before it if hooks wait for their functions."""

    def guarded(m: Any, args: tuple, kwargs: dict) -> Any:
        if m.hooks or m.module_hooks or any(hook.runs_in_backward for hook in m.traced_hooks):
            m.stop(breaks.TENSOR_STATE, "a backward pass after a hook was registered")
        return handler(m, args, kwargs)

    return guarded


def retain_grad(m: Any, tensor: torch.Tensor) -> Any:
    """``tensor.retain_grad()``."""
    if not takes_steps(m, tensor) or is_outer_leaf(m, tensor) or not can_be_watched(m, tensor):
        return MISSING
    node = m.recorder.tensor(tensor)
    m.plainly(tensor.retain_grad)
    step(m, steps.retain_grad, node)
    return None


def set_data(m: Any, tensor: torch.Tensor, value: Any) -> Any:
    """``tensor.data = value``, for data with the same layout: the tensor's guards stay valid."""
    if (
        not takes_steps(m, tensor)
        or not m.options.runs_python
        or not m.capabilities.assigns_data
        or type(value) not in TENSOR_TYPES
        or not m.knows(value)
        or layout_of(tensor) != layout_of(value)
        or tensor._is_view()
    ):
        return MISSING
    if value is tensor:
        return None  # e.g. Module.to for parameters that are there already
    if is_own_data(m, tensor, value):
        return None
    nodes = m.recorder.tensor(tensor), m.recorder.tensor(value)
    m.plainly(setattr, tensor, "data", value)
    step(m, steps.set_data_, *nodes)
    return None


def may_fail_after_assignment(m: Any) -> bool:
    """Whether a call may raise after ``tensor.data = value``. Writes in between go to the memory of ``value``, so the
    inputs can be neither watched nor restored."""
    calls = m.recorder.calls
    first = next((at for at, call in enumerate(calls) if call.target is steps.set_data_), len(calls))
    return any(may_fail(call) for call in calls[first + 1 :])


def may_fail(call: TorchCall) -> bool:
    name = call.target if type(call.target) is str else name_of_function(call.target)
    if name in INDEXING:
        return len(call.args) > 1 and next(handles_in(call.args[1:2]), None) is not None
    return has_failing_name(name) or type(call.target) is not str and not is_of_torch(call.target)


def set_requires_grad(m: Any, tensor: Any, flag: Any) -> Any:
    """``tensor.requires_grad_(flag)`` and ``tensor.requires_grad = flag`` of a leaf. Torch raises for other tensors:
    plain Python repeats that."""
    if (
        type(flag) is not bool
        or not takes_steps(m, tensor)
        or not m.options.runs_python
        or not is_leaf(tensor)
        or not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    ):
        return MISSING
    if tensor.requires_grad is not flag:
        node = m.recorder.tensor(tensor)
        m.plainly(tensor.requires_grad_, flag)
        m.recorder.calls.append(TorchCall("requires_grad_", (node, flag), {}, m.user_line()))
        m.answer = None
    return None


def is_own_data(m: Any, tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether ``value`` is an earlier result of ``tensor.data``: ``tensor.data *= 2`` sets it again."""
    read, place = m.recorder.handle_of(value), m.recorder.tensor(tensor)
    if read is None or not isinstance(read.call, int):
        return False
    call = m.recorder.calls[read.call]
    return (
        getattr(call.target, "torch_attribute", None) == "data"
        and call.args[0] is place
        and not any(later.target is steps.set_data_ for later in m.recorder.calls[read.call :])
    )


def step(m: Any, target: Callable, *nodes: Handle) -> int:
    """Record a step. Returns its position."""
    if m.symbolic_sizes is not None and target not in steps.WATCHING:  # data that is set may have another size
        m.symbolic_sizes.symbols.settle_all(f"{target.__name__} of a tensor")
    m.recorder.calls.append(TorchCall(target, nodes, {}, m.user_line()))
    m.answer = None
    return len(m.recorder.calls) - 1


def split_two_arguments(args: tuple, kwargs: dict) -> tuple:
    given = (*args, *kwargs.values())
    return given if len(given) == 2 else (None, MISSING)


def takes_steps(m: Any, tensor: Any) -> bool:
    return (
        m.region is None
        and type(tensor) in TENSOR_TYPES
        and m.knows(tensor)
        and tensor.layout is torch.strided
        and not tensor.is_inference()
    )


def can_be_watched(m: Any, tensor: torch.Tensor) -> bool:
    return m.options.runs_python and is_unchanged(m, tensor)


def is_unchanged(m: Any, tensor: torch.Tensor) -> bool:
    """Whether its gradient belongs to the call that made it, and not to a later one that wrote to it."""
    if type(tensor) is not torch.Tensor:
        return False
    made_at = m.recorder.tensor(tensor).call
    return not writes_of_calls.changes_after(m.recorder.calls, made_at + 1 if isinstance(made_at, int) else 0)


def is_outer_leaf(m: Any, tensor: torch.Tensor) -> bool:
    return m.heap.origin_of(tensor) is not None and is_leaf(tensor)


def can_be_hook(m: Any, function: Any) -> bool:
    """Whether the function can be rebuilt, and holds no live scalar that would have to be settled first."""
    if type(function) is functools.partial:
        return can_be_hook(m, function.func) and not any(
            isinstance(value, Live) for value in (*function.args, *function.keywords.values())
        )
    return type(function) in (FunctionType, MethodType) or m.heap.origin_of(function) is not None


def layout_of(x: torch.Tensor) -> tuple:
    return x.dtype, tuple(x.shape), x.stride() if x.layout is torch.strided else None, x.device, x.is_inference()


HANDLERS: dict[Callable, Callable] = {
    torch.Tensor.register_hook: register_hook,
    torch.Tensor.register_post_accumulate_grad_hook: register_post_accumulate_grad_hook,
}
