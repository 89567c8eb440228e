"""What a custom ``autograd.Function`` writes through the objects it is given, which it may call.

    Checkpoint.apply(block, x)      block.forward: ``self.calls += 1``       yes
                                    ``outs = []; outs.append(self.a(x))``    no: a local list
                                    ``torch.add(x, self.weight)``            no

The bytecode is followed with a stack of the values that are reached from ``self`` or from an outside name. Only code
that is called counts: the ``forward`` of modules, ``__call__``, methods that the class calls by name, and what they
call in turn.
"""

from __future__ import annotations

import collections
import dis
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from ...engine.interpreted_or_native import is_trusted, is_trusted_namespace, is_trusted_type, is_user_type
from ...interpreter.frames import MISSING
from .autograd_function_side_effects import CHANGING_METHODS, HARMLESS, LOADS_ATTRIBUTE, METHODS, codes_in, named

NOT_CHANGED = (*HARMLESS, types.FunctionType, torch.Tensor)
"""Types whose ``add`` or ``sort`` changes nothing."""
CONTAINERS = (list, dict, set, bytearray, collections.deque)
TARGETS = {"STORE_ATTR": 1, "DELETE_ATTR": 1, "STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_SLICE": 3}
"""The depth of the changed object on the stack."""
LEAVES_TOP = tuple("STORE_ DELETE_ POP_ SWAP JUMP_ CACHE NOP PRECALL KW_NAMES RESUME EXTENDED_ARG".split())
"""Prefixes of the instructions that push no result."""


class Outside(NamedTuple):
    """A value on the stack that the code did not make itself."""

    text: str
    value: Any  # or MISSING, if unknown


def written_through(cls: type, given: Iterable) -> str | None:
    """The first write to an object that is ``given`` to ``cls.apply``, in words."""
    given = [value for value in given if callable(value) or is_user_type(type(value))]
    names = names_read_by(cls) if given else frozenset()
    seen: set[Any] = set()
    return next(filter(None, (written_by_given(value, names, seen) for value in given)), None)


def names_read_by(cls: type) -> frozenset[str]:
    functions = [inspect.unwrap(f) for f in (getattr(cls, name, None) for name in METHODS) if callable(f)]
    codes = [code for f in functions if isinstance(f, types.FunctionType) for code in codes_in(f.__code__)]
    return frozenset(name for code in codes for name in code.co_names)


def written_by_given(value: Any, names: Iterable[str], seen: set[Any]) -> str | None:
    """``names``: the methods that may be called, besides ``__call__``."""
    if isinstance(value, functools.partial):
        return written_by_given(value.func, (), seen)
    if isinstance(value, types.BuiltinFunctionType):
        is_change = value.__name__ in CHANGING_METHODS and isinstance(value.__self__, CONTAINERS)
        return f"it is given {value.__qualname__}" if is_change else None
    if isinstance(value, types.FunctionType):
        return written_by(value, None, seen)
    if isinstance(value, types.MethodType):
        found = written_by(value.__func__, value.__self__, seen)
        parts = torch.nn.Module.children(value.__self__) if isinstance(value.__self__, torch.nn.Module) else ()
        return found or next(filter(None, (written_by_given(part, (), seen) for part in parts)), None)
    if isinstance(value, type):
        return None
    called = [(value, name) for name in ("__call__", *names)] if is_user_type(type(value)) else []
    if isinstance(value, torch.nn.Module):
        called += [(module, "forward") for module in torch.nn.Module.modules(value)]
    return next(filter(None, (written_by_method(owner, name, seen) for owner, name in called)), None)


def written_by_method(owner: Any, name: str, seen: set[Any]) -> str | None:
    """By ``owner.name(...)``, and by the methods it overrides where it may call them."""
    for base in type(owner).__mro__:
        function = vars(base).get(name)
        if function is None:
            continue
        if isinstance(function, property):
            function = function.fget
        elif isinstance(function, (staticmethod, classmethod)):
            owner = base if isinstance(function, classmethod) else None
            return written_by(function.__func__, owner, seen)
        if is_trusted_type(base) or not isinstance(function, types.FunctionType):
            return None
        found = written_by(function, owner, seen)
        if found is not None:
            return found
        if "super" not in function.__code__.co_names:
            return None
    return None


def written_by(function: Any, owner: Any, seen: set[Any]) -> str | None:
    """``owner``: what the first argument is, for a method."""
    while isinstance(function, types.FunctionType) and is_trusted_namespace(function.__globals__):
        function = getattr(function, "__wrapped__", None)  # decorated by torch.no_grad()
    key = (function, type(owner))
    if not isinstance(function, types.FunctionType) or key in seen or is_trusted(function.__module__):
        return None
    seen.add(key)
    for code in codes_in(function.__code__):
        found = Follower(function, owner, code, seen).written()
        if found is not None:
            return found
    return None


