"""Whether compilers may trace a custom ``autograd.Function``: what its code reads, found in the bytecode.

    why_not_traceable(cls, names, given)           None, or the first read that forbids it, in words
    names.are_as_they_were()                       the guard: the values found under all names are unchanged

Tensor code qualifies that reads only its arguments, ``ctx``, torch, constants, and functions with the same property.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import operator
import types
import weakref
from typing import Any

import torch

from ....foundation.torch_private import (
    CustomOpDef,
    OpOverload,
    OpOverloadPacket,
    SingleLevelFunction,
    VariableFunctions,
)
from ....tensors.in_place_names import is_in_place_name
from ...engine.interpreted_or_native import is_trusted
from ...interpreter.frames import MISSING, cell_value
from ..torch_call_roles import IMMEDIATE
from .autograd_function_side_effects import attributes_after

CONSTANTS = tuple(IMMEDIATE - {types.BuiltinFunctionType})
BUILTINS = frozenset(
    map(
        vars(builtins).get,
        """
        len min max abs sum isinstance round any all range tuple list dict int float bool zip enumerate reversed slice
        getattr hasattr ValueError TypeError RuntimeError NotImplementedError AssertionError
    """.split(),
    )
)
"""Python builtins that may be called: none of them has an observable side effect."""
PURE_MODULES = (math, operator)
OPERATORS = (OpOverload, OpOverloadPacket, CustomOpDef)
"""Of torch and other libraries: compiled code calls them as well."""
TORCH_NAMESPACES = """
    torch.nn.functional torch.functional torch._tensor torch.special torch.linalg torch.fft torch.autograd.grad_mode
    torch.amp.autocast_mode torch._C._nn torch._C._special torch._C._linalg torch._C._fft
""".split()
UNSEEN = frozenset(
    """
    grad register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ _backward_hooks __dict__ __class__
    backward grad_fn _version manual_seed seed is_grad_enabled set_grad_enabled _set_grad_enabled save load compile
    is_compiling jit
""".split()
)
"""Attributes that differ, or do something, while a compiler traces."""
DRAWS = "rand dropout bernoulli uniform normal multinomial exponential poisson cauchy geometric".split()
"""Every function that draws random numbers has one of these in its name. When it runs natively, its numbers differ."""
TORCH_CLASSES = [getattr(torch, name) for name in "Tensor Size no_grad enable_grad autocast finfo iinfo".split()]
NOT_DONE = frozenset(
    """
    STORE_GLOBAL DELETE_GLOBAL IMPORT_NAME IMPORT_FROM LOAD_CLOSURE_CLASS SETUP_ANNOTATIONS LOAD_BUILD_CLASS PRINT_EXPR
