"""Builtins on objects and classes while tracing: ``getattr``, ``isinstance``, ``object.__new__`` and so on."""

from __future__ import annotations

import abc
from collections.abc import Callable
from types import FunctionType, UnionType
from typing import Any

from .. import breaks
from ..engine.interpreted_or_native import find_on_type, is_trusted_type, is_user_type
from ..guards import immutable_builtin_subclasses
from ..interpreter.frame_introspection import namespace_of
from ..interpreter.frames import MISSING, PUSHED, SAMPLE, Generator, Raised
from ..interpreter.reads_past_overrides import dict_of
from ..numbers.live_scalars import Expression, Live, settled
from . import class_creation, object_creation
from .attributes import attribute_reads, attribute_writes
from .attributes.attribute_writes import without_result
from .attributes.class_lookup import guard_order, lookup
from .attributes.descriptor_binding import special_method
from .polyfills import object_polyfills
from .sequence_builtins import wants_python


def _getattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) == 2 and issubclass(type(args[1]), str):
        return attribute_reads.load(m, args[0], settled(args[1]))
    if len(args) == 3 and issubclass(type(args[1]), str):
        try:
            value = attribute_reads.load(m, args[0], settled(args[1]))
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return args[2]
            raise
        if value is PUSHED:
            # The attribute is computed by Python code: pop its frame, read under a try.
            m.frame = m.frame.caller
            return m.call(object_polyfills.getattr_or, args, {})
        return value
    return m.plainly(getattr, *args, **kwargs)


def _hasattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 2 or not issubclass(type(args[1]), str):
        return m.plainly(hasattr, *args, **kwargs)
    if type(args[0]) is Generator and args[0].builtin is not None:
        return hasattr(args[0].builtin.sample, settled(args[1]))
    try:
        value = attribute_reads.load(m, args[0], settled(args[1]))
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            return False
        raise
    if value is PUSHED:
        m.frame = m.frame.caller
        return m.call(object_polyfills.has_attribute, args, {})
    return True


def _setattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if not issubclass(type(args[1]), str):
        return m.plainly(setattr, *args)
    return without_result(m, attribute_writes.store(m, args[0], settled(args[1]), args[2]))


def _delattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if not issubclass(type(args[1]), str):
        return m.plainly(delattr, *args)
    return without_result(m, attribute_writes.delete(m, args[0], settled(args[1])))


def is_instance(m: Any, args: tuple, kwargs: dict) -> Any:
    obj, kinds = args
    if type(obj) is Generator:
        obj = SAMPLE if obj.builtin is None else obj.builtin.sample
    if issubclass(type(obj), Live):
        obj = obj.plain()  # a truth is no `bool` in the trace
    answer = check_by_user(m, "__instancecheck__", obj, kinds)
    if answer is not MISSING:
        return answer
    if says_its_class(m, type(obj)) and is_kind_of_class(m, kinds):
        return m.call(object_polyfills.instance_by_class, (obj, tuple(_flatten(kinds))), {})
    answer = m.plainly(isinstance, obj, kinds)
    guard_order(m, type(obj))
    for kind in _flatten(kinds):
        guard_registered(m, type(obj), kind)
        if is_asked_for_attributes(kind):
            guard_attributes(m, obj, kind)
    return answer


def is_kind_of_class(m: Any, kinds: Any) -> bool:
    """Whether ``isinstance`` has a class to compare with. It refuses anything else without asking the object."""
    if all(issubclass(type(kind), type) for kind in _flatten(kinds)):
        return True
    if is_several(kinds):
        m.stop(breaks.OPAQUE_CALL, "isinstance with classes and something else")
    return False


def says_its_class(m: Any, kind: type) -> bool:
    """Whether Python code of the user's computes ``__class__``."""
    if not is_user_type(kind):
        return False
    getter = lookup(m, kind, "__class__")[0]
    return isinstance(getter, property) or isinstance(lookup(m, kind, "__getattribute__")[0], FunctionType)


def check_by_user(m: Any, name: str, subject: Any, kinds: Any) -> Any:
    """``isinstance`` or ``issubclass`` by code of the user's: a method of one of the kinds, or their ``__bases__``."""
    of_instance = name == "__instancecheck__"
    checks = [lookup(m, type(kind), name) for kind in _flatten(kinds)]
    is_own = any(owner is not None and not is_trusted_type(owner) for _, owner in checks)
    has_no_class = [not issubclass(type(kind), type) and is_user_type(type(kind)) for kind in _flatten(kinds)]
    if not of_instance:
        has_no_class.append(not issubclass(type(subject), type) and is_user_type(type(subject)))
    if not is_own and not any(has_no_class):
        return MISSING
    if is_several(kinds):
        if type(kinds) is UnionType and not all(isinstance(kind, type) for kind in kinds.__args__):
            m.stop(breaks.OPAQUE_CALL, f"{name} of a union with parameterized classes")
        polyfill = object_polyfills.instance_check if of_instance else object_polyfills.subclass_check
        return m.call(polyfill, (subject, parts_of(kinds)), {})
    if is_own and checks[0][0] is not None:
        return m.call(object_polyfills.truth_of, (special_method(m, kinds, name), subject), {})
    owner = checks[0][1]
    if (
        owner is not None and owner is not type
    ):  # of C code's: a parameterized class refuses, an abstract one asks for a class
        return m.plainly(isinstance if of_instance else issubclass, subject, kinds)
    polyfill = object_polyfills.instance_by_bases if of_instance else object_polyfills.subclass_by_bases
    return m.call(polyfill, (subject, kinds), {})


