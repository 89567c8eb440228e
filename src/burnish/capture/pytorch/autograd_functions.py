"""Custom ``torch.autograd.Function``s: one node each, which a compiler may trace where that is safe.

    Scaled.apply(x, 2.0)        apply_Scaled = apply_Scaled(x, 2.0)        the node; its target runs ``apply`` for real

A node runs the user's ``forward`` natively on every run, and autograd runs ``backward`` when it reaches it. So their
reads need no guard. A compiler that wants to fuse their operations runs them once, on tensors without data, and the
values they read become part of compiled code. That is correct for tensor code that reads only its arguments, ``ctx``,
torch, constants, and functions with the same property. The bytecode shows whether this holds: ``why_not_traceable``
names the first violation. Values read by name are recorded (``Names``) and guarded together. A function with other side
effects or reads (it prints, counts, branches on data, hooks tensors) stays native.
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

from ...runtime.segments import ResultsChanged
from .. import breaks
from ..engine.break_signals import Late
from ..engine.recorded_calls import NotRecordable
from ..interpreter.frames import MISSING, cell_value
from ..numbers.live_scalars import Expression, Live
from .autograd_function_writes import attributes_after, what_is_written
from .opaque_nodes import OpaqueCall, call_in_graph, refuse_after_writes, stop_after_writes

CONSTANTS = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
BUILTINS = frozenset(
    (
        len,
        min,
        max,
        abs,
        sum,
        isinstance,
        round,
        any,
        all,
        range,
        tuple,
        list,
        dict,
        int,
        float,
        bool,
        zip,
        enumerate,
        reversed,
        slice,
        getattr,
        hasattr,
        ValueError,
        TypeError,
        RuntimeError,
        NotImplementedError,
        AssertionError,
    )
)
"""Python builtins that may be called: none of them has an observable side effect."""
PURE_MODULES = (math, operator)
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._library.custom_ops.CustomOpDef)
"""Of torch and other libraries: compiled code calls them as well."""
TORCH_NAMESPACES = (
    "torch.nn.functional",
    "torch.functional",
    "torch._tensor",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "torch.autograd.grad_mode",
    "torch.amp.autocast_mode",
    "torch._C._nn",
    "torch._C._special",
    "torch._C._linalg",
    "torch._C._fft",
)
UNSEEN = frozenset(
    """
    grad register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ _backward_hooks __dict__ __class__
    backward grad_fn _version manual_seed seed is_grad_enabled set_grad_enabled _set_grad_enabled save load compile
    is_compiling jit
""".split()
)
"""Attributes that differ, or do something, while a compiler traces."""
DRAWS = (
    "rand",
    "dropout",
    "bernoulli",
    "uniform",
    "normal",
    "multinomial",
    "exponential",
    "poisson",
    "cauchy",
    "geometric",
)
"""Every function that draws random numbers has one of these in its name. When it runs natively, its numbers differ."""
WRAPPERS = ("torch.autograd.function", "torch.amp.autocast_mode")
"""The modules of decorators for ``forward`` and ``backward``: once_differentiable, custom_fwd, custom_bwd."""


def apply(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``cls.apply(*args, **kwargs)`` while tracing."""
    names = Names(cls)
    why = why_not_traceable(cls, names, len(args)) if cls not in CHANGING else "what it reads changes from call to call"
    written = None if why is None else what_is_written(cls)
    if written is not None:
        m.stop(breaks.OPAQUE_FUNCTION, f"{cls.__qualname__}.apply: {written}")
    if why is not None and not m.options.runs_python:
        m.stop(breaks.OPAQUE_FUNCTION, f"{cls.__qualname__}.apply: the backend runs no Python, and {why}")
    call = CustomCall(cls, why)
    if why is None:
        m.heap.guard("outcome", None, (Expression(names.are_as_they_were, ()), True))
    reads = why is not None or names.may_be_written()
    (SELF_CONTAINED.discard if reads else SELF_CONTAINED.add)(cls)
    live = [a for a in (*args, *kwargs.values()) if isinstance(a, Live)]
    if (
        live
        and not kwargs
        and m.options.runs_python
        and all(isinstance(a, float) and not a.expression.in_graph for a in live)
    ):
        if reads:
            stop_after_writes(m, call.__name__)
        return call_with_numbers(m, call, args)
    return call_in_graph(m, call, args, kwargs, reads)


