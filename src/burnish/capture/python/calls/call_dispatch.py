"""Dispatch of calls while tracing: the type of the callable decides which rule makes the call.

* Python functions are interpreted, but for torch's functional surface and pure standard library parts;
* torch operations run under the recorder;
* builtins have an entry in ``builtin_functions``, methods of builtin containers in ``container_methods``;
* classes are constructed step by step where ``__new__`` or ``__init__`` is Python;
* anything else written in C is a break, executed for real on every run.
"""

from __future__ import annotations

import functools
import gc
import re
import types
import weakref
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ....captured_graph import observed_custom_operator_types
from ....foundation.torch_private import OpOverload, OpOverloadPacket
from ....tensors.collective_operators import is_collective_operator
from ... import breaks
from ...engine.guard_object_parts import is_argument
from ...engine.interpreted_or_native import is_trusted_type
from ...engine.object_lifetimes import WeakOrigin
from ...guards.object_sources import Source
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import MISSING, Generator, frames_from
from ...interpreter.frames_to_slots import values_of
from ...interpreter.reads_past_overrides import dict_of
from ...numbers import numpy_tables
from ...numpy_calls import numpy_dispatch
from ...pytorch import opaque_nodes, torch_library_operators
from ...pytorch.opaque_nodes import OpaqueCall
from .. import object_creation, random_objects
from ..attributes.descriptor_binding import special_method
from .builtin_calls import call_builtin, call_unbound, call_wrapper
from .function_calls import call_function
from .module_calls import call_module, call_plain_module
from .native_call_rules import call_cached, native
from .torch_operation_calls import METHOD_KINDS, call_torch

PLACEHOLDER: Any = getattr(functools, "Placeholder", MISSING)
"""Of the arguments of a partial, from 3.14 on: the next positional argument takes its place."""


