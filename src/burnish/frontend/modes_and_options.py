"""`mode` and `options` of `compile`: their names, what each does, and which are accepted for compatibility with torch.

    burnish.list_options()                         {"cuda_graphs": False, "eager_random": False, …}
    burnish.list_mode_options("reduce-overhead")   {"cuda_graphs": True}

An option is a setting for one compiled function. Options of torch.compile are accepted too, so that users only
change the import. An option with a counterpart here sets it; for each of the others, a reason says why it has no
effect. Unknown names are errors.
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
"""A mode is a set of options. On a CPU the default already makes as few calls as possible, and `reduce-overhead` adds
nothing: it is for GPUs."""

COUNTERPARTS = {
    "fallback_random": "eager_random",
    "max_autotune_gemm": "max_autotune",
    "max_autotune_pointwise": "max_autotune",
    "coordinate_descent_tuning": "max_autotune",
    "triton.cudagraphs": "cuda_graphs",
}
"""torch's name, and the equivalent setting here."""

NOTHING_TO_DO = {
    "epilogue_fusion": "what follows a product is computed with it wherever that is faster",
    "freezing": "weights of modules in eval mode are frozen without asking, and checked on every call",
    "graph_partition": "it is about CUDA graphs",
    "guard_filter_fn": "all guards are kept: a call takes microseconds for them, and leaving one out may be wrong",
    "size_asserts": "results are checked with the setting `check`",
}
"""Options of torch that ask for what is always done, or cannot be done here, and why."""

NOTHING_TO_DO_IN = {
    "aot_inductor.": "`burnish.export` writes programs",
    "cpp.": "no C++ is compiled",
    "cuda.": "it is about code that TorchInductor makes for GPUs",
    "trace.": "BURNISH_SHOW and BURNISH_DUMP show all",
    "triton.": "it is about code that TorchInductor makes for GPUs",
}
"""The same for all names with this prefix."""


def list_options() -> dict[str, Any]:
    """The options that `compile` takes, each with its current value."""
    now = settings.current()
    return {name: getattr(now, name) for name in OURS}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options of each mode, or of one mode. `dynamic` has no effect."""
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
    """Check both for validity, whatever the backend."""
    if mode is not None:
        checked_mode(mode)
    if mode is not None and options is not None:
        raise UserError("Either mode or options can be given, not both: a mode is a set of options.")
    if options is not None and not isinstance(options, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"options is a dictionary from option names to values, not {options!r:.80}.")


def changes(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """The settings that a compiled function gets from its mode or options."""
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
    settings.patch(**found)  # raises for a value that is not valid
    return found


def why_nothing(name: str) -> str | None:
    """Why an option of torch has no effect, or None where it is unknown."""
    return NOTHING_TO_DO.get(name) or next(
        (why for prefix, why in NOTHING_TO_DO_IN.items() if str(name).startswith(prefix)), None
    )