def call_with_numbers(m: Any, call: CustomCall, args: tuple) -> Any:
    """Call with floats that change from call to call. If they change more than the values of the results, the node
    notices, and its segment runs as plain Python."""
    mark = m.recorder.mark()
    for value in args:
        m.heap.expose(value)
    try:
        value = call.function(*[a.plain() if isinstance(a, Live) else a for a in args])
    except Exception as error:
        trouble = error
    else:
        call.expect(m, value)
        call.sizes = sizes_of(value)
        try:
            m.recorder.record(call, args, {}, value, live_allowed=True)
            refuse_after_writes(m, call)
        except NotRecordable as error:
            m.recorder.undo_to(mark)
            m.late(breaks.OPAQUE_CALL, f"{call.__name__}: {error}", value)
        return value
    raise Late(breaks.TENSOR_ERROR, f"{type(trouble).__name__}: {trouble}", error=trouble)


class CustomCall(OpaqueCall):
    """The target of a node. ``why_not_traceable``: why compilers may not run it on tensors without data."""

    stands_alone = False

    def __init__(self, cls: type, why_not_traceable: str | None):
        super().__init__(cls.apply, f"apply_{cls.__name__}")
        self.why_not_traceable = why_not_traceable
        self.sizes: Any = None  # of the results, if numbers among the arguments change

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.checked(self.function(*args, **kwargs))
        if self.sizes is not None and sizes_of(made) != self.sizes:
            raise ResultsChanged(f"{self.__name__} answers with other tensors than for another number")
        return made

    def is_compared(self) -> bool:
        return self.why_not_traceable is not None or self.sizes is not None

    def expect(self, m: Any, made: Any) -> None:
        if self.why_not_traceable is not None:  # others run again only if their reads are unchanged
            super().expect(m, made)


def sizes_of(made: Any) -> Any:
    if isinstance(made, torch.Tensor):
        return made.dtype, tuple(made.shape), made.stride() if made.layout is torch.strided else None
    return tuple(map(sizes_of, made)) if isinstance(made, (tuple, list)) else made


# ---- names that are read

CHANGING: weakref.WeakSet = weakref.WeakSet()
"""Functions that read a name which turned out not to be constant. They stay native from then on."""

SELF_CONTAINED: weakref.WeakSet = weakref.WeakSet()
"""Functions that read nothing the program may write."""


def may_read_in_backward(node: Any) -> bool:
    """Whether a node of the autograd graph runs Python that may read state written by the program."""
    return (
        isinstance(node, torch.autograd.function.BackwardCFunction)
        and getattr(node, "_forward_cls", None) not in SELF_CONTAINED
    )


class Names:
    """The names that code read, and the values found. Before each run they must all be unchanged."""

    def __init__(self, cls: type) -> None:
        self.reader = weakref.ref(cls)
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


def why_not_traceable(cls: type, names: Names, given: int) -> str | None:
    """``given``: how many arguments ``forward`` gets."""
    try:
        ClassReader(names, given).function_class(cls)
    except NotTraceable as why:
        return str(why)
    return None


