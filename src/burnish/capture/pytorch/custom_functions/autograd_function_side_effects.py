"""Side effect analysis of custom ``autograd.Function``s: whether one writes to a counter, a list, a global.

The methods run natively, inside the graph, so capture does not see their writes. State that the program reads after
such a call may differ from its value at the start of the segment: the segment ends after the call. The writes are found
in the bytecode.

    ctx.scale = 2                its own: no
    cls.calls += 1               yes
    log.append(x)                yes, unless ``log`` is a local variable of the method
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator
from typing import Any

import torch

from ...engine.interpreted_or_native import is_trusted
from ...interpreter.frames import cell_value

METHODS = ("forward", "setup_context", "backward", "vjp")
CHANGING_METHODS = frozenset(
    """
    append appendleft extend extendleft insert add update pop popleft popitem remove discard clear setdefault sort
    reverse put write
""".split()
)
LOADS_OUTSIDE = ("LOAD_GLOBAL", "LOAD_DEREF")
LOADS_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
STORES = ("STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR")
ENDS = ("STORE_", "DELETE_", "POP_TOP", "RETURN_", "JUMP_", "POP_JUMP")
"""Prefixes of the instructions that end a statement, or a part of one."""
HARMLESS = (
    *(types.ModuleType, types.BuiltinFunctionType, type(None), torch.dtype),
    *(int, float, complex, str, bytes, tuple),
)


def what_is_written(cls: type) -> str | None:
    """The first outside object that a method of the class writes to, in words."""
    seen: set[Any] = set()
    for name in METHODS:
        found = written_by(inspect.getattr_static(cls, name, None), seen)
        if found is not None:
            return found
    return None


def written_by(function: Any, seen: set[Any]) -> str | None:
    if isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    function = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    if not isinstance(function, types.FunctionType) or function in seen or is_trusted(function.__module__):
        return None
    seen.add(function)
    for code in codes_in(function.__code__):
        outside: list[str] = []  # the outside names in the statement so far
        changes = False
        instructions = list(dis.get_instructions(code))
        for at, one in enumerate(instructions):
            name = one.opname
            if (
                name in ("STORE_GLOBAL", "DELETE_GLOBAL")
                or name in ("STORE_DEREF", "DELETE_DEREF")
                and one.argval in function.__code__.co_freevars
            ):
                return f"{function.__qualname__} writes to {one.argval}"
            if name in LOADS_OUTSIDE:
                value = named(function, one.argval)
                further = next(attributes_after(instructions, at), None)
                part = None if further is None else inspect.getattr_static(value, further, None)
                found = written_by(value, seen) or written_by(part, seen)
                if found is not None:
                    return found
                if not isinstance(value, (*HARMLESS, types.FunctionType)):
                    outside.append(one.argval)
            changes = changes or name in STORES or name in LOADS_ATTRIBUTE and one.argval in CHANGING_METHODS
            if changes and outside:
                return f"{function.__qualname__} may write to {outside[0]}"
            if name.startswith(ENDS):
                outside, changes = [], False
    return None


def codes_in(code: types.CodeType) -> list[types.CodeType]:
    return [code, *[inner for part in code.co_consts if isinstance(part, types.CodeType) for inner in codes_in(part)]]


def named(function: types.FunctionType, name: str) -> Any:
    if name in function.__code__.co_freevars:
        return cell_value((function.__closure__ or ())[function.__code__.co_freevars.index(name)])
    return function.__globals__.get(name)


def attributes_after(instructions: list[dis.Instruction], at: int) -> Iterator[str]:
    """The attributes that are read from the value an instruction pushes: ``torch.nn.functional.relu``."""
    for instruction in instructions[at + 1 :]:
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield instruction.argval
        elif instruction.opname not in ("CACHE", "EXTENDED_ARG"):
            return
