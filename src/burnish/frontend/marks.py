"""User marks: run a function in plain Python, keep it in the graph, assume its result constant; mark dynamic sizes.

A mark is an attribute, so that capture can read it without imports, and treat torch's own marks
(``torch.compiler.disable``, ``torch._dynamo.mark_dynamic``) like ours.

    @burnish.disable(reason="talks to the network")
    def fetch(key): ...

    burnish.mark_dynamic(x, 0, max=512)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from ..errors import UserError


def cudagraph_mark_step_begin() -> None:
    """Does nothing: results of CUDA graphs are copied out, so no step invalidates those of an earlier one. Provided for
    programs that call torch's function."""


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run ``fn`` as plain Python wherever compiled code calls it.

    fn: a function, method, class (its constructor, ``__call__`` and ``forward``) or module (its ``forward``). Left out,
        a decorator is returned.
    recursive: accepted for compatibility with torch. In both cases the functions that a disabled function calls run
        in plain Python, unless they were compiled on their own.
    reason: shown in the break.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(disable(fn.__func__, recursive, reason=reason))
    if inspect.isclass(fn):
        return _disable_class(fn, reason)
    if hasattr(fn, "forward") and hasattr(fn, "_parameters"):
        # A bound method rather than a closure over the module: copies of the module then run their own forward.
        forward = fn.forward
        bound = isinstance(forward, MethodType) and forward.__self__ is fn
        fn.forward = MethodType(_plain(forward.__func__, reason), fn) if bound else _plain(forward, reason)
        return fn
    if not callable(fn):
        raise UserError(
            f"burnish.disable takes a function, a class or a module, not {fn!r:.80}. "
            f"As a decorator with arguments: @burnish.disable(reason=...)."
        )
    return _plain(fn, reason)


def _original(fn: Any) -> Any:
    if isinstance(fn, MethodType):
        return MethodType(_original(fn.__func__), fn.__self__)
    is_copy = getattr(fn, "_torchdynamo_wrapper_id", id(fn)) != id(fn)  # functools.wraps has copied the marks
    return fn if is_copy else getattr(fn, "__burnish_original__", fn)


def _plain(fn: Any, reason: str | None) -> Any:
    original = _original(fn)

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
        # nn.Module's own `__call__` runs hooks and then `forward`, which gets the mark.
        if isinstance(found := getattr(cls, name, None), FunctionType) and not found.__module__.startswith("torch."):
            setattr(cls, name, _plain(found, reason))
    return cls


def is_disabled(fn: Any) -> bool:
    """Whether a function has the mark of ``burnish.disable`` or ``torch.compiler.disable``."""
    marks = getattr(fn, "__dict__", {})
    return bool(marks.get("_burnish_disable") or marks.get("_torchdynamo_disable"))


def graph_break(msg: str = "") -> None:
    """End the graph here. Does nothing outside compiled code."""


graph_break._burnish_graph_break = True  # type: ignore[attr-defined]


def allow_in_graph(fn: Callable[..., Any] | list[Any] | tuple[Any, ...]) -> Any:
    """Put calls of ``fn`` into graphs as they are, without tracing into them.

    Only for functions of tensors that return tensors and have no side effects: values they read from elsewhere are
    not guarded.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    _mark(fn, "_burnish_allow_in_graph", "allow_in_graph")
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Assume that ``fn`` always returns the value it returned while tracing."""
    _mark(fn, "_burnish_constant", "assume_constant_result")
    return fn


def _mark(fn: Any, name: str, asked_by: str) -> None:
    if not callable(fn):
        raise UserError(f"burnish.{asked_by} takes a function, not {fn!r:.80}.")
    try:
        setattr(fn, name, True)
    except (AttributeError, TypeError):
        called = getattr(fn, "__name__", "fn")
        raise UserError(
            f"burnish.{asked_by}: {fn!r:.80} is not a Python function, so it cannot be marked. "
            f"Wrap it in one: def wrapped(*args): return {called}(*args)"
        ) from None


