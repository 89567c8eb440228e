"""Text of values while tracing: ``str``, ``repr``, ``format``; ``print`` and log records become side effects."""

from __future__ import annotations

import collections
import functools
import gc
import operator
import sys
import types
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch

from ... import breaks
from ...guards import immutable_builtin_subclasses
from ...guards.container_reads_past_overrides import elements_of
from ...guards.object_sources import Source
from ...interpreter.frames import MISSING, Generator, frames_from
from ...numbers import graph_numbers, live_scalars, numpy_tables, object_addresses
from ...numbers.live_scalars import Live, plain_of, settled
from ...numpy_calls import numpy_dispatch
from ...segments.effects import Effect
from .. import in_memory_streams, template_strings
from ..attributes import class_attributes
from ..attributes.class_lookup import lookup
from ..attributes.instance_attributes import PROXIES
from ..operators import guard_before_native_read, value_kinds
from ..polyfills import operator_protocol_polyfills, text_polyfills
from . import logging_calls


def holds_live_alone(values: tuple) -> bool:
    """Whether there are live scalars in it, and otherwise only values that hold none."""
    is_live = [issubclass(type(value), Live) for value in values]
    return any(is_live) and all(live or type(value) in PLAIN for live, value in zip(is_live, values, strict=True))


PLAIN = frozenset((int, float, bool, str, type(None)))


def _repr(m: Any, args: tuple, kwargs: dict) -> Any:
    return text_of(m, repr, args[0])


def _format(m: Any, args: tuple, kwargs: dict) -> Any:
    return format_value(m, args[0], None, args[1] if len(args) > 1 else "")


def text_of(m: Any, convert: Callable, value: Any) -> Any:
    """``str(value)`` or ``repr(value)``."""
    if type(value) in PROXIES:
        return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() through a weak proxy")
    if type(value) is Generator:
        return object_addresses.text_of(m, value)
    return _text_of(m, convert, value)


def _text_of(m: Any, convert: Callable, value: Any) -> Any:
    kind = type(value)
    if kind is torch.Size and _holds_live(value):
        return size_text(value)
    if kind in value_kinds.SIMPLE:
        return m.plainly(convert, value)
    if kind in numpy_tables.VALUES:
        return numpy_dispatch.apply(m, convert, value)
    if issubclass(type(value), Live):
        return _text_of_live(m, convert, value)
    if issubclass(type(value), torch.Tensor):
        return m.perform(convert, value)
    names = ("__str__", "__repr__") if convert is str else ("__repr__",)
    for name in names:
        found, owner = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            method = types.MethodType(found, value)
            return m.call(
                operator_protocol_polyfills.of_kind, (method, str, name + " returned non-string (type {})"), {}
            )
        if found is not MISSING and owner is not object:
            break
    if immutable_builtin_subclasses.base_of_value(kind) not in (None, frozenset):
        return m.plainly(convert, value)
    if issubclass(type(value), value_kinds.BUILTIN_CONTAINERS):
        return _text_of_container(m, convert, value)
    if issubclass(type(value), BaseException):
        return _text_of_exception(m, convert, value)
    if lookup(m, kind, "__repr__")[1] is object and not issubclass(type(value), (type, types.ModuleType)):
        return text_with_address(m, value)
    if kind in SHOW_OTHERS and _shows_objects(m, value):
        return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() of a {kind.__qualname__} shows another object")
    if value_kinds.is_known_native(kind):
        guard_before_native_read.settle_all(m, value)
        m.check_readable(convert, value)
        return _without_address(m, value, m.plainly(convert, value))
    return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() of a {kind.__qualname__}")


def _text_of_container(m: Any, convert: Callable, value: Any) -> Any:
    kind = type(value)
    m.heap.expose(value)
    refuse_text_by_methods(m, convert.__name__, value)
    if not _holds_printable_objects(value):
        guard_before_native_read.settle_all(m, value)
        return m.plainly(convert, value)
    if _is_being_shown(m, value):
        return {list: "[...]", tuple: "(...)", dict: "{...}"}.get(kind, f"{kind.__name__}(...)")
    if kind in TEXT_POLYFILLS:
        polyfill, *brackets = TEXT_POLYFILLS[kind]
        return m.call(polyfill, (value, *brackets), {})
    return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() of a {kind.__qualname__} that holds an object")


