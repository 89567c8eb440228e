"""Marks that a program has put on functions with torch's own decorators, read where Dynamo keeps them.

    torch.compiler.allow_in_graph(fn)        a set of ids            one node of the graph, as burnish.allow_in_graph
    torch.compiler.nonstrict_trace(fn)       a set of ids            one node if there may be one graph only
    torch._dynamo.disallow_in_graph(fn)      a set of ids            a break
    torch._dynamo.config.ignore_logging_functions                    not called
    torch._dynamo.dont_skip_tracing and others                       a context that is entered and left after the graph
    torch._dynamo.comptime.comptime          an object               its second function is called, as outside of Dynamo
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
from ..numbers.live_scalars import settled
from ..pytorch import opaque_nodes
from ..segments.effects import Effect
from .builtin_functions import PYTHON_FUNCTIONS, substitute
from .polyfills import object_polyfills

RULES = "torch._dynamo.trace_rules"
POLYFILLS = "torch._dynamo.variables.functions"
CONFIG = "torch._dynamo.config"
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
    if (function.__globals__.get("__name__") or "").startswith("torch._dynamo."):
        handler = OF_DYNAMO.get((function.__globals__["__name__"], function.__qualname__))
        answer = MISSING if handler is None else handler(m, function, args, kwargs)
        if answer is not MISSING:
            return answer
    number = id(function)
    if m.unwanted and is_ignored(m, function, args):
        return None
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


def refuse_builtin(m: Any, function: Any) -> None:
    """A break if the program has disallowed this function of C code."""
    rules = sys.modules.get(RULES)
    if rules is not None and id(function) in ids(rules, "_disallowed_callable_ids"):
        m.stop(breaks.DISABLED_CALL, f"{function.__name__} (torch._dynamo.disallow_in_graph)")


# ---- Dynamo's own functions, called in compiled code


def _is_compiling(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    return m.call(torch.compiler.is_compiling, args, kwargs)


def _number_module(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    return None  # Dynamo, used in the same process, numbers new modules for guards of its own


def _mark_nonstrict(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    return m.call(object_polyfills.nonstrict, args, kwargs)


def call_nonstrict(m: Any, args: tuple, kwargs: dict) -> Any:
    """A call of what ``nonstrict_trace`` has returned in compiled code."""
    function, given, named = args
    if not m.options.fullgraph or type(function) is not FunctionType or id(function) in m.heap.fresh:
        return m.call(function, given, named)
    return opaque_nodes.call_in_graph(m, opaque_nodes.OpaqueCall(function, function.__name__), given, named)


def _allow_in_graph(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A mark that is put on in compiled code: the function is traced like any other."""
    return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else MISSING


def _ask_for_break(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.GRAPH_BREAK_REQUEST, function.__qualname__)


def _make_patch(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """``with torch._dynamo.patch_dynamo_config(name=value)``: one context for all runs."""
    given = [*map(settled, args)]
    made = m.plainly(function, *given, **{name: settled(value) for name, value in kwargs.items()})
    return m.heap.admit(made, m.heap.sources.pin(made))


def _switch(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """Entering or leaving a context of Dynamo's settings, which no graph reads: it happens after the graph."""
    m.effects.append(Effect.of(m, function, args))
    return m.plainly(function, *args)


DECORATORS = "torch._dynamo.decorators"
OF_DYNAMO: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._dynamo.external_utils", "is_compiling"): _is_compiling,
    ("torch._dynamo.mutation_guard", "GenerationTracker.tag"): _number_module,
    ("torch._dynamo.comptime", "_Comptime.graph_break"): _ask_for_break,
    (DECORATORS, "nonstrict_trace"): _mark_nonstrict,
    (DECORATORS, "allow_in_graph"): _allow_in_graph,
    (DECORATORS, "patch_dynamo_config"): _make_patch,
    (DECORATORS, "DynamoConfigPatchProxy.__enter__"): _switch,
    (DECORATORS, "DynamoConfigPatchProxy.__exit__"): _switch,
}


# ---- functions that the program wants to be left out


def functions_to_ignore() -> frozenset[Any]:
    """``torch._dynamo.config.ignore_logging_functions``."""
    ignored = getattr(sys.modules.get(CONFIG), "ignore_logging_functions", None)
    return frozenset(ignored) if ignored else frozenset()


def is_ignored(m: Any, function: FunctionType, args: tuple) -> bool:
    """Whether the function is left out, also as the method of the object that it is called for."""
    return function in m.unwanted or bool(args) and MethodType(function, args[0]) in m.unwanted


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


PYTHON_FUNCTIONS[object_polyfills.call_marked] = call_nonstrict


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