def is_compiling() -> bool:
    """True in code that is being traced, and in the compiled result; False in plain Python."""
    return False


# ---- on tensors


class SizeMarks(NamedTuple):
    open: frozenset[int]
    """Dimensions that vary."""
    static: frozenset[int]
    """Dimensions that never vary."""
    bounds: dict[int, tuple[int | None, int | None]]
    """Minimum and maximum of a dimension."""


OPEN, STATIC = "_dynamo_dynamic_indices", "_dynamo_static_indices"
OTHERS_OPEN = ("_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices")
"""The marks of ``maybe_mark_dynamic`` and ``mark_unbacked``: they ask for the same."""
BOUNDS, RANGES, UNBACKED_BOUNDS = "_burnish_size_bounds", "_dynamo_dynamic_range", "_dynamo_unbacked_bounds"
NO_MARKS = SizeMarks(frozenset(), frozenset(), {})


def mark_dynamic(
    tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...], *, min: int | None = None, max: int | None = None
) -> None:
    """Mark a size as dynamic: the first call with this tensor already compiles for all sizes of ``dim``.

    dim: a dimension, or several.
    min, max: its bounds. A call outside of them is compiled again.

    Sizes 0 and 1 are always specialized: broadcasting treats them differently.
    """
    for k in _dimensions(tensor, dim, "mark_dynamic"):
        size = tensor.shape[k]
        if min is not None and size < min or max is not None and size > max:
            raise UserError(
                f"burnish.mark_dynamic: dimension {k} is to be {'' if min is None else f'at least {min}'}"
                f"{' and ' if None not in (min, max) else ''}{'' if max is None else f'at most {max}'}, "
                f"and it is {size}. Widen the bounds, or pass another example."
            )
        _put(tensor, OPEN, k)
        tensor.__dict__.get(STATIC, set()).discard(k)
        tensor.__dict__.setdefault(BOUNDS, {})[k] = min, max


def mark_static(tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Mark a size as static: another size is compiled again. ``dim``: a dimension, or several; all if left out."""
    for k in _dimensions(tensor, dim, "mark_static"):
        _put(tensor, STATIC, k)
        for name in (OPEN, *OTHERS_OPEN):
            tensor.__dict__.get(name, set()).discard(k)


def _dimensions(tensor: Any, dim: Any, asked_by: str) -> list[int]:
    if not isinstance(tensor, torch.Tensor):
        raise UserError(f"burnish.{asked_by} takes a tensor, not {tensor!r:.80}.")
    dims = range(tensor.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    for k in dims:
        if not isinstance(k, int) or not -tensor.ndim <= k < tensor.ndim:
            raise UserError(
                f"burnish.{asked_by}: there is no dimension {k!r} in a tensor of shape "
                f"{tuple(tensor.shape)}; give one from {-tensor.ndim} to {tensor.ndim - 1}."
            )
    return [k % tensor.ndim for k in dims]


def _put(tensor: torch.Tensor, name: str, dim: int) -> None:
    marks = tensor.__dict__.setdefault(name, set())
    marks.add(dim)


def size_marks(tensor: torch.Tensor) -> SizeMarks:
    marks = tensor.__dict__
    if not marks:
        return NO_MARKS
    ndim = max(tensor.ndim, 1)
    found = SizeMarks(
        frozenset(k % ndim for name in (OPEN, *OTHERS_OPEN) for k in marks.get(name, ())),
        frozenset(k % ndim for k in marks.get(STATIC, ())),
        marks.get(BOUNDS, {}),
    )
    if RANGES not in marks and UNBACKED_BOUNDS not in marks:
        return found
    ranges = {each.dim: (each.min, each.max) for each in marks.get(RANGES, ())}
    return found._replace(bounds={**ranges, **marks.get(UNBACKED_BOUNDS, {}), **found.bounds})
