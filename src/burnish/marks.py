"""Marks users put on functions: run it plainly, keep it in the graph, take its answer as fixed.

A mark is an attribute of the function, so capture can read it without importing anyone, and so that torch's own marks
(``torch.compiler.disable``) and ours are honoured alike.

    @burnish.disable(reason="talks to the network")
    def fetch(key): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from .errors import UserError


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run ``fn`` as plain Python wherever compiled code calls it.

    fn: a function, method, class (its constructor, ``__call__`` and ``forward``) or module (its ``forward``). Left out,
        a decorator is returned.
    recursive: accepted for torch's sake. Burnish compiles only what it is told to, so what a disabled function calls
        runs plainly in both cases, unless it was compiled on its own.
    reason: shown in the break.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(disable(fn.__func__, recursive, reason=reason))
    if inspect.isclass(fn):
        return _disable_class(fn, reason)
    if hasattr(fn, "forward") and hasattr(fn, "_parameters"):
        # A bound method, and not a closure over the module: copies of the module then run their own forward.
        forward = fn.forward
        bound = isinstance(forward, MethodType) and forward.__self__ is fn
        fn.forward = MethodType(_plain(forward.__func__, reason), fn) if bound else _plain(forward, reason)
        return fn
    if not callable(fn):
        raise UserError(f"burnish.disable takes a function, a class or a module, not {fn!r:.80}. "
                        f"As a decorator with arguments: @burnish.disable(reason=...).")
    return _plain(fn, reason)


def _plain(fn: Any, reason: str | None) -> Any:
    is_copy = getattr(fn, "_torchdynamo_wrapper_id", id(fn)) != id(fn)  # of marks, by functools.wraps
    original = fn if is_copy else getattr(fn, "__burnish_original__", fn)

    @functools.wraps(original)
    def plainly(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    plainly.__dict__.pop("__burnish_original__", None)
    plainly.__dict__.pop("__burnish_program__", None)
    plainly._burnish_disable = True  # type: ignore[attr-defined]
    plainly._burnish_disable_reason = reason  # type: ignore[attr-defined]
    plainly._torchdynamo_disable = True  # type: ignore[attr-defined]
    plainly._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    return plainly


def _disable_class(cls: type, reason: str | None) -> type:
    for name in ("__init__", "__call__", "forward"):
        # nn.Module's own `__call__` runs hooks and then `forward`, which is what gets the mark.
        if isinstance(found := getattr(cls, name, None), FunctionType) and not found.__module__.startswith("torch."):
            setattr(cls, name, _plain(found, reason))
    return cls


def is_disabled(fn: Any) -> bool:
    """Whether ``burnish.disable`` or ``torch.compiler.disable`` was put on a function."""
    marks = getattr(fn, "__dict__", {})
    return bool(marks.get("_burnish_disable") or marks.get("_torchdynamo_disable"))


def graph_break(msg: str = "") -> None:
    """End the graph here. Does nothing outside compiled code."""


graph_break._burnish_graph_break = True  # type: ignore[attr-defined]


def allow_in_graph(fn: Callable[..., Any] | list[Any] | tuple[Any, ...]) -> Any:
    """Put calls of ``fn`` into graphs as they are, without looking inside.

    Only for functions of tensors that return tensors and do nothing else: what they read from elsewhere is not guarded.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    _mark(fn, "_burnish_allow_in_graph", "allow_in_graph")
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Take the answer ``fn`` gave while tracing for the answer it always gives."""
    _mark(fn, "_burnish_constant", "assume_constant_result")
    return fn


def _mark(fn: Any, name: str, asked_by: str) -> None:
    if not callable(fn):
        raise UserError(f"burnish.{asked_by} takes a function, not {fn!r:.80}.")
    try:
        setattr(fn, name, True)
    except (AttributeError, TypeError):
        called = getattr(fn, "__name__", "fn")
        raise UserError(f"burnish.{asked_by}: {fn!r:.80} is not a Python function, so it cannot be marked. "
                        f"Wrap it in one: def wrapped(*args): return {called}(*args)") from None


def is_compiling() -> bool:
    """True in code that is being traced, and in what it was compiled to; False in plain Python."""
    return False
