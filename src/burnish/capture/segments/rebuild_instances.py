"""Templates of instances of the program's classes, and of exceptions."""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any

import torch

from ..engine.break_signals import Unrebuildable
from ..engine.container_changes import has_lasting_order
from ..engine.interpreted_or_native import hashes_in_python
from ..guards import set_iteration_order
from ..guards.container_reads_past_overrides import base_of, elements_of, items_of, length_of
from ..interpreter import tracebacks
from ..interpreter.reads_past_overrides import dict_of, shows_other_dict
from ..python.operators import user_keys
from .template_writer import TemplateWriter

# C classes whose objects are complete with an empty object and its Python-side content.
LAID_OUT = frozenset((object, dict, list, set, torch.nn.Module, types.SimpleNamespace)) | {
    *(collections.deque, collections.OrderedDict, collections.defaultdict)
}


def native_base(kind: type) -> Any:
    """The C class that defines the layout of its objects. Its ``__new__`` runs nothing of the program."""
    return next(
        b
        for b in kind.__mro__
        if not b.__flags__ & (1 << 9) or isinstance(b.__dict__.get("__new__"), types.BuiltinFunctionType)
    )


def build_exception(to: TemplateWriter, value: BaseException) -> str:
    made_of = args = to.items(value.args)
    if issubclass(type(value), BaseExceptionGroup):  # the arguments may have changed, and then they make no group
        of_group = [vars(BaseExceptionGroup)[field].__get__(value) for field in ("message", "exceptions")]
        made_of = to.items(of_group)
        kind = type(value.args[1]) if len(value.args) > 1 else tuple
        if not issubclass(kind, (list, tuple)) and hasattr(kind, "__len__"):
            raise Unrebuildable(value)  # from 3.14 on it has the text of the sequence that it was made of
    name = to.name(value, to.call(native_base(type(value)).__new__, to.constant(type(value)), made_of))
    to.lines.append(f"{name}.args = ({args}{',' if len(value.args) == 1 else ''})")
    build_attributes(to, value, name)
    for field in ("__cause__", "__context__"):
        part = getattr(value, field)
        if part is not None:
            to.lines.append(f"{name}.{field} = {to.build(part)}")
    to.lines.append(f"{name}.__suppress_context__ = {value.__suppress_context__}")
    passed = tracebacks.frames_of_user(value.__traceback__)
    if passed:
        to.lines.append(f"{name}.__traceback__ = {to.call(tracebacks.traceback_of_frames, to.constant(passed))}")
    for field in (
        field for base, fields in FIELDS.items() if issubclass(type(value), base) for field in fields.split()
    ):
        part = getattr(value, field, None)
        if part is not None:
            to.lines.append(f"{name}.{field} = {to.build(part)}")
    return name


FIELDS: dict[type[BaseException], str] = {
    StopIteration: "value",
    AttributeError: "name obj",
    NameError: "name",
    ImportError: "name path msg",
    SystemExit: "code",
    OSError: "filename filename2",
    SyntaxError: "msg filename lineno offset text end_lineno end_offset",
    UnicodeDecodeError: "encoding object start end reason",
    UnicodeEncodeError: "encoding object start end reason",
    UnicodeTranslateError: "object start end reason",
}
"""What exceptions hold besides ``args``, as ``__init__`` has set it."""


def build_key(to: TemplateWriter, key: Any) -> str:
    """A key of a new dictionary or set, which calls its hash. In Python, that may have effects unless the trace has
    interpreted it."""
    m = to.tracer
    known = user_keys.hashes_in_python(m, type(key)) and itertools.chain.from_iterable(m.user_keys.values())
    if known and (not any(key is other for other in known) or user_keys.has_changed(m, key)):
        raise Unrebuildable(key, f"a {type(key).__qualname__} as key, whose __hash__ would run once more")
    return to.build(key)


def steps_to(to: TemplateWriter, value: Any) -> set_iteration_order.BuildSteps | None:
    """How a set gets the order that its elements have here. None if they have another one in each call."""
    if length_of(value) < 2 and not set_iteration_order.was_changed(value) or not has_lasting_order(to.heap, value):
        return None
    if set_iteration_order.is_made_in_order(value):
        return None
    steps = set_iteration_order.how_to_make(value, hashes_once=any(map(hashes_in_python, elements_of(value))))
    if steps is None:
        raise Unrebuildable(value, "a set whose order comes from elements that were removed")
    return steps


LONGEST: Any = vars(collections.deque)["maxlen"]


def build_instance(to: TemplateWriter, value: Any) -> str:
    kind = type(value)
    made = to.constant(kind)
    base = native_base(kind)
    if base not in LAID_OUT:
        raise Unrebuildable(value)
    name = to.name(value, to.call(base.__new__, made))
    build_attributes(to, value, name)
    if issubclass(type(value), dict):
        store = to.constant(base_of(value).__setitem__)
        if issubclass(type(value), collections.defaultdict):
            to.lines.append(f"{name}.default_factory = {to.build(value.default_factory)}")
        for k, v in items_of(value):
            key, part = build_key(to, k), to.build(v)
            to.lines.append(f"{store}({name}, {key}, {part})")
    elif issubclass(type(value), list):
        to.do(list.extend, name, to.list_of(list.__iter__(value)))
    elif issubclass(type(value), (set, collections.deque)):
        parts = [build_key(to, v) if issubclass(type(value), set) else to.build(v) for v in elements_of(value)]
        extend = set.update if issubclass(type(value), set) else collections.deque.extend
        longest = LONGEST.__get__(value) if extend is collections.deque.extend else None
        if longest is not None:
            to.do(collections.deque.__init__, name, "()", str(longest))
        steps = steps_to(to, value) if extend is set.update else None
        if steps is None:
            to.do(extend, name, f"[{', '.join(parts)}]")
        else:
            to.do(set_iteration_order.fill, name, to.constant(steps), f"[{', '.join(parts)}]")
    return name


PLAIN = (object.__getattribute__, BaseException.__getattribute__, torch.Tensor.__getattribute__)


def build_attributes(to: TemplateWriter, value: Any, name: str) -> None:
    is_plain = type(value).__getattribute__ in PLAIN and not shows_other_dict(type(value))
    table = f"{name}.__dict__" if is_plain else f"{to.constant(dict_of)}({name})"
    for key, part in (dict_of(value) or {}).items():
        to.lines.append(f"{table}[{build_key(to, key)}] = {to.build(part)}")
    for descriptor in slots_of(type(value)):
        try:
            part = descriptor.__get__(value)
        except AttributeError:
            continue
        to.do(descriptor.__set__, name, to.build(part))


def slots_of(kind: type) -> list[Any]:
    members = [member for base in kind.__mro__ if base.__flags__ & (1 << 9) for member in base.__dict__.values()]
    return [member for member in members if isinstance(member, types.MemberDescriptorType)]
