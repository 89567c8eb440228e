"""Modes and options: which settings they set, what other backends get, and errors for wrong ones."""

import warnings

import pytest
import torch

import burnish
from burnish import events, settings
from burnish.frontend.modes_and_options import (
    COUNTERPARTS,
    MODES,
    NOTHING_TO_DO,
    OURS,
    settings_from_mode_and_options,
    why_nothing,
)

from ..recorded_events import recorded

X = torch.arange(6.0).reshape(2, 3)


def double(x):
    return x * 2 + 1


def noisy(x):
    return torch.rand_like(x) + x


def test_the_lists_name_the_accepted_modes_and_options():
    with settings.patch(never_slower=True):
        assert burnish.list_options() == {
            "cuda_graphs": False,
            "eager_random": False,
            "max_autotune": False,
            "memory_budget": 1.0,
            "never_slower": True,
            "shape_padding": False,
        }
    assert burnish.list_mode_options().keys() == MODES.keys()
    assert burnish.list_mode_options("max-autotune") == {"cuda_graphs": True, "max_autotune": True}
    assert burnish.list_mode_options("reduce-overhead", dynamic=True) == {"cuda_graphs": True}
    for name, value in burnish.list_options().items():
        assert torch.equal(burnish.compile(double, options={name: value})(X), double(X))
    for name in (*COUNTERPARTS, *NOTHING_TO_DO):
        assert torch.equal(burnish.compile(double, options={name: True})(X), double(X))


def test_the_lists_show_settings_in_force_and_are_copies():
    with settings.patch(eager_random=True):
        assert burnish.list_options()["eager_random"] is True
    burnish.list_mode_options()["default"]["max_autotune"] = True
    assert burnish.list_mode_options("default") == {}


@pytest.mark.parametrize("name", ["eager_random", "fallback_random"])
def test_an_option_is_a_setting_of_one_function(name):
    with settings.patch(never_slower=False):
        like_eager = burnish.compile(noisy, options={name: True})
        other = burnish.compile(lambda x: torch.rand_like(x) + x)
        same = []
        for fn in (like_eager, other):
            fn(X)
            torch.manual_seed(5)
            got = fn(X)
            torch.manual_seed(5)
            same.append(torch.equal(got, noisy(X)))
    assert same == [True, False]
    assert not settings.current().eager_random


def test_max_autotune_measures_choices_that_other_modes_predict(monkeypatch):
    from burnish.schedule.library import choose_calls

    asked = []
    for name in ("choose", "choose_thoroughly"):
        plainly = getattr(choose_calls, name)
        monkeypatch.setattr(
            choose_calls,
            name,
            lambda spec, name=name, plainly=plainly, **how: (
                asked.append((name, how["seconds"])),
                plainly(spec, **how),
            )[1],
        )
    layer, x = torch.nn.Linear(64, 64).eval(), torch.randn(64, 64)
    with torch.no_grad():
        for mode in ("default", "max-autotune"):
            burnish.reset()
            torch.testing.assert_close(burnish.compile(layer, mode=mode)(x), layer(x))
    (usual, seconds), (thorough, more) = asked
    assert (usual, thorough) == ("choose", "choose_thoroughly") and more > seconds


def test_max_autotune_emits_how_far_its_measurements_are():
    model, x = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)]).eval(), torch.randn(2, 8)
    told = {}
    with torch.no_grad():
        for mode in ("max-autotune", "default"):
            burnish.reset()
            with recorded("kernels.measuring") as measured:
                burnish.compile(model, mode=mode)(x)
            told[mode] = [(event.data["done"], event.data["total"]) for event in measured]
    assert told == {"max-autotune": [(k, 4) for k in range(5)], "default": []}


def test_every_option_and_mode_of_the_installed_torch_is_accepted():
    import torch._inductor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for those that hand over code of the user's
        for name in torch._inductor.list_options():
            burnish.compile(double, options={name: True})
            assert why_nothing(name) or name in COUNTERPARTS or name in OURS + ("fallback_by_default",)
    assert set(torch._inductor.list_mode_options()) <= set(burnish.list_mode_options())