TEXT_POLYFILLS: Mapping[type, tuple] = {
    list: (text_polyfills.list_text, "[", "]"),
    set: (text_polyfills.list_text, "{", "}"),
    tuple: (text_polyfills.tuple_text,),
    dict: (text_polyfills.dict_text,),
}


def _without_address(m: Any, value: Any, text: str) -> str:
    """``text``, which does not show the address of an object that may be another one in the next run."""
    if " at 0x" in text and not _has_fixed_text(m, value):
        m.stop(breaks.OPAQUE_CALL, f"the text of a {type(value).__qualname__} shows an address")
    return text


def _has_fixed_text(m: Any, value: Any) -> bool:
    if type(value) is types.MethodWrapperType:
        return m.heap.has_fixed_meaning(value.__self__)  # whose address it shows
    if not m.heap.has_fixed_meaning(value):
        return False
    if type(value) is FunctionType:
        m.plain_attr(value, "__qualname__")
    return True


def text_with_address(m: Any, value: Any) -> Any:
    """``object.__repr__(value)``."""
    for name in ("__module__", "__qualname__", "__name__"):
        class_attributes.fact_of_class(m, type(value), name)
    text = object_addresses.text_of(m, value)
    if text is None:
        m.stop(breaks.OPAQUE_CALL, f"the text of a {type(value).__qualname__} shows its address")
    return text


def _text_of_live(m: Any, convert: Callable, value: Live) -> Any:
    is_text = convert is str and issubclass(type(value), str)
    return value if is_text else m.plainly(live_scalars.apply, convert, value)


def _text_of_exception(m: Any, convert: Callable, value: BaseException) -> Any:
    args = m.heap.read_field(value, "args", lambda: value.args)
    m.heap.expose(args)
    guard_before_native_read.check_numbers(m, args)
    if convert is str and len(args) == 1 and lookup(m, type(value), "__str__")[1] is BaseException:
        return text_of(m, str, args[0])
    if convert is str and issubclass(type(value), BaseExceptionGroup):
        args = args[:1]  # and how many there are
    if convert is repr and lookup(m, type(value), "__repr__")[1] is BaseExceptionGroup:
        return _text_of_group(m, value, args)
    if _holds_printable_objects(args):
        name = "__str__" if convert is str else "__repr__"
        if lookup(m, type(value), name)[1] is BaseException:
            return m.call(text_polyfills.error_text, (type(value).__name__ if convert is repr else "", args), {})
        return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() of a {type(value).__qualname__} that holds an object")
    guard_before_native_read.settle_all(m, args)
    return m.plainly(convert, value)


def _text_of_group(m: Any, value: BaseExceptionGroup, args: tuple) -> Any:
    """Newer Python shows the exceptions of a group as a list if it was made of one, whatever that holds now."""
    kind = type(args[1]) if len(args) == 2 else None
    if kind is not list and kind is not tuple:
        m.stop(breaks.OPAQUE_CALL, f"repr() of a {type(value).__qualname__} that was made of another sequence")
    message = m.heap.read_field(value, "message", lambda: value.message)
    exceptions = m.heap.read_field(value, "exceptions", lambda: value.exceptions)
    m.heap.expose(exceptions)
    shown = list(exceptions) if kind is list else exceptions
    return m.call(text_polyfills.error_text, (type(value).__name__, (message, shown)), {})


VIEWS = [getattr(table(), name)() for table in (dict, collections.OrderedDict) for name in ("keys", "values", "items")]
SHOW_OTHERS = frozenset(
    (types.MethodType, types.MappingProxyType, types.SimpleNamespace, functools.partial, super, *map(type, VIEWS))
    + template_strings.KINDS
)
"""Their texts contain the texts of the objects that they hold."""


