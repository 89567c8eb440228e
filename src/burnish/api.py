"""The public API. Signatures and meanings are torch.compile's, so that users only change the import.

@burnish.compile
def step(x, y):
    return torch.sin(x) + torch.cos(y)
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import operator
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import torch

from . import settings
from .capture.engine.engine import Program
from .capture.engine.program_options import Options
from .capture.python import builtin_functions, marks_of_dynamo
from .capture.python.calls.function_calls import is_replaced
from .capture.python.polyfills import object_polyfills
from .errors import UserError, did_you_mean, warn
from .frontend import late_bound_api, marks, stance, torch_config, unsupported_python_version
from .frontend.compile_options import options_of
from .frontend.compiled_module import CompiledModule
from .frontend.live_programs import forget_all, keep_track, live_segments
from .integrations import lightning_logging as lightning_logging
from .report.runs_natively import runs_natively
from .report.subscribe_while_enabled import is_terminal, while_wanted

if TYPE_CHECKING:
    from .report.chrome_trace import Trace
    from .report.html_report import Report
    from .report.profile_segments import Profile
    from .report.record_run import RunRecorder

F = TypeVar("F", bound=Callable[..., Any])


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    dynamic_shapes: Any = ...,
) -> F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    dynamic_shapes: Any = ...,
) -> Callable[[F], F]: ...


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = "burnish",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    dynamic_shapes: Any = None,
    **unknown: Any,
) -> Any:
    """Compile a function, method, callable object, ``nn.Module`` or ``torch.export.ExportedProgram``; as a call or as a
    decorator.

    fullgraph: an error instead of a break.
    dynamic: True for sizes that vary from the start, False for never, None to find out.
    backend: a name of ``list_backends()`` or a function ``(GraphModule, example inputs) -> callable``.
    mode, options: how much to optimize; see ``list_mode_options()`` and ``list_options()``. Other backends get both.
        ``options={"eager_random": True}``: draw exactly the random numbers that eager draws.
    name: what reports call the compiled function, in place of its own name.
    disable: return ``model`` as it is.
    recompile_limit: how many variants one place may have, in place of the setting ``segment_limit``. With ``fullgraph``
        one more is an error; otherwise the place runs eagerly from then on.
    isolate_recompiles: accepted for torch's sake; each compiled function has its own variants either way.
    dynamic_shapes: which sizes vary, by parameter; a specification of ``torch.fx.experimental.dynamic_spec``.

    A compiled function is compiled again from the original. One marked with ``disable`` is returned as it is.
    Of a class, the calls of its instances are compiled: its ``__call__`` is replaced, and the class returned.
    """
    for argument in unknown:
        near = did_you_mean(argument, SIGNATURE.parameters)
        raise TypeError(f"compile() got an unexpected keyword argument {argument!r}.{near}")
    kwargs: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
    }
    rarer = {"name": name, "recompile_limit": recompile_limit, "dynamic_shapes": dynamic_shapes}
    kwargs |= {argument: value for argument, value in rarer.items() if value is not None}
    if "torch.export" in sys.modules:
        from .integrations.from_torch_export import callable_of

        model = callable_of(model)
    asked = options_of(**kwargs, isolate_recompiles=isolate_recompiles, model=model)
    if model is None:
        return functools.partial(compile, disable=disable, **kwargs)
    if disable or torch_config.is_switched_off() or unsupported_python_version.stays_plain():
        return model
    if isinstance(model, (staticmethod, classmethod)):
        # The decorator is above them: the function inside is compiled.
        inner = cast("staticmethod[..., Any]", model)
        return type(inner)(compile(inner.__func__, **kwargs))
    if makes_callables(model):
        model.__call__ = compile(call_of_instances(model), **kwargs)
        return model
    why = why_not_compile(model)
    if why is not None:
        raise UserError(why)
    if marks.is_disabled(model):
        return model
    if is_asynchronous(model):
        return _stay_plain(model, fullgraph)
    if isinstance(model, torch.nn.Module):
        return CompiledModule(model, asked, kwargs)
    return _compiled_function(original_of(model), asked, kwargs)


# What tools and readers see are the parameters; `unknown` only catches misspelt ones.
_ALL = inspect.signature(compile)
SIGNATURE = _ALL.replace(parameters=list(_ALL.parameters.values())[:-1])
compile.__signature__ = SIGNATURE  # type: ignore[attr-defined]

marks_of_dynamo.compile_in_place(compile)


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
    unsupported_python_version.refuse_unknown_python()
    if isinstance(original, types.FunctionType) and not is_replaced(original):
        made = kind(original, options)
        return made, made
    made = kind(cast(types.FunctionType, vars(object_polyfills)["call_entry"]), options, original)

    def run(*args: Any, **kwargs: Any) -> Any:
        return made(original, args, kwargs)

    return made, run


def _compiled_function(original: Any, options: Options, kwargs: dict[str, Any]) -> Any:
    program, run_program = runner(original, options)

    def run(*args: Any, **kw: Any) -> Any:
        if stance.forces_eager():
            entry = None if program.function is original else [original, args, kw]
            return stance.run_plainly(program, original, args, kw, entry)
        return run_program(*args, **kw)

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
    keep_track(program)
    return run


def is_asynchronous(model: Any) -> bool:
    is_module = isinstance(model, torch.nn.Module)  # may answer any question through a ``__getattr__`` of its own
    return not is_module and (inspect.iscoroutinefunction(model) or inspect.isasyncgenfunction(model))


def _stay_plain(model: Any, fullgraph: bool) -> Any:
    name = getattr(model, "__qualname__", repr(model))
    what = (
        f"{name} is an `async def`: an event loop runs it, in steps, which no graph can hold. Compile the plain "
        f"functions it calls."
    )
    if fullgraph:
        raise UserError(f"burnish.compile(fullgraph=True): {what}")
    warnings.warn(f"burnish: {what} It runs as plain Python.", stacklevel=3)
    return model


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[F], F]:
    """Interpret the decorated Python function wherever compiled code calls ``original_fn`` (a C function, for one).

    can_constant_fold_through: accepted for torch's sake; constants are folded either way.
    skip_signature_check: do not compare the parameters of the two.
    """
    if not callable(original_fn) or isinstance(original_fn, type):
        raise UserError(f"substitute_in_graph takes the function to stand in for, not {original_fn!r:.80}.")

    def enter(polyfill: F) -> F:
        if not isinstance(polyfill, types.FunctionType):
            raise UserError(
                f"substitute_in_graph decorates a Python function, not {polyfill!r:.80}: it is what gets interpreted."
            )
        if not skip_signature_check:
            _check_signature(original_fn, polyfill)
        builtin_functions.substitute(original_fn, polyfill)
        return cast(F, polyfill)

    return enter


def _check_signature(original: Callable[..., Any], polyfill: types.FunctionType) -> None:
    try:
        wanted = inspect.signature(original)
    except (ValueError, TypeError):
        return
    found = inspect.signature(polyfill)
    if [p.kind for p in wanted.parameters.values()] != [p.kind for p in found.parameters.values()]:
        raise UserError(
            f"substitute_in_graph: {polyfill.__name__}{found} does not take what "
            f"{getattr(original, '__name__', original)}{wanted} takes. Give it the same parameters, "
            f"or pass skip_signature_check=True."
        )


def reset() -> None:
    """Forget everything compiled so far; compiled functions stay usable and are compiled again."""
    forget_all()


@runs_natively
def profile() -> Profile:
    """Where the time of compiled code goes: ``with burnish.profile() as p:`` around calls, and then ``print(p)``.

    ``p.segments`` are the same figures as records. First calls, which compile, are not counted.
    """
    from .report.profile_segments import Profile

    return Profile(live_segments)


@runs_natively
def report(path: str | os.PathLike[str] = "burnish-report.html") -> Report:
    """What is compiled, why again, and where the time goes: ``with burnish.report("report.html"):`` around calls.

    Writes one HTML file, which needs no other and no network. Graphs that are captured meanwhile are compiled, and not
    loaded from disk, so that their stages can be shown.
    """
    from .report.html_report import Report

    return Report(path, _recorder(most_spans=50_000))  # the page shows fewer


@runs_natively
def trace(path: str | os.PathLike[str]) -> Trace:
    """The timeline of what is compiled and of what runs, in the format of Chrome's tracing and Perfetto.

    ``with burnish.trace("trace.json"):`` around calls.
    """
    from .report.chrome_trace import Trace

    return Trace(path, _recorder())


def _recorder(**limits: int) -> RunRecorder:
    from .frontend.describe_guards import guard_text
    from .report.record_run import RunRecorder

    return RunRecorder(live_segments, guard_text, **limits)


def _report_process() -> Callable[[], None]:
    folder = settings.current().report
    assert folder is not None
    return importlib.import_module("burnish.report.process_report").start(folder, report)


def _read_events(reader: str, setting: str) -> Callable[[], None]:
    """Start what prints or writes events, when a setting first asks for it."""
    return importlib.import_module(f"burnish.report.{reader}").start(lambda: getattr(settings.current(), setting))


def _shows_progress(current: settings.Settings) -> bool:
    return current.progress and is_terminal(sys.stderr)


for _setting, _reader in (("show", "show_stages"), ("dump", "dump_stages")):
    while_wanted(settings.on_change, operator.attrgetter(_setting), functools.partial(_read_events, _reader, _setting))
while_wanted(settings.on_change, _shows_progress, functools.partial(_read_events, "compile_progress", "progress"))


def _name_ranges_in_profiler() -> None:
    """Torch calls two functions where a profiler starts and ends; there is no public way to hear of it."""
    begin, end = (getattr(torch.autograd.profiler, name, None) for name in PROFILER_CALLS)
    if begin is None or end is None:
        return
    running: list[Callable[[], None]] = []

    def start_with_ranges() -> None:
        begin()
        try:
            if not running:
                running.append(importlib.import_module("burnish.report.profiler_ranges").start(live_segments))
        except Exception as error:
            tell(error)

    def stop_with_ranges() -> None:
        try:
            while running:
                running.pop()()
        except Exception as error:
            tell(error)
        finally:
            end()

    def tell(error: Exception) -> None:
        if settings.current().on_error == "raise":
            raise error
        warn(f"burnish: compiled code has no names in this profile: {type(error).__name__}: {error}")

    for name, made in zip(PROFILER_CALLS, (start_with_ranges, stop_with_ranges), strict=True):
        setattr(torch.autograd.profiler, name, made)


PROFILER_CALLS = ("_run_on_profiler_start", "_run_on_profiler_stop")
_name_ranges_in_profiler()
while_wanted(settings.on_change, lambda current: current.report is not None, _report_process)
late_bound_api.compile = compile
disable = marks.disable
