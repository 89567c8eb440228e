"""`mode` and `options` of `compile`: their names, what each does, and which are accepted for compatibility with torch.

    burnish.list_options()                         {"cuda_graphs": False, "eager_random": False, …}
    burnish.list_mode_options("reduce-overhead")   {"cuda_graphs": True}

An option is a setting for one compiled function. Options of torch.compile are accepted too, so that users only
change the import. An option with a counterpart here sets it; for each of the others, a reason says why it has no
effect. Unknown names are errors.

TorchInductor's settings of the process (`torch._inductor.config.fallback_random = True`) count as well, if they have a
counterpart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import events, settings
from ..errors import UserError, did_you_mean, warn
from . import torch_config

OURS = ("cuda_graphs", "eager_random", "max_autotune", "memory_budget", "never_slower", "shape_padding")
"""Settings that can be given as options. They are documented at `settings.Settings`."""

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {"fallback_by_default": True},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
"""A mode is a set of options. On a CPU the default already makes as few calls as possible, and `reduce-overhead` adds
nothing: it is for GPUs."""

EAGER_KERNELS = "fallback_by_default"
"""The option under which captured graphs run operation by operation, by torch's own kernels: the mode `lite`."""


def as_it_is(value: Any) -> Any:
    return value


def the_opposite(value: Any) -> Any:
    return not value


COUNTERPARTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "fallback_random": ("eager_random", as_it_is),
    "align_random_eager": ("eager_random", as_it_is),
    "max_autotune_gemm": ("max_autotune", as_it_is),
    "max_autotune_pointwise": ("max_autotune", as_it_is),
    "coordinate_descent_tuning": ("max_autotune", as_it_is),
    "triton.cudagraphs": ("cuda_graphs", as_it_is),
    "force_disable_caches": ("cache", the_opposite),
    "fx_graph_cache": ("cache", as_it_is),
    "deterministic": ("never_slower", the_opposite),
}
"""torch's name, the equivalent setting here, and its value. `deterministic` turns off what depends on times."""

WITHOUT_EFFECT_ON = {"cache": True, "never_slower": True}
"""A counterpart that only asks for this value, which is the default, leaves the setting alone."""

NOTHING_TO_DO = {
    "allow_buffer_reuse": "buffers share memory wherever that is possible",
    "benchmark_fusion": "the first calls are measured against eager, fused kernels included",
    "comprehensive_padding": "layouts are chosen by measurement, and `shape_padding` pads",
    "compile_threads": "the setting `compile_workers` is the number of processes that compile",
    "dce": "operations without a use are removed",
    "emulate_divison_rounding": "divisions are rounded as eager's are",
    "emulate_precision_casts": "each operation rounds its result to its dtype, as eager does, also in fused kernels",
    "epilogue_fusion": "what follows a product is computed with it wherever that is faster",
    "freezing": "weights of modules in eval mode are frozen without asking, and checked on every call",
    "graph_partition": "it is about CUDA graphs",
    "guard_filter_fn": "all guards are kept: a call takes microseconds for them, and leaving one out may be wrong",
    "inplace_buffers": "results are written over operands wherever that is possible",
    "layout_optimization": "layouts of convolutions are chosen by measurement",
    "memory_planning": "memory is always planned: one block for all intermediate results",
    "nan_asserts": "torch.autograd.set_detect_anomaly(True) finds the operation that makes a NaN, in eager mode",
    "pattern_matcher": "algebraic rules are always applied, where they keep results",
    "prologue_fusion": "what precedes a product is computed with it wherever that is faster",
    "reorder_for_peak_memory": "steps stand in the program's order, and their memory is planned for it",
    "size_asserts": "results are checked with the setting `check`",
    "split_reductions": "reductions are split wherever that is faster",
    "use_aoti": "`burnish.export` writes programs",
    "use_fast_math": "functions are as accurate as eager's: approximations of them differ",
}
"""Options of torch for something that is always done, or cannot be done here, and why."""

