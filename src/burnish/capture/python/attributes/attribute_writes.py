"""Attribute writes while tracing: setting and deleting, recorded as side effects to repeat on later runs.

Python code on the way (``__setattr__``, properties, descriptors) is interpreted.
"""

from __future__ import annotations

import threading
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

import torch

from ....tensors.tensor_types import is_leaf
from ... import breaks
from ...engine.interpreted_or_native import find_on_type, is_trusted_type
from ...guards.tensor_metadata import TENSOR_TYPES, is_tensor
from ...interpreter import frames as fr
from ...interpreter.frames import MISSING, PUSHED, Generator
from ...interpreter.reads_past_overrides import dict_of
from ...pytorch import tensor_hooks_and_data
from .class_lookup import forget, lookup
from .descriptor_binding import is_property
from .instance_attributes import OF_DICTS, PROXIES, table_of

HAVE_OWN_SETTER = (FunctionType, threading.local)


def discard(m: Any, answer: Any, completion: int = fr.DISCARD) -> Any:
    """Drop the result of a setter, whether it is here or comes when its frame returns."""
    if answer is PUSHED:
        m.frame.completion = completion
        return PUSHED
    return None


def without_result(m: Any, answer: Any) -> Any:
    """A setter called as a function returns None."""
    return discard(m, answer, fr.PUSH_NONE)


def store(m: Any, obj: Any, name: str, value: Any) -> Any:
    kind = type(obj)
    if issubclass(type(obj), torch.Tensor):
        if kind not in TENSOR_TYPES and type(lookup(m, kind, "__setattr__")[0]) is not WrapperDescriptorType:
            m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to .{name} by {kind.__qualname__}.__setattr__")
        return _store_on_tensor(m, obj, name, value)
    if issubclass(type(obj), type):
        custom, owner = lookup(m, kind, "__setattr__")
        if isinstance(custom, FunctionType):
            _refuse_trusted(m, owner, name)
            return discard(m, m.call(custom, (obj, name, value), {}))
        return _store_on_class(m, obj, name, value)
    if issubclass(type(obj), ModuleType) and not _has_rules_for(m, kind, name):
        if m.region is not None:
            m.region.will_write(obj)
        origin = m.heap.namespace(dict_of(obj))
        m.heap.will_write_key(origin, name)
        origin.obj[name] = value
        return None
    if kind in PROXIES:
        m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to .{name} through a weak proxy")
    if kind is Generator and name in ("__name__", "__qualname__") and not isinstance(value, str):
        return m.plainly(setattr, fr.SAMPLE, name, value)  # which raises the error
    custom, owner = lookup(m, kind, "__setattr__")
    if isinstance(custom, FunctionType):
        return discard(m, m.call(custom, (obj, name, value), {}))
    if custom in OF_DICTS:
        return m.call(custom, (obj, name, value), {})
    return store_plainly(m, obj, name, value)


def _refuse_trusted(m: Any, metaclass: type, name: str) -> None:
    """Stop where native code would change a class: that of enumerations."""
    if is_trusted_type(metaclass):
        m.stop(breaks.UNSUPPORTED_WRITE, f"a change of .{name} by {metaclass.__qualname__}")


def _has_rules_for(m: Any, kind: type, name: str) -> bool:
    """Whether a class of modules has its own ``__setattr__``, or a data descriptor under the name."""
    if isinstance(lookup(m, kind, "__setattr__")[0], FunctionType):
        return True
    found, _ = lookup(m, kind, name)
    return found is not MISSING and find_on_type(type(found), "__set__") is not None


