"""From a callable to a compiled function: which callables can be compiled, and what stands in for them.

compiled_function(original, options, kwargs)      what `burnish.compile` returns of a function
runner(original, options)                         a program, and a function that runs it
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.compiler import is_dynamo_compiling

from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..capture.interpreter.versions.behavior import why_not_interpreted
from ..capture.python.calls.function_calls import is_replaced
from ..capture.python.polyfills import object_polyfills
from ..errors import Unsupported, UserError, hide_own_frames, warn
from ..foundation.torch_private import why_not_usable
from ..settings import current
from . import stance
from .live_programs import function_as_html, keep_track


def why_unsupported() -> str | None:
    """A sentence on a Python whose bytecode Burnish does not know, or on a torch that it was not tested with."""
    return why_unsupported_if(current().untested_torch)


@functools.cache
def why_unsupported_if(untested_torch: bool) -> str | None:
    return why_not_interpreted() or why_not_usable(untested_torch)


def stays_plain() -> bool:
    why = why_unsupported()
    if why is not None:
        warn_once(f"burnish: {why} Nothing is compiled: functions and modules run as plain Python.")
    return why is not None


warn_once = functools.cache(warn)


def why_not_compile(model: Any) -> str | None:
    """A sentence if ``model`` cannot be compiled."""
    if isinstance(model, type):
        name = model.__qualname__
        return (
            f"burnish.compile was given the class {name}. Make an object and compile that, "
            f"burnish.compile({name}(...)), or put the decorator on the method that does the work."
        )
    if isinstance(model, (property, functools.cached_property)):
        return (
            "burnish.compile was given a property. Put the decorators the other way round, "
            "@property above @burnish.compile, so that its function is what is compiled."
        )
    if isinstance(model, torch.Tensor):
        return (
            "burnish.compile was given a tensor, most likely the result of a call. Give the function itself, "
            "without calling it: burnish.compile(fn)(x)."
        )
    if not callable(model):
        return (
            f"burnish.compile takes a function, a module or another callable, not {model!r:.80}. "
            f"Give the function itself, without calling it. Options are given by name: backend=..., mode=...."
        )
    return None


def makes_callables(model: Any) -> bool:
    """Whether ``model`` is a user class whose instances are called by a Python function. Torch's own classes are
    excluded: every other user of the class would get compiled modules as well."""
    return (
        isinstance(model, type)
        and not model.__module__.startswith("torch.")
        and isinstance(call_of_instances(model), types.FunctionType)
    )


def call_of_instances(cls: type) -> Any:
    """The ``__call__`` of a class's instances; None where they cannot be called."""
    return next((base.__dict__["__call__"] for base in cls.__mro__ if "__call__" in base.__dict__), None)


def original_of(model: Any) -> Any:
    """The original of a compiled function or module; anything else is its own original. Functions compiled by
    torch.compile are unwrapped too: Dynamo would trace our interpreter."""
    if isinstance(model, types.MethodType):
        inside = original_of(model.__func__)
        return model if inside is model.__func__ else types.MethodType(inside, model.__self__)
    if getattr(model, "_torchdynamo_wrapper_id", id(model)) != id(model):
        return model  # `functools.wraps` has copied the marks of the inner function
    marks_of_dynamo = model.__dict__ if isinstance(model, types.FunctionType) else {}
    if "__burnish_original__" not in marks_of_dynamo and "_torchdynamo_disable" not in marks_of_dynamo:
        inside = marks_of_dynamo.get("_torchdynamo_orig_callable", model)
        if inside is not model:
            return original_of(inside)
    return getattr(model, "__burnish_original__", model)


def runner(original: Any, options: Options, kind: type[Program] = Program) -> tuple[Program, Callable[..., Any]]:
    """A program for a callable, and how to run it. A function is interpreted itself, anything else through a call of
    it. So are functions of torch that a trace does not interpret."""
    why = why_unsupported()
    if why is not None:  # for what has no meaning in plain Python, such as a report about graphs
        raise UserError(why)
    if isinstance(original, types.FunctionType) and not is_replaced(original):
        made = kind(original, options)
        return made, made
    made = kind(cast(types.FunctionType, vars(object_polyfills)["call_entry"]), options, original)

    def run(*args: Any, **kwargs: Any) -> Any:
        return made(original, args, kwargs)

    return made, run