def _shows_objects(m: Any, value: Any) -> bool:
    held = gc.get_referents(value)
    m.heap.expose([value, *held])
    guard_before_native_read.settle_all(m, held)
    return _holds_printable_objects(held)


def format_value(m: Any, value: Any, convert: Callable | None, spec: str) -> Any:
    if isinstance(spec, Live):
        spec = spec.settle()
    if issubclass(type(value), Live):
        if convert is not None:
            value = m.plainly(live_scalars.apply, convert, value)
        return m.plainly(live_scalars.apply, format, value, spec)
    kind = type(value)
    if kind is torch.Size and not spec and _holds_live(value):
        return size_text(value)
    if kind in value_kinds.SIMPLE:
        return m.plainly(format, value if convert is None else convert(value), spec)
    if convert is not None:
        return m.call(text_polyfills.convert_and_format, (convert, value, spec), {})
    if kind is torch.Tensor and not (m.modes or value.ndim) and graph_numbers.stays_in_graph(m, value):
        return format_value(m, graph_numbers.read(m, value), None, spec)
    is_scalar = kind in numpy_tables.NUMBERS  # f"{float32(0.1)}" shows the Python number, and str() does not
    if is_scalar or spec and kind in value_kinds.NUMPY:
        number = numpy_dispatch.python_number_of(m, value)
        if number is not MISSING:
            return format_value(m, number, None, spec)
        guard_before_native_read.settle_all(m, value)
        if is_scalar:
            return m.plainly(format, value, spec)
    for name in ("__format__", "__str__", "__repr__"):
        found, owner = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            if name == "__format__":
                method = types.MethodType(found, value)
                return m.call(
                    operator_protocol_polyfills.of_kind, (method, str, "__format__ must return a str, not {}", spec), {}
                )
            if spec:
                return m.plainly(object.__format__, value, spec)
            return text_of(m, str, value)
        if name == "__format__" and owner is not object:
            break
    if issubclass(type(value), torch.Tensor):
        return m.perform(format, value, spec)
    if not spec:
        return text_of(m, str, value)
    m.check_readable(format, value)
    return m.plainly(format, value, spec)


def _holds_live(shape: torch.Size) -> bool:
    return any(issubclass(type(size), Live) for size in shape)


def size_text(shape: torch.Size) -> Any:
    """The text of a shape with live numbers in it: messages show shapes, and most are never read."""
    text: Any = "torch.Size(["
    for k, size in enumerate(shape):
        part = live_scalars.apply(str, size) if issubclass(type(size), Live) else str(size)
        for more in (", ", part) if k else (part,):
            text = (
                live_scalars.apply(operator.add, text, more)
                if isinstance(text, Live) or isinstance(more, Live)
                else text + more
            )
    return live_scalars.apply(operator.add, text, "])")


SHOWING = frozenset(f.__code__ for f in (text_polyfills.list_text, text_polyfills.tuple_text, text_polyfills.dict_text))


def _is_being_shown(m: Any, value: Any) -> bool:
    """Whether the call comes from the text of the same container, which contains itself."""
    return any(frame.code.co in SHOWING and frame.locals[0] is value for frame in frames_from(m.frame))


READ_FOR_TEXT = (
    (collections.deque, "__iter__"),
    (set, "__iter__"),
    (frozenset, "__iter__"),
    (collections.OrderedDict, "items"),  # up to 3.11
    (collections.OrderedDict, "keys"),
    (collections.OrderedDict, "__getitem__"),
)
"""Containers whose text C code makes of what a subclass's own method returns."""


def refuse_text_by_methods(m: Any, name: str, value: Any) -> None:
    for base, method in READ_FOR_TEXT:
        if issubclass(type(value), base) and value_kinds.python_method(m, value, method):
            m.stop(breaks.OPAQUE_CALL, f"{name} of a {type(value).__qualname__} with its own {method}")