def _issubclass(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 2:
        return MISSING
    answer = check_by_user(m, "__subclasscheck__", *args)
    if answer is not MISSING:
        return answer
    if issubclass(type(args[0]), type):
        guard_order(m, args[0])
        for kind in _flatten(args[1]):
            guard_registered(m, args[0], kind)
    return MISSING


def guard_registered(m: Any, cls: type, kind: Any) -> None:
    """Guard ``issubclass`` for an abstract class: a class may be registered, or get the methods, at any time."""
    key = (cls, "is registered", kind)
    if (
        issubclass(type(kind), abc.ABCMeta)
        and (is_user_type(cls) or is_user_type(kind))
        and key not in m.lookups
        and not is_asked_for_attributes(kind)
    ):
        m.lookups[key] = (MISSING, None)
        m.guard_outcome(Expression(issubclass, (cls, kind)), m.plainly(issubclass, cls, kind))


def is_asked_for_attributes(kind: Any) -> bool:
    """Whether ``isinstance`` with this class looks for attributes: a ``typing.runtime_checkable`` protocol."""
    return issubclass(type(kind), abc.ABCMeta) and bool(find_on_type(kind, "_is_runtime_protocol"))


def guard_attributes(m: Any, obj: Any, kind: type) -> None:
    origin = m.heap.origin_of(obj)
    if origin is not None and is_user_type(type(obj)):
        m.heap.guard_answer(isinstance, origin.source, kind, answer=isinstance(obj, kind))


def _flatten(kinds: Any) -> list:
    if is_several(kinds):
        return [k for part in parts_of(kinds) for k in _flatten(part)]
    return [kinds]


def is_several(kinds: Any) -> bool:
    return issubclass(type(kinds), tuple) or type(kinds) is UnionType


def parts_of(kinds: Any) -> tuple:
    return kinds.__args__ if type(kinds) is UnionType else kinds


def _new(m: Any, args: tuple, kwargs: dict) -> Any:
    """``object.__new__(cls)``."""
    if not args:
        return m.plainly(object.__new__, **kwargs)
    cls = args[0]
    if (
        isinstance(cls, type)
        and cls.__init__ is not object.__init__
        and cls.__new__ is object.__new__
        or len(args) == 1
    ):
        return m.made(m.plainly(object.__new__, cls))
    return m.made(m.plainly(object.__new__, *args, **kwargs))


def new_of(m: Any, owner: type, args: tuple, kwargs: dict) -> Any:
    """``tuple.__new__(cls, items)`` and similar calls."""
    if owner is object:
        return _new(m, args, kwargs)
    if owner is type:
        return class_creation.make_class(m, type.__new__, args, kwargs)
    if owner in (tuple, dict, list, set, *immutable_builtin_subclasses.BASES) or issubclass(
        owner, (BaseException, dict, list)
    ):
        if owner in (tuple, frozenset) and len(args) > 1 and wants_python(m, args[1:2]):
            return m.call(object_polyfills.tuple_of_class, (owner.__new__, *args), kwargs)
        if owner in immutable_builtin_subclasses.BASES:
            args = tuple(map(settled, args))
        m.heap.expose(args)
        return m.made(m.plainly(owner.__new__, *args, **kwargs))
    return MISSING


def _object_setattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if issubclass(type(args[0]), type):
        return m.plainly(object.__setattr__, *args)  # which refuses
    return without_result(m, attribute_writes.store_plainly(m, *args))


def _object_getattribute(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 2 or kwargs or not issubclass(type(args[1]), str):
        return m.plainly(object.__getattribute__, *args, **kwargs)  # which refuses
    return attribute_reads.load_plainly(m, *args)


def _object_delattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if issubclass(type(args[0]), type):
        return m.plainly(object.__delattr__, *args)  # which refuses
    return without_result(m, attribute_writes.delete_plainly(m, *args))


def _vars(m: Any, args: tuple, kwargs: dict) -> Any:
    if args:
        has_any = dict_of(args[0]) is not None or lookup(m, type(args[0]), "__dict__")[0] is not MISSING
        return attribute_reads.load(m, args[0], "__dict__") if has_any else m.plainly(vars, args[0])
    return namespace_of(m.frame, m.load_cell)


UNBOUND: dict[Any, Callable] = {
    object.__init__: lambda m, args, kwargs: m.plainly(object.__init__, *args, **kwargs),
    object.__getattribute__: _object_getattribute,
    object.__setattr__: _object_setattr,
    object.__delattr__: _object_delattr,
    type.__call__: lambda m, args, kwargs: object_creation.construct_by_type(m, args[0], args[1:], kwargs),
}
UNBOUND_TAKE = {object.__getattribute__: 2, object.__setattr__: 3, object.__delattr__: 2}
"""The minimum number of arguments, where that is more than one."""


BUILTINS: dict[Any, Callable] = {
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    isinstance: is_instance,
    issubclass: _issubclass,
    vars: _vars,
}