""".split()
)
"""Instructions that traceable code has none of."""
WRAPPERS = ("torch.autograd.function", "torch.amp.autocast_mode")
"""The modules of decorators for ``forward`` and ``backward``: once_differentiable, custom_fwd, custom_bwd."""

CHANGING: weakref.WeakSet = weakref.WeakSet()
"""Functions that read a name which turned out not to be constant. They stay native from then on."""


class Names:
    """The names that code read, and the values found. Before each run they must all be unchanged."""

    def __init__(self, cls: type) -> None:
        self.reader = weakref.ref(cls)
        self.sees_unused: str | None = None
        """Why the code behaves otherwise where only some outputs of a graph are used later, in words."""
        self.writes = False
        """Whether the code may write to a tensor that it has not made."""
        self.found: list[tuple[Any, str | None, Any]] = []  # a dictionary and a key, or a cell

    def read(self, table: dict, name: str) -> Any:
        value = table.get(name, MISSING)
        self.found.append((table, name, value))
        return value

    def read_cell(self, cell: types.CellType) -> Any:
        value = cell_value(cell)
        self.found.append((cell, None, value))
        return value

    def may_be_written(self) -> bool:
        """Whether the program may set one of these values: a number, for example."""
        return any(is_constant(was) for _, _, was in self.found)

    def are_as_they_were(self) -> bool:
        for place, name, was in self.found:
            now = cell_value(place) if name is None else place.get(name, MISSING)
            if now is not was and not (type(now) is type(was) and isinstance(was, (*CONSTANTS, tuple)) and now == was):
                cls = self.reader()
                if cls is not None and is_constant(was):
                    CHANGING.add(cls)
                return False
        return True


# ---- the code


class NotTraceable(Exception):
    """The message is the reason."""


def why_not_traceable(cls: type, names: Names, given: int, may_see_unused: bool = False) -> str | None:
    """``given``: how many arguments ``forward`` gets. ``may_see_unused``: backward may see which outputs are used; the
    caller makes sure that a compiler sees the same (``Names.sees_unused``)."""
    try:
        ClassReader(names, given, may_see_unused).function_class(cls)
    except NotTraceable as why:
        return str(why)
    return None


class ClassReader:
    def __init__(self, names: Names, given: int = 0, may_see_unused: bool = False):
        self.names, self.given, self.may_see_unused = names, given, may_see_unused
        self.seen: set[Any] = set()
        self.is_backward = False
        """Whether the code runs in backward, when an attribute may have another value than the guards saw."""

    def function_class(self, cls: type) -> None:
        if (cls, self.is_backward) in self.seen:
            return
        given = 0 if self.seen else self.given  # of a class that the code names, any number may be given
        self.seen.add((cls, self.is_backward))
        outer = self.is_backward
        for name in ("forward", "backward", "setup_context", "vjp"):
            owner = next((base for base in cls.__mro__ if name in base.__dict__), None)
            for base in cls.__mro__[: cls.__mro__.index(owner) + 1] if owner is not None else ():
                self.names.read(base.__dict__, name)  # type: ignore[arg-type]
            if owner is None or owner.__module__.startswith("torch."):
                if name == "forward" or name == "backward" and "vjp" not in vars(cls):
                    raise NotTraceable(f"{cls.__qualname__} has no {name}")
                continue
            method = owner.__dict__[name]
            if not isinstance(method, staticmethod):
                raise NotTraceable(f"{cls.__qualname__}.{name} is not a static method")
            takes_ctx = name != "forward" or not has_setup(cls)
            self.is_backward = outer or name in ("backward", "vjp")
            self.function(method.__func__, takes_ctx, given + takes_ctx if name == "forward" else 0)
        self.is_backward = outer
        backward = inspect.unwrap(inspect.getattr_static(cls, "backward").__func__)
        if backward.__code__.co_argcount > 2 or backward.__code__.co_flags & inspect.CO_VARARGS:
            for method in ("forward", "setup_context"):
                code = inspect.unwrap(inspect.getattr_static(cls, method).__func__).__code__
                if "set_materialize_grads" in code.co_names:
                    self.names.sees_unused = f"{cls.__qualname__}.backward sees which of its outputs were used"
                    if not self.may_see_unused:
                        raise NotTraceable(self.names.sees_unused)

    def function(self, function: Any, takes_ctx: bool = False, given: int = 0, owner: type | None = None) -> None:
        """``given``: how many positional arguments it gets at least. ``owner``: the class that is its first one."""
        if (
            isinstance(function, types.FunctionType)
            and function.__globals__.get("__name__") in WRAPPERS
            and hasattr(function, "__wrapped__")
        ):  # its module is that of the wrapped function
            function = function.__wrapped__
        if not isinstance(function, types.FunctionType):
            raise NotTraceable(f"{function!r} is not a Python function")
        if (function, self.is_backward, owner) in self.seen:
            return
        self.seen.add((function, self.is_backward, owner))
        code, defaults = function.__code__, function.__defaults__ or ()
        used = defaults[max(0, given - (code.co_argcount - len(defaults))) :]
        for default in (*used, *(function.__kwdefaults__ or {}).values()):
            if not is_constant(default):
                raise NotTraceable(f"{function.__qualname__} has a default that may change")
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise NotTraceable(f"{function.__qualname__} is a generator")
        ctx = code.co_varnames[0] if takes_ctx and code.co_argcount else None
        if owner is not None and (not code.co_argcount or code.co_varnames[0] in code.co_cellvars):
            raise NotTraceable(f"{function.__qualname__} passes its class to a function of its own")
        self.code(code, function, ctx, owner)

    def code(self, code: types.CodeType, function: types.FunctionType, ctx: str | None, owner: type | None) -> None:
        where = function.__qualname__
        instructions = list(dis.get_instructions(code))
        for at, instruction in enumerate(instructions):
            name, argument = instruction.opname, instruction.argval
            self.names.writes = self.names.writes or may_write(instruction)
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = self.names.read(function.__globals__, argument)
                if value is MISSING:
                    value = getattr(builtins, argument, MISSING)
                self.value(value, argument, tuple(attributes_after(instructions, at)))
            elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF") and argument in function.__code__.co_freevars:
                cell = (function.__closure__ or ())[function.__code__.co_freevars.index(argument)]
                self.value(self.names.read_cell(cell), argument, tuple(attributes_after(instructions, at)))
            elif name in NOT_DONE:
                raise NotTraceable(f"{where} does {name}")
            elif name in ("STORE_DEREF", "DELETE_DEREF") and argument in function.__code__.co_freevars:
                raise NotTraceable(f"{where} writes to {argument}, which is outside of it")
            elif name in ("STORE_ATTR", "DELETE_ATTR") and (ctx is None or last_loaded(instructions[at - 1]) != ctx):
                raise NotTraceable(f"{where} writes to the attribute {argument} of something")
            elif name in ("LOAD_ATTR", "LOAD_METHOD") and argument in UNSEEN:
                raise NotTraceable(f"{where} looks at {argument}")
            elif name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL") and any(word in argument for word in DRAWS):
                raise NotTraceable(f"{where} draws random numbers")
            elif owner is not None and "_FAST" in name and code.co_varnames[0] in as_tuple(argument):
                if as_tuple(argument).index(code.co_varnames[0]) + 1 < len(as_tuple(argument)) or "STORE" in name:
                    raise NotTraceable(f"{where} uses {code.co_varnames[0]}")
                self.value(owner, owner.__qualname__, tuple(attributes_after(instructions, at)))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant, function, ctx, None)

    def value(self, value: Any, name: str, attributes: tuple[str, ...]) -> None:
        """Check a value found under a name, with the attributes that are read from it directly."""
        if is_constant(value) or is_pure_builtin(value):
            return
        if isinstance(value, types.ModuleType) and value in PURE_MODULES:
            return
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == "torch":
            for k, attribute in enumerate(attributes):
                value = inspect.getattr_static(value, attribute, MISSING)
                if not isinstance(value, types.ModuleType):
                    break
                if k + 1 == len(attributes):
                    break
            if is_constant(value) or is_torch_function(value):
                return
        elif isinstance(value, type) and issubclass(value, torch.autograd.Function):
            if attributes[:1] == ("apply",):
                self.function_class(value)
                return
            if attributes and self.attribute_of_class(value, attributes[0]):
                return
        elif is_torch_function(value):
            return
        if isinstance(value, OPERATORS):
            self.names.writes = True  # for all that is known
            return
        if isinstance(value, types.FunctionType):
            self.function(value)
            return
        if attributes and self.attribute_of_instance(value, attributes[0]):
            return
        raise NotTraceable(f"{name} may be, or do, something else in the next call")

    def attribute_of_class(self, cls: type, name: str) -> bool:
        """``cls.scale`` and ``cls.backward(ctx, gradient)``: whether it is a constant, or a static method that only
        computes."""
        if type(cls) is not FUNCTION_META:
            return False
        for base in cls.__mro__:
            found = self.names.read(base.__dict__, name)  # type: ignore[arg-type]
            if found is not MISSING:
                break
        else:
            return False
        if isinstance(found, classmethod):
            self.function(found.__func__, owner=cls)
            return True
        if isinstance(found, staticmethod) and not is_torch_function(found):
            self.function(found.__func__, takes_ctx=True)
            return True
        return is_constant(found) and not self.is_backward

    def attribute_of_instance(self, value: Any, name: str) -> bool:
        """``config.scale``: whether it is a constant in the object's own dictionary, or in that of its class."""
        kind = type(value)
        if self.is_backward or isinstance(value, torch.nn.Module) or is_trusted(kind.__module__):
            return False
        if kind.__getattribute__ is not object.__getattribute__ or type(getattr(value, "__dict__", None)) is not dict:
            return False
        own = self.names.read(value.__dict__, name)
        for base in kind.__mro__:
            found = self.names.read(base.__dict__, name)  # type: ignore[arg-type]
            if found is not MISSING:  # data descriptors come first: only constants of a class leave its instances alone
                return is_constant(found) and is_constant(found if own is MISSING else own)
        return own is not MISSING and is_constant(own)


