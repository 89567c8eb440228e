"""Lifting for higher-order functions: values captured by functions in a graph node become its arguments.

    grad(lambda t: (t * s).sum())(x)        grad(s, x)      the node rebuilds the lambda, around the ``s`` it is given
    vmap(call, (0, None))(x, module)        wrapper(x)      that ``module`` is this one is guarded

Tensors become arguments, and so do numbers that may differ in the next run; a module, or another object from outside,
must be the same object. Functions, partials and bound methods made during the run are rebuilt. So the node can run
again when the function of the traced run, and the objects it held, are gone.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from .. import breaks
from ..engine.interpreted_or_native import is_trusted
from ..guards.tensor_metadata import TENSOR_TYPES
from ..guards.value_or_identity import GUARDED_KINDS
from ..interpreter.frames import MISSING, UNBOUND, cell_value
from ..interpreter.program_or_tracer_errors import raise_internal_error
from ..numbers.live_scalars import Live
from . import function_modes
from .cond import Branch
from .custom_functions.autograd_function_side_effects import written_by
from .higher_order import function_transforms, interpreted_vmap
from .opaque_nodes import IMMEDIATE, OpaqueCall, call_in_graph, is_native

RETURN_FUNCTIONS = frozenset(("vjp",))
"""Transforms whose result holds tensors of the run: no node can return it, so the graph has their operators."""
MAKERS = frozenset("vmap grad grad_and_value jacrev jacfwd functionalize".split())
COMPOSED = frozenset(("hessian",))
"""Those that only call others. They are interpreted, so each function that is made on the way is one of this run."""


class NotLifted(Exception):
    """The message is the reason."""


class ArgumentIndex(NamedTuple):
    """A tensor or a number, as the index of an argument of the node."""

    number: int


class Container(NamedTuple):
    kind: type
    keys: tuple | None
    parts: tuple


class ClosureTemplate(NamedTuple):
    like: FunctionType
    cells: tuple


class BoundCallableTemplate(NamedTuple):
    """A bound method or a partial."""

    kind: Callable
    parts: tuple
    keywords: Container


class Lifter:
    def __init__(self, m: Any):
        self.m = m
        self.given: list[Any] = []
        """Tensors and numbers."""
        self.under_way: set[int] = set()

    def function(self, function: FunctionType) -> Any:
        m = self.m
        if id(function) in m.heap.pinned_functions:
            return self.checked(function)
        if id(function) not in m.heap.fresh:
            origin = m.heap.origin_of(function)
            if origin is not None and starts_at_something_fixed(origin.source):
                m.heap.guard("is", origin.source, function)
                return self.checked(function)
            if not is_trusted(function.__globals__.get("__name__")):  # e.g. the wrappers of torch.func
                raise NotLifted(f"{function.__qualname__} is made by the code around, in each run")
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if id(function) in self.under_way or not all(
            isinstance(d, IMMEDIATE) and not isinstance(d, Live) for d in defaults
        ):
            raise NotLifted(f"{function.__qualname__} holds what it cannot be given")
        self.under_way.add(id(function))
        made = ClosureTemplate(
            self.checked(function),
            tuple(self.value(self.held_by(cell), function.__qualname__) for cell in function.__closure__ or ()),
        )
        self.under_way.discard(id(function))
        return made

    def checked(self, function: FunctionType) -> FunctionType:
        why = written_by(function, set())
        if why is not None:
            raise NotLifted(why)
        return function

    def held_by(self, cell: CellType) -> Any:
        """The value of a closure cell. A cell from outside is read, and guarded, as if its function read it."""
        return cell_value(cell) if self.m.heap.origin_of(cell) is None else self.m.load_cell(cell)

    def made(self, value: Any, holder: str) -> BoundCallableTemplate:
        """If it comes from outside, the heap has guarded its content."""
        if type(value) is MethodType:
            parts, keywords = (value.__func__, value.__self__), {}
        else:
            parts, keywords = (value.func, *value.args), value.keywords
        named = Container(dict, tuple(keywords), tuple(self.value(part, holder) for part in keywords.values()))
        return BoundCallableTemplate(type(value), tuple(self.value(part, holder) for part in parts), named)

    def value(self, value: Any, holder: str) -> Any:
        m, kind = self.m, type(value)
        if isinstance(value, Live):
            self.given.append(value)
            return ArgumentIndex(len(self.given) - 1)
        if isinstance(value, IMMEDIATE) or is_native(value):
            return value
        if kind in TENSOR_TYPES and m.knows(value):
            self.given.append(value)
            return ArgumentIndex(len(self.given) - 1)
        if kind is FunctionType:
            return self.function(value)
        if kind is MethodType or kind is functools.partial:
            return self.made(value, holder)
        origin = m.heap.origin_of(value)
        if origin is not None and (isinstance(value, torch.nn.Module) or not isinstance(value, GUARDED_KINDS)):
            m.heap.guard("is", origin.source, value)
            return value
        if kind in (tuple, list, dict) and (origin is None or kind is tuple):
            parts = value.values() if kind is dict else value
            return Container(
                kind, tuple(value) if kind is dict else None, tuple(self.value(part, holder) for part in parts)
            )
        what = "nothing yet" if value is UNBOUND else f"a {kind.__qualname__}"
        raise NotLifted(f"{holder} holds {what}")


def starts_at_something_fixed(source: Any) -> bool:
    while source.base is not None:
        source = source.base
    return bool(source.is_pinned)


def made_of(part: Any, given: tuple) -> Any:
    kind = type(part)
    if kind is ArgumentIndex:
        return given[part.number]
    if kind is Container:
        parts = [made_of(one, given) for one in part.parts]
        return part.kind(parts) if part.keys is None else dict(zip(part.keys, parts, strict=True))
    if kind is BoundCallableTemplate:
        return part.kind(*[made_of(one, given) for one in part.parts], **made_of(part.keywords, given))
    if kind is ClosureTemplate:
        like = part.like
        cells = tuple([CellType(made_of(cell, given)) for cell in part.cells])
        made = FunctionType(like.__code__, like.__globals__, like.__name__, like.__defaults__, cells or None)
        made.__kwdefaults__ = like.__kwdefaults__
        made.__qualname__, made.__module__ = like.__qualname__, like.__module__
        return made
    return part


class LiftedCall(OpaqueCall):
    """The target of a node. Its first arguments are the values that the functions hold."""

    def __init__(self, function: Any, name: str, held: dict[int, Any], count: int):
        super().__init__(call_made, name)
        self.made_from, self.held, self.count = function, held, count
        self.modes: list[type] = []
        """The classes of the torch function modes that the call is made under."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given, rest = args[: self.count], list(args[self.count :])
        try:
            for place, part in self.held.items():
                rest.insert(place, made_of(part, given))
            function = made_of(self.made_from, given)
        except Exception as error:  # the caller takes errors for the program's
            raise_internal_error("tracing", error)
        with contextlib.ExitStack() as stack:
            for mode in self.modes:
                stack.enter_context(mode())
            return self.checked(call_made(function, *rest, **kwargs), (args, kwargs))


