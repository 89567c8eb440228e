"""Backward hooks of modules, as three nodes around the module's calls: see ``runtime/eager/module_backward_hooks.py``.

    hook_of_linear = MakeHook(linear)()          where torch makes its BackwardHook
    set_up_inputs(hook_of_linear, (x,))          hook.setup_input_hook(args)
    set_up_outputs(hook_of_linear, (y,))         hook.setup_output_hook(result)

``Module.__call__`` is interpreted. The hooks themselves run natively when backward comes. That is after the segment,
which ends before a backward pass of its own. A node asks the module for its hooks when it runs: they are not constants.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as of_all_modules
from torch.utils.hooks import BackwardHook

from ....foundation.torch_private import get_backward_hooks, get_backward_pre_hooks
from ....runtime.eager import module_backward_hooks as steps
from ... import breaks
from ...engine.torch_call_records import TorchCall
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import MISSING

TABLES = ("_backward_hooks", "_backward_pre_hooks")


def why_not_in_graph(m: Any, module: torch.nn.Module, has_global: bool) -> str | None:
    """Why a call of a module with backward hooks ends the graph."""
    if of_all_modules._global_backward_hooks and not of_all_modules._global_is_full_backward_hook:
        return "those for all modules are not full ones"
    getters = {"_get_backward_hooks": get_backward_hooks, "_get_backward_pre_hooks": get_backward_pre_hooks}
    if any(inspect.getattr_static(module, name) is not getter for name, getter in getters.items()):
        return "the program has its own way to find them"
    if not m.options.runs_python:
        return "the backend runs no Python"
    if m.region is not None:
        return "it is part of a region"
    if module._backward_hooks and not module._is_full_backward_hook:
        return "they are not full ones"
    origin = m.heap.origin_of(module)
    if origin is None:
        return "the module was made here"
    tables = [getattr(module, name) for name in TABLES] + [getattr(of_all_modules, f"_global{name}") for name in TABLES]
    if any(table is not None and m.heap.changed(table) for table in map(m.heap.origin_of, tables)):
        return "they were registered here"
    if has_global:
        name = "_global_is_full_backward_hook"
        setting = m.heap.sources.pin(vars(of_all_modules)).item(name)
        m.heap.guard("is", setting, getattr(of_all_modules, name))
    return None


def make(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``BackwardHook(module, hooks, pre_hooks)``."""
    module = args[0]
    hook = m.plainly(steps.make_hook, module)
    m.heap.guard("is", m.heap.origin_of(module).source, module)
    m.recorder.register_object(hook, m.recorder.add(TorchCall(steps.MakeHook(module), (), {}, m.user_line())))
    m.module_hooks.append(hook)
    m.answer = None
    return hook


def set_up_inputs(m: Any, args: tuple, kwargs: dict) -> Any:
    return set_up(m, steps.set_up_inputs, *args)


def set_up_outputs(m: Any, args: tuple, kwargs: dict) -> Any:
    return set_up(m, steps.set_up_outputs, *args)


def set_up(m: Any, step: Callable, hook: BackwardHook, given: Any) -> Any:
    parts = given if isinstance(given, tuple) else (given,)
    place = m.recorder.handle_of(hook)
    tensors = [x for x in parts if isinstance(x, torch.Tensor)]
    if (
        place is None
        or type(parts) is not tuple
        or any(type(x) not in TENSOR_TYPES or not m.knows(x) for x in tensors)
        or not tensors
    ):
        kind = type(hook.module).__qualname__
        m.stop(breaks.OPAQUE_FUNCTION, f"{kind} has backward hooks, and its values are not tensors of the graph")
    shown = tuple(x if isinstance(x, torch.Tensor) else None for x in parts)
    nodes = tuple(None if x is None else m.recorder.tensor(x) for x in shown)
    made = m.plainly(step, hook, shown)
    m.recorder.register(made, m.recorder.add(TorchCall(step, (place, nodes), {}, m.user_line())))
    m.answer = None
    found = tuple(new if isinstance(old, torch.Tensor) else old for old, new in zip(parts, made, strict=True))
    return found if isinstance(given, tuple) else found[0]


def lists_of_hooks(m: Any, args: tuple, kwargs: dict) -> Any:
    """``module._get_backward_hooks()``: full ones, and none of the others."""
    module = args[0]
    if not is_outside(m, module):
        return MISSING
    m.load_attr(module, "_is_full_backward_hook")  # guarded
    return get_backward_hooks(module)


def list_of_hooks(m: Any, args: tuple, kwargs: dict) -> Any:
    """``module._get_backward_pre_hooks()``."""
    return get_backward_pre_hooks(args[0]) if is_outside(m, args[0]) else MISSING


def is_outside(m: Any, module: torch.nn.Module) -> bool:
    return m.heap.origin_of(module) is not None


HANDLERS: dict[Callable, Callable] = {
    get_backward_hooks: lists_of_hooks,
    get_backward_pre_hooks: list_of_hooks,
    BackwardHook.setup_input_hook: set_up_inputs,
    BackwardHook.setup_output_hook: set_up_outputs,
}
