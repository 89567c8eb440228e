"""Marks users put on functions: run it plainly, keep it in the graph, take its answer as fixed.

A mark is an attribute of the function, so capture can read it without importing anyone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .errors import UserError


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run ``fn`` as plain Python wherever compiled code calls it. A module: its forward.

    recursive=False: only ``fn`` itself; functions it calls that are compiled on their own still are, in both cases.
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if hasattr(fn, "forward") and hasattr(fn, "_parameters"):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if inspect.isclass(fn):
        for name in ("__init__", "__call__"):
            if name in fn.__dict__:
                setattr(fn, name, disable(fn.__dict__[name], recursive, reason=reason))
        return fn
    if not callable(fn):
        raise UserError(f"burnish.disable takes a function, a class or a module, not {fn!r}.")

    original = getattr(fn, "__burnish_original__", fn)

    @functools.wraps(original)
    def plainly(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    plainly.__dict__.pop("__burnish_original__", None)
    plainly.__dict__.pop("__burnish_program__", None)
    plainly._burnish_disable = True  # type: ignore[attr-defined]
    plainly._burnish_disable_reason = reason  # type: ignore[attr-defined]
    plainly._torchdynamo_disable = True  # type: ignore[attr-defined]
    return plainly


def graph_break(msg: str = "") -> None:
    """End the graph here. Does nothing outside compiled code."""


graph_break._burnish_graph_break = True  # type: ignore[attr-defined]


def allow_in_graph(fn: Callable[..., Any] | list[Any] | tuple[Any, ...]) -> Any:
    """Put calls of ``fn`` into graphs as they are, without looking inside."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    _mark(fn, "_burnish_allow_in_graph")
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Take the answer ``fn`` gave while tracing for the answer it always gives."""
    _mark(fn, "_burnish_constant")
    return fn


def substitute_in_graph(original_fn: Any, *, can_constant_fold_through: bool = False,
                        skip_signature_check: bool = False, is_embedded_type: bool = False) -> Any:
    """Interpret the decorated Python function wherever compiled code calls ``original_fn`` (a C function, for one)."""
    del can_constant_fold_through, is_embedded_type

    def enter(polyfill: Any) -> Any:
        if not skip_signature_check:
            _same_signature(original_fn, polyfill)
        from .capture import builtin_calls

        builtin_calls.substitute(original_fn, polyfill)
        return polyfill

    return enter


def _same_signature(original: Any, polyfill: Any) -> None:
    try:
        wanted = inspect.signature(original)
    except (ValueError, TypeError):
        return
    found = inspect.signature(polyfill)
    if [p.kind for p in wanted.parameters.values()] != [p.kind for p in found.parameters.values()]:
        raise UserError(f"substitute_in_graph: {polyfill.__name__}{found} does not take what "
                        f"{getattr(original, '__name__', original)}{wanted} takes. Give it the same parameters, "
                        f"or pass skip_signature_check=True.")


def _mark(fn: Any, name: str) -> None:
    try:
        setattr(fn, name, True)
    except AttributeError:
        raise UserError(f"{fn!r} is not a Python function, so it cannot be marked. Wrap it in one: "
                        f"def wrapped(*args): return {getattr(fn, '__name__', 'fn')}(*args)") from None


def is_compiling() -> bool:
    """True in code that is being traced."""
    return False
