"""Classes that the program makes: class statements, and ``type(name, bases, namespace)``.

    class Scale:                      the body is interpreted, in a frame with a namespace
        def __call__(self, x):
            return x * 2

    Scale()(x)                        the methods are interpreted like any others

Each run of the program makes such a class again, so one that leaves the graph cannot be a constant. It is made by plain
Python then: the segment ends before the statement. So it does where ``__prepare__`` returns no new dictionary. What C
code would call, ``__set_name__`` and ``__init_subclass__``, is interpreted when the class is there.
"""

from __future__ import annotations

import abc
import threading
import types
from types import FunctionType
from typing import Any

from ...concurrency import thread_locks
from .. import breaks
from ..engine.interpreted_or_native import is_trusted, is_trusted_type, is_user_type
from ..interpreter.bytecode_decoder import decode
from ..interpreter.frame_introspection import module_name
from ..interpreter.frames import MISSING, UNBOUND, Frame
from ..numbers.live_scalars import Expression
from .attributes.class_lookup import guard_absent, lookup
from .operators import guard_before_native_read
from .polyfills import class_statement_polyfills

NATIVE_METACLASSES = (type, abc.ABCMeta)


def class_statement(m: Any, args: tuple, kwargs: dict) -> Any:
    """``__build_class__``."""
    if len(args) < 2 or type(args[0]) is not FunctionType or not isinstance(args[1], str):
        return m.plainly(__build_class__, *args, **kwargs)
    body, name, *given = args
    original = tuple(given)
    for base in original:
        if not isinstance(base, type) and not is_trusted_type(type(base)):
            return refuse(m, "a base with its own __mro_entries__")
    bases = m.plainly(types.resolve_bases, original)
    kind = kwargs.get("metaclass", type)
    has_hook = isinstance(kind, type) and not has_no_hook(m, kind, bases)
    if isinstance(kind, type):
        derived = metaclass_of(kind, bases)
        is_conflict = not all(issubclass(derived, each) for each in map(type, bases))
        kind = derived
        if not has_hook or is_conflict:  # which it refuses, before it calls a hook
            kind = m.plainly(types.prepare_class, name, bases, {"metaclass": derived})[0]
    if not isinstance(kind, type) or type(kind) is not type:
        return refuse(m, "a metaclass with its own rules")
    why = why_not_make(m, kind, bases)
    if why is not None:
        return refuse(m, why)
    further = {key: value for key, value in kwargs.items() if key != "metaclass"}
    return m.call(class_statement_polyfills.build_class, (body, name, original, bases, kind, has_hook, further), {})


def refuse(m: Any, why: str) -> Any:
    return m.stop(breaks.OPAQUE_CALL, f"a class statement: {why}")


def has_no_hook(m: Any, kind: type, bases: tuple) -> bool:
    """Whether the namespace of a class is a plain dictionary."""
    return all(lookup(m, k, "__prepare__")[1] is type for k in (kind, *map(type, bases)))


def look_for(m: Any, kind: type, name: str) -> tuple[Any, type | None]:
    """As ``lookup``, where it is also guarded that a class does not have the name."""
    found = lookup(m, kind, name)
    if found[1] is None:
        guard_absent(m, kind, name)
    return found


def is_by_user(function: Any) -> bool:
    return isinstance(function, FunctionType) and not is_trusted(function.__globals__.get("__name__"))


def is_hook_by_user(m: Any, hook: Any, owner: type | None) -> bool:
    """Whether a hook is interpreted, where C code would call it. Only plain functions are."""
    if owner is None:
        return False
    if is_by_user(hook.__func__ if type(hook) is classmethod else hook):
        return True
    if not is_trusted_type(owner):
        refuse(m, f"{owner.__qualname__} has a hook that is not a plain function")
    return False


def why_not_make(m: Any, kind: type, bases: tuple) -> str | None:
    """Why a class is made by plain Python; None if it may be made in the trace."""
    if not m.capabilities.keeps_classes:
        return "the class, or an object of it, leaves the graph"
    if m.region is not None:
        return "in a region that may be given up"
    for base in bases:
        if not isinstance(base, type):
            return "a base that is not a class"
    if any(is_trusted_type(k) and k not in NATIVE_METACLASSES for k in kind.__mro__[:-1]):
        return f"the metaclass {kind.__qualname__}"
    if lookup(m, kind, "mro")[1] is not type:
        return "a metaclass with its own mro()"
    return None


def metaclass_of(kind: type, bases: tuple) -> type:
    """The metaclass that makes a class: the most derived one, of those given and those of the bases."""
    for each in map(type, bases):
        kind = each if issubclass(each, kind) else kind
    return kind


def why_not_call(m: Any, new: Any, args: tuple) -> str | None:
    """Why ``type.__new__`` is not called in the trace, with this namespace."""
    if new is abc.ABCMeta.__new__ and any(may_say_abstract(m, value) for value in args[3].values()):
        return "an object with its own __isabstractmethod__"
    if new is abc.ABCMeta.__new__ and any(may_hide_abstract(m, args, name) for name in names_to_check(args[2])):
        return "an abstract attribute that is not a function"
    return None


def names_to_check(bases: tuple) -> set[str]:
    return {name for base in bases for name in abstract_names(base)}


