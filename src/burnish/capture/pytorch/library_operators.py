"""Library operators registered with torch from Python: their implementation may read anything.

The graph runs such an operator for real, each time. What the program writes to Python objects takes effect after the
graph, so an implementation that reads them must run after it: the segment ends. The bytecode of functions given to
`torch.library.custom_op` shows whether they can read what was written (`why_may_read`).

    state.calls += 1
    y = torch.ops.my.scaled(x, 2.0)         in the graph if its function reads arguments, torch and constants only
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._library.simple_registry import find_torch_dispatch_rule
from torch._library.triton import triton_ops_to_kernels

from ...runtime.argument_trees import tensors_in
from ..interpreter.frames import cell_value
from ..numbers.live_scalars import Expression
from .custom_functions.autograd_function_side_effects import attributes_after, codes_in
from .custom_functions.autograd_function_traceability import ClassReader, Names, NotTraceable, is_constant
from .opaque_nodes import is_native

KEYS = """
    CPU CUDA CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional CompositeImplicitAutograd Autograd
    AutogradCPU AutogradCUDA
""".split()
"""Dispatch keys of operators that run with data. Torch's own registrations are for tensors without data."""

OF_TORCH = ("aten", "prims", "prim")


FROM_PYTHON = re.compile(r"^(\w+)(?:\[alias\])?: registered at \S.*\.py:\d+ ", re.MULTILINE)
"""A line of the dispatcher's own table. `torch.library._impls` does not do: when an operator is defined again,
the names of the new registrations leave it as soon as the old library is collected."""


def runs_python(operator: Any) -> bool:
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return any(runs_python(getattr(operator, overload)) for overload in operator.overloads())
    name, _, overload = str(operator).replace(".", "::", 1).partition(".")
    return name.partition("::")[0] not in OF_TORCH and not keys_from_python(name, overload).isdisjoint(KEYS)


def keys_from_python(name: str, overload: str = "") -> set[str]:
    """The dispatch keys with a kernel registered from Python. Not cached: libraries come and go."""
    spelled = name if overload in ("", "default") else f"{name}.{overload}"
    return set(FROM_PYTHON.findall(torch._C._dispatch_dump(spelled)))


REGISTERED = ("_abstract_fn", "_backward_fn", "_setup_context_fn")
"""Attributes of a definition that determine compiled code: what its results look like, and how they are differentiated.
Kernels need no guard, because the graph calls the operator by way of torch."""


def guard_registrations(m: Any, operator: Any) -> None:
    """A function that is registered later, or in place of another one, is seen."""
    definition = OPDEFS.get(qualified_name(operator))
    if definition is None:
        return
    origin = m.heap.origin_of(definition)
    if origin is None:
        m.heap.admit(definition, m.heap.sources.pin(definition))
        origin = m.heap.origin_of(definition)
    for name in REGISTERED:
        m.heap.guard("is", origin.source.attr(name), getattr(definition, name))


def rule_for_class(m: Any, operator: Any, kind: type) -> Any:
    """The rule that `torch.library` has for an operator and a tensor subclass, if any."""
    if operator.namespace in OF_TORCH:
        return None
    rule = find_torch_dispatch_rule(operator, kind)
    m.guard_outcome(Expression(is_rule, (operator, kind, rule)), True)
    return rule


def is_rule(operator: Any, kind: type, expected: Any) -> bool:
    return find_torch_dispatch_rule(operator, kind) is expected


def is_opaque(m: Any, operator: Any, given: tuple[Any, ...]) -> bool:
    """Whether compilers must not look into the operator: torch does not know what its results look like, or gradients
    flow through functions whose reads cannot be guarded."""
    return has_unknown_results(operator) or why_not_differentiated(m, operator, given) is not None


def why_not_differentiated(m: Any, operator: Any, given: tuple[Any, ...]) -> str | None:
    """Why a compiler may not run the operator's functions for gradients once and for all. If it may, what they read by
    name is guarded."""
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors_in(given)):
        return None
    name = qualified_name(operator)
    definition = OPDEFS.get(name)
    if definition is None:
        has_formula = "Autograd" in keys_from_python(name)
        return "its functions are not known" if has_formula else None
    if definition._backward_fn is None:
        return None
    names = Names(definition)
    reader = ClassReader(names)
    try:
        for function in (definition._setup_context_fn, definition._backward_fn):
            if function is not None:
                reader.function(function, takes_ctx=True)
    except NotTraceable as why:
        return str(why)
    m.heap.guard("outcome", None, (Expression(names.are_as_they_were, ()), True))
    return None


def has_unknown_results(operator: Any) -> bool:
    """Whether torch cannot tell what the results look like without running the operator: no function is registered for
    tensors without data, or it launches Triton kernels. Such an operator is a node whose results are compared with
    those of the traced run."""
    name = qualified_name(operator)
    definition = OPDEFS.get(name)
    if definition is None or definition._opoverload._schema.is_mutable:
        return False
    return definition._abstract_fn is None or name in triton_ops_to_kernels


# ---- what an implementation reads

