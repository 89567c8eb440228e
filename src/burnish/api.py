"""The public API. Signatures and meanings are torch.compile's, so that users only change the import.

@burnish.compile
def step(x, y):
    return torch.sin(x) + torch.cos(y)
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import torch

from .capture.python import builtin_functions, marks_of_dynamo
from .errors import UserError, did_you_mean
from .frontend import late_bound_api, marks, torch_config
from .frontend.compile_callable import (
    call_of_instances,
    compiled_function,
    is_asynchronous,
    makes_callables,
    original_of,
    stay_plain,
    stays_plain,
    why_not_compile,
)
from .frontend.compile_options import options_of
from .frontend.compiled_module import CompiledModule
from .frontend.live_programs import forget_all, live_segments
from .frontend.start_reports import start_reports
from .integrations import lightning_logging as lightning_logging
from .report.exclude_from_capture import exclude_from_capture

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
    if disable or torch_config.is_switched_off() or stays_plain():
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
        return stay_plain(model, fullgraph)
    if isinstance(model, torch.nn.Module):
        return CompiledModule(model, asked, kwargs)
    return compiled_function(original_of(model), asked, kwargs)


# What tools and readers see are the parameters; `unknown` only catches misspelt ones.
_ALL = inspect.signature(compile)
SIGNATURE = _ALL.replace(parameters=list(_ALL.parameters.values())[:-1])
compile.__signature__ = SIGNATURE  # type: ignore[attr-defined]

marks_of_dynamo.compile_in_place(compile)


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


@exclude_from_capture
def profile() -> Profile:
    """Where the time of compiled code goes: ``with burnish.profile() as p:`` around calls, and then ``print(p)``.

    ``p.segments`` are the same figures as records. First calls, which compile, are not counted.
    """
    from .report.profile_segments import Profile

    return Profile(live_segments)


@exclude_from_capture
def report(path: str | os.PathLike[str] = "burnish-report.html") -> Report:
    """What is compiled, why again, and where the time goes: ``with burnish.report("report.html"):`` around calls.

    Writes one HTML file, which needs no other and no network. Graphs that are captured meanwhile are compiled, and not
    loaded from disk, so that their stages can be shown.
    """
    from .report.html_report import Report

    return Report(path, _recorder(most_spans=50_000))  # the page shows fewer


@exclude_from_capture
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


late_bound_api.compile = compile
start_reports(report)
disable = marks.disable