def may_hide_abstract(m: Any, args: tuple, name: str) -> bool:
    """Whether C code, which reads what the class has under the name of an abstract method, may call code of the user's
    or see another object in the next call."""
    kind, _, bases, namespace = args
    if is_by_user(look_for(m, kind, "__getattribute__")[0]):
        return True
    if name in namespace:
        return is_user_type(type(namespace[name]))
    found = [type(base.__dict__[name]) for base in parents_of(bases) if name in base.__dict__]
    return any(is_user_type(each) or not hasattr(each, "__get__") for each in found)


def may_say_abstract(m: Any, value: Any) -> bool:
    """Whether an object of a class of the user's may answer ``__isabstractmethod__``, which C code asks for."""
    kind = type(value)
    if kind in (property, staticmethod, classmethod):
        parts = (value.fget, value.fset, value.fdel) if kind is property else (value.__func__,)
        return any(may_say_abstract(m, part) for part in parts)
    if not is_user_type(kind):
        return False
    if any(is_by_user(look_for(m, kind, name)[0]) for name in ("__getattr__", "__getattribute__")):
        return True
    if look_for(m, kind, "__isabstractmethod__")[1] is not None:
        return True
    return m.plain_attr(value, "__isabstractmethod__") is not MISSING


def guard_abstract(m: Any, made: type) -> None:
    """The abstract methods of a class depend on its bases: their abstract names, and attributes of those names."""
    for base in made.__bases__:
        names = abstract_names(base)
        if id(base) not in m.heap.fresh and not is_trusted_type(base):
            m.guard_outcome(Expression(has_abstract_names, (base, names)), True)
        for name in names:
            lookup(m, made, name)


def abstract_names(kind: type) -> frozenset:
    return frozenset(getattr(kind, "__abstractmethods__", ()))


def has_abstract_names(kind: type, names: frozenset) -> bool:
    return abstract_names(kind) == names


def make_class(m: Any, new: Any, args: tuple, kwargs: dict) -> Any:
    """``type.__new__(kind, name, bases, namespace)``, or that of ``abc.ABCMeta``."""
    if len(args) != 4 or not isinstance(args[2], tuple) or not isinstance(args[3], dict):
        return m.plainly(new, *args, **kwargs)  # a TypeError
    if type(args[3]) is not dict:
        return refuse(m, "a namespace that is not a plain dictionary")
    why = why_not_make(m, args[0], args[2])
    if why is not None:
        return refuse(m, why)
    kind = metaclass_of(args[0], args[2])
    if kind is not args[0]:
        home = lookup(m, kind, "__new__")[1]
        if home not in NATIVE_METACLASSES or any(lookup(m, kind, name)[1] is not type for name in ("__init__", "mro")):
            return refuse(m, "the metaclass of a base makes it")
        new, args = home.__new__, (kind, *args[1:])
    m.heap.expose(args[3])
    guard_before_native_read.settle_all(m, args[3])
    why = why_not_call(m, new, args)
    if why is not None:
        return refuse(m, why)
    if "__module__" not in args[3]:
        args = (*args[:3], {**args[3], "__module__": module_name(m, (0,), {})})
    with _one_thread:
        named = [(name, value) for name, value in args[3].items() if has_set_name(m, type(value))]
        hooks = [base for base in parents_of(args[2]) if is_own_hook(m, base)]
        if named and kwargs and not hooks:
            return refuse(m, "keywords that no hook takes")
        m.has_classes = True
        made = m.made(without_hooks(m, new, args, kwargs, named, hooks))
    if new is abc.ABCMeta.__new__:
        guard_abstract(m, made)
    if not named and not hooks:
        return made
    return m.call(class_statement_polyfills.finish_class, (made, named, kwargs if hooks else None), {})


_one_thread = thread_locks.rlock()
"""Held while hooks are looked at and replaced: a thread must not see what another one has put in their place."""


def has_set_name(m: Any, kind: type) -> bool:
    hook, owner = look_for(m, kind, "__set_name__")
    if type(hook) is classmethod and not is_trusted_type(owner):
        return refuse(m, "a __set_name__ that is a class method")
    return is_hook_by_user(m, hook, owner)


def is_own_hook(m: Any, base: type) -> bool:
    """Whether a class has a hook of its own that is called when a class inherits from it."""
    hook, owner = lookup(m, base, "__init_subclass__")
    return owner is base and is_hook_by_user(m, hook, owner)


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
    if not is_new_dictionary(m, namespace):
        return refuse(m, "a namespace that is not a new dictionary")
    code = decode(body.__code__)
    values = [UNBOUND] * code.n_locals
    if body.__closure__:
        m.put_cells(body, values, code)
    frame = Frame(code, body.__globals__, body.__builtins__, values)
    frame.namespace = namespace
    return m.push(frame)


def is_new_dictionary(m: Any, namespace: Any) -> bool:
    return type(namespace) is dict and m.heap.origin_of(namespace) is None


def check_prepared(m: Any, args: tuple, kwargs: dict) -> Any:
    namespace = args[1]
    if is_new_dictionary(m, namespace):
        return namespace
    if not hasattr(type(namespace), "__getitem__"):
        return MISSING  # it is refused
    return refuse(m, "a namespace that is not a new dictionary")


def check_cell(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.plainly(class_statement_polyfills.check_cell, *args)


HANDLERS: dict[Any, Any] = {
    class_statement_polyfills.run_body: run_body,
    class_statement_polyfills.check_cell: check_cell,
    class_statement_polyfills.prepared: check_prepared,
    abc.ABCMeta.__new__: lambda m, args, kwargs: make_class(m, abc.ABCMeta.__new__, args, kwargs),
}