OUTWARD = frozenset(
    (eval, exec, compile, open, input, print, globals, locals, vars, __import__, breakpoint, delattr, id)
)
"""Builtins that reach more than their arguments."""

STATELESS = frozenset("torch builtins math operator functools itertools typing collections numpy scipy triton".split())
"""Libraries whose functions read no state that a program writes to, as `os.getenv` does."""


class MayRead(Exception):
    """The message says what an implementation may read."""


def why_may_read(m: Any, operator: Any) -> str | None:
    """Why the implementation may read what the program has written in this segment; None if it cannot."""
    if m.heap.has_marked:
        return "the program has set attributes of tensors"
    try:
        Reader(m).operator(operator)
    except MayRead as what:
        return str(what)
    return None


def qualified_name(operator: Any) -> str:
    return str(getattr(operator, "_overloadpacket", operator)._qualified_op_name)


class Reader:
    """Walks through the functions that an implementation calls by name."""

    def __init__(self, m: Any):
        self.m = m
        self.seen: set[Any] = set()

    def function(self, function: Any) -> None:
        if isinstance(function, functools.partial):
            for part in (function.func, *function.args, *function.keywords.values()):
                self.value(part, "a partial's argument", ())
            return
        if not isinstance(function, types.FunctionType):
            self.value(function, repr(function), ())
            return
        if function in self.seen:
            return
        self.seen.add(function)
        if is_stateless_library(function.__module__):
            for cell in function.__closure__ or ():  # torch's wrappers of the implementation
                value = cell_value(cell)
                if isinstance(value, types.FunctionType):
                    self.function(value)
            return
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default, f"a default of {function.__qualname__}", ())
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in codes_in(function.__code__):
            for name, place, value, attributes in read_names(code, function, cells):
                if self.is_written(place, name):
                    raise MayRead(f"{function.__qualname__} reads {name}")
                self.value(value, f"{name} in {function.__qualname__}", attributes)

    def is_written(self, place: Any, name: str) -> bool:
        """Whether the program has set this name in its dictionary, or this cell."""
        origin = self.m.heap.origin_of(place)
        if origin is None:
            return False
        return bool(origin.is_changed_here or "contents" in origin.written or name in origin.written)

    def value(self, value: Any, what: str, attributes: tuple[str, ...]) -> None:
        """Check a value found under a name, with the attributes that are read from it directly."""
        while isinstance(value, types.ModuleType) and attributes:
            is_user_module = not is_stateless_library(value.__name__)
            value, what, attributes = inspect.getattr_static(value, attributes[0], None), attributes[0], attributes[1:]
            if is_user_module and is_constant(value):
                raise MayRead(f"it reads {what} of a module")
        if isinstance(value, types.ModuleType) and not is_stateless_library(value.__name__):
            raise MayRead(f"it reads the module {what}")
        if is_constant(value) or isinstance(value, types.ModuleType) or is_array_function(value):
            return
        if isinstance(value, (types.FunctionType, functools.partial)):
            self.function(value)
        elif isinstance(value, OPERATORS):
            self.operator(value)
        elif is_triton_kernel(value):
            self.value(value.fn, what, ())  # a kernel, or what tunes one
        elif isinstance(value, type):
            if not is_stateless_library(value.__module__):
                raise MayRead(f"it reads {what}, a class")
        elif not is_native(value) or value in OUTWARD:
            raise MayRead(f"it reads {what}, a {type(value).__qualname__}")

    def operator(self, operator: Any) -> None:
        """Another operator, which it calls."""
        if isinstance(operator, CustomOpDef):
            operator = operator._opoverload
        if runs_python(operator):
            for function in functions_of(operator):
                self.function(function)


OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, CustomOpDef)


def functions_of(operator: Any) -> list[Any]:
    """The functions that run in forward."""
    definition = OPDEFS.get(qualified_name(operator))
    if definition is None:
        raise MayRead("its functions are not known")
    kernels = [definition._init_fn, *definition._backend_fns.values(), definition._setup_context_fn]
    return [function for function in kernels if function is not None]


def is_array_function(value: Any) -> bool:
    """NumPy's functions, which are objects."""
    return type(value).__name__ == "ufunc" and is_stateless_library(type(value).__module__)


def is_triton_kernel(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "triton" and hasattr(value, "fn")


def is_stateless_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in STATELESS


def read_names(
    code: types.CodeType, function: types.FunctionType, cells: dict[str, types.CellType]
) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """The outside names that code reads: where they are, their values, and the attributes that are read from them."""
    instructions = list(dis.get_instructions(code))
    for at, one in enumerate(instructions):
        name = one.argval
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise MayRead(f"{function.__qualname__} sets {name}")
        if one.opname == "IMPORT_NAME" and not is_stateless_library(name):
            raise MayRead(f"{function.__qualname__} imports {name}")
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            table = function.__globals__
            value = table.get(name, getattr(builtins, name, None))
        elif one.opname in ("LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF") and name in cells:
            table, value = cells[name], cell_value(cells[name])
        else:
            continue
        yield name, table, value, tuple(attributes_after(instructions, at))
