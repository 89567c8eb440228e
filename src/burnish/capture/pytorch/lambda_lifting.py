"""Lifting for higher-order functions: values captured by functions in a graph node become its arguments.

    grad(lambda t: (t * s).sum())(x)        grad(s, x)      the node rebuilds the lambda, around the ``s`` it is given
    vmap(call, (0, None))(x, module)        wrapper(x)      that ``module`` is this one is guarded

Tensors become arguments; numbers are constants of the segment; a module, or another object from outside, must be the
same object. Functions, partials and bound methods made during the run are rebuilt. So the node can run again when the
function of the traced run, and the objects it held, are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .. import breaks
from ..interpreter.program_errors import fail
from .cond import Branch
from .custom_functions.functions_as_arguments import Lifter, NotLifted, made_of
from .higher_order import function_transforms
from .opaque_nodes import OpaqueCall, call_in_graph

RETURN_FUNCTIONS = frozenset(("vjp",))
"""Transforms whose result holds tensors of the run: no node can return it, so the graph has their operators."""
MAKERS = frozenset("vmap grad grad_and_value jacrev jacfwd hessian functionalize".split())


class LiftedCall(OpaqueCall):
    """The target of a node. Its first arguments are the values that the functions hold."""

    def __init__(self, function: Any, name: str, held: dict[int, Any], count: int):
        super().__init__(call_made, name)
        self.made_from, self.held, self.count = function, held, count

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given, rest = args[: self.count], list(args[self.count :])
        try:
            for place, part in self.held.items():
                rest.insert(place, made_of(part, given))
            function = made_of(self.made_from, given)
        except Exception as error:  # the caller takes errors for the program's
            fail("tracing", error)
        return self.checked(call_made(function, *rest, **kwargs))


def call_made(function: Callable, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def lifted(m: Any, function: FunctionType, name: str, args: tuple) -> tuple[LiftedCall, list[torch.Tensor], list[Any]]:
    """``function`` as a node's target, together with its arguments that a graph cannot hold; the tensors that these
    hold; and the other arguments."""
    lifter = Lifter(m)
    held = {
        place: lifter.value(value, name)
        for place, value in enumerate(args)
        if callable(value) and not isinstance(value, torch.Tensor)
    }
    made_from = lifter.function(function)
    rest = [value for place, value in enumerate(args) if place not in held]
    return LiftedCall(made_from, name, held, len(lifter.tensors)), lifter.tensors, rest


def call_transform(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """``torch.func``: making a transformed function, or calling one."""
    name = function.__code__.co_name
    if name in MAKERS and not any(isinstance(a, torch.Tensor) for a in args):
        return m.made(m.plainly(function, *args, **kwargs))
    if m.options.wants_operators or name in RETURN_FUNCTIONS or isinstance(m.region, function_transforms.Transform):
        if function_transforms.is_transformed(function) or name in function_transforms.DIRECT:
            return function_transforms.call(m, function, args, kwargs)
        m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: the backend runs no Python")
    if function_transforms.is_transformed(function) and (m.heap.has_written() or isinstance(m.region, Branch)):
        return function_transforms.call(m, function, args, kwargs)  # a node would not see what was just written
    if not m.may_run_opaquely:
        m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: its results changed from call to call")
    try:
        call, given, rest = lifted(m, function, name, args)
    except NotLifted as error:
        if function_transforms.is_transformed(function):
            return function_transforms.call(m, function, args, kwargs)
        why = str(error)
    else:
        return call_in_graph(m, call, (*given, *rest), kwargs)
    return m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: {why}")
