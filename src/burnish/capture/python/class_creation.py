"""Classes that the program makes: class statements, and ``type(name, bases, namespace)``.

    class Scale:                      the body is interpreted, in a frame with a namespace
        def __call__(self, x):
            return x * 2

    Scale()(x)                        the methods are interpreted like any others

Each run of the program makes such a class again, so one that leaves the graph cannot be a constant. It is made by plain
Python then: the segment ends before the statement. So it does for a metaclass with its own ``__prepare__``. What C code
would call, ``__set_name__`` and ``__init_subclass__``, is interpreted when the class is there.
"""

from __future__ import annotations

import abc
import threading
import types
from types import FunctionType
from typing import Any

from .. import breaks
from ..engine.interpreted_or_native import find_on_type, is_trusted, is_trusted_type
from ..interpreter.bytecode_decoder import decode
from ..interpreter.frame_introspection import module_name
from ..interpreter.frames import UNBOUND, Frame
from .calls import free_variables
from .operators import prepare_native_reads
from .polyfills import class_polyfills

NATIVE_METACLASSES = (type, abc.ABCMeta)


def class_statement(m: Any, args: tuple, kwargs: dict) -> Any:
    """``__build_class__``."""
    if len(args) < 2 or type(args[0]) is not FunctionType or not isinstance(args[1], str):
        return m.plainly(__build_class__, *args, **kwargs)
    body, name, *given = args
    original = tuple(given)
    for base in original:
        if not isinstance(base, type) and is_by_user(getattr(type(base), "__mro_entries__", None)):
            return refuse(m, "a base with its own __mro_entries__")
    bases = m.plainly(types.resolve_bases, original)
    kind = kwargs.get("metaclass", type)
    if isinstance(kind, type):
        kind = m.plainly(types.prepare_class, name, bases, {"metaclass": kind})[0] if has_no_hook(kind, bases) else None
    if kind is None or not isinstance(kind, type) or type(kind) is not type:
        return refuse(m, "a metaclass with its own rules")
    why = why_not_make(m, kind, bases)
    if why is not None:
        return refuse(m, why)
    further = {key: value for key, value in kwargs.items() if key != "metaclass"}
    return m.call(class_polyfills.build_class, (body, name, original, bases, kind, {}, further), {})


def refuse(m: Any, why: str) -> Any:
    return m.stop(breaks.OPAQUE_CALL, f"a class statement: {why}")


def has_no_hook(kind: type, bases: tuple) -> bool:
    """Whether the namespace of a class is a plain dictionary."""
    return all(getattr(find_on_type(k, "__prepare__"), "__objclass__", None) is type for k in (kind, *map(type, bases)))


def is_by_user(function: Any) -> bool:
    function = getattr(function, "__func__", function)
    return isinstance(function, FunctionType) and not is_trusted(function.__globals__.get("__name__"))


def why_not_make(m: Any, kind: type, bases: tuple) -> str | None:
    """Why a class is made by plain Python; None if it may be made in the trace."""
    if not m.keeps_classes:
        return "the class, or an object of it, leaves the graph"
    if m.region is not None:
        return "in a region that may be given up"
    for base in bases:
        if not isinstance(base, type):
            return "a base that is no class"
    if any(is_trusted_type(k) and k not in NATIVE_METACLASSES for k in kind.__mro__[:-1]):
        return f"the metaclass {kind.__qualname__}"
    return None


def make_class(m: Any, new: Any, args: tuple, kwargs: dict) -> Any:
    """``type.__new__(kind, name, bases, namespace)``, or that of ``abc.ABCMeta``."""
    if len(args) != 4 or not isinstance(args[2], tuple) or type(args[3]) is not dict:
        return m.plainly(new, *args, **kwargs)
    why = why_not_make(m, args[0], args[2])
    if why is not None:
        return refuse(m, why)
    if "__module__" not in args[3]:
        args = (*args[:3], {**args[3], "__module__": module_name(m, (0,), {})})
    m.heap.expose(args[3])
    prepare_native_reads.settle_all(m, args[3])
    m.has_classes = True
    named = [(name, value) for name, value in args[3].items() if is_by_user(find_on_type(type(value), "__set_name__"))]
    hooks = [base for base in parents_of(args[2]) if is_by_user(base.__dict__.get("__init_subclass__"))]
    if not named and not hooks:
        return m.made(m.plainly(new, *args, **kwargs))
    made = m.made(without_hooks(m, new, args, kwargs, named, hooks))
    return m.call(class_polyfills.finish_class, (made, named, kwargs if hooks else None), {})


def parents_of(bases: tuple) -> list[type]:
    return [*dict.fromkeys(parent for base in bases for parent in base.__mro__)]


def without_hooks(m: Any, new: Any, args: tuple, kwargs: dict, named: list, hooks: list[type]) -> type:
    """Make a class without ``__set_name__`` and ``__init_subclass__``, which C code would call. They are interpreted
    afterwards. Until the class is there, its attributes are placeholders, and its parents have another hook."""
    kept = [base.__dict__["__init_subclass__"] for base in hooks]
    if named:
        args = (*args[:3], {**args[3], **{name: None for name, _ in named}})
    try:
        for base in hooks:
            type.__setattr__(base, "__init_subclass__", only_in_other_threads(base.__dict__["__init_subclass__"]))
        made = m.plainly(new, *args, **kwargs) if not hooks else m.plainly(new, *args)
    finally:
        for base, hook in zip(hooks, kept, strict=True):
            type.__setattr__(base, "__init_subclass__", hook)
    for name, value in named:
        type.__setattr__(made, name, value)
    return made


def only_in_other_threads(hook: Any) -> Any:
    """A hook that does nothing in this thread. Classes that others make meanwhile must not miss theirs."""
    own = threading.get_ident()

    def __init_subclass__(cls: type, **kwargs: Any) -> None:
        if threading.get_ident() != own:
            hook.__get__(None, cls)(**kwargs)

    return classmethod(__init_subclass__)


def run_body(m: Any, args: tuple, kwargs: dict) -> Any:
    body, namespace = args
    code = decode(body.__code__)
    values = [UNBOUND] * code.n_locals
    if body.__closure__:
        free_variables.put_cells(m, body, values, code)
    frame = Frame(code, body.__globals__, body.__builtins__, values)
    frame.namespace = namespace
    return m.push(frame)


def check_cell(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.plainly(class_polyfills.check_cell, *args)


HANDLERS: dict[Any, Any] = {
    class_polyfills.run_body: run_body,
    class_polyfills.check_cell: check_cell,
    abc.ABCMeta.__new__: lambda m, args, kwargs: make_class(m, abc.ABCMeta.__new__, args, kwargs),
}
