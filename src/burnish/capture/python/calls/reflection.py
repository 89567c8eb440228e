"""Reflection: functions of the standard library in Python that look into classes, functions and objects of the user's.

    inspect.getdoc(Model)        # runs natively; each check of the segment calls it again and compares the results

Their reads have no guards of their own, as no interpreted code makes them. Only for signatures, the usual question, the
parts that they follow from are guarded: asking again would take longer than the rest of the checks.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import (
    find_on_type,
    is_trusted_function,
    is_trusted_namespace,
    is_trusted_type,
    is_user_type,
)
from ...guards.guards import typed_key
from ...interpreter.reads_past_overrides import dict_of, table_of_class
from ...interpreter.versions.behavior import BEHAVIOR
from ...numbers.live_scalars import Expression
from ..attributes.class_lookup import guard_absent, lookup
from ..attributes.function_attributes import compute_annotations, load_from_function

MODULES = frozenset(("inspect", "typing", "typing_extensions", "annotationlib", "dis"))
BY_KIND = frozenset(("get_origin", "get_args", "cleandoc"))
"""Besides questions for the kind of an object (``inspect.isclass``), these read nothing that can be assigned."""
NAMED = (type, FunctionType, ModuleType)
ATOMS = (int, float, complex, bool, str, bytes, type(None))


def asks_for_kind(function: FunctionType) -> bool:
    """Whether a function reads nothing that can be assigned."""
    name = function.__name__
    return (
        function.__globals__.get("__name__") not in MODULES
        or name in BY_KIND
        or name.startswith("is")
        and name != "isabstract"
    )


def guard_answer(m: Any, function: FunctionType, args: tuple, kwargs: dict, answer: Any) -> None:
    if (
        asks_for_kind(function)
        or not any(may_change(m, function, value) for value in (*args, *kwargs.values()))
        or follows_from_parts(m, function, args, kwargs)
    ):
        return
    operands = [operand_of(m, value) for value in args]
    constant = all(type(value) in ATOMS for value in kwargs.values())
    if not constant or None in operands or not is_comparable(answer):
        m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} of an object, which may change")
    asked = functools.partial(function, **kwargs) if kwargs else function
    m.guard_outcome(Expression(answers_alike, (asked, copy_answer(answer), *operands)), True)


def may_change(m: Any, function: FunctionType, value: Any) -> bool:
    """Whether a later answer may be another one. What the trace has made still follows from older functions."""
    return is_of_user(value) and (function in OF_PARTS or id(value) not in m.heap.fresh)


COMPUTING_FORMATS = (1, 3)
"""``VALUE`` and ``FORWARDREF`` of ``annotationlib``: the annotations that are stored. Others are computed each time."""


def refuse_own_code(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> None:
    """Before a function runs natively: annotations which it would compute, and before ``inspect.getdoc`` a ``__doc__``
    that is a descriptor in Python, which it would call."""
    if BEHAVIOR.annotations_are_computed and not asks_for_kind(function):
        if any(kwargs.get(name, 1) not in COMPUTING_FORMATS for name in ("format", "annotation_format")):
            m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} with a format")
        asks_for_methods = (
            function.__module__ == "inspect"
        )  # what makes an object of a class may ask for the class's own
        for part in itertools.chain.from_iterable(annotated_parts(value, asks_for_methods) for value in args):
            compute_annotations(m, part)
    if function is inspect.getdoc and len(args) == 1:
        for base in (args[0] if issubclass(type(args[0]), type) else type(args[0])).__mro__:
            if isinstance(find_on_type(type(table_of_class(base).get("__doc__")), "__get__"), FunctionType):
                m.stop(breaks.OPAQUE_CALL, f"getdoc() of a {base.__qualname__}, whose __doc__ is computed")


def annotated_parts(value: Any, asks_for_methods: bool) -> list:
    """The functions and classes whose annotations are asked for with an object's."""
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        return [value]
    if is_trusted_type(type(value)) and not issubclass(type(value), type):
        return []
    cls = value if issubclass(type(value), type) else type(value)
    methods = (find_on_type(cls, name) for name in ("__new__", "__init__", "__call__") if asks_for_methods)
    return [*cls.__mro__, *(method for method in methods if type(method) is FunctionType)]


OF_PARTS = frozenset((inspect.signature, inspect.getfullargspec, inspect.unwrap))
"""What these say of a function follows from its parts, which are cheaper to guard than to ask again."""
PARTS = ("__code__", "__defaults__", "__kwdefaults__", "__annotations__")
OTHER_RULES = ("__signature__", "_partialmethod", "__partialmethod__")


