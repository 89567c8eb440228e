"""Calls of ``nn.Module`` objects: straight to ``forward`` where no hook is set, which is guarded.

    call_module(m, self.layers[0], (x,), {})

Modules with hooks or with a ``__call__`` of their own go through it.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import torch

from ... import breaks
from ...interpreter.frames import PUSHED
from ...pytorch.modules import compiled_block_calls, module_backward_hooks
from ..attributes.attribute_reads import load
from ..attributes.class_lookup import lookup
from ..attributes.descriptor_binding import special_method
from ..polyfills import object_polyfills
from . import inner_whole_graphs
from .function_calls import call_function

MODULE_CALL = torch.nn.Module.__call__
GLOBAL_HOOKS = [
    getattr(torch.nn.modules.module, n)
    for n in (
        "_global_backward_pre_hooks",
        "_global_backward_hooks",
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
    )
]


def inside(m: Any, module: torch.nn.Module) -> torch.nn.Module:
    """The module that a compiled module stands for."""
    members = m.heap.members(module)
    table = None if members is None else m.heap.origin_of(m.heap.read_key(members, "_modules"))
    return module._modules["_orig_mod"] if table is None else m.heap.read_key(table, "_orig_mod")


def call_module(m: Any, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
    kind = type(module)
    if kind in m.own_call_kinds:
        return m.call(special_method(m, module, "__call__"), args, kwargs)
    if isinstance(module, torch.jit.ScriptModule):
        m.stop(breaks.FOREIGN_COMPILED, f"a call of the scripted module {kind.__qualname__}")
    if hasattr(kind, "__burnish_original__"):
        between = module.__dict__.get("_between_hooks")
        if between is not None and between.is_needed(module):
            m.stop(breaks.COLLECTIVE_CALL, f"{kind.__qualname__} has hooks of torch.distributed")
        inner = module.__dict__.get("__burnish_program__")
        return inner_whole_graphs.call_inside(m, inner, inside(m, module), args, kwargs)
    found, _ = lookup(m, kind, "__call__")
    if isinstance(lookup(m, kind, "__getattribute__")[0], FunctionType):
        m.own_call_kinds.add(kind)  # even its tables are read through code of the user's
        return m.call(special_method(m, module, "__call__"), args, kwargs)
    if "_orig_mod" in module._modules and kind.__name__ == "OptimizedModule":
        return m.call(inside(m, module), args, kwargs)
    if found is not MODULE_CALL:
        m.own_call_kinds.add(kind)
        return m.call(special_method(m, module, "__call__"), args, kwargs)
    if kind.__name__ != "OptimizedModule":
        m.module_kinds.add(kind)
    return call_plain_module(m, module, args, kwargs)


def call_plain_module(m: Any, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
    """A module whose class has the ``__call__`` of ``nn.Module``."""
    kind, tables = type(module), module.__dict__
    has_global = any(GLOBAL_HOOKS)
    has_global_backward = has_global and any(GLOBAL_HOOKS[:2])
    has_backward = bool(tables.get("_backward_hooks") or tables.get("_backward_pre_hooks") or has_global_backward)
    if has_backward and (why := module_backward_hooks.why_not_in_graph(m, module, has_global_backward)) is not None:
        m.stop(breaks.OPAQUE_FUNCTION, f"{kind.__qualname__} has backward hooks, and {why}")
    origin = m.origins.get(id(module))
    members = None
    if origin is not None and origin.obj is module:
        members = origin.members
        if members is None or members.obj is not tables:
            members = m.heap.members_in(origin, tables)
    if (
        tables.get("_forward_hooks")
        or tables.get("_forward_pre_hooks")
        or has_global
        or has_backward
        or "_compiled_call_impl" in tables
    ):
        if tables.get("_compiled_call_impl") is not None:
            if m.options.keeps_blocks and compiled_block_calls.is_block(tables["_compiled_call_impl"]):
                return compiled_block_calls.call_block(m, module, args, kwargs)
            return m.call(module._call_impl, args, kwargs)
        return m.call(MethodType(MODULE_CALL, module), args, kwargs)
    if members is not None and id(members) not in m.without_hooks:
        m.without_hooks.add(id(members))
        m.heap.add("no hooks", members.source)
    if not m.global_hooks_guarded:
        m.global_hooks_guarded = True
        for table in GLOBAL_HOOKS:
            m.heap.guard("truth", m.heap.sources.pin(table), False)
    plan = m.plans.get((kind, "forward"))
    if plan is not None and plan.method is not None and members is not None and "forward" not in tables:
        if "forward" not in members.known:
            m.heap.read_key(members, "forward")
        return call_function(m, plan.method, (module, *args), kwargs)
    forward = load(m, module, "forward")
    if forward is PUSHED:
        m.frame = m.frame.caller  # code of the user's finds it: under a call of ours, then
        return m.call(object_polyfills.call_forward, (module, args, kwargs), {})
    return m.call(forward, args, kwargs)
