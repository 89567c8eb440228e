"""Reflection: functions of the standard library in Python that look into classes, functions and objects of the user's.

    inspect.getdoc(Model)        # runs natively; each check of the segment asks again and compares the answers

What they read has no guards of its own, as no interpreted code reads it.
"""

from __future__ import annotations

import inspect
import types
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import is_trusted, is_trusted_namespace, is_trusted_type, is_user_type
from ...guards.guards import typed_key
from ...interpreter.reads_past_overrides import dict_of
from ...numbers.live_scalars import Expression

MODULES = frozenset(("inspect", "typing", "typing_extensions", "annotationlib", "dis"))
BY_KIND = frozenset(("get_origin", "get_args", "cleandoc"))
"""Besides questions for the kind of an object (``inspect.isclass``), these read nothing that can be assigned."""
NAMED = (type, FunctionType, ModuleType)
ATOMS = (int, float, complex, bool, str, bytes, type(None))


def guard_answer(m: Any, function: FunctionType, args: tuple, kwargs: dict, answer: Any) -> None:
    name = function.__name__
    if (
        function.__globals__.get("__name__") not in MODULES
        or name in BY_KIND
        or name.startswith("is")
        and name != "isabstract"
        or not any(is_of_user(value) and id(value) not in m.heap.fresh for value in (*args, *kwargs.values()))
        or function is inspect.signature
        and (type(args[0]), id(getattr(args[0], "__func__", args[0]))) in m.signatures
    ):
        return
    operands = [operand_of(m, value) for value in args]
    if kwargs or None in operands or not is_comparable(answer):
        m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} of an object, which may change")
    m.guard_outcome(Expression(answers_alike, (function, answer, *operands)), True)


def is_of_user(value: Any) -> bool:
    if issubclass(type(value), type):
        return not is_trusted_type(value)
    if type(value) is MethodType:
        return is_of_user(value.__func__)
    if type(value) is FunctionType:
        return not is_trusted(value.__module__)
    if issubclass(type(value), ModuleType):
        return not is_trusted_namespace(dict_of(value))
    return is_user_type(type(value))


def operand_of(m: Any, value: Any) -> Any:
    """How the check finds an argument again, or None."""
    if issubclass(type(value), ATOMS):
        return Expression(None, (m.heap.sources.pin(value),)) if value is None else value
    if issubclass(type(value), NAMED) and id(value) not in m.heap.fresh:
        return Expression(None, (m.heap.sources.pin(value),))
    origin = m.heap.origin_of(value)
    return None if origin is None else Expression(None, (origin.source,))


def is_comparable(answer: Any) -> bool:
    if type(answer) in (tuple, list, frozenset, set):
        return all(map(is_comparable, answer))
    if type(answer) is dict:
        return all(map(is_comparable, (*answer, *answer.values())))
    return type(answer) in (*ATOMS, inspect.Signature) or issubclass(type(answer), NAMED) or is_alias(answer)


def is_alias(value: Any) -> bool:
    return type(value).__module__ == "typing" or type(value) in (types.GenericAlias, types.UnionType)


def answers_alike(function: FunctionType, expected: Any, *args: Any) -> bool:
    return is_alike(function(*args), expected)


def is_alike(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) in (tuple, list):
        return len(a) == len(b) and all(map(is_alike, a, b))
    if type(a) is dict:
        return is_alike(list(a.items()), list(b.items()))
    if type(a) is inspect.Signature:
        return is_alike(parts_of(a), parts_of(b))
    if type(a) in ATOMS:
        return typed_key(a) == typed_key(b)
    return a is b or type(a) in (set, frozenset) and a == b or is_alias(a) and a == b


def parts_of(signature: inspect.Signature) -> list:
    shown = [(p.name, p.kind.name, p.default, p.annotation) for p in signature.parameters.values()]
    return [*shown, signature.return_annotation]