def follows_from_parts(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> bool:
    """Whether all that the answer follows from has been guarded."""
    if function not in OF_PARTS or len(args) != 1 or not kwargs.keys() <= {"follow_wrapped", "annotation_format"}:
        return False
    asked = what_is_called(m, args[0]) if function is inspect.signature else args[0]
    return chain_of(m, asked) is not None or function is inspect.signature and class_is_guarded(m, asked)


def what_is_called(m: Any, value: Any) -> Any:
    """The function from which the signature of a partial or of an instance follows, if the trace has made them. None
    where other rules apply."""
    while type(value) is functools.partial and id(value) in m.heap.fresh and not value.__dict__:
        value = value.func
    kind = type(value)
    if id(value) not in m.heap.fresh or issubclass(kind, (type, FunctionType)) or not is_user_type(kind):
        return value
    if find_on_type(kind, "__getattr__") is not None or kind.__getattribute__ is not object.__getattribute__:
        return None
    for name in ("__wrapped__", *OTHER_RULES):
        if name in (dict_of(value) or ()) or lookup(m, kind, name)[1] is not None:
            return None
        guard_absent(m, kind, name)
    return lookup(m, kind, "__call__")[0]


def chain_of(m: Any, function: Any) -> list[FunctionType] | None:
    """A function and those that it wraps (``functools.wraps``), with the parts that its signature follows from guarded.
    None where other rules apply."""
    if type(function) is MethodType:
        function = function.__func__
    chain: list[FunctionType] = []
    while type(function) is FunctionType and len(chain) < 20:
        chain.append(function)
        if any(name in function.__dict__ for name in OTHER_RULES):
            return None
        compute_annotations(m, function)
        if id(function) not in m.heap.fresh and not is_trusted_function(function):
            guard_parts(m, function)
        if "__wrapped__" not in function.__dict__:
            return chain
        function = function.__dict__["__wrapped__"]
    return None


def guard_parts(m: Any, function: FunctionType) -> None:
    for name in ("__wrapped__", *OTHER_RULES):
        m.heap.read_key(m.heap.members(function), name)
    known = m.heap.origin_of(function)
    source = m.heap.sources.pin(function) if known is None else known.source
    for name in PARTS:
        part = load_from_function(m, function, name)
        origin = None if part is None else m.heap.origin_of(part)
        if type(part) is dict and origin is not None:
            m.heap.complete(origin)
        if name != "__code__" and part:
            for key, value in part.items() if type(part) is dict else enumerate(part):
                place = source.attr(name).item(key)
                if is_alias(value) and not source.is_pinned:  # rebuilt with the function
                    m.heap.guard_answer(is_alike, place, value)
                else:
                    by_value = type(value) in ATOMS and value is not None
                    m.heap.guard("equal" if by_value else "is", place, value)


def class_is_guarded(m: Any, cls: Any) -> bool:
    """Guard what the signature of an ordinary class follows from. False where other rules apply."""
    kind = type(cls)
    if not issubclass(kind, type) or not is_trusted_type(kind) or lookup(m, kind, "__call__")[1] is not type:
        return False
    for name in ("__signature__", "__new__", "__init__"):
        found, owner = lookup(m, cls, name)
        if owner is None:
            guard_absent(m, cls, name)
        elif name == "__signature__":
            return False
        elif is_trusted_type(owner):
            continue
        elif chain_of(m, found.__func__ if type(found) is staticmethod else found) is None:
            return False
    return True


def is_of_user(value: Any) -> bool:
    if type(value) is functools.partial:
        return is_of_user(value.func)
    if issubclass(type(value), type):
        return not is_trusted_type(value)
    if type(value) is MethodType:
        return is_of_user(value.__func__)
    if type(value) is FunctionType:
        return not is_trusted_function(value)
    if issubclass(type(value), ModuleType):
        return not is_trusted_namespace(dict_of(value))
    return is_user_type(type(value))


def operand_of(m: Any, value: Any) -> Any:
    """How the check finds an argument again, or None."""
    if issubclass(type(value), ATOMS):
        return Expression(None, (m.heap.sources.pin(value),)) if value is None else value
    if issubclass(type(value), NAMED) and id(value) not in m.heap.fresh:
        return Expression(None, (m.heap.sources.pin(value),))
    if type(value) is MethodType and id(value.__func__) not in m.heap.fresh:
        parts = operand_of(m, value.__func__), operand_of(m, value.__self__)
        return None if None in parts else Expression(MethodType, parts)
    origin = m.heap.origin_of(value)
    return None if origin is None else Expression(None, (origin.source,))


def is_comparable(answer: Any) -> bool:
    if type(answer) in (tuple, list, frozenset, set) or is_named_tuple(answer):
        return all(map(is_comparable, answer))
    if type(answer) is dict:
        return all(map(is_comparable, (*answer, *answer.values())))
    return (
        type(answer) in (*ATOMS, inspect.Signature, BuiltinFunctionType)
        or issubclass(type(answer), NAMED)
        or is_alias(answer)
    )


def is_named_tuple(value: Any) -> bool:
    return issubclass(type(value), tuple) and type(value).__module__ in MODULES


def copy_answer(answer: Any) -> Any:
    """The program gets the answer itself, and may change it."""
    if type(answer) in (list, set, frozenset, tuple) or is_named_tuple(answer):
        parts = map(copy_answer, answer)
        return tuple.__new__(type(answer), parts) if isinstance(answer, tuple) else type(answer)(parts)
    return {k: copy_answer(v) for k, v in answer.items()} if type(answer) is dict else answer


def is_alias(value: Any) -> bool:
    return type(value).__module__ == "typing" or type(value) in (types.GenericAlias, types.UnionType)


def answers_alike(function: FunctionType, expected: Any, *args: Any) -> bool:
    return is_alike(function(*args), expected)


def is_alike(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) in (tuple, list) or is_named_tuple(a):
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
