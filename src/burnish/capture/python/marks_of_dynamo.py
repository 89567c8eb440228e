"""Marks that a program has put on functions with torch's own decorators, read where Dynamo keeps them.

    torch.compiler.allow_in_graph(fn)        a set of ids            one node of the graph, as burnish.allow_in_graph
    torch.compiler.nonstrict_trace(fn)       a set of ids            one node if there may be one graph only
    torch._dynamo.disallow_in_graph(fn)      a set of ids            a break
    torch.compiler.substitute_in_graph(f)    a table of handlers     as burnish.substitute_in_graph
    torch._dynamo.error_on_graph_break(b)    a global of its own     whether a break is an error, inside its block

``torch.compiler.disable`` and ``assume_constant_result`` are attributes of the function: ``calls.function_calls`` reads
them. All of it only exists if Dynamo is loaded, and nothing here loads it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from .. import breaks
from ..interpreter.frames import MISSING
from ..pytorch import opaque_nodes
from .builtin_functions import PYTHON_FUNCTIONS, substitute

RULES = "torch._dynamo.trace_rules"
POLYFILLS = "torch._dynamo.variables.functions"
FLAGS, FLAG = "torch._dynamo.utils", "_error_on_graph_break"

STOPPING = frozenset(("graph_break", "skip_frame", "step_unsupported"))
"""Functions of Dynamo that ask for a break."""

_adopted: dict[int, Any] = {}
"""Substitutes that were handed over already, by the id of the original."""


def call(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A call of a marked function, or of one of Dynamo's own; MISSING for any other."""
    rules = sys.modules.get(RULES)
    if rules is None:
        return MISSING
    place = function.__globals__.get("__name__"), function.__name__
    if place == ("torch._dynamo.external_utils", "is_compiling"):
        return m.call(torch.compiler.is_compiling, args, kwargs)
    if place == ("torch._dynamo.mutation_guard", "tag"):
        return None  # Dynamo, used in the same process, numbers new modules for guards of its own
    number = id(function)
    if number in ids(rules, "_disallowed_callable_ids"):
        name = function.__qualname__
        if name in STOPPING:
            said = args[0] if args else kwargs.get("msg")
            m.stop(breaks.GRAPH_BREAK_REQUEST, said if isinstance(said, str) and said else name)
        m.stop(breaks.DISABLED_CALL, f"{name} (torch._dynamo.disallow_in_graph)")
    if number in ids(rules, "_nonstrict_trace_callable_ids") and not m.options.fullgraph:
        return MISSING  # traced like any other: faster, and a break costs nothing but speed
    if number in ids(rules, "_allowed_callable_ids") or number in ids(rules, "_leaf_function_ids"):
        return opaque_nodes.call_in_graph(m, opaque_nodes.OpaqueCall(function, function.__name__), args, kwargs)
    return MISSING


def ids(rules: Any, name: str) -> Any:
    return getattr(getattr(rules, name, None), "function_ids", None) or ()


def adopt_substitutes() -> None:
    """Take over what ``torch.compiler.substitute_in_graph`` has registered, without Dynamo's own substitutes."""
    kind = getattr(sys.modules.get(POLYFILLS), "PolyfilledFunctionVariable", None)
    if kind is None:
        return
    handlers: dict[Any, Any] = kind._get_polyfill_handlers()
    if len(handlers) == _adopted.get(0):
        return
    for original, wrapped in list(handlers.items()):
        polyfill = getattr(wrapped, "__torch_dynamo_polyfill__", None)
        if id(original) in _adopted or not isinstance(polyfill, FunctionType):
            continue
        _adopted[id(original)] = original
        if not (polyfill.__module__ or "").startswith("torch."):
            substitute(original, polyfill)
    _adopted[0] = len(handlers)


# ---- torch.compile inside compiled code


def compile_in_place(compiler: Callable[..., Any]) -> None:
    """Take ``compiler``, such as `torch.compile`, for the identity inside compiled code."""
    PYTHON_FUNCTIONS[compiler] = compile_inside


def compile_inside(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.compile(function)``: the function itself, which is compiled as a part of what calls it."""
    function = args[0] if args else kwargs.get("model")
    if type(function) in COMPILED_IN_PLACE and not kwargs.get("disable"):
        return function
    return MISSING


COMPILED_IN_PLACE = (FunctionType, MethodType, functools.partial)
compile_in_place(torch.compile)


# ---- whether a break is an error


def breaks_are_errors() -> bool:
    """Whether the program is inside of ``error_on_graph_break(True)``, which sets a global of Dynamo's."""
    return bool(getattr(sys.modules.get(FLAGS), FLAG, False))


def restore_flag(before: bool) -> None:
    """After an error that has left the program without its ``with`` blocks."""
    if breaks_are_errors() is not before:
        setattr(sys.modules[FLAGS], FLAG, before)