def store_plainly(m: Any, obj: Any, name: str, value: Any) -> Any:
    """``object.__setattr__``, or ``type.__setattr__``."""
    kind = type(obj)
    if not isinstance(name, str):
        return m.plainly(setattr, obj, name, value)  # which raises the error
    if issubclass(type(obj), type):
        return _store_on_class(m, obj, name, value)
    if m.region is not None:
        m.region.will_write(obj)
    if issubclass(type(obj), torch.Tensor):
        return _store_on_tensor(m, obj, name, value)
    descriptor, _ = lookup(m, kind, name)
    if descriptor is not MISSING:
        if is_property(m, type(descriptor)) and isinstance(descriptor.fset, FunctionType):
            return discard(m, m.call(descriptor.fset, (obj, value), {}))
        if type(descriptor) is MemberDescriptorType:
            _will_write_field(m, obj, name)
            return m.plainly(object.__setattr__, obj, name, value)
        if type(descriptor) is GetSetDescriptorType:
            if isinstance(obj, BaseException) and name.startswith("__") and id(obj) not in m.origins:
                return m.plainly(setattr, obj, name, value)
            if id(obj) in m.heap.fresh and kind is FunctionType:
                return m.plainly(setattr, obj, name, value)
            m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to .{name} of a {kind.__qualname__}")
        setter = find_on_type(type(descriptor), "__set__")
        if isinstance(setter, FunctionType):
            return discard(m, m.call(setter, (descriptor, obj, value), {}))
        if setter is not None:
            return m.plainly(object.__setattr__, obj, name, value)
    if table_of(m, obj, name) is None:
        return m.plainly(object.__setattr__, obj, name, value)
    members = m.heap.members(obj)
    if members is not None:
        m.heap.will_write_key(members, name)
    elif id(obj) not in m.heap.fresh and not isinstance(obj, BaseException):
        m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to .{name} of a {kind.__qualname__} of unknown origin")
    return m.plainly(setattr if issubclass(kind, HAVE_OWN_SETTER) else object.__setattr__, obj, name, value)


def _will_write_field(m: Any, obj: Any, name: str) -> None:
    origin = m.heap.origin_of(obj)
    if origin is not None:
        origin.note_written(name)


def _store_on_tensor(m: Any, obj: torch.Tensor, name: str, value: Any) -> Any:
    if name == "grad":
        return m.gradients.write(obj, value)
    if name == "data" and tensor_hooks_and_data.set_data(m, obj, value) is None:
        return None
    if name == "requires_grad" and (
        requires_it_already(m, obj, value) or tensor_hooks_and_data.set_requires_grad(m, obj, value) is None
    ):
        return None
    if name == "requires_grad" and type(obj) not in TENSOR_TYPES:
        m.stop(breaks.TENSOR_STATE, f"assignment to .{name} of a {type(obj).__qualname__}")
    found, owner = lookup(m, type(obj), name)
    if type(found) is MemberDescriptorType:
        m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to the slot .{name} of a tensor")
    if owner is not torch.Tensor and sets_as_property(m, found) and isinstance(found.fset, FunctionType):
        return discard(m, m.call(found.fset, (obj, value), {}))
    if found is not MISSING and isinstance(find_on_type(type(found), "__set__"), FunctionType):
        m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to .{name} of a tensor by its descriptor")
    if found is not MISSING and (type(obj) in TENSOR_TYPES or hasattr(type(found), "__set__")):
        seen = m.recorder.seen
        m.perform(setattr, obj, name, value)
        if m.recorder.seen == seen:
            m.late(breaks.TENSOR_STATE, f"assignment to .{name} of a tensor", None)
        return None
    members = m.heap.members(obj)
    if members is not None:
        if m.region is not None:
            m.region.will_write(obj)
        m.heap.will_write_key(members, name)
    elif not m.subclasses.is_made_here(obj):
        m.heap.has_marked = True
    return m.plainly(setattr, obj, name, value)


def sets_as_property(m: Any, found: Any) -> bool:
    kind = type(found)
    return is_property(m, kind) and (kind is property or lookup(m, kind, "__set__")[0] is property.__dict__["__set__"])


