"""Calls of C functions and methods: looked up in the tables of builtins, then by their owner.

    call_builtin(m, items.append, (x,), {})             # a method of a container: ``container_methods``
    call_unbound(m, str.join, (", ", names), {})        # a method taken from its class

A function without a rule is a graph break.
"""

from __future__ import annotations

import collections
import random
import sys
import types
from contextvars import ContextVar
from types import BuiltinFunctionType
from typing import Any

import torch

from ....foundation.torch_private import VariableFunctions
from ... import breaks
from ...engine.interpreted_or_native import is_pure_module, is_trusted
from ...guards.tensor_metadata import TENSOR_TYPES, is_tensor
from ...interpreter.frames import MISSING
from ...numbers import numpy_tables
from ...numbers.live_scalars import Live
from ...numpy_calls import numpy_dispatch
from ...pytorch import recorder_fast_path, torch_switches
from .. import builtin_functions, context_variables, marks_of_dynamo, object_builtins, random_objects
from ..methods import method_dispatch
from .native_call_rules import native, pure
from .torch_operation_calls import call_torch

TORCH_BUILTIN_MODULES = """
    torch._C._nn torch._C._linalg torch._C._fft torch._C._special torch._C._sparse torch._C._nested torch torch._C
""".split()
C_FUNCTIONS = (types.WrapperDescriptorType, types.MethodDescriptorType)
PLAIN_OWNERS = frozenset((dict, list, tuple, set, str, collections.OrderedDict))


def call_wrapper(m: Any, wrapper: Any, args: tuple, kwargs: dict) -> Any:
    """A slot of a type written in C, bound: ``super().__getattribute__``, for one."""
    name, owner = wrapper.__name__, wrapper.__objclass__
    if name == "__get__" and type(wrapper.__self__) is types.GetSetDescriptorType and args and is_tensor(args[0]):
        return m.perform(wrapper, *args, **kwargs)  # the attribute of a tensor, as its class's rules are given it
    if name == "__get__" and owner in C_FUNCTIONS:
        return m.plainly(wrapper, *args, **kwargs)  # a method of C code, bound: attrs binds ``object.__setattr__`` so
    return call_unbound(m, owner.__dict__[name], (wrapper.__self__, *args), kwargs)


def call_builtin(m: Any, function: BuiltinFunctionType, args: tuple, kwargs: dict) -> Any:
    owner = function.__self__
    kind = type(owner)
    if kind in TENSOR_TYPES and not (args and type(args[0]) is numpy_tables.ARRAY):
        answer = recorder_fast_path.call(m, function, args, kwargs)
        return call_torch(m, function, args, kwargs) if answer is MISSING else answer
    if kind in PLAIN_OWNERS:
        return method_dispatch.call_method(m, owner, function.__name__, args, kwargs, function)
    handler = builtin_functions.BUILTINS.get(function)
    if handler is not None:
        if builtin_functions.is_refused(function, args, kwargs):
            return m.plainly(function, *args, **kwargs)  # which refuses
        answer = handler(m, args, kwargs)
        if answer is not MISSING:
            return answer
    if marks_of_dynamo.RULES in sys.modules:
        marks_of_dynamo.refuse_builtin(m, function)
    answer = recorder_fast_path.call(m, function, args, kwargs)
    if answer is not MISSING:
        return answer
    if kind in numpy_tables.VALUES or kind is numpy_tables.ARRAY or function in numpy_dispatch.FUNCTIONS:
        answer = numpy_dispatch.call(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if args and (type(args[0]) is numpy_tables.ARRAY or type(args[0]) in numpy_tables.NUMBERS):
        answer = numpy_dispatch.make_tensor(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and function.__name__ == "apply":
        return builtin_functions.apply_function(m, (owner, *args), kwargs)
    if is_tensor(owner):
        return call_torch(m, function, args, kwargs)
    if owner is VariableFunctions or getattr(function, "__module__", None) in TORCH_BUILTIN_MODULES:
        return torch_switches.call(m, function, args, kwargs)
    if owner is None or isinstance(owner, types.ModuleType):
        if is_pure_module(function.__module__) or function in builtin_functions.PURE:
            return pure(m, function, args, kwargs)
        return call_twin(m, function, args, kwargs)
    rule = METHODS_OF.get(kind)
    answer = MISSING if rule is None else rule(m, owner, function, args, kwargs)
    if answer is not MISSING:
        return answer
    if isinstance(owner, Live):
        return native(m, getattr(owner.settle(), function.__name__), args, kwargs)
    return method_dispatch.call_method(m, owner, function.__name__, args, kwargs, function)


def call_twin(m: Any, function: BuiltinFunctionType, args: tuple, kwargs: dict) -> Any:
    """A function of a module of Python's that was imported once more has the rule of the first one."""
    module = function.__module__
    twin = getattr(sys.modules.get(module), function.__name__, None) if is_trusted(module) else None
    if type(twin) is not BuiltinFunctionType or twin is function:
        return m.stop(breaks.OPAQUE_CALL, f"call of {module}.{function.__qualname__}")
    return call_builtin(m, twin, args, kwargs)


def _call_of_generator(m: Any, owner: Any, method: Any, args: tuple, kwargs: dict) -> Any:
    return random_objects.call_method(m, owner, method.__name__, args, kwargs)


METHODS_OF: dict[type, Any] = {random.Random: _call_of_generator, ContextVar: context_variables.call}


def call_unbound(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A method taken from its class: ``str.join``, ``object.__setattr__``, ``torch.Tensor.add``."""
    handler = object_builtins.UNBOUND.get(function)
    if handler is not None:
        if len(args) < object_builtins.UNBOUND_TAKE.get(function, 1):
            return m.plainly(function, *args, **kwargs)
        answer = handler(m, args, kwargs)
        if answer is not MISSING:
            return answer
    owner = function.__objclass__
    if args and issubclass(type(args[0]), Live):
        args = (args[0].settle(), *args[1:])
    if function.__name__ == "__init__" and issubclass(owner, BaseException):
        return m.plainly(function, *args, **kwargs)
    if not args or not issubclass(type(args[0]), owner) and type(function) is not types.ClassMethodDescriptorType:
        return m.plainly(function, *args, **kwargs)
    if issubclass(torch.Tensor, owner) and owner is not object:
        return call_torch(m, function, args, kwargs)
    return method_dispatch.call_method(m, args[0], function.__name__, args[1:], kwargs, None, function)
