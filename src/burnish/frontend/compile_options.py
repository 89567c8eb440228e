"""The arguments of ``burnish.compile``, checked, and its backend configured by mode and options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import settings
from ..backends.registry import Backend, lookup
from ..capture.engine.program_options import Options
from ..errors import UserError
from . import modes_and_options as settings_by_name
from . import stance
from .dynamic_shapes_and_sources import checked_spec


def options_of(
    *,
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any] | None,
    mode: str | None,
    options: dict[str, Any] | None,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    dynamic_shapes: Any = None,
    model: Any = None,
) -> Options:
    """The arguments of ``compile``, checked. Recompiles are always isolated: each compiled function has its own graphs.
    ``model``: the compiled module or function, if it is known."""
    settings_by_name.check(mode, options)
    for argument, value, accepted in (
        ("fullgraph", fullgraph, "True or False"),
        ("dynamic", dynamic, "True, False or None"),
        ("isolate_recompiles", isolate_recompiles, "True or False"),
    ):
        if not isinstance(value, bool) and not (value is None and argument == "dynamic"):
            raise UserError(f"{argument}={value!r:.80} is not {accepted}.")
    if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"name={name!r:.80} is not a text: it names the compiled function in reports.")
    if recompile_limit is not None and (type(recompile_limit) is not int or recompile_limit < 1):
        raise UserError(f"recompile_limit={recompile_limit!r:.80} is not a whole number of at least 1, such as 8.")
    sizes = checked_spec(dynamic_shapes, dynamic, model)
    chosen = lookup("burnish" if backend is None else backend)  # None is torch.compile's own default
    chosen = configured(chosen, mode, options)
    return Options(
        chosen,
        chosen.name,
        chosen.runs_python,
        fullgraph,
        dynamic,
        stance.current,
        name=name,
        recompile_limit=recompile_limit,
        sizes=sizes,
    )


def configured(backend: Backend, mode: str | None, options: dict[str, Any] | None) -> Backend:
    """The backend configured by mode and options: ours runs under its own settings; another one gets them as
    arguments."""
    if backend.name != "burnish":
        return with_mode_and_options(backend, mode, options)
    changes = settings_by_name.settings_from_mode_and_options(mode, options)
    if changes.pop(settings_by_name.EAGER_KERNELS, False):
        backend = lookup("eager")
    if not changes:
        return backend

    def under(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with settings.patch(**changes):
                return function(*args)

        return call

    return replace(backend, fn=under(backend.fn), perform=backend.perform and under(backend.perform), asked=changes)


def with_mode_and_options(backend: Backend, mode: str | None, options: dict[str, Any] | None) -> Backend:
    given: dict[str, Any] = {}
    if mode is not None and mode != "default":
        given["mode"] = mode
    if options:
        given["options"] = options
    if not given:
        return backend
    try:
        inspect.signature(backend.fn).bind(None, None, **given)
    except TypeError as error:
        if backend.fn.__module__.startswith("burnish."):
            return backend  # our backends that run graphs eagerly have nothing to optimize
        raise UserError(
            f'The backend "{backend.name}" takes no {" and no ".join(given)}: {error}. Leave it out, or '
            f"let the backend take it by name, as torch.compile's own do."
        ) from None
    except ValueError:
        pass  # written in C: its parameters are unknown
    return replace(backend, fn=functools.partial(backend.fn, **given))
