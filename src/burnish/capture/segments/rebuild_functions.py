"""Templates of functions, methods, closure cells and partials, and of generators with their frames."""

from __future__ import annotations

import collections
import functools
import types
import weakref
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from ..engine.break_signals import Unrebuildable
from ..interpreter.frames import UNBOUND, Frame, Generator, cell_value
from ..interpreter.versions.behavior import BEHAVIOR
from ..python.attributes.function_attributes import are_computed
from ..python.polyfills import sort_polyfills
from .shown_iterators import as_native, bound, is_shown
from .template_runtime import attributes_of_partial, generator_shell, link_generator, make_frame
from .template_writer import TemplateWriter

PLAIN_OWNERS = frozenset((list, dict, set, tuple, str, int, float, bytes, collections.deque, torch.Tensor))


def build_method(to: TemplateWriter, value: MethodType) -> str:
    function, owner = to.build(value.__func__), to.build(value.__self__)
    make = bound if type(value.__self__) is Generator else MethodType
    return to.name(value, to.call(make, function, owner))


KEY_FUNCTION = "cmp_to_key.<locals>.key"
METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def class_of_method(value: Any, owner: Any) -> type | None:
    """The class that a method of C code was taken from. A subclass may override the method, and the method's own names
    are those of the subclass."""
    home = getattr(value, "__objclass__", None)
    if home is not None:
        return home
    for cls in type(owner).__mro__:
        found = cls.__dict__.get(value.__name__)
        if isinstance(found, METHODS) and found.__get__(owner, type(owner)) == value:
            return cls
    return None


def build_builtin(to: TemplateWriter, value: Any) -> str:
    owner = value.__self__
    if owner is None or isinstance(owner, (types.ModuleType, type)) or type(owner).__module__ == "pybind11_builtins":
        return to.constant(value)  # pybind11's functions hold their own record, the same for all objects of a class
    name = value.__name__
    if type(owner) in PLAIN_OWNERS:
        return to.name(value, f"({to.build(owner)}).{name}")
    home = class_of_method(value, owner)
    if home is None:
        return to.name(value, f"({to.build(owner)}).{name}")  # of a number, too
    # With the class: some methods in C receive it, and CPython reads it without checking that it is there.
    bind, kind = to.constant(home.__dict__[name].__get__), to.constant(type(owner))
    return to.name(value, f"{bind}({to.build(owner)}, {kind})")


def build_function(to: TemplateWriter, value: FunctionType) -> str:
    if id(value) not in to.heap.fresh:
        return to.constant(value)
    if id(value.__globals__) in to.heap.fresh:
        raise Unrebuildable(value, f"{value.__qualname__}, a function of a text that exec() runs, leaves the graph")
    if value.__qualname__ == KEY_FUNCTION and value.__module__ == sort_polyfills.__name__:
        raise Unrebuildable(value)  # outside a sort a program can see that it is not an object of functools
    closure = to.tuple_of(value.__closure__) if value.__closure__ else "None"
    code, namespace = to.constant(value.__code__), to.constant(value.__globals__)
    name = to.name(value, to.call(FunctionType, code, namespace, repr(value.__name__), "None", closure))
    for field in ("__defaults__", "__kwdefaults__"):
        if getattr(value, field):
            to.lines.append(f"{name}.{field} = {to.build(getattr(value, field))}")
    to.lines.append(f"{name}.__qualname__ = {value.__qualname__!r}")
    if value.__doc__ != (value.__code__.co_consts[0] if value.__code__.co_consts else None):
        to.lines.append(f"{name}.__doc__ = {to.build(value.__doc__)}")
    if value.__module__ != value.__globals__.get("__name__"):
        to.lines.append(f"{name}.__module__ = {value.__module__!r}")
    if BEHAVIOR.annotations_are_computed and value.__annotate__ is not None:
        if are_computed(value):
            raise Unrebuildable(value)  # it would compute them again
        to.lines.append(f"{name}.__annotate__ = {to.build(value.__annotate__)}")
    elif value.__annotations__:
        to.lines.append(f"{name}.__annotations__ = {to.build(value.__annotations__)}")
    if getattr(value, "__type_params__", ()):
        to.lines.append(f"{name}.__type_params__ = {to.build(value.__type_params__)}")  # type: ignore[attr-defined]
    to.set_attributes(name, value.__dict__)
    return name


def build_cell(to: TemplateWriter, value: CellType) -> str:
    name = to.name(value, to.call(CellType))
    content = cell_value(value)
    if content is not UNBOUND:
        to.lines.append(f"{name}.cell_contents = {to.build(content)}")
    return name


def build_partial(to: TemplateWriter, value: functools.partial) -> str:
    function, args, kwargs = to.build(value.func), to.build(value.args), to.build(value.keywords)
    name = to.name(value, to.call(functools.partial, function, f"*{args}", f"**{kwargs}"))
    to.set_attributes(name, attributes_of_partial(value) or {})
    return name


def build_generic_alias(to: TemplateWriter, value: types.GenericAlias) -> str:
    if any(id(part) in to.heap.fresh for part in (value.__origin__, *value.__args__)):
        raise Unrebuildable(value)
    return to.constant(value)


def build_weak_reference(to: TemplateWriter, value: weakref.ref) -> str:
    target = value()
    if value.__callback__ is not None:
        raise Unrebuildable(value, "a weak reference with a function to call at the object's end")
    return to.name(value, to.call(weakref.ref, to.build(target)) if target is not None else to.constant(value))


def build_super(to: TemplateWriter, value: Any) -> str:
    return to.name(value, f"super({to.constant(value.__thisclass__)}, {to.build(value.__self__)})")


def build_generator(to: TemplateWriter, value: Generator) -> str:
    if (origin := to.heap.origin_of(value)) is not None and not to.heap.runs_here(value):
        return to.name(value, to.call(as_native, to.load(origin.source)))
    parts = value.parts() if is_shown(to, to.heap, value) else None
    if parts is not None:
        return to.name(value, to.call(parts[0], to.items(parts[1])))
    names = repr(value.__name__), repr(value.__qualname__)
    name = to.name(value, to.call(generator_shell, *names, to.constant(value.code), str(value.started)))
    at = to.active.get(id(value))
    if at is None and value.frame is not None:
        to.do(link_generator, name, build_frame(to, value.frame))
    return name


def build_frame(to: TemplateWriter, frame: Frame) -> str:
    content = to.list_of(frame.locals), to.list_of(frame.stack), to.build(frame.handling)
    where = map(to.constant, (frame.code, frame.globals, frame.builtins))
    return to.call(make_frame, *where, str(frame.pc), *content)
