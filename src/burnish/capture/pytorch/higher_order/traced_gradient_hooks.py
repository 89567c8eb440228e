"""Gradient hooks in graphs for backends that run no Python: the hook's body is a graph of its own.

    y.register_hook(lambda g: g * s)        y = torch.ops.higher_order.register_hook(y, hook_body, s)

In eager the body runs in backward, and reads what its variables hold then. So only a body qualifies that reads its
argument, torch, and numbers and tensors in variables of the run (``HookReader``). When the segment is closed, the
variables must still hold them, nothing may have been written to them or to the tensor, and the hook must still exist.
Nothing may be written later either: neither the variables nor the memory of the tensors may leave the segment.
Otherwise the segment is dropped, and the next trace ends before the hook is registered.
"""

from __future__ import annotations

import functools
import importlib
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from ....concurrency.outside_errors import came_from_outside
from ...engine.break_signals import BreakAfterOperation, Stop, Unrebuildable
from ...engine.torch_call_records import TorchCall
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import MISSING, Raised, cell_value
from ...numbers.live_scalars import Live
from ...numbers.min_max_of_tensors import storage_of
from ...python.trace_rollback import CallStart
from ..custom_functions.autograd_function_traceability import (
    ClassReader,
    Names,
    NotTraceable,
    is_constant,
    is_torch_function,
)
from ..graph_regions.graph_region import drawing_from
from .loop_operators import Functions


def operator() -> Callable | None:
    """Torch's operator, from the release on that has it."""
    try:
        return importlib.import_module("torch._higher_order_ops.register_hook").register_hook_op  # type: ignore
    except (ImportError, AttributeError):
        return None


class TracedHook(NamedTuple):
    handle: RemovableHandle
    cells: list[tuple[types.CellType, Any]]
    versions: list[tuple[torch.Tensor, int]]
    lifted: list[torch.Tensor]
    runs_in_backward: bool = True

    def why_not_kept(self, m: Any, rebuilder: Any, leaving: list[torch.Tensor]) -> str | None:
        shared = {storage_of(x) for x in (*leaving, *m.recorder.examples) if type(x) in TENSOR_TYPES}
        if any(storage_of(x) in shared for x in self.lifted):
            return "a tensor that a gradient hook reads may be changed before backward"
        if any(id(cell) in rebuilder.memo for cell, _ in self.cells):
            return "a variable that a gradient hook reads may be assigned before backward"
        registered = self.handle.hooks_dict_ref()
        if registered is None or self.handle.id not in registered:
            return "a gradient hook was removed"
        if any(cell_value(cell) is not value for cell, value in self.cells):
            return "a variable that a gradient hook reads was assigned after it was registered"
        if any(x._version != version for x, version in self.versions):
            return "a tensor was changed after a gradient hook was registered that reads it"
        return None


class HookReader(ClassReader):
    def __init__(self, m: Any, function: types.FunctionType):
        super().__init__(Names(function))  # type: ignore[arg-type]
        self.m, self.is_backward = m, True
        self.function(function)

    def value(self, value: Any, name: str, attributes: tuple[str, ...]) -> None:
        place, key, found = self.names.found[-1]
        if key is None and self.m.heap.origin_of(place) is None:  # `TracedHook` notices other values
            if type(value) in TENSOR_TYPES and self.m.knows(value) or isinstance(value, Live):
                return
            is_fixed = not isinstance(value, (types.FunctionType, type)) or is_torch_function(value)
        else:
            is_fixed = isinstance(value, types.ModuleType) or found is MISSING  # a builtin
        if not is_fixed:
            raise NotTraceable(f"{name} may be, or do, something else in backward")
        super().value(value, name, attributes)


def register(m: Any, tensor: torch.Tensor, function: Any) -> Any:
    """Register a hook on a tensor that the graph computes. MISSING if the hook cannot be part of the graph."""
    target, code = operator(), function
    if target is None or not m.capabilities.keeps_functions or not tensor.requires_grad or not torch.is_grad_enabled():
        return MISSING
    if torch.is_autocast_enabled(tensor.device.type):
        return MISSING  # backward runs without it
    if type(function) is functools.partial and all(map(is_constant, (*function.args, *function.keywords.values()))):
        code = function.func
    if m.heap.origin_of(tensor) is not None or not isinstance(m.recorder.tensor(tensor).call, int):
        return MISSING  # a node that copies it would leave the tensor itself without the hook
    try:
        reader = HookReader(m, code)
    except NotTraceable:
        return MISSING
    traced = body_of(m, tensor, function)
    if traced is None:
        return MISSING
    body, lifted = traced
    handle = m.plainly(tensor.register_hook, function)
    handles = [m.recorder.tensor(value) for value in (tensor, *lifted)]
    place = m.recorder.add(TorchCall(target, (handles[0], body, *handles[1:]), {}, m.user_line()))
    m.recorder.known[id(tensor)] = (weakref.ref(tensor), place)  # a compiler must not drop the call as unused
    m.answer = None
    cells = [(place, value) for place, key, value in reader.names.found if key is None]
    m.traced_hooks.append(TracedHook(handle, cells, [(x, x._version) for x in (tensor, *lifted)], lifted))
    return handle


def body_of(m: Any, tensor: torch.Tensor, function: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor]] | None:
    """The hook as a graph, and the further tensors that it takes."""
    start = CallStart(m, drawing_from([tensor]))
    try:
        region = Functions(m, "register_hook", [torch.ones_like(tensor, requires_grad=False)])
        changed = region.record(function, tuple(region.examples))
        if type(changed) is torch.Tensor and facts_of(changed) == facts_of(tensor):
            (body,) = region.graphs()
            body.graph.output_node().args = body.graph.output_node().args[0]
            body.recompile()
            return body, region.lifted()
    except (Stop, BreakAfterOperation, Raised) as signal:
        if came_from_outside(getattr(signal, "error", None)):
            raise
    m.region = None
    start.go_back(m)
    return None


def facts_of(x: torch.Tensor) -> tuple:
    return x.dtype, tuple(x.shape), x.device, x.layout


def check_kept(m: Any, rebuilder: Any) -> None:
    """When the segment is closed, and all that leaves it is known."""
    leaving = [made() for made, handle in m.recorder.known.values() if id(handle) in rebuilder.output_at]
    for hook in m.traced_hooks:
        why = hook.why_not_kept(m, rebuilder, leaving)
        if why is not None:
            raise Unrebuildable(None, why)