def call_made(function: Callable, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def lift_closure(m: Any, function: FunctionType, name: str, args: tuple) -> tuple[LiftedCall, list[Any], list[Any]]:
    """``function`` as a node's target, together with its arguments that a graph cannot hold; the tensors and numbers
    that these hold; and the other arguments."""
    lifter = Lifter(m)
    held = {
        place: lifter.value(value, name)
        for place, value in enumerate(args)
        if callable(value) and not isinstance(value, torch.Tensor)
    }
    made_from = lifter.function(function)
    rest = [value for place, value in enumerate(args) if place not in held]
    return LiftedCall(made_from, name, held, len(lifter.given)), lifter.given, rest


def call_transform(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """``torch.func``: making a transformed function, or calling one. MISSING if the function is interpreted."""
    if interpreted_vmap.is_part(m, function):
        return interpreted_vmap.call(m, function, args, kwargs)
    name = function.__code__.co_name
    if name in COMPOSED:
        return MISSING
    if name in MAKERS and not any(isinstance(a, torch.Tensor) for a in args):
        return m.made(m.plainly(function, *args, **kwargs))
    if m.options.wants_operators or name in RETURN_FUNCTIONS or isinstance(m.region, function_transforms.Transform):
        if function_transforms.is_transformed(function) or name in function_transforms.DIRECT:
            return function_transforms.call(m, function, args, kwargs)
        m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: the backend runs no Python")
    if function_transforms.is_transformed(function) and (
        m.heap.has_written()  # a node would not see what was just written
        or isinstance(m.region, Branch)
        or interpreted_vmap.is_needed(function, args)
    ):
        return function_transforms.call(m, function, args, kwargs)
    if not m.capabilities.may_run_opaquely:
        m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: its results changed from call to call")
    try:
        call, given, rest = lift_closure(m, function, name, args)
    except NotLifted as error:
        if function_transforms.is_transformed(function):
            return function_transforms.call(m, function, args, kwargs)
        why = str(error)
    else:
        with function_modes.set_aside(m) as call.modes:
            return call_in_graph(m, call, (*given, *rest), kwargs)
    return m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: {why}")
