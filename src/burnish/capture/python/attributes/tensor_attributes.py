"""Attributes of tensors: facts such as the shape are read at once, the rest is recorded or read from the object."""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any, NoReturn

import torch

from ... import breaks
from ...engine.interpreted_or_native import is_trusted_type
from ...guards.tensor_metadata import TENSOR_TYPES, has_rules
from ...interpreter.frames import MISSING
from .class_lookup import lookup
from .descriptor_binding import C_DESCRIPTORS, bind

PLAIN_FACTS = frozenset(
    """
    shape dtype device ndim requires_grad is_leaf layout is_cuda is_sparse is_quantized is_meta is_nested itemsize
    is_cpu is_mkldnn
""".split()
)

SHOWN_TO_MODES = (GetSetDescriptorType, property)

OF_HISTORY = ("requires_grad", "is_leaf")


def plain_fact(m: Any, obj: torch.Tensor, name: str) -> Any:
    if getattr(m.region, "is_reentrant", False) and name in OF_HISTORY and m.heap.origin_of(obj) is None:
        m.region.asks_about_gradients(f".{name} of a tensor")
    if name == "shape" and m.unbacked_sizes.has_sizes:
        shape = m.unbacked_sizes.asked("shape", obj, ())
        if shape is not None:
            return shape
    if name == "shape" and m.symbolic_sizes is not None:
        return m.symbolic_sizes.asked("shape", obj, ()) or obj.shape
    return getattr(obj, name)


def load_from_tensor(m: Any, obj: torch.Tensor, name: str) -> Any:
    if m.modes and isinstance(getattr(torch.Tensor, name, None), SHOWN_TO_MODES):
        return m.perform(getattr, obj, name)
    if name in PLAIN_FACTS:
        if type(obj) in (torch.Tensor, torch.nn.Parameter):
            return plain_fact(m, obj, name)
    elif name == "grad":
        return m.gradients.read(obj)
    elif name == "grad_fn" and type(obj) in TENSOR_TYPES and m.heap.origin_of(obj) is None and m.knows(obj):
        # Eager's own node. Compiled code has another, so it must not leave the segment: it cannot be rebuilt.
        return obj.grad_fn
    kind = type(obj)
    descriptor, owner = lookup(m, kind, name)
    if descriptor is MISSING or kind not in TENSOR_TYPES and not hasattr(type(descriptor), "__set__"):
        value = _of_tensor(m, obj, name)
        if value is not MISSING:
            return value
        if descriptor is MISSING:
            return m.plainly(getattr, obj, name)
    if name == "__dict__":
        if m.heap.members(obj) is None and has_rules(obj) and not m.subclasses.is_made_here(obj):
            _stop_at_own(m, obj, name)
        return obj.__dict__
    if isinstance(descriptor, FunctionType):
        return MethodType(descriptor, obj)
    if isinstance(descriptor, property) and isinstance(descriptor.fget, FunctionType):
        if is_trusted_type(owner):
            return m.perform(getattr, obj, name)
        return m.call(descriptor.fget, (obj,), {})
    if type(descriptor) is MemberDescriptorType:
        m.stop(breaks.OPAQUE_CALL, f"the slot .{name} of a {kind.__qualname__}")
    if isinstance(descriptor, C_DESCRIPTORS):
        if name == "nbytes":
            m.unbacked_sizes.asked(name, obj, ())
        if name == "nbytes" and m.symbolic_sizes is not None:
            m.symbolic_sizes.specialize_sizes(obj)
        return getattr(obj, name)
    if isinstance(descriptor, (classmethod, staticmethod)):
        return bind(m, descriptor, obj, kind, owner, name)
    return m.perform(getattr, obj, name)


def _of_tensor(m: Any, obj: torch.Tensor, name: str) -> Any:
    """What a tensor object's own dictionary has under a name."""
    members = m.heap.members(obj)
    if members is not None:
        return m.heap.read_key(members, name)
    table = getattr(obj, "__dict__", {})
    if name in table and has_rules(obj) and not m.subclasses.is_made_here(obj):
        _stop_at_own(m, obj, name)
    return table.get(name, MISSING)


def _stop_at_own(m: Any, obj: torch.Tensor, name: str) -> NoReturn:
    """The rules of its class run when the graph does, and may have put it there."""
    m.stop(breaks.OPAQUE_CALL, f"the attribute {name} of a {type(obj).__qualname__} made in the graph")
