"""What `compile` is told by `mode` and `options`: the names, what each does, and which are taken for torch's sake.

    burnish.list_options()                         {"cuda_graphs": False, "eager_random": False, …}
    burnish.list_mode_options("reduce-overhead")   {"cuda_graphs": True}

An option is a setting for one compiled function. torch.compile's own options are taken as well, so that swapping the
import is all a user does: what has a counterpart here sets it, and for each of the others there is a reason why nothing
is left to do. Names that neither knows are errors.
"""

from __future__ import annotations

from typing import Any

from .. import events, settings
from ..errors import UserError, did_you_mean

OURS = ("cuda_graphs", "eager_random", "max_autotune", "memory_budget", "never_slower", "shape_padding")
"""Settings that can be given as options. They are documented at `settings.Settings`."""

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
"""A mode is a set of options. On a CPU the default makes as few calls as there can be, and `reduce-overhead` adds
nothing: it is about GPUs."""

COUNTERPARTS = {
    "fallback_random": "eager_random",
    "max_autotune_gemm": "max_autotune",
    "max_autotune_pointwise": "max_autotune",
    "coordinate_descent_tuning": "max_autotune",
    "triton.cudagraphs": "cuda_graphs",
}
"""torch's name, and the setting that does the same here."""

NOTHING_TO_DO = {
    "epilogue_fusion": "what follows a product is computed with it wherever that is faster",
    "freezing": "weights of modules in eval mode are frozen without asking, and checked on every call",
    "graph_partition": "it is about CUDA graphs",
    "guard_filter_fn": "all guards are kept: a call takes microseconds for them, and leaving one out may be wrong",
    "size_asserts": "results are checked with the setting `check`",
}
"""Options of torch's that ask for what is done anyway, or cannot be done here, and why."""

NOTHING_TO_DO_IN = {
    "aot_inductor.": "`burnish.export` writes programs",
    "cpp.": "no C++ is compiled",
    "cuda.": "it is about code that TorchInductor makes for GPUs",
    "trace.": "BURNISH_SHOW and BURNISH_DUMP show all",
    "triton.": "it is about code that TorchInductor makes for GPUs",
}
"""The same for all names that begin so."""


def list_options() -> dict[str, Any]:
    """The options that `compile` takes, each with its value here and now."""
    now = settings.current()
    return {name: getattr(now, name) for name in OURS}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options that each mode stands for, or those of one mode. `dynamic` changes none."""
    if mode is None:
        return {name: dict(options) for name, options in MODES.items()}
    return dict(MODES[checked_mode(mode)])


def checked_mode(mode: str) -> str:
    if mode not in MODES:
        raise UserError(
            f"mode={mode!r:.80} is unknown.{did_you_mean(str(mode), MODES)} The modes are: {', '.join(MODES)}."
        )
    return mode


def check(mode: str | None, options: dict[str, Any] | None) -> None:
    """Whether both can be what a user means, whatever the backend."""
    if mode is not None:
        checked_mode(mode)
    if mode is not None and options is not None:
        raise UserError("Either mode or options can be given, not both: a mode is a set of options.")
    if options is not None and not isinstance(options, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"options is a dictionary from option names to values, not {options!r:.80}.")


def changes(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """The settings that a compiled function has of its own by its mode or options."""
    found: dict[str, Any] = dict(MODES[mode]) if mode is not None else {}
    for name, value in (options or {}).items():
        setting = name if name in OURS else COUNTERPARTS.get(name)
        if setting is not None:
            found[setting] = found.get(setting, False) or value if name in COUNTERPARTS else value
            continue
        why = why_nothing(name)
        if why is None:
            known = [*OURS, *COUNTERPARTS, *NOTHING_TO_DO]
            raise UserError(
                f"There is no option called {name!r:.80}.{did_you_mean(str(name), known)} "
                f"The options are: {', '.join(OURS)}."
            )
        events.emit("runtime", text=f"The option {name} has no effect here: {why}.", option=name)
    settings.patch(**found)  # a value that cannot be used is an error here
    return found


def why_nothing(name: str) -> str | None:
    """Why an option of torch's has no effect, or None where it is unknown."""
    return NOTHING_TO_DO.get(name) or next(
        (why for prefix, why in NOTHING_TO_DO_IN.items() if str(name).startswith(prefix)), None
    )