@pytest.mark.parametrize("asked", [{"mode": "lite"}, {"options": {"fallback_by_default": True}}])
def test_lite_runs_each_operation_by_torchs_own_kernel(asked):
    seen = []
    stop = events.subscribe(lambda event: seen.append(event.kind))
    compiled = burnish.compile(double, **asked)
    for _ in range(3):
        assert torch.equal(compiled(X), double(X))
    stop()
    assert burnish.was_compiled(compiled) and "segment" in seen and "loops" not in seen and "lower" not in seen


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_casts_are_eagers_with_and_without_asking(dtype):
    def chain(x, y):
        return (x * y + y) * x - y / 3

    x, y = torch.randn(2, 64, dtype=dtype)
    for options in ({"emulate_precision_casts": True}, None):
        compiled = burnish.compile(chain, options=options)
        for _ in range(3):
            assert torch.equal(compiled(x, y), chain(x, y))


def test_names_may_be_written_with_hyphens_as_in_torch():
    assert torch.equal(burnish.compile(double, options={"max-autotune": True})(X), double(X))


@pytest.mark.parametrize(
    "options, setting, value",
    [
        ({"force_disable_caches": True}, "cache", False),
        ({"fx_graph_cache": False}, "cache", False),
        ({"fx_graph_cache": True}, "cache", None),
        ({"deterministic": True}, "never_slower", False),
        ({"deterministic": False}, "never_slower", None),
        ({"max_autotune_gemm": False, "coordinate_descent_tuning": True}, "max_autotune", True),
    ],
)
def test_counterparts_set_our_settings(options, setting, value):
    assert settings_from_mode_and_options(None, options).get(setting) is value


def test_inductors_settings_of_the_process_count():
    import torch._inductor.config

    with torch._inductor.config.patch({"fallback_random": True, "triton.cudagraphs": True}):
        assert settings_from_mode_and_options(None, None) == {"eager_random": True, "cuda_graphs": True}
    assert settings_from_mode_and_options(None, None) == {}


def test_a_pass_of_the_user_that_is_not_run_is_warned_about():
    with pytest.warns(UserWarning, match="post_grad_custom_post_pass is not run"):
        burnish.compile(double, options={"post_grad_custom_post_pass": lambda graph: None})


def test_options_without_effect_say_so_and_why():
    seen = []
    stop = events.subscribe(lambda event: seen.append(event.data.get("text")) if "option" in event.data else None)
    ignored = {"triton.unique_kernel_names": True, "epilogue_fusion": True}
    burnish.compile(double, options={**ignored, "eager_random": True})
    stop()
    assert len(seen) == 2 and "triton.unique_kernel_names" in seen[0] and "wherever that is faster" in seen[1]


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"options": {"max_autotun": True}}, "no option called 'max_autotun'.*max_autotune.*The options are: cuda"),
        ({"options": {"triton.cudagraph": True}}, "no option called 'triton.cudagraph'.*\"triton.cudagraphs\""),
        ({"options": {"trace.enabld": True}}, "no option called 'trace.enabld'.*\"trace.enabled\""),
        ({"options": {3: True}}, "no option called 3"),
        ({"options": {"max_autotune": "yes"}}, "max_autotune .*cannot be 'yes'"),
        ({"options": ["max_autotune"]}, "a dictionary from option names"),
        ({"mode": "max_autotune"}, "mode='max_autotune' is unknown.*max-autotune"),
        ({"mode": "default", "options": {}}, "Either mode or options"),
    ],
)
def test_a_wrong_mode_or_option_is_an_error_that_lists_the_right_ones(asked, said):
    with pytest.raises(burnish.UserError, match=said):
        burnish.compile(double, **asked)


def test_an_unknown_mode_cannot_be_listed():
    with pytest.raises(burnish.UserError, match="The modes are: default"):
        burnish.list_mode_options("fast")


def test_other_backends_are_given_both_as_torch_gives_them():
    got = []

    def backend(gm, inputs, mode=None, options=None):
        got.append((mode, options))
        return gm.forward

    for asked in ({"mode": "reduce-overhead"}, {"options": {"mine": 3}}, {"mode": "default"}, {}):
        burnish.compile(double, backend=backend, **asked)(X)
    assert got == [("reduce-overhead", None), (None, {"mine": 3}), (None, None), (None, None)]


def test_a_backend_that_takes_no_options_is_named():
    with pytest.raises(burnish.UserError, match=r"takes no options.*Leave it out"):
        burnish.compile(double, backend=lambda gm, inputs: gm.forward, options={"mine": 3})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_that_run_graphs_as_they_are_need_no_options(backend):
    if backend in burnish.list_backends():
        assert torch.equal(burnish.compile(double, backend=backend, mode="max-autotune")(X), double(X))
