"""Decides whether an object from outside is guarded by value, by identity or by its contents."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from typing import Any

import torch

from ..engine.interpreted_or_native import is_pure_module, is_trusted_function, module_of
from ..interpreter.frames import EXHAUSTED, NULL, UNBOUND
from ..interpreter.reads_past_overrides import store_class_fact
from ..numbers import numpy_tables
from . import immutable_builtin_subclasses
from .tensor_metadata import TENSOR_TYPES

SINGLETONS = (None, True, False, Ellipsis, NotImplemented, NULL, UNBOUND, EXHAUSTED)
SINGLETON_IDS = frozenset(map(id, SINGLETONS))
# Compared by value: only value and type are observable.
VALUES = numpy_tables.VALUES | frozenset(
    (int, float, complex, str, bytes, torch.device, torch.Size, range, slice, torch.finfo, torch.iinfo)
)
ATOMS = frozenset((int, float, complex, str, bytes))
"""Of these, a result is a new object or a shared one as Python likes."""
PLAIN_VALUES = ATOMS | {
    *(bool, type(None), type(Ellipsis)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
}
# Immutable types of these modules are compared by value, too.
VALUE_MODULES = frozenset(
    ("datetime", "_pydatetime", "decimal", "_decimal", "fractions", "re", "uuid", "pathlib", "ipaddress")
) | {"torch.distributed.tensor.placement_types"}
# Compared by identity.
IDENTITIES = (
    frozenset((type, types.ModuleType, property, staticmethod, classmethod, types.GenericAlias, types.UnionType))
    | {torch.dtype, torch.layout, torch.memory_format, types.BuiltinFunctionType, types.ClassMethodDescriptorType}
    | {types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType}
    | numpy_tables.FACTS
    | numpy_tables.FUNCTION_KINDS
)
FIXED_WITH_STATE = (type, types.ModuleType, types.FunctionType, enum.Enum)
"""The object behind a name is fixed, while its attributes may be set at any time."""
FIXED_MODULES = ("torch._ops", "typing")
DICTS = (dict, types.MappingProxyType)
LISTS = (list, collections.deque)

GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
METHOD_WRAPPER = type("".__add__)
GUARDED_KINDS = (
    *(torch.Tensor, torch.nn.Module, list, tuple, dict, set, collections.deque, types.MappingProxyType),
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, METHOD_WRAPPER, functools.partial),
    *(BaseException, *immutable_builtin_subclasses.BASES, *GETTERS),
)


# Types without contents to guard, the most common arguments of native code.
UNEXPOSED = TENSOR_TYPES | {int, float, bool, str, type(None), torch.dtype, torch.device}


def is_compared_by_value(kind: type) -> bool:
    return (
        kind in VALUES
        or module_of(kind) in VALUE_MODULES
        and kind.__hash__ is not None
        and kind.__eq__ is not object.__eq__
    )  # not decimal's context, for example: an object with a changing state


PLAIN_KINDS: dict[type, bool] = {}
SPECIAL_KINDS = (
    *(tuple, *immutable_builtin_subclasses.BASES, type, enum.Enum, torch.Tensor, types.ModuleType, functools.partial),
    *(functools._lru_cache_wrapper, *GETTERS, types.FunctionType, METHOD_WRAPPER, types.BuiltinFunctionType),
    types.MethodType,
)


def is_plain_kind(kind: type) -> bool:
    """Whether only the type of an object of this kind is guarded when it is first met."""
    found = PLAIN_KINDS.get(kind)
    if found is None:
        found = store_class_fact(
            PLAIN_KINDS,
            kind,
            not (
                is_compared_by_value(kind)
                or kind in IDENTITIES
                or issubclass(kind, SPECIAL_KINDS)
                or module_of(kind) in FIXED_MODULES
                or any(type(value) is kind for value in SINGLETONS)
            ),
        )
    return found


def is_named_tuple(kind: type) -> bool:
    """Whether it is a class of ``collections.namedtuple`` or ``typing.NamedTuple``, and no subclass of one."""
    return kind.__bases__ == (tuple,) and "_fields" in kind.__dict__


def has_fixed_meaning(value: Any) -> bool:
    kind = type(value)
    if is_plain_kind(kind):
        return False
    if kind is types.FunctionType:
        if "__burnish_original__" in value.__dict__:
            return True  # compiled wrappers share one code object
        return "<locals>" not in value.__qualname__ and value.__name__ != "<lambda>" or is_trusted_function(value)
    if kind is types.BuiltinFunctionType:
        return isinstance(value.__self__, (types.ModuleType, type, type(None)))
    if kind in IDENTITIES or issubclass(kind, (type, enum.Enum, types.ModuleType)):
        return True
    return module_of(kind) in FIXED_MODULES or kind is functools._lru_cache_wrapper


def is_made_by_call(value: types.FunctionType) -> bool:
    """Whether each call may make such a function again, and it is interpreted, or its code is all that matters."""
    if "<locals>" not in value.__qualname__ or "__burnish_original__" in value.__dict__:
        return False
    if value.__closure__ is None and value.__defaults__ is None and value.__kwdefaults__ is None:
        return True
    module = value.__module__ or "torch"
    return module.partition(".")[0] != "torch" and not is_pure_module(module)


def is_setting(namespace: dict, name: str, value: Any) -> bool:
    """Whether a name of a trusted module or class is there to be assigned: ``sys.excepthook``, ``tempfile.tempdir``,
    ``Distribution._validate_args``, and the switch that ``torch.backends.mha.set_fastpath_enabled`` sets."""
    if name.startswith("__"):
        return False
    if type(value) in (types.FunctionType, types.BuiltinFunctionType):
        return name.endswith("hook") or name in ("showwarning", "formatwarning")
    return type(value) in (str, type(None), bool) and not name.isupper()