def compiled_function(original: Any, options: Options, kwargs: dict[str, Any]) -> Any:
    if isinstance(original, types.MethodType) and isinstance(original.__func__, types.FunctionType):
        return compiled_method(original, options, kwargs)
    program, run_program = runner(original, options)

    def run(*args: Any, **kw: Any) -> Any:
        try:
            if stance.forces_eager():
                entry = None if program.function is original else [original, args, kw]
                return stance.run_plainly(program, original, args, kw, entry)
            return run_program(*args, **kw)
        except Unsupported as error:
            hide_own_frames(error)
            raise  # which does not add this frame again

    return wrap_program(run, original, program, kwargs)


def compiled_method(original: types.MethodType, options: Options, kwargs: dict[str, Any]) -> types.MethodType:
    """A method of the same object. As in Python, that of a deep copy of the object is bound to the copy."""
    owner, function = original.__self__, original.__func__
    # Nothing here keeps the object alive: a deep copy, whose method runs the same program, may outlive it.
    is_module_call = function.__name__ == "_call_impl"
    shown = original if is_module_call else types.MethodType(function, type(owner))
    program = runner(shown, options)[0]
    from .forward_between_hooks import ForwardBetweenHooks  # here: not before something is compiled

    between = ForwardBetweenHooks(kwargs) if is_module_call else None

    def run(self: Any, /, *args: Any, **kw: Any) -> Any:
        try:
            if stance.forces_eager():
                entry = None if is_dynamo_compiling() else [types.MethodType(function, self), args, kw]
                return stance.run_plainly(program, function, (self, *args), kw, entry)
            if between is not None and self._forward_pre_hooks and between.is_needed(self):
                return between.run(self, args, kw)
            return program.run([types.MethodType(function, self), args, kw])
        except Unsupported as error:
            hide_own_frames(error)
            raise

    wrap_program(run, function, program, kwargs)
    vars(run)["_between_hooks"] = between
    if "__signature__" not in vars(function):  # `functools.wraps` of the method would copy it, with `self`
        del vars(run)["__signature__"]
    return types.MethodType(run, owner)


def wrap_program(run: Any, original: Any, program: Program, kwargs: dict[str, Any]) -> Any:
    """What runs a program, with the name, the signature and the attributes of the original."""
    is_function = isinstance(original, (types.FunctionType, types.MethodType))
    # A callable object's attributes are its own, and change; those of a function are its marks.
    functools.update_wrapper(run, original, updated=("__dict__",) if is_function else ())
    if not hasattr(original, "__name__"):
        run.__name__ = run.__qualname__ = type(original).__name__
    with contextlib.suppress(ValueError, TypeError):  # many C functions have no signature
        vars(run)["__signature__"] = inspect.signature(original)
    # Dynamo's marks are set as well: torch.compile of this function compiles the original.
    vars(run).update(
        __burnish_original__=original,
        __burnish_program__=program,
        _compile_kwargs=kwargs,
        _torchdynamo_orig_callable=original,
        _torchdynamo_wrapper_id=id(run),
    )
    shown = vars(run).get("_repr_html_")
    if shown is None or getattr(shown, "func", None) is function_as_html:  # copied from a compiled function
        vars(run)["_repr_html_"] = functools.partial(function_as_html, program, run.__qualname__)
    keep_track(program)
    return run


def is_asynchronous(model: Any) -> bool:
    is_module = isinstance(model, torch.nn.Module)  # may answer any question through a ``__getattr__`` of its own
    return not is_module and (inspect.iscoroutinefunction(model) or inspect.isasyncgenfunction(model))


def stay_plain(model: Any, fullgraph: bool) -> Any:
    name = getattr(model, "__qualname__", repr(model))
    what = (
        f"{name} is an `async def`: an event loop runs it, in steps, which no graph can hold. Compile the plain "
        f"functions it calls."
    )
    if fullgraph:
        raise UserError(f"burnish.compile(fullgraph=True): {what}")
    warnings.warn(f"burnish: {what} It runs as plain Python.", stacklevel=3)
    return model