class ClassReader:
    def __init__(self, names: Names, given: int = 0):
        self.names, self.given = names, given
        self.seen: set[Any] = set()

    def function_class(self, cls: type) -> None:
        if cls in self.seen:
            return
        given = 0 if self.seen else self.given  # of a class that the code names, any number may be given
        self.seen.add(cls)
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
                raise NotTraceable(f"{cls.__qualname__}.{name} is no static method")
            takes_ctx = name != "forward" or not has_setup(cls)
            self.function(method.__func__, takes_ctx, given + takes_ctx if name == "forward" else 0)
        backward = inspect.unwrap(inspect.getattr_static(cls, "backward").__func__)
        if backward.__code__.co_argcount > 2 or backward.__code__.co_flags & inspect.CO_VARARGS:
            for method in ("forward", "setup_context"):
                code = inspect.unwrap(inspect.getattr_static(cls, method).__func__).__code__
                if "set_materialize_grads" in code.co_names:
                    raise NotTraceable(f"{cls.__qualname__}.backward sees which of its outputs were used")

    def function(self, function: Any, takes_ctx: bool = False, given: int = 0) -> None:
        """``given``: how many positional arguments it gets at least."""
        if (
            isinstance(function, types.FunctionType)
            and function.__globals__.get("__name__") in WRAPPERS
            and hasattr(function, "__wrapped__")
        ):  # its module is that of the wrapped function
            function = function.__wrapped__
        if not isinstance(function, types.FunctionType):
            raise NotTraceable(f"{function!r} is no Python function")
        if function in self.seen:
            return
        self.seen.add(function)
        code, defaults = function.__code__, function.__defaults__ or ()
        used = defaults[max(0, given - (code.co_argcount - len(defaults))) :]
        for default in (*used, *(function.__kwdefaults__ or {}).values()):
            if not is_constant(default):
                raise NotTraceable(f"{function.__qualname__} has a default that may change")
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise NotTraceable(f"{function.__qualname__} is a generator")
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, cell in cells.items():
            self.value(self.names.read_cell(cell), name, ())
        ctx = code.co_varnames[0] if takes_ctx and code.co_argcount else None
        self.code(code, function, ctx)

    def code(self, code: types.CodeType, function: types.FunctionType, ctx: str | None) -> None:
        where = function.__qualname__
        instructions = list(dis.get_instructions(code))
        for at, instruction in enumerate(instructions):
            name, argument = instruction.opname, instruction.argval
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = self.names.read(function.__globals__, argument)
                if value is MISSING:
                    value = getattr(builtins, argument, MISSING)
                self.value(value, argument, tuple(attributes_after(instructions, at)))
            elif name in (
                "STORE_GLOBAL",
                "DELETE_GLOBAL",
                "IMPORT_NAME",
                "IMPORT_FROM",
                "LOAD_CLOSURE_CLASS",
                "SETUP_ANNOTATIONS",
                "LOAD_BUILD_CLASS",
                "PRINT_EXPR",
            ):
                raise NotTraceable(f"{where} does {name}")
            elif name in ("STORE_DEREF", "DELETE_DEREF") and argument in function.__code__.co_freevars:
                raise NotTraceable(f"{where} writes to {argument}, which is outside of it")
            elif name in ("STORE_ATTR", "DELETE_ATTR") and (ctx is None or last_loaded(instructions[at - 1]) != ctx):
                raise NotTraceable(f"{where} writes to the attribute {argument} of something")
            elif name in ("LOAD_ATTR", "LOAD_METHOD") and argument in UNSEEN:
                raise NotTraceable(f"{where} looks at {argument}")
            elif name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL") and any(word in argument for word in DRAWS):
                raise NotTraceable(f"{where} draws random numbers")
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant, function, ctx)

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
        elif is_torch_function(value):
            return
        if isinstance(value, OPERATORS):
            return
        if isinstance(value, types.FunctionType):
            self.function(value)
            return
        raise NotTraceable(f"{name} may be, or do, something else in the next call")


def has_setup(cls: type) -> bool:
    return cls.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context  # type: ignore


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
            owner is torch._C._VariableFunctions or module in TORCH_NAMESPACES or module == "torch"
        ) and not value.__name__.startswith(("set_", "_set_"))
    if isinstance(value, type):
        return value in (
            torch.Tensor,
            torch.Size,
            torch.no_grad,
            torch.enable_grad,
            torch.autocast,
            torch.finfo,
            torch.iinfo,
        )
    return isinstance(value, (types.FunctionType, staticmethod)) and module in TORCH_NAMESPACES


def last_loaded(instruction: dis.Instruction) -> Any:
    """The local variable that an instruction leaves on top of the stack."""
    if not instruction.opname.startswith("LOAD_FAST") and instruction.opname != "STORE_FAST_LOAD_FAST":
        return None
    return instruction.argval[-1] if isinstance(instruction.argval, tuple) else instruction.argval