def _parts_of(value: Any) -> list:
    return [*dict.keys(value), *dict.values(value)] if issubclass(type(value), dict) else list(elements_of(value))


def _holds_printable_objects(value: Any, around: tuple = ()) -> bool:
    """``around``: the enclosing containers, one of which it may contain again."""
    for part in _parts_of(value):
        if issubclass(type(part), value_kinds.BUILTIN_CONTAINERS):
            if (
                len(around) < 100
                and not any(part is one for one in (*around, value))
                and _holds_printable_objects(part, (*around, value))
            ):
                return True
        elif type(part) not in value_kinds.SIMPLE and not issubclass(type(part), (Live, type)):
            return True
    return False


def _print(m: Any, args: tuple, kwargs: dict) -> Any:
    name, stream = stream_of(m, kwargs.get("file"))
    if (why := in_memory_streams.why_not_print_to(m, stream, _source_in_sys(m, name, stream))) is not None:
        return m.stop(breaks.OPAQUE_CALL, why)
    if not kwargs.keys() <= {"sep", "end", "file", "flush"} or not all(
        isinstance(kwargs.get(name), (str, type(None))) for name in ("sep", "end")
    ):
        return m.plainly(print, *args, **kwargs)  # raises the error
    for value in args:
        if needs_python_text(m, value):
            return m.call(text_polyfills.print_texts, (args, kwargs), {})
    options = {k: v for k, v in kwargs.items() if k != "file"}
    if in_memory_streams.is_made_here(m, stream):
        guard_before_native_read.settle_all(m, (*args, *options.values()))
    else:
        m.effects.append(Effect.of(m, print_to, (name or stream, options, *args)))
    m.plainly(print_to, stream, {k: settled(v) for k, v in options.items()}, *map(live_scalars.without_live, args))
    return None


def stream_of(m: Any, file: Any) -> tuple[str | None, Any]:
    """Where ``print`` writes to, and its name in ``sys`` if each run looks it up there. If the program has replaced it,
    as ``contextlib.redirect_stdout`` does, it is the object itself."""
    if file is not None:
        return None, file
    origin = m.heap.origins.get(id(sys.__dict__))
    is_replaced = origin is not None and "stdout" in origin.written
    return (None if is_replaced else "stdout"), getattr(sys, "stdout", None)


def _source_in_sys(m: Any, name: str | None, stream: Any) -> Source | None:
    """Of a stream that is looked up in ``sys``, or that the program has read there: that it is this one is guarded."""
    names = m.heap.sources.pin(sys.__dict__)
    if name is not None:
        return names.item(name)
    read = [names.item(name) for name in ("stdout", "stderr") if (id(sys.__dict__), name) in m.heap.names_seen]
    return next((s for s in read for g in m.heap.guards if g.source is s and g.expected is stream), None)


def print_to(stream: Any, options: dict, *args: Any) -> None:
    file = getattr(sys, stream) if type(stream) is str else stream
    print(*map(plain_of, args), file=file, **options)


def needs_python_text(m: Any, value: Any) -> bool:
    kind = type(value)
    if kind in value_kinds.SIMPLE or issubclass(type(value), (torch.Tensor, Live)):
        return False
    if issubclass(type(value), value_kinds.BUILTIN_CONTAINERS):
        m.heap.expose(value)
        refuse_text_by_methods(m, "text", value)
        if any(value_kinds.python_method(m, value, name) for name in ("__repr__", "__str__", "__format__")):
            return True
        return any(needs_python_text(m, part) for part in _parts_of(value))
    return True


def _log(name: str, m: Any, args: tuple, kwargs: dict) -> Any:
    return (
        MISSING
        if any(needs_python_text(m, value) for value in args[1:])
        else logging_calls.traced(name, m, args, kwargs)
    )


BUILTINS: dict[Any, Callable] = {repr: _repr, format: _format, print: _print}
PYTHON_FUNCTIONS: dict[Any, Callable] = {
    getattr(logging_calls.Logger, name): functools.partial(_log, name) for name in logging_calls.NAMES
}
