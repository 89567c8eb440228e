"""Object creation while tracing: the work of ``type.__call__``, in steps that the interpreter can see."""

from __future__ import annotations

import collections
import enum
import functools
import random
import types
import weakref
from types import FunctionType
from typing import Any

import torch

from ...foundation.torch_private import InferenceMode
from .. import breaks
from ..engine.container_changes import table_read_at_once
from ..engine.interpreted_or_native import find_on_type, is_trusted_type, is_user_type
from ..engine.object_lifetimes import UNREFERENCED, rule_of
from ..engine.torch_call_records import NotRecordable
from ..guards import immutable_builtin_subclasses
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frame_introspection import arguments_of_super
from ..interpreter.frames import MISSING, Generator
from ..numbers import constant_tensors, decimal_context, graph_numbers, live_scalars, numpy_tables
from ..numbers.live_scalars import PLAIN, Live, settled
from ..numpy_calls import numpy_dispatch
from ..pytorch.modules import module_backward_hooks
from ..pytorch.torch_call_roles import why_not_leaf
from ..subclasses import make_tensors
from . import class_creation, in_memory_streams, iterator_creation, locks, random_objects
from .attributes.class_lookup import lookup, table_of
from .attributes.descriptor_binding import special_method
from .messages import print_and_format
from .operators import guard_before_native_read, iteration, truth_and_identity, value_kinds
from .polyfills import container_polyfills, iterator_polyfills, object_polyfills, operator_protocol_polyfills

ITERABLE_MAKERS = {
    list: container_polyfills.to_list,
    tuple: container_polyfills.to_tuple,
    set: container_polyfills.to_set,
    frozenset: container_polyfills.to_frozenset,
    dict: container_polyfills.to_dict,
}
ELEMENT_KINDS = (list, set, frozenset, tuple)
OLD_KIND = type(torch.LongTensor)
CONVERSIONS = {int: "__int__", float: "__float__", complex: "__complex__", bool: "__bool__", bytes: "__bytes__"}