NOTHING_TO_DO_IN = {
    "aot_inductor": "`burnish.export` writes programs",
    "autoheuristic": "it is about choices that TorchInductor makes; ours are measured",
    "combo_kernel": "independent loops of one size are always computed by one kernel",
    "cpp.": "no C++ is compiled",
    "cuda.": "it is about code that TorchInductor makes for GPUs",
    "cutlass": "it is about code that TorchInductor makes for GPUs",
    "eager_numerics.": "each operation rounds as eager does",
    "emulate_precision_casts": "each operation rounds its result to its dtype, as eager does",
    "halide": "no Halide is generated",
    "max_autotune": "`max_autotune` measures every way that there is here",
    "realize_": "what is fused is decided by what kernels read and write",
    "rocm.": "it is about code that TorchInductor makes for GPUs",
    "test_configs.": "it is for tests of TorchInductor",
    "trace.": "BURNISH_SHOW and BURNISH_DUMP show all",
    "triton.": "it is about code that TorchInductor makes for GPUs",
    "xpu.": "it is about code that TorchInductor makes for GPUs",
}
"""The same for all names with this prefix."""

ITS_OWN = "it tunes a stage of TorchInductor, and Burnish compiles without it"
"""The same for all other options of TorchInductor."""

PROGRAMS_OF_USERS = (
    "_custom_pass",
    "_custom_pre_pass",
    "_custom_post_pass",
    "custom_partitioner_fn",
    "_fusion_options",
)
"""Ends of names of options that hand over code of the user's to rewrite graphs. Without it results may differ, so a
warning says that it is not run."""


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


def settings_from_mode_and_options(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """The settings that a compiled function gets from its mode or options, and from TorchInductor's settings."""
    found: dict[str, Any] = {}
    for name, (setting, convert) in COUNTERPARTS.items():
        value = torch_config.changed_in_inductor(name)
        if value is not None:
            merge_setting(found, setting, convert(value))
    found |= MODES[mode] if mode is not None else {}
    for name, value in (options or {}).items():
        name = name.replace("-", "_") if isinstance(name, str) else name  # pyright: ignore[reportUnnecessaryIsInstance]
        if name in OURS or name == EAGER_KERNELS:
            found[name] = value
        elif name in COUNTERPARTS:
            setting, convert = COUNTERPARTS[name]
            merge_setting(found, setting, convert(value))
        else:
            say_why_nothing(name, value)
    asks_for_eager = found.pop(EAGER_KERNELS, False)
    settings.patch(**found)  # raises for a value that is not valid
    return {**found, EAGER_KERNELS: True} if asks_for_eager else found


def merge_setting(found: dict[str, Any], setting: str, value: Any) -> None:
    """Several options have the same counterpart: one that asks for it suffices."""
    if WITHOUT_EFFECT_ON.get(setting) is not value:
        found[setting] = value if setting in WITHOUT_EFFECT_ON else found.get(setting, False) or value


def say_why_nothing(name: str, value: Any) -> None:
    why = why_nothing(name)
    if why is None:
        from ..integrations.inductor_option_names import inductor_option_names

        known = [*OURS, *COUNTERPARTS, *NOTHING_TO_DO, *inductor_option_names()]
        raise UserError(
            f"There is no option called {name!r:.80}.{did_you_mean(str(name), known)} "
            f"The options are: {', '.join(OURS)}."
        )
    if value and name.endswith(PROGRAMS_OF_USERS):
        warn(f"burnish: the option {name} is not run: it rewrites graphs of TorchInductor. Register a backend instead.")
    events.emit("runtime", text=f"The option {name} has no effect here: {why}.", option=name)


def why_nothing(name: str) -> str | None:
    """Why an option of torch has no effect, or None where it is unknown."""
    if name in NOTHING_TO_DO:
        return NOTHING_TO_DO[name]
    from ..integrations.inductor_option_names import inductor_option_names  # for options that are not ours

    if name not in inductor_option_names():
        return None
    return next((why for prefix, why in NOTHING_TO_DO_IN.items() if name.startswith(prefix)), ITS_OWN)
