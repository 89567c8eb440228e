"""Attribute reads while tracing: the type of an object decides which rules apply.

    load(m, model, "weight")        # an nn.Module: ``instance_attributes``

The rules of numbers, arrays and methods are here, those of other types in files of their own.
"""

from __future__ import annotations

import typing
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from ... import breaks
from ...guards.tensor_metadata import is_tensor
from ...interpreter.frames import MISSING, SAMPLE, Generator
from ...interpreter.reads_past_overrides import store_class_fact
from ...numbers import numpy_tables
from ...numbers.live_scalars import Live
from ...numpy_calls import array_attributes, graph_arrays
from .class_attributes import load_from_class, load_from_class_plainly, load_from_super
from .function_attributes import load_from_function
from .instance_attributes import load_from_instance, load_past_own_rules
from .python_module_attributes import load_from_module, load_from_module_plainly
from .tensor_attributes import load_from_tensor

TYPE_ALIAS = getattr(typing, "TypeAliasType", None)
NATIVE_TYPES = (
    frozenset((int, float, complex, bool, str, bytes, list, dict, tuple, set, frozenset, slice, range, bytearray))
    | {type(None), torch.dtype, torch.device, torch.Size, torch.finfo, torch.iinfo}
    | {BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, Generator}
    | numpy_tables.FACTS
    | numpy_tables.DTYPES
)


def load(m: Any, obj: Any, name: str) -> Any:
    kind = type(obj)
    loader = _loaders.get(kind)
    if loader is None:
        loader = store_class_fact(_loaders, kind, _loader_for(kind))
    return loader(m, obj, name)


_loaders: dict[type, Any] = {}


def _loader_for(kind: type) -> Any:
    """How attributes of this type's objects are read. ``isinstance`` is slow for tensors: it runs once a type."""
    if kind is Generator:
        return _load_from_generator
    if kind in NATIVE_TYPES:
        return _load_natively
    if issubclass(kind, torch.Tensor):
        return load_from_tensor
    if issubclass(kind, type):
        return load_from_class
    if issubclass(kind, ModuleType):
        return load_from_module
    if kind is FunctionType:
        return load_from_function
    if issubclass(kind, Live):
        return lambda m, obj, name: m.plainly(getattr, obj.settle(), name)
    if kind is super:
        return load_from_super
    if kind is MethodType:
        return _load_from_method
    if kind is TYPE_ALIAS or kind is GenericAlias:
        return _load_from_type_alias
    if kind in numpy_tables.NUMBERS or kind is numpy_tables.ARRAY:
        return _load_from_numpy
    return load_from_instance


def _load_from_numpy(m: Any, obj: Any, name: str) -> Any:
    if graph_arrays.is_data(m, obj):
        answer = array_attributes.load(m, obj, name)
        return load_from_instance(m, obj, name) if answer is MISSING else answer
    if type(obj) is not numpy_tables.ARRAY:
        return (_load_natively if m.heap.origin_of(obj) is None else load_from_instance)(m, obj, name)
    value = _load_natively(m, obj, name)
    if type(value) is numpy_tables.ARRAY:
        m.arrays[id(value)] = value  # its transpose, say
    elif not isinstance(value, (int, tuple, BuiltinFunctionType)) and type(value) not in numpy_tables.DTYPES:
        m.stop(breaks.OPAQUE_CALL, f".{name} of an array")
    return value


def _load_natively(m: Any, obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name)
    except AttributeError:
        pass
    return m.plainly(getattr, obj, name)  # which raises it in the program, outside the handler: it has no context


OF_ITS_CLASS = ("__doc__", "__module__", "__class_getitem__")
OF_ITS_OBJECT = ("__setstate__", "__sizeof__")


def _load_from_generator(m: Any, obj: Generator, name: str) -> Any:
    sample = SAMPLE if obj.builtin is None else obj.builtin.sample
    if name in OF_ITS_CLASS or not hasattr(sample, name):
        return m.plainly(getattr, sample, name)
    if obj.builtin is not None and (name in OF_ITS_OBJECT or not hasattr(obj, name)):
        m.stop(breaks.OPAQUE_CALL, f"{name} of a {obj.__class__.__name__}")
    return _load_natively(m, obj, name)


def _load_from_method(m: Any, obj: MethodType, name: str) -> Any:
    if name != "__doc__" and hasattr(MethodType, name):
        return getattr(obj, name)
    return load(m, obj.__func__, name)


def _load_from_type_alias(m: Any, obj: Any, name: str) -> Any:
    """One made here computes its value natively, at the first read, from variables that differ in the next call."""
    alias = obj.__origin__ if type(obj) is GenericAlias else obj
    if name == "__value__" and type(alias) is TYPE_ALIAS and id(alias) in m.heap.fresh:
        m.stop(breaks.OPAQUE_CALL, "the value of a type alias made in the program")
    return load_from_instance(m, obj, name)


def load_plainly(m: Any, obj: Any, name: str) -> Any:
    """``object.__getattribute__`` with the ``__getattr__`` fallback."""
    kind = type(obj)
    # By the class alone: an object may say anything about its ``__class__``, and run the user's code to say it.
    if issubclass(kind, type):
        return load_from_class_plainly(m, obj, kind, name)
    if issubclass(kind, ModuleType):
        return load_from_module_plainly(m, obj, name)
    if kind in NATIVE_TYPES or is_tensor(obj):
        return load(m, obj, name)
    return load_past_own_rules(m, obj, kind, name)
