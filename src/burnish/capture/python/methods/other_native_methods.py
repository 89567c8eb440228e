"""C methods of numbers, exceptions, classes, iterators and `object`.

    model.__eq__(other)        # object's: decided by identity, which is guarded

A method that may show an address, or reads an object unseen, is a graph break.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import types
import weakref
from collections.abc import Callable
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import is_trusted_type
from ...interpreter import frames as fr
from ...interpreter import tracebacks
from ...interpreter.emulated_frames import WARNING_CLOCKS
from ...interpreter.frames import EXHAUSTED, MISSING, Generator
from ...interpreter.versions.behavior import BEHAVIOR
from ...numbers import object_addresses
from ...pytorch import torch_switches
from .. import copy_protocol, object_builtins
from ..attributes.attribute_writes import delete_plainly, without_result
from ..attributes.class_attributes import HELD_WEAKLY
from ..attributes.class_lookup import lookup
from ..calls import native_call_rules
from ..messages import print_and_format
from ..operators import guard_before_native_read, iteration, truth_and_identity, value_kinds
from ..polyfills import iterator_polyfills, itertools_polyfills, object_polyfills, operator_protocol_polyfills
from .container_methods import dict_of_keys

ATOMS = (int, float, complex, bool, str, bytes, type(None))
ORDERINGS = frozenset(("__lt__", "__le__", "__gt__", "__ge__"))
COMPARISONS = ORDERINGS | {"__eq__", "__ne__"}

NUMBERS = (int, float, complex, bool)
ARITHMETIC = frozenset(
    f"__{side}{name}__"
    for name in "add sub mul truediv floordiv mod divmod pow lshift rshift and or xor".split()
    for side in ("", "r")
)


def pure_method(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if name == "__invert__" and type(owner) is bool and not args and not kwargs:
        return m.unary(operator.invert, owner)
    if name == "__get__" and type(owner) is types.FunctionType and args and args[0] is not None and not kwargs:
        return types.MethodType(owner, args[0])
    if (
        (name in COMPARISONS or name in ARITHMETIC and type(owner) in NUMBERS)
        and type(owner) in ATOMS
        and len(args) == 1
        and not issubclass(type(args[0]), ATOMS)
        and native_call_rules.is_user_object(args[0])
    ):
        return NotImplemented  # without inspecting it
    guard_before_native_read.settle_all(m, owner)
    m.check_readable(method, owner)
    if isinstance(owner, types.MappingProxyType):
        m.heap.expose(owner)
    if isinstance(owner, re.Pattern) and any(callable(value) for value in (*args, *kwargs.values())):
        m.stop(breaks.OPAQUE_CALL, f"{name} of a regular expression, with a function for the replacements")
    if name == "finditer" and isinstance(owner, re.Pattern):
        found = tuple(native_call_rules.native(m, method, args, kwargs))
        return m.call(iterator_polyfills.matches, (found, 0), {})
    if (
        isinstance(owner, BaseException)
        and name not in ("__init__", "__str__", "__repr__", "with_traceback", "add_note", "__eq__", "__ne__")
        and not is_split_natively(m, owner, name, args)
    ):
        m.stop(breaks.OPAQUE_CALL, f"{name} of an exception")
    if is_trusted_type(type(owner)) or name in OF_ERRORS and isinstance(owner, BaseException):
        return native_call_rules.native(m, method, args, kwargs)
    return m.stop(breaks.OPAQUE_CALL, f"{name} of a {type(owner).__qualname__}")


OF_ERRORS = ("with_traceback", "add_note", "split", "subgroup", "derive")
"""What exceptions of any class do without a look at their own methods."""


def is_split_natively(m: Any, owner: Any, name: str, args: tuple) -> bool:
    """Whether a method of an exception group calls nothing of the user's: by classes, not by a function, and with the
    groups made by C code."""
    if not isinstance(owner, BaseExceptionGroup) or len(args) != 1 or value_kinds.python_method(m, owner, "derive"):
        return False
    kinds = args[0] if type(args[0]) is tuple else args
    return name == "derive" or name in OF_ERRORS and all(isinstance(kind, type) for kind in kinds)


def call_generator(m: Any, owner: Generator, name: str, args: tuple, kwargs: dict) -> Any:
    least, most = {"send": (1, 1), "throw": (1, 3)}.get(name, (0, 0))
    if kwargs or not least <= len(args) <= most:
        return m.plainly(getattr((i for i in ()), name), *args, **kwargs)  # raises the error
    if name == "throw" and len(args) > 1 and BEHAVIOR.throw_of_class_and_value_warns:
        return m.call(object_polyfills.throw_of_class_and_value, (owner, *args), {})
    m.take_over(owner)
    if name == "throw" and issubclass(type(args[0]), type) and value_kinds.makes_by_python(m, args[0]):
        return m.call(object_polyfills.throw_made, (owner, *args), {})
    if name == "send":
        return m.resume(owner, args[0], fr.NEXT)
    if name == "__next__":
        return m.resume(owner, None, fr.NEXT)
    if name == "throw":
        return m.throw(owner, m.plainly(fr.thrown, *args), fr.NEXT)
    if name == "close":
        if owner.frame is None or not owner.started:
            owner.frame = None
            return None
        return m.throw(owner, GeneratorExit(), fr.CLOSE)
    raise AssertionError(name)


REDUCED_TO_PARTS = frozenset(
    (map, filter, zip, enumerate, itertools.starmap, itertools.filterfalse, itertools.compress)
)


def reduce_generator(m: Any, args: tuple, kwargs: dict) -> Any:
    """For copies of builtin iterators that have no more state than what their classes are called with."""
    if args[0].builtin is None:
        return m.plainly(Generator.__reduce_ex__, *args, **kwargs)  # which refuses
    m.take_over(args[0])
    kind, parts = args[0].__class__, args[0].parts()
    if kind.__module__ == "itertools" and not BEHAVIOR.iterators_of_itertools_are_copied:
        raise fr.Raised(TypeError(f"cannot pickle 'itertools.{kind.__name__}' object"))
    is_strict = kind in (map, zip) and parts is not None and parts[1][-1]  # which __setstate__ restores
    if kind not in REDUCED_TO_PARTS or parts is None or is_strict:
        m.stop(breaks.OPAQUE_CALL, f"a copy of a {kind.__name__}")
    state = parts[1]
    if kind in (map, zip):
        return kind, (*state[:-2], *state[-2])
    reduction = kind, tuple(state)
    if kind.__module__ == "itertools" and BEHAVIOR.copies_of_itertools_warn:
        return m.call(object_polyfills.reduced_iterator, (reduction,), {})
    return reduction


def copy_tee(m: Any, args: tuple, kwargs: dict) -> Any:
    """``__copy__`` of what ``itertools.tee`` returns: one more iterator over the same values."""
    if len(args) != 1 or kwargs or type(args[0]) is not Generator:
        return MISSING
    m.take_over(args[0])
    if args[0].frame is None or args[0].running:
        m.stop(breaks.OPAQUE_CALL, "a copy of an iterator of itertools.tee that has ended")
    return m.call(itertools_polyfills.tee_copy, tuple(args[0].frame.locals[:2]), {})


def call_class(m: Any, owner: type, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if name == "__new__":
        answer = object_builtins.new_of(m, owner, args, kwargs)
        if answer is not MISSING:
            return answer
    if name == "__init_subclass__":  # object's, which does nothing
        return m.plainly(method, *args, **kwargs)
    if name == "__delattr__" and len(args) == 1 and not kwargs:
        return without_result(m, delete_plainly(m, owner, args[0]))
    if name == "fromkeys":
        return dict_of_keys(m, owner, args, kwargs, method)
    if name == "__subclasses__" and not args and not kwargs:
        return subclasses_of(m, owner, method)
    if name == "__init__" and id(owner) in m.heap.fresh:
        return m.plainly(method, *args, **kwargs)  # which checks the arguments, and does no more
    home = next((base for base in owner.__mro__ if name in base.__dict__), type)
    if home.__module__.partition(".")[0] not in PURE_HOMES or home.__module__ == "datetime" and name in ASKS_THE_SYSTEM:
        return m.stop(breaks.OPAQUE_CALL, f"call of {home.__module__}.{home.__qualname__}.{name}")
    return pure_method(m, owner, name, args, kwargs, method)


def subclasses_of(m: Any, cls: type, method: Callable) -> Any:
    """Another class may be defined between two calls, or collected."""
    if m.has_classes:
        m.stop(breaks.OPAQUE_CALL, f"{cls.__qualname__}.__subclasses__() after a class statement")
    found = m.plainly(method)
    m.lookups.update({(each, HELD_WEAKLY): (MISSING, None) for each in found})
    expected = tuple(map(weakref.ref, found))  # a guard must not keep them alive
    m.heap.guard_answer(has_subclasses, m.heap.sources.pin(cls), expected)
    return found


def has_subclasses(cls: type, expected: tuple) -> bool:
    found = type.__subclasses__(cls)
    return len(found) == len(expected) and all(one is each() for one, each in zip(found, expected, strict=True))


PURE_HOMES = frozenset(
    "builtins abc collections datetime decimal enum fractions functools itertools numpy torch types typing".split()
)
"""Packages of classes with class methods in C that only compute with their arguments."""

ASKS_THE_SYSTEM = frozenset("now utcnow today fromtimestamp".split()).union(WARNING_CLOCKS)
"""Class methods of dates that read the clock or the local time zone, or that warn."""


def call_inference_mode(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    return torch_switches.call_on_object(m, owner, name, args)


def call_iterator(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if m.heap.is_outside_iterator(owner):
        if name == "__next__" and not args and not kwargs:
            value = iteration.advance(m, owner)
            if value is EXHAUSTED:
                raise fr.Raised(StopIteration())
            return value
        m.stop(breaks.OUTSIDE_ITERATOR, f"{name} of a {type(owner).__qualname__}")
    return native_call_rules.native(m, method, args, kwargs)


def call_cached_function(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    return m.stop(breaks.OPAQUE_CALL, f"{name}() of a cached function")


def call_frame(m: Any, owner: types.FrameType, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    """``frame.clear()`` of a traceback, by ``assertRaises``: the locals of an interpreted frame went when it ended."""
    if name != "clear" or args or kwargs or m.heap.origin_of(owner) is not None:
        return call_object(m, owner, name, args, kwargs, method)
    shown = tracebacks.frame_shown_by(owner)
    if any(running is shown for running in fr.frames_from(m.frame)):
        raise fr.Raised(RuntimeError("cannot clear an executing frame"))
    if shown is not None and shown.generator is not None and shown.generator.frame is shown:
        m.stop(breaks.OPAQUE_CALL, "clear() of the frame of a suspended generator")
    return m.plainly(method)


def call_natively(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    m.check_readable(method, owner)
    return native_call_rules.native(m, method, args, kwargs)


def call_object(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    """A method in C of any other object: of ``object``, mostly."""
    rule = OBJECT_METHODS.get(name)
    answer = MISSING if rule is None else rule(m, owner, name, args, kwargs, method)
    if answer is not MISSING:
        return answer
    kind = type(owner)
    if name in ("__reduce_ex__", "__getstate__", "__sizeof__", "__dir__", "__hash__", "__repr__", "__str__"):
        return m.stop(breaks.OPAQUE_CALL, f"{name} of a {kind.__qualname__}")
    return m.stop(breaks.OPAQUE_CALL, f"call of {kind.__module__}.{kind.__qualname__}.{name}")


def _initialize(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    return m.plainly(method, *args, **kwargs) if lookup(m, type(owner), name)[1] is object else MISSING


def _by_own_method(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if _is_of_object(owner, name, method):
        answer = OF_OBJECT[name](m, owner, *args) if not kwargs and len(args) == (name == "__format__") else None
        return MISSING if answer is None else answer
    if not value_kinds.python_method(m, owner, name):
        return MISSING
    return m.call(types.MethodType(lookup(m, type(owner), name)[0], owner), args, kwargs)


def _is_of_object(owner: Any, name: str, method: Callable) -> bool:
    """Whether the call is ``object.name(owner)``, whatever method the class of the owner has."""
    if type(method) is functools.partial:
        return method.func is vars(object)[name]
    return method == vars(object)[name].__get__(owner)


def _format(m: Any, owner: Any, spec: Any) -> Any:
    return print_and_format.text_of(m, str, owner) if type(spec) is str and not spec else None


OF_OBJECT: dict[str, Callable] = {
    "__hash__": object_addresses.hash_of,
    "__repr__": print_and_format.text_with_address,
    "__str__": lambda m, owner: print_and_format.text_of(m, repr, owner),
    "__format__": _format,
}


def _compare(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if not _is_of_object(owner, name, method):
        return _by_own_method(m, owner, name, args, kwargs, method)
    if name == "__ne__" and value_kinds.python_method(m, owner, "__eq__"):
        return m.call(operator_protocol_polyfills.not_equal, (owner, *args), kwargs)
    if len(args) != 1 or name == "__ne__" and lookup(m, type(owner), "__eq__")[1] is not object:
        return MISSING
    if name in ORDERINGS:
        return NotImplemented
    return name == "__eq__" if truth_and_identity.is_same(m, owner, args[0]) else NotImplemented


def _reduce(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    reduction = copy_protocol.reduction_of(m, owner, name, args, kwargs)
    return MISSING if reduction is None else m.call(reduction, (owner,), {})


OBJECT_METHODS: dict[str, Callable] = {
    **dict.fromkeys(("__init__", "__init_subclass__", "__subclasshook__"), _initialize),
    **dict.fromkeys(("__hash__", "__str__", "__repr__", "__format__"), _by_own_method),
    **dict.fromkeys(COMPARISONS, _compare),
    **dict.fromkeys(("__reduce_ex__", "__getstate__"), _reduce),
}
"""Rules for methods of any object, which return MISSING where they do not apply."""