def positional_of_partial(m: Any, function: functools.partial, args: tuple) -> tuple:
    if not any(arg is PLACEHOLDER for arg in function.args):
        return (*function.args, *args)
    if len(args) < sum(arg is PLACEHOLDER for arg in function.args):
        m.plainly(function, *args)  # which refuses
    given = iter(args)
    return (*[next(given) if arg is PLACEHOLDER else arg for arg in function.args], *given)


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    kind = type(function)
    caller = CALLERS.get(kind)
    if caller is not None:
        return caller(m, function, args, kwargs)
    if kind in m.module_kinds:
        return call_plain_module(m, function, args, kwargs)
    if issubclass(type(function), type):
        return object_creation.construct(m, function, args, kwargs)
    if issubclass(type(function), torch.nn.Module):
        return call_module(m, function, args, kwargs)
    if kind is functools.partial:
        merged = {**function.keywords, **kwargs} if function.keywords else kwargs
        return call(m, function.func, positional_of_partial(m, function, args), merged)
    if kind is functools._lru_cache_wrapper:
        return call_cached(m, function, args, kwargs)
    if kind in (OpOverload, OpOverloadPacket):
        return call_operator(m, function, args, kwargs)
    if kind is weakref.ref:
        return call_weakref(m, function) if not args and not kwargs else m.plainly(function, *args, **kwargs)
    if issubclass(type(function), (staticmethod,)):
        return call(m, function.__func__, args, kwargs)
    if kind is types.GenericAlias and function.__origin__ in WITHOUT_ALIAS:
        return call(m, function.__origin__, args, kwargs)
    if kind in numpy_tables.FUNCTION_KINDS:
        answer = numpy_dispatch.call(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if issubclass(type(function), torch.jit.ScriptFunction):
        from ...pytorch import scripted_functions  # few programs call any

        return scripted_functions.call(m, function, args, kwargs)
    method = special_method(m, function, "__call__")
    if isinstance(method, (MethodType, FunctionType)):  # a function, if it is a static method
        return call(m, method, args, kwargs)
    if method is MISSING:
        return m.plainly(function, *args, **kwargs)  # which raises the error
    if is_trusted_type(kind) and kind.__module__ in ("operator", "re", "_operator"):
        m.check_readable(function, function)
        return native(m, function, args, kwargs)
    if args and kind.__name__ == "cython_function_or_method" and random_objects.is_of_numpy(args[0]):
        m.stop(breaks.RANDOM_CALL, f"call of numpy.random's {function.__name__}")
    return m.stop(breaks.OPAQUE_CALL, f"call of a {kind.__module__}.{kind.__qualname__}")


def call_operator(m: Any, operator: Any, args: tuple, kwargs: dict) -> Any:
    question = SIZE_QUESTIONS.get(operator)
    if question is not None and args and type(args[0]) in TENSOR_TYPES and not m.modes:
        return call(m, question, args, kwargs)
    if not is_collective_operator(operator) and torch_library_operators.runs_python(operator):
        return call_registered(m, operator, args, kwargs)
    return call_torch(m, operator, args, kwargs)


SIZE_QUESTIONS: dict[Any, Any] = {
    torch.ops.aten.sym_size.int: torch.Tensor.size,
    torch.ops.aten.sym_stride.int: torch.Tensor.stride,
    torch.ops.aten.sym_numel.default: torch.Tensor.numel,
    torch.ops.aten.sym_storage_offset.default: torch.Tensor.storage_offset,
}
"""Operators by which a program of torch.export reads sizes, and what Python asks for the same."""


def call_registered(m: Any, operator: Any, args: tuple, kwargs: dict) -> Any:
    """An operator that is implemented in Python."""
    if m.modes:
        return call_torch(m, operator, args, kwargs)
    torch_library_operators.guard_registrations(m, operator)
    if m.heap.has_written() and (why := torch_library_operators.why_may_read(m, operator)) is not None:
        m.stop(breaks.OPAQUE_CALL, f"{operator}, which may read what was just written: {why}")
    given = (*args, *kwargs.values())
    node = OpaqueCall(operator, str(operator))
    if m.options.runs_python and m.capabilities.may_run_opaquely:
        if torch_library_operators.has_results(operator) and not torch_library_operators.is_mutable(operator):
            node.numbers_vary = torch_library_operators.vary_in_node(m, operator, args, kwargs, node)
        if node.numbers_vary or torch_library_operators.is_opaque(m, operator, given):
            return opaque_nodes.call_in_graph(m, node, args, kwargs, reads=False)
    if torch_library_operators.is_differentiated_by_kernel(operator, given) and not m.options.exports:
        m.stop(breaks.OPAQUE_CALL, f"{operator}, whose kernel autograd looks into")
    value = call_torch(m, operator, args, kwargs)
    observed_custom_operator_types.note(operator, args, kwargs, value)
    return value


WITHOUT_ALIAS = (list, dict, set, frozenset, tuple)  # ``list[int]()`` does not set ``__orig_class__``


def call_bound(m: Any, method: MethodType, args: tuple, kwargs: dict) -> Any:
    function = method.__func__
    args = (method.__self__, *args)
    if type(function) is FunctionType:
        return call_function(m, function, args, kwargs)
    return call(m, function, args, kwargs)


def call_weakref(m: Any, reference: weakref.ref) -> Any:
    """What a weak reference from outside points to is read like an attribute."""
    value = reference()
    if value is not None and may_be_gone(m, value):
        m.stop(breaks.OPAQUE_CALL, "a weak reference to an object that may be gone")
    origin = m.heap.origin_of(reference)
    if origin is not None and "target" not in origin.known:
        origin.note_read("target", value)
        return m.heap.admit(value, origin.source.child("call"))
    return value


def may_be_gone(m: Any, value: Any) -> bool:
    """Whether no variable holds an object from outside, and nothing else may in the next call: it is from an earlier
    break, or the program has changed what held it, or something, where it is not known what holds it."""
    held = m.heap.origin_of(value)
    source = None if held is None else held.source
    if source is None or is_held_weakly(source):
        is_at_risk = id(value) not in m.heap.fresh and any(map(m.heap.changed, list(m.heap.origins.values())))
    elif source.kind == "slot" and not is_argument(m.heap, source):
        is_at_risk = not isinstance(held, WeakOrigin)
    else:
        is_at_risk = was_taken_out(m.heap, source)
    return is_at_risk and not is_held_here(m, value)


def is_held_here(m: Any, wanted: Any) -> bool:
    """Whether a variable holds an object, or one leads to it through objects that the trace has made: so it will be in
    the next call."""
    waiting = [value for frame in frames_from(m.frame) for value in values_of(frame)]
    seen = set(map(id, waiting))
    while waiting:
        value = waiting.pop()
        if value is wanted:
            return True
        parts: list[Any] = []
        if type(value) is Generator:
            parts = [part for frame in frames_from(value.frame) for part in values_of(frame)]
        elif m.heap.origin_of(value) is None and not issubclass(type(value), NOT_FOLLOWED):
            parts = [*gc.get_referents(value), *(dict_of(value) or {}).values()]
        waiting += [part for part in parts if id(part) not in seen]
        seen.update(map(id, parts))
    return False


NOT_FOLLOWED = (type, ModuleType, FunctionType)


def is_held_weakly(source: Source | None) -> bool:
    while source is not None and source.kind != "call":
        source = source.base
    return source is not None


def was_taken_out(heap: Any, source: Source) -> bool:
    """Whether the program has written where a path to an object leads through, or may have."""
    holders = {id(origin.source): origin for origin in list(heap.origins.values())}
    while source.base is not None:
        holder = holders.get(id(source.base))
        if holder is not None and (source.key in holder.written or holder.complete and heap.changed(holder)):
            return True
        source = source.base
    return False


CALLERS: dict[type, Any] = {
    FunctionType: call_function,
    MethodType: call_bound,
    BuiltinFunctionType: call_builtin,
    type(re.compile("").match): call_builtin,  # a method of C code that receives its class
    type("".__add__): call_wrapper,
    type: object_creation.construct,
    **dict.fromkeys(METHOD_KINDS, call_unbound),
}
"""How a value of exactly this type is called."""
