"""What users call. Signatures and meanings are torch.compile's, so that swapping the import is all a user does.

    @burnish.compile
    def step(x, y):
        return torch.sin(x) + torch.cos(y)
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch

from . import marks, stance
from .backends.registry import lookup
from .capture.engine import Options, Program
from .capture.polyfills import call_entry
from .errors import UserError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@overload
def compile(model: F, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: str | Callable[..., Any] = ...,
            mode: str | None = ..., options: dict[str, Any] | None = ..., disable: bool = ...) -> F: ...
@overload
def compile(model: None = None, *, fullgraph: bool = ..., dynamic: bool | None = ...,
            backend: str | Callable[..., Any] = ..., mode: str | None = ..., options: dict[str, Any] | None = ...,
            disable: bool = ...) -> Callable[[F], F]: ...


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | Callable[..., Any] = "burnish", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Compile a function, method, callable object or ``nn.Module``; as a call or as a decorator.

    fullgraph: an error instead of a break.
    dynamic: True for sizes that vary from the start, False for never, None to find out.
    backend: a name of ``list_backends()`` or a function ``(GraphModule, example inputs) -> callable``.
    mode, options: how much to optimize; checked now, used by the native backend.
    disable: return ``model`` as it is.
    """
    _check_mode(mode, options)
    if dynamic not in (None, True, False):
        raise UserError(f"dynamic={dynamic!r} is not True, False or None.")
    if model is None:
        return lambda fn: compile(fn, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                  options=options, disable=disable)
    if not callable(model):
        raise UserError(f"burnish.compile takes a function, a module or another callable, not {model!r}. "
                        f"Give the function itself, without calling it.")
    if disable:
        return model
    chosen = lookup(backend)
    asked = Options(chosen, chosen.name, chosen.runs_python, fullgraph, dynamic, stance.current)
    kwargs = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options}
    return wrap(model, asked, kwargs)


def wrap(model: Any, options: Options, kwargs: dict[str, Any]) -> Any:
    """The compiled stand-in for ``model``: a function, or a module for a module."""
    if isinstance(model, torch.nn.Module):
        from .module import CompiledModule

        return CompiledModule(model, options, kwargs)
    if isinstance(model, type):
        return _compiled_class(model, options, kwargs)
    return compiled_function(model, options, kwargs)


def compiled_function(model: Any, options: Options, kwargs: dict[str, Any]) -> Any:
    original = getattr(model, "__burnish_original__", model)
    if isinstance(original, types.FunctionType):
        program = Program(original, options)

        def run(*args: Any, **kw: Any) -> Any:
            return program(*args, **kw)
    else:
        program = Program(call_entry, options)

        def run(*args: Any, **kw: Any) -> Any:
            return program(original, args, kw)

    _copy_identity(original, run)
    run.__burnish_original__ = original  # type: ignore[attr-defined]
    run.__burnish_program__ = program  # type: ignore[attr-defined]
    run._compile_kwargs = kwargs  # type: ignore[attr-defined]
    _programs.add(program)
    return run


def _copy_identity(original: Any, run: Any) -> None:
    functools.update_wrapper(run, original)
    if not hasattr(original, "__name__"):
        run.__name__ = type(original).__name__
    try:
        run.__signature__ = inspect.signature(original)
    except (ValueError, TypeError):
        pass


def _compiled_class(cls: type, options: Options, kwargs: dict[str, Any]) -> Any:
    if "__call__" in cls.__dict__ or issubclass(cls, torch.nn.Module):
        raise UserError(f"burnish.compile was given the class {cls.__qualname__}. Make an object and compile that: "
                        f"burnish.compile({cls.__qualname__}(...)).")
    return compiled_function(cls, options, kwargs)


def _check_mode(mode: str | None, options: dict[str, Any] | None) -> None:
    if mode is not None and mode not in MODES:
        raise UserError(f"mode={mode!r} is unknown. {did_you_mean(str(mode), MODES)} Modes: {', '.join(MODES)}.")
    if mode is not None and options is not None:
        raise UserError("Either mode or options can be given, not both: a mode is a set of options.")
    if options is not None and not isinstance(options, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"options is a dictionary from option names to values, not {options!r}.")


def reset() -> None:
    """Forget everything compiled so far; compiled functions stay usable and start anew."""
    for program in list(_programs):
        program.forget()


class _Programs:
    """Weak set of live programs, for ``reset``."""

    def __init__(self) -> None:
        import weakref

        self._refs: Any = weakref.WeakSet()

    def add(self, program: Program) -> None:
        self._refs.add(program)

    def __iter__(self) -> Any:
        return iter(self._refs)


_programs = _Programs()
disable = marks.disable