def construct(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    special = CONSTRUCTORS.get(cls)
    if special is not None:
        answer = special(m, cls, args, kwargs)
        if answer is not MISSING:
            return answer
    if cls in numpy_tables.CLASSES:
        answer = numpy_dispatch.call(m, cls, args, kwargs)
        if answer is not MISSING:
            return answer
    if (
        type(cls) is OLD_KIND
        and not kwargs
        and len(args) == 1
        and type(args[0]) in (list, tuple)
        and cls.__module__ == "torch"
    ):
        # torch.LongTensor([1, 2]), from before tensors had dtypes. Classes for other devices are in other modules.
        return m.call(torch.tensor, args, {"dtype": cls.dtype, "device": "cpu"})  # type: ignore[attr-defined]
    if cls is torch.autograd.Variable and is_plain_variable(m, args, kwargs):
        return m.call(object_polyfills.variable, args, kwargs)
    if "__burnish_original__" in cls.__dict__:
        return m.call(cls.__dict__["__burnish_original__"], args, kwargs)
    meta_call, owner = lookup(m, type(cls), "__call__")
    if isinstance(meta_call, FunctionType):
        if issubclass(cls, enum.Enum):
            return enum_member(m, cls, args, kwargs)
        return m.call(meta_call, (cls, *args), kwargs)
    if type(meta_call) is type:  # a class does not bind: it is called without `cls`, as dict is for a TypedDict
        if id(owner) not in m.heap.fresh:
            m.heap.admit(meta_call, table_of(m, owner).item("__call__"))
        return m.call(meta_call, args, kwargs)
    if owner is not type and not is_trusted_type(owner):
        m.stop(breaks.OPAQUE_CALL, f"__call__ of {owner.__qualname__}, which is not a plain function")
    return construct_by_type(m, cls, args, kwargs)


def is_plain_variable(m: Any, args: tuple, kwargs: dict) -> bool:
    """Whether ``Variable(x, requires_grad=…)`` is a call that torch neither refuses nor shows to a mode."""
    if m.modes or len(args) != 1 or type(args[0]) not in TENSOR_TYPES or not kwargs.keys() <= {"requires_grad"}:
        return False
    if args[0].layout is not torch.strided:
        return False
    grad = kwargs.get("requires_grad", False)
    return type(grad) is bool and (not grad or args[0].is_floating_point() or args[0].is_complex())


def enum_member(m: Any, cls: type[enum.Enum], args: tuple, kwargs: dict) -> Any:
    """``Color(1)``. A flag keeps the value that it makes a member for."""
    if (len(args) > 1 or kwargs) and not cls._member_map_:
        m.stop(breaks.OPAQUE_CALL, f"{cls.__qualname__}() makes a class")
    args = tuple(guard_before_native_read.settled(value) for value in args)
    if len(args) == 1 and not is_trusted_type(lookup(m, cls, "_missing_")[1]) and not has_member(cls, args[0]):
        if issubclass(cls, enum.Flag) or kwargs:
            m.stop(breaks.OPAQUE_CALL, f"{cls.__qualname__}._missing_")
        return m.call(object_polyfills.member_for_missing, (cls, *args), {})
    return native(m, cls, args, kwargs)


def has_member(cls: type[enum.Enum], value: Any) -> bool:
    try:
        return type(value) is cls or value in cls._value2member_map_
    except TypeError:
        return any(value == member._value_ for member in cls)


def construct_by_type(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``type.__call__(cls, ...)``."""
    if rule_of(cls) == UNREFERENCED:
        m.stop(
            breaks.OPAQUE_CALL,
            f"making a {cls.__qualname__}, whose __del__ runs at its end, and which is not referenced weakly",
        )
    new, new_owner = lookup(m, cls, "__new__")
    init, init_owner = lookup(m, cls, "__init__")
    if isinstance(new, staticmethod):
        new = new.__func__
    new_is_python, init_is_python = isinstance(new, FunctionType), isinstance(init, FunctionType)
    if issubclass(cls, torch.Tensor) and not (new_is_python and new_owner.__module__ != "torch.nn.parameter"):
        if new_is_python or not make_tensors.shows_its_argument(m, cls, args, kwargs):
            return make_tensor(m, cls, args, kwargs)
        obj = make_tensors.show_as(m, args[0], cls)
        return m.call(object_polyfills.construct_around, (obj, args, kwargs), {}) if init_is_python else obj
    if new_is_python:
        has_init = init_owner is not object
        polyfill = object_polyfills.construct if has_init else object_polyfills.construct_without_init
        return m.call(polyfill, (cls, args, kwargs), {})
    if init_is_python:
        if new_owner is object:
            m.made(obj := m.plainly(object.__new__, cls))
            return m.call(object_polyfills.construct_around, (obj, args, kwargs), {})
        return m.call(object_polyfills.construct, (cls, args, kwargs), {})
    if (
        issubclass(cls, dict)
        and is_user_type(cls)
        and (value_kinds.has_own_rules(m, cls) or any(iteration.merges_in_python(m, a, cls) for a in args))
    ):
        m.made(obj := m.plainly(cls.__new__, cls))
        return m.call(object_polyfills.construct_around, (obj, args, kwargs), {})
    of_set = issubclass(cls, (set, frozenset))
    if (
        issubclass(cls, ELEMENT_KINDS)
        and is_user_type(cls)
        and args
        and iteration.needs_interpreting(m, args[0])
        and not (of_set and issubclass(type(args[0]), (set, frozenset)))  # read without its iterator
    ):
        if len(args) > 1 or kwargs:
            return m.plainly(cls, *args, **kwargs)  # which refuses
        from .polyfills import set_polyfills

        return m.call((set_polyfills if of_set else container_polyfills).made_of, (cls, *args), {})
    if issubclass(cls, type) and new is type.__dict__["__new__"]:
        return class_creation.make_class(m, type.__new__, (cls, *args), kwargs)
    if (
        issubclass(cls, BaseException)
        or issubclass(cls, (dict, *ELEMENT_KINDS, *immutable_builtin_subclasses.BASES))
        and is_user_type(cls)
        or new_owner is object
        and init_owner is object
        or issubclass(cls, (property, staticmethod, classmethod))
    ):
        return m.made(native(m, cls, args, kwargs))
    if decimal_context.is_decimal(cls):
        decimal_context.guard_context(m.heap)
    if is_trusted_type(cls) and cls.__module__ in SAFE_MODULES:
        return m.made(native(m, cls, args, kwargs))
    return m.stop(breaks.OPAQUE_CALL, f"making a {cls.__module__}.{cls.__qualname__}")


SAFE_MODULES = frozenset(
    """
    torch.distributed.tensor.placement_types
    builtins collections _collections types functools itertools operator enum abc contextlib datetime decimal
    fractions
""".split()
)


def native(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
    if cls in PLAIN.values() or not issubclass(cls, BaseException):
        for value in (*args, *kwargs.values()):
            guard_before_native_read.settle_all(m, value)
            m.check_readable(cls, value)
    by_meta = isinstance(find_on_type(type(cls), "__call__"), FunctionType) and not issubclass(cls, enum.Enum)
    return m.perform(type.__call__, cls, *args, **kwargs) if by_meta else m.perform(cls, *args, **kwargs)


def make_tensor(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``nn.Parameter(x)``, ``torch.Tensor([...])``: torch does not dispatch these, so they are recorded here."""
    if cls not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        m.stop(breaks.SUBCLASS_TENSOR, f"making a {cls.__qualname__}")
    mark = m.recorder.mark()
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
        guard_before_native_read.settle_all(m, value)
    value = m.plainly(cls, *args, **kwargs)
    why = why_not_leaf(m, value)
    if why is not None:
        m.late(*why, value)
    try:
        m.recorder.record(cls, args, kwargs, value, live_allowed=False)
    except NotRecordable as error:
        m.recorder.undo_to(mark)
        m.late(breaks.UNKNOWN_TENSOR, f"{cls.__qualname__}: {error}", value)
    return value


# ---- builtin classes that take iterables or user objects


def _from_iterable(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs and cls is not dict:
        return _container(m, m.plainly(cls, *args, **kwargs))
    items = args[0]
    copies_set = cls in (set, frozenset) and issubclass(type(items), (set, frozenset))  # without asking its iterator
    if issubclass(type(items), Generator) or iteration.needs_interpreting(m, items) and not copies_set:
        return m.call(ITERABLE_MAKERS[cls], args, kwargs)
    iteration.refuse_outside(m, items, f"{cls.__name__}()")
    if cls in (list, tuple) and type(items) is list:
        args = (m.heap.items_read_at_once(items),)
    elif cls is dict and type(items) is dict:
        args = (table_read_at_once(m.heap, items),)
    for value in args:
        if cls is list or cls is tuple:
            m.heap.expose_items(value)
        elif copies_set:
            m.heap.expose(value, reads_order=False)
            m.heap.read_order(value, stops=False)
        else:
            m.heap.expose(value)
    if issubclass(type(items), Live):
        args = (items.settle(),)
    if cls in (dict, set, frozenset) and issubclass(type(items), (list, tuple)):
        if cls is dict and not all([type(part) in (list, tuple) and len(part) == 2 for part in items]):
            return m.call(container_polyfills.to_dict, args, kwargs)
        for part in items:
            guard_before_native_read.check_key(m, *((part[0], dict) if cls is dict else (part, set)))
    if (
        not issubclass(type(items), (*value_kinds.BUILTIN_CONTAINERS, str, bytes, range))
        and not value_kinds.is_known_native(type(items))
        and type(items) not in iteration.ITERATORS
    ):
        if issubclass(type(items), torch.Tensor):
            return _container(m, m.perform(cls, items))
        m.stop(breaks.OPAQUE_CALL, f"{cls.__name__}() of a {type(items).__qualname__}")
    m.check_readable(cls, items)
    return _container(m, m.perform(cls, *args, **kwargs))


def _container(m: Any, value: Any) -> Any:
    return m.made(value) if issubclass(type(value), (list, dict, set)) else value


def _convert(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs:
        return native(m, cls, args, kwargs)
    value = args[0]
    if issubclass(type(value), torch.Tensor):
        return _convert_tensor(m, cls, value)
    if issubclass(type(value), Live):
        return _convert_live(m, cls, value)
    if cls is bool:
        return bool_of(m, value)
    answer = numpy_dispatch.number_of(m, cls, value)
    if answer is not MISSING:
        return answer
    for name in (CONVERSIONS[cls], "__index__"):
        if name == "__index__" and issubclass(type(value), int):
            break  # it is not asked
        if value_kinds.python_method(m, value, name):
            method = special_method(m, value, name)
            if name == "__index__":
                if cls is not int:
                    m.stop(breaks.OPAQUE_CALL, f"{cls.__name__}() of an object with __index__")
                return m.call(operator_protocol_polyfills.number_of, (method, int, name), {})
            if cls in (bool, bytes):
                text = f"{name} returned non-{cls.__name__} (type {{}})"
                return m.call(operator_protocol_polyfills.of_kind, (method, cls, text), {})
            owner = f"{type(value).__name__}." if cls is float else ""
            return m.call(operator_protocol_polyfills.number_of, (method, cls, owner + name), {})
    return native(m, cls, args, kwargs)


def _convert_tensor(m: Any, cls: type, tensor: torch.Tensor) -> Any:
    number = constant_tensors.number_read(m, tensor)
    if number is not None:
        return number if cls is type(number.plain()) else _convert(m, cls, (number,), {})
    if cls in (int, float, bool) and constant_tensors.is_constant(m, tensor):
        return m.plainly(cls, tensor)
    if cls in (int, float) and not m.modes and graph_numbers.is_converted_in_graph(m, tensor):
        return graph_numbers.read_converted(m, cls, tensor)
    return m.perform(cls, tensor)


def _convert_live(m: Any, cls: type, value: Live) -> Any:
    if cls is bool:
        return truth_and_identity.truth_of_live(value)
    if issubclass(type(value), str):
        return m.plainly(cls, value.settle())
    return m.plainly(live_scalars.apply, cls, value)


def _bytes(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    items = args[0] if len(args) == 1 and not kwargs else None
    if value_kinds.is_read_by_steps(m, items) and not value_kinds.python_method(m, items, "__bytes__"):
        return m.call(container_polyfills.made_of, (cls, items), {})
    return _convert(m, cls, args, kwargs) if cls is bytes else m.made(native(m, cls, args, kwargs))


def bool_of(m: Any, value: Any) -> Any:
    found = truth_and_identity.truth_method(m, value)
    if found is not None:
        return m.call(found.polyfill, (found.method,), {})
    return truth_and_identity.truth(m, value)


def _str(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs:
        return native(m, cls, args, kwargs)

    return print_and_format.text_of(m, str, args[0])


def _type(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) == 1 and not kwargs:
        kind = type(args[0])
        return PLAIN.get(kind, args[0].__class__ if kind is Generator else kind)
    return class_creation.make_class(m, type.__new__, (cls, *args), kwargs)


def _super(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if args or kwargs:
        return m.plainly(super, *args, **kwargs)
    return m.plainly(super, *arguments_of_super(m.frame))


def _reversed(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs:
        return m.plainly(cls, *args, **kwargs)
    value = args[0]
    found = lookup(m, type(value), "__reversed__")[0]
    if isinstance(found, FunctionType):
        return m.call(types.MethodType(found, value), (), {})
    if found is MISSING and value_kinds.python_method(m, value, "__getitem__"):
        if lookup(m, type(value), "__len__")[0] is MISSING:
            return m.plainly(cls, value)
        return m.call(iterator_polyfills.reversed_of, (value,), {})
    if issubclass(type(value), torch.Tensor):
        return m.perform(reversed, value)
    if type(value) in (list, tuple, torch.Size):  # it passes on the elements without looking at them
        m.heap.expose_items(value)
        m.check_readable(cls, value)
        return m.perform(cls, value)
    return native(m, cls, args, kwargs)


def _deque(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if args and iteration.needs_interpreting(m, args[0]):
        return m.call(container_polyfills.to_deque, (cls, *args), kwargs)
    return m.made(native(m, cls, args, kwargs))


def _dict_like(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if cls is collections.defaultdict and args and args[0] is not None and not callable(args[0]):
        return m.plainly(cls, 0)  # which refuses
    if any(iteration.merges_in_python(m, a, cls) for a in args if not callable(a)):
        return m.call(container_polyfills.to_dict_like, (cls, args, kwargs), {})
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
        m.check_readable(cls, value)
    return m.made(m.perform(cls, *args, **kwargs))


def _partial(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if args and not callable(args[0]):
        return native(m, cls, args, kwargs)
    return m.made(m.plainly(cls, *args, **kwargs))


def _plain_container(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    return m.made(m.plainly(cls, *args, **kwargs))


def _mapping_proxy(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    for mapping in (*args, *kwargs.values()):
        m.heap.expose(mapping)  # native code reads through the view, out of the tracer's sight
    return _plain_container(m, cls, args, kwargs)


def _function(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) == 2 and kwargs.keys() == {"name"}:
        args, kwargs = (*args, kwargs["name"]), {}
    if len(args) < 2 or kwargs or args[1] is not m.frame.globals or id(args[0]) in m.heap.fresh:
        m.stop(breaks.OPAQUE_CALL, "a function made of code and other globals")
    return _plain_container(m, cls, args, kwargs)


def _weak_reference(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1:
        m.stop(breaks.OPAQUE_CALL, f"weakref.{cls.__name__} with a function to call at the object's end")
    made = _plain_container(m, cls, args, kwargs)
    m.heap.let_go(args[0])
    return made


def _native(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    args = tuple(map(settled, args))
    for value in args:
        if cls is range and issubclass(type(value), int):
            continue  # it is not asked
        if value_kinds.python_method(m, value, "__index__"):
            if cls is range and not kwargs:
                return m.call(container_polyfills.range_of, args, {})
            m.stop(breaks.OPAQUE_CALL, f"{cls.__name__}() of an object with its own __index__")
    return native(m, cls, args, kwargs)


def _inference_mode_guard(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """The C++ guard behind ``torch.inference_mode``: an object of the graph, created and ended by recorded calls."""
    value = m.plainly(cls, *args, **kwargs)
    m.recorder.register_object(value, m.recorder.add(m.recorder.new_call(cls, args, m.user_line())))
    return m.made(value)


CONSTRUCTORS: dict[type, Any] = {
    **dict.fromkeys((list, tuple, set, frozenset, dict), _from_iterable),
    **dict.fromkeys((int, float, complex, bool), _convert),
    **dict.fromkeys((bytes, bytearray), _bytes),
    str: _str,
    type: _type,
    super: _super,
    reversed: _reversed,
    collections.deque: _deque,
    **dict.fromkeys((collections.OrderedDict, collections.defaultdict), _dict_like),
    functools.partial: _partial,
    **dict.fromkeys((range, torch.device, torch.Size, torch.finfo, torch.iinfo), _native),
    **dict.fromkeys((object, slice, property, staticmethod, classmethod), _plain_container),
    **dict.fromkeys((types.MethodType, types.SimpleNamespace, types.CellType), _plain_container),
    FunctionType: _function,
    types.MappingProxyType: _mapping_proxy,
    **dict.fromkeys((weakref.ref, weakref.finalize), _weak_reference),
    random.Random: random_objects.construct,
    torch.utils.hooks.BackwardHook: module_backward_hooks.make,
    InferenceMode: _inference_mode_guard,
    **dict.fromkeys(in_memory_streams.KINDS, in_memory_streams.make),
    **dict.fromkeys(locks.KINDS, _plain_container),
}


CONSTRUCTORS.update(iterator_creation.CONSTRUCTORS)
CONSTRUCTORS.update(make_tensors.CONSTRUCTORS)
