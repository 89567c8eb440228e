"""The identity of an operator registered from Python: text that is equal wherever the registrations are equal.

    identity_of(torch.ops.my.scaled.default)      'my::scaled(Tensor x, float s) -> Tensor _abstract_fn 5c1e…'

Compiled code depends on the operator's schema, and on the functions that say what its results look like and how they
are differentiated. They are known by their bytecode and by all they read: constants, other operators, and functions
with the same property. An operator whose functions read something else has no identity, and graphs that contain it are
not kept on disk. Its kernels do not count, because compiled code calls the operator by way of torch.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import sys
import types
from typing import Any

import torch

from ..foundation.torch_private import OPDEFS, CustomOpDef, OpOverload, OpOverloadPacket

REGISTERED = ("_abstract_fn", "_setup_context_fn", "_backward_fn")
CONSTANTS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device)


class NoIdentity(Exception):
    """The message names the state that is read."""


def identity_of(operator: Any, known: tuple[Any, ...] = ()) -> str | None:
    """`known`: operators whose functions call this one."""
    if type(operator) is OpOverloadPacket and operator.overloads() == ["default"]:
        operator = operator.default
    if type(operator) is not OpOverload:
        return None
    definition = OPDEFS.get(operator._overloadpacket._qualified_op_name)
    if definition is None or definition._opoverload is not operator or casts_in_autocast(definition):
        return None
    try:
        parts = [f"{name} {Digest((*known, operator)).of(getattr(definition, name))}" for name in REGISTERED]
    except NoIdentity:
        return None
    return " ".join([str(operator._schema), *map(str, operator.tags), *parts])


def casts_in_autocast(definition: CustomOpDef) -> bool:
    """Torch has had an attribute for each kind of device, and one for all."""
    return any(value for name, value in vars(definition).items() if name.startswith("_autocast"))


class Digest:
    def __init__(self, known: tuple[Any, ...]) -> None:
        self.known = known
        self.text: list[str] = []
        self.seen: dict[Any, int] = {}

    def of(self, function: Any) -> str:
        self.value(function, ())
        return hashlib.sha256("\n".join(self.text).encode()).hexdigest()

    def value(self, value: Any, attributes: tuple[str, ...]) -> None:
        """A value found under a name, with the attributes that are read from it directly."""
        if isinstance(value, types.ModuleType):
            if not is_library(value.__name__):
                raise NoIdentity(value.__name__)
            self.text.append(f"module {value.__name__} {attributes}")
            if value is torch and attributes[:1] == ("ops",):
                self.operator(attributes[1:])
        elif isinstance(value, CONSTANTS):
            self.text.append(f"{type(value).__name__} {value!r}")
        elif type(value) is tuple:
            self.text.append(f"tuple {len(value)}")
            for part in value:
                self.value(part, ())
        elif isinstance(value, types.CodeType):
            self.code(value)
        elif isinstance(value, CustomOpDef):
            self.identified(value._opoverload)
        elif isinstance(value, OpOverload):
            self.identified(value)
        elif isinstance(value, types.FunctionType) and not is_library(value.__module__):
            self.function(value)
        elif isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)) and is_library(value.__module__):
            self.text.append(f"name {value.__module__}.{value.__qualname__}")
        else:
            raise NoIdentity(repr(type(value)))

    def operator(self, path: tuple[str, ...]) -> None:
        """`torch.ops.my.scaled`, or an overload of it."""
        if path[:1] in (("aten",), ("prims",)):
            return
        if len(path) < 2:
            raise NoIdentity("torch.ops")
        packet = getattr(getattr(torch.ops, path[0]), path[1], None)
        if packet is None or packet.overloads() != ["default"]:
            raise NoIdentity(".".join(path))
        self.identified(packet.default)

    def identified(self, operator: Any) -> None:
        if operator in self.known:
            self.text.append(f"operator {self.known.index(operator)}")
            return
        identity = identity_of(operator, self.known)
        if identity is None:
            raise NoIdentity(str(operator))
        self.text.append(identity)

    def function(self, function: types.FunctionType) -> None:
        if function in self.seen:
            self.text.append(f"function {self.seen[function]}")
            return
        self.seen[function] = len(self.seen)
        self.value(function.__defaults__, ())
        for name, default in (function.__kwdefaults__ or {}).items():
            self.value((name, default), ())
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for name, cell in cells.items():
            try:
                content = cell.cell_contents
            except ValueError:
                raise NoIdentity(name) from None
            self.value(content, ())
        self.code(function.__code__)
        for code in codes_in(function.__code__):
            self.names(code, function)

    def code(self, code: types.CodeType) -> None:
        self.text.append(code.co_code.hex())
        self.text.append(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags, code.co_argcount)))
        self.value(tuple(part for part in code.co_consts if not isinstance(part, frozenset)), ())
        for part in code.co_consts:
            if isinstance(part, frozenset):
                self.value(tuple(sorted(map(repr, part))), ())

    def names(self, code: types.CodeType, function: types.FunctionType) -> None:
        instructions = list(dis.get_instructions(code))
        for at, one in enumerate(instructions):
            if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                missing = object()
                value = function.__globals__.get(one.argval, getattr(builtins, one.argval, missing))
                if value is missing:
                    raise NoIdentity(one.argval)
                self.text.append(one.argval)
                self.value(value, attributes_after(instructions, at))
            elif one.opname in ("IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
                raise NoIdentity(one.opname)


def attributes_after(instructions: list[dis.Instruction], at: int) -> tuple[str, ...]:
    found = []
    for instruction in instructions[at + 1 :]:
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            found.append(instruction.argval)
        elif instruction.opname not in ("CACHE", "EXTENDED_ARG"):
            break
    return tuple(found)


def codes_in(code: types.CodeType) -> list[types.CodeType]:
    return [code, *[inner for part in code.co_consts if isinstance(part, types.CodeType) for inner in codes_in(part)]]


def is_library(module: str | None) -> bool:
    root = (module or "").partition(".")[0]
    return root in ("torch", "builtins") or root in sys.stdlib_module_names and root != "__main__"