class Follower:
    """Goes through code once, in order, and tracks the values on the stack."""

    def __init__(self, function: types.FunctionType, owner: Any, code: types.CodeType, seen: set[Any]) -> None:
        self.function, self.owner, self.code, self.seen = function, owner, code, seen
        self.stack: list[Outside | None] = []
        self.stacks: dict[int, list[Outside | None]] = {}  # by the offset that a jump leads to
        self.in_place = False  # whether the next value to be stored is the result of ``+=``
        first = function.__code__.co_varnames[:1]
        self.locals: dict[str, Outside | None] = {}
        if owner is not None and first and (code is function.__code__ or first[0] in code.co_freevars):
            self.locals[first[0]] = Outside(first[0], owner)

    def written(self) -> str | None:
        for one in dis.get_instructions(self.code):
            self.stack = self.stacks.get(one.offset, self.stack)
            found = self.follow(one)
            if found is not None:
                return found
        return None

    def follow(self, one: dis.Instruction) -> str | None:
        name = one.opname
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            name in ("STORE_DEREF", "DELETE_DEREF") and one.argval in self.function.__code__.co_freevars
        ):
            return f"{self.function.__qualname__} writes to {one.argval}"
        if name in TARGETS and (target := self.at(TARGETS[name])) is not None and not self.is_in_tensor(target, one):
            return f"{self.function.__qualname__} writes to {target.text}"
        if name not in ("SWAP", "CACHE", "EXTENDED_ARG"):
            self.in_place = name == "BINARY_OP" and one.argrepr.endswith("=")
        was = self.at(1)
        is_change = name in LOADS_ATTRIBUTE and one.argval in CHANGING_METHODS
        if is_change and was is not None and not isinstance(was.value, NOT_CHANGED):
            return f"{self.function.__qualname__} may write to {was.text}"
        kept = self.at(2) if name == "BINARY_SUBSCR" or name == "BINARY_OP" and one.argrepr == "[]" else None
        copied = self.at(one.arg or 1) if name in ("COPY", "SWAP") else None
        self.move(one)
        if name.startswith("LOAD_FAST"):
            return self.push(*map(self.locals.get, one.argval if isinstance(one.argval, tuple) else (one.argval,)))
        if name == "STORE_FAST":
            self.locals[one.argval] = was
        elif name in ("LOAD_GLOBAL", "LOAD_DEREF"):
            return self.load_outside(one.argval)
        elif name in LOADS_ATTRIBUTE and was is not None:
            return self.load_attribute(was, one.argval)
        elif name == "SWAP" and one.arg is not None and len(self.stack) >= one.arg:
            self.stack[-one.arg], self.stack[-1] = was, copied
        elif name == "COPY":
            self.push(copied)
        elif kept is not None:
            self.push(Outside(f"{kept.text}[...]", MISSING))
        return None

    def is_in_tensor(self, target: Outside, one: dis.Instruction) -> bool:
        """Whether it changes numbers alone, which the graph reads and orders like any: ``self.steps += 1``."""
        if one.opname == "STORE_ATTR":
            return self.in_place and isinstance(attribute_of(target.value, one.argval), torch.Tensor)
        return isinstance(target.value, torch.Tensor)

    def at(self, depth: int) -> Outside | None:
        return self.stack[-depth] if depth <= len(self.stack) else None

    def push(self, *values: Outside | None) -> None:
        """In place of what ``move`` put there."""
        self.stack[len(self.stack) - len(values) :] = values

    def move(self, one: dis.Instruction) -> None:
        """The stack after an instruction, whose result is nothing from outside."""
        before = self.stack
        self.stack = resized(before, dis.stack_effect(one.opcode, one.arg, jump=False))
        if self.stack and not one.opname.startswith(LEAVES_TOP):
            self.stack[-1] = None
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            self.stacks.setdefault(one.argval, resized(before, dis.stack_effect(one.opcode, one.arg, jump=True)))

    def load_outside(self, name: str) -> str | None:
        if name in self.locals:
            self.push(self.locals[name])
            return None
        value = named(self.function, name)
        if isinstance(value, types.ModuleType | type(None)):
            return None
        if not isinstance(value, HARMLESS):
            self.push(Outside(name, value))
        return written_by_given(value, (), self.seen)

    def load_attribute(self, was: Outside, name: str) -> str | None:
        value = attribute_of(was.value, name)
        pushed = Outside(f"{was.text}.{name}", value)
        self.stack[-1] = pushed  # for a method, the object or a null is next to it, and is not written to
        if was.value is MISSING or isinstance(was.value, type) or not is_user_type(type(was.value)):
            return None
        return written_by_method(was.value, name, self.seen)


def attribute_of(value: Any, name: str) -> Any:
    """An attribute of an object's own, read without its code."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return MISSING
    if type(own) is not dict:
        return MISSING
    tables = (own, *(own.get(key) or {} for key in ("_parameters", "_buffers", "_modules")))
    return next((table[name] for table in tables if type(table) is dict and name in table), MISSING)


def resized(stack: list[Outside | None], by: int) -> list[Outside | None]:
    size = max(len(stack) + by, 0)
    return [*stack[:size], *[None] * (size - len(stack))]