FUNCTION_META = type(torch.autograd.Function)


def has_setup(cls: type) -> bool:
    return cls.setup_context is not SingleLevelFunction.setup_context  # type: ignore


def is_constant(value: Any) -> bool:
    return isinstance(value, CONSTANTS) or type(value) in (tuple, torch.Size) and all(map(is_constant, value))


def is_pure_builtin(value: Any) -> bool:
    try:
        return value in BUILTINS
    except TypeError:
        return False


def is_torch_function(value: Any) -> bool:
    """A torch function that computes, or a torch class that sets a mode for a ``with`` statement."""
    module = getattr(value, "__module__", None) or ""
    if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        owner = getattr(value, "__self__", None)
        return (
            owner is VariableFunctions or module in TORCH_NAMESPACES or module == "torch"
        ) and not value.__name__.startswith(("set_", "_set_"))
    if isinstance(value, type):
        return value in TORCH_CLASSES
    return isinstance(value, (types.FunctionType, staticmethod)) and module in TORCH_NAMESPACES


def may_write(instruction: dis.Instruction) -> bool:
    """Whether an instruction may be, or name, a write to a tensor."""
    name, argument = instruction.opname, instruction.argval
    if name in ("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"):
        return True
    if name == "BINARY_OP":
        return instruction.argrepr.endswith("=")
    if isinstance(argument, tuple):
        return "out" in argument or "inplace" in argument
    return isinstance(argument, str) and (is_in_place_name(argument) or argument in WRITING)


WRITING = ("mark_dirty", "batch_norm", "instance_norm")


def last_loaded(instruction: dis.Instruction) -> Any:
    """The local variable that an instruction leaves on top of the stack."""
    if not instruction.opname.startswith("LOAD_FAST") and instruction.opname != "STORE_FAST_LOAD_FAST":
        return None
    return as_tuple(instruction.argval)[-1]


def as_tuple(names: Any) -> tuple:
    return names if isinstance(names, tuple) else (names,)