def _store_on_class(m: Any, cls: type, name: str, value: Any) -> None:
    """Data that a class of the user's has already, replaced by other data: what the class defines stays the same. A
    class made here may change in any way."""
    descriptor, owner = lookup(m, type(cls), name)
    if is_property(m, type(descriptor)) and isinstance(descriptor.fset, FunctionType):
        return discard(m, m.call(descriptor.fset, (cls, value), {}))
    if id(cls) in m.heap.fresh and (owner is type or not hasattr(type(descriptor), "__set__")):
        forget(m, cls)
        return m.plainly(type.__setattr__, cls, name, value)
    old, members = cls.__dict__.get(name, MISSING), m.heap.members(cls)
    if (
        m.region is not None
        or members is None
        or members.complete
        or is_trusted_type(cls)
        or descriptor is not MISSING
        or name.startswith("__")
        or any(each is MISSING or isinstance(each, FunctionType) for each in (old, value))
        or any(find_on_type(type(each), "__get__") is not None for each in (old, value))
    ):
        m.stop(breaks.UNSUPPORTED_WRITE, f"assignment to the class attribute {cls.__qualname__}.{name}")
    m.heap.will_write_key(members, name)
    m.plainly(type.__setattr__, cls, name, value)


def requires_it_already(m: Any, tensor: torch.Tensor, flag: Any) -> bool:
    """Whether ``tensor.requires_grad = flag`` changes nothing. Torch refuses it for a tensor that is not a leaf."""
    return type(tensor) in TENSOR_TYPES and tensor.requires_grad is flag and is_leaf(tensor) and m.knows(tensor)


def delete(m: Any, obj: Any, name: str) -> Any:
    kind = type(obj)
    if name == "grad" and is_tensor(obj):
        return m.gradients.write(obj, None)
    if issubclass(type(obj), type):
        custom, owner = lookup(m, kind, "__delattr__")
        if isinstance(custom, FunctionType):
            _refuse_trusted(m, owner, name)
            return discard(m, m.call(custom, (obj, name), {}))
        return _delete_from_class(m, obj, name)
    if issubclass(type(obj), torch.Tensor) or kind in PROXIES:
        m.stop(breaks.UNSUPPORTED_WRITE, f"deletion of .{name}")
    if kind is Generator:
        return m.plainly(delattr, fr.SAMPLE, name)  # which raises the error
    custom, _ = lookup(m, kind, "__delattr__")
    if isinstance(custom, FunctionType):
        return discard(m, m.call(custom, (obj, name), {}))
    if custom in OF_DICTS:
        return m.call(custom, (obj, name), {})
    return delete_plainly(m, obj, name)


def _delete_from_class(m: Any, cls: type, name: str) -> Any:
    descriptor, owner = lookup(m, type(cls), name)
    if is_property(m, type(descriptor)) and isinstance(descriptor.fdel, FunctionType):
        return discard(m, m.call(descriptor.fdel, (cls,), {}))
    if id(cls) not in m.heap.fresh or (owner is not type and hasattr(type(descriptor), "__delete__")):
        m.stop(breaks.UNSUPPORTED_WRITE, f"deletion of .{name}")
    forget(m, cls)
    return m.plainly(type.__delattr__, cls, name)


def delete_plainly(m: Any, obj: Any, name: str) -> Any:
    if not isinstance(name, str):
        return m.plainly(delattr, obj, name)  # which raises the error
    if issubclass(type(obj), type):
        return _delete_from_class(m, obj, name)
    if m.region is not None:
        m.region.will_write(obj)
    descriptor, _ = lookup(m, type(obj), name)
    if is_property(m, type(descriptor)) and isinstance(descriptor.fdel, FunctionType):
        return discard(m, m.call(descriptor.fdel, (obj,), {}))
    deleter = find_on_type(type(descriptor), "__delete__") if descriptor is not MISSING else None
    if isinstance(deleter, FunctionType):
        return discard(m, m.call(deleter, (descriptor, obj), {}))
    if type(descriptor) is MemberDescriptorType and id(obj) not in m.heap.fresh:
        m.stop(breaks.UNSUPPORTED_WRITE, f"deletion of the slot .{name}")
    remove = delattr if issubclass(type(obj), HAVE_OWN_SETTER) else object.__delattr__
    if deleter is not None or table_of(m, obj, name) is None:
        return m.plainly(remove, obj, name)
    members = m.heap.members(obj)
    if members is not None and name in dict_of(obj):
        m.heap.will_write_key(members, name, deletes=True)
    return m.plainly(remove, obj, name)
