"""Settings come from defaults, the environment and code; an invalid value is refused with a remedy."""

import dataclasses
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from burnish import settings
from burnish.errors import UserError
from burnish.settings import Settings, configure, from_environment, on_change, patch

from .forked_programs import TORCH, run_program
from .runtime.concurrent_threads import at_once


@pytest.fixture(autouse=True)
def restore_process_settings(monkeypatch):
    """Let a test `configure` freely, or start as a process whose environment was not read yet."""
    monkeypatch.setattr(settings, "_process", from_environment({}))
    monkeypatch.setattr(settings, "_watchers", ())


def test_every_setting_has_a_default():
    assert Settings() == Settings(segment_limit=8, on_error="fallback", check=False, show=frozenset(), dump=None)


def test_every_setting_is_checked_when_it_is_set():
    every = dataclasses.fields(Settings)
    assert all((field.name in settings._ACCEPT) != (field.type in settings._ACCEPT_TYPE) for field in every)


def test_every_setting_is_documented_below_its_field():
    source = Path(settings.__file__).read_text(encoding="utf-8").splitlines()
    for field in dataclasses.fields(Settings):
        (line,) = (i for i, text in enumerate(source) if text.startswith(f"    {field.name}: "))
        assert source[line + 1].startswith('    """'), field.name


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.current().check = True


def test_environment_sets_every_setting(tmp_path):
    environment = {
        "BURNISH_SEGMENT_LIMIT": "3",
        "BURNISH_ON_ERROR": "raise",
        "BURNISH_CHECK": "1",
        "BURNISH_FUEL": "5",
        "BURNISH_NATIVE_GUARDS": "0",
        "BURNISH_NEVER_SLOWER": "0",
        "BURNISH_EAGER_RANDOM": "1",
        "BURNISH_MAX_AUTOTUNE": "1",
        "BURNISH_SHAPE_PADDING": "1",
        "BURNISH_CUDA_GRAPHS": "1",
        "BURNISH_MEMORY_BUDGET": "0.5",
        "BURNISH_NULL_DEVICE": "sm_90",
        "BURNISH_COMPILE_WORKERS": "3",
        "BURNISH_CPU": "x86-64-v3",
        "BURNISH_CACHE": "off",
        "BURNISH_CACHE_DIR": str(tmp_path / "kept"),
        "BURNISH_SHOW": "breaks, guards,",
        "BURNISH_DUMP": str(tmp_path),
        "BURNISH_REPORT": str(tmp_path / "reports"),
        "BURNISH_PROGRESS": "0",
        "BURNISH_UNTESTED_TORCH": "1",
    }
    assert len(environment) == len(dataclasses.fields(Settings))
    shown = frozenset({"breaks", "guards"})
    wanted = Settings(
        segment_limit=3,
        on_error="raise",
        check=True,
        fuel=5,
        native_guards=False,
        never_slower=False,
        eager_random=True,
        max_autotune=True,
        shape_padding=True,
        cuda_graphs=True,
        memory_budget=0.5,
        null_device="sm_90",
        compile_workers=3,
        cpu="x86-64-v3",
        cache=False,
        cache_dir=tmp_path / "kept",
        show=shown,
        dump=tmp_path,
        report=tmp_path / "reports",
        progress=False,
        untested_torch=True,
    )
    assert from_environment(environment) == wanted


def test_empty_variables_count_as_unset():
    names = [settings.variable(field.name) for field in dataclasses.fields(Settings)]
    assert from_environment(dict.fromkeys(names, "")) == Settings()


@pytest.mark.parametrize("text,value", [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)])
def test_flags_read_the_usual_words(text, value):
    assert from_environment({"BURNISH_CHECK": text}).check is value


@pytest.mark.parametrize(
    "name,text,remedy",
    [
        ("BURNISH_SEGMENT_LIMIT", "many", "at least 1"),
        ("BURNISH_SEGMENT_LIMIT", "0", "at least 1"),
        ("BURNISH_ON_ERROR", "ignore", '"fallback"'),
        ("BURNISH_COMPILE_WORKERS", "some", "0 to have none"),
        ("BURNISH_FUEL", "full", "None for no limit"),
        ("BURNISH_CPU", "zen4", "x86-64-v2, x86-64-v3, x86-64-v4"),
        ("BURNISH_CHECK", "maybe", "1 or 0"),
        ("BURNISH_CHECK", "bisec", 'or "bisect"'),
        ("BURNISH_SHOW", "guards,break", 'Did you mean "breaks"?'),
        ("BURNISH_SHOW", "xyz", "breaks, guards, graph, effects"),
        ("BURNISH_DUMP", __file__, "this one is a file"),
    ],
)
def test_bad_variable_is_refused_by_name_with_value_and_remedy(name, text, remedy):
    with pytest.raises(UserError) as caught:
        from_environment({name: text})
    message = str(caught.value)
    assert name in message and remedy in message
    assert text.split(",")[-1] in message


@pytest.mark.parametrize(
    "changes",
    [
        {"segment_limit": 0},
        {"segment_limit": True},
        {"segment_limit": 2.0},
        {"segment_limit": None},
        {"on_error": None},
        {"on_error": ["raise"]},
        {"check": 1},
        {"check": "1"},
        {"show": None},
        {"show": 3},
        {"show": [["breaks"]]},
        {"show": {"kernel"}},
        {"dump": 1},
        {"dump": __file__},
        {"compile_workers": -1},
        {"compile_workers": True},
        {"compile_workers": "2"},
        {"fuel": -1},
        {"fuel": True},
        {"cpu": ["x86-64-v3"]},
    ],
)
def test_bad_value_from_code_is_refused_at_the_call(changes):
    (name,) = changes
    with pytest.raises(UserError, match=f"setting {name} "):
        patch(**changes)
    with pytest.raises(UserError, match=f"setting {name} "):
        configure(**changes)
    assert settings.current() == Settings()


def test_unknown_setting_is_refused_with_the_near_one_and_all_names():
    with pytest.raises(UserError, match='Did you mean "on_error"') as caught:
        patch(onerror="raise")
    names = (
        "segment_limit, on_error, check, fuel, native_guards, never_slower, eager_random, max_autotune, "
        "shape_padding, cuda_graphs, memory_budget, null_device, compile_workers, cpu, cache, cache_dir, show, "
        "dump"
    )
    assert names in str(caught.value)


def test_show_and_dump_take_convenient_forms():
    with patch(show="breaks,graph", dump="somewhere") as active:
        assert active.show == {"breaks", "graph"} and isinstance(active.show, frozenset)
        assert active.dump == Path("somewhere")
    with patch(show=["guards"], dump="") as active:
        assert active.show == {"guards"} and active.dump is None


def test_patch_holds_inside_the_block_only():
    with patch(check=True, segment_limit=2) as active:
        assert settings.current() is active
        assert active.check and active.segment_limit == 2
    assert settings.current() == Settings()


def test_nested_patches_add_up_and_come_off_one_by_one():
    with patch(check=True):
        with patch(segment_limit=2):
            assert settings.current() == Settings(check=True, segment_limit=2)
        assert settings.current() == Settings(check=True)


def test_patch_comes_off_when_the_block_raises():
    with pytest.raises(ZeroDivisionError), patch(check=True):
        raise ZeroDivisionError
    assert not settings.current().check


def test_patch_that_is_not_entered_changes_nothing():
    patch(check=True)
    assert not settings.current().check


def test_patch_is_not_seen_by_another_thread_and_configure_is():
    seen = {}

    def look(name):
        seen[name] = settings.current().segment_limit

    with patch(segment_limit=2):
        configure(segment_limit=5)
        thread = threading.Thread(target=look, args=("other",))
        thread.start()
        thread.join()
        look("this")
    look("after")
    assert seen == {"other": 5, "this": 2, "after": 5}


def test_threads_that_configure_at_once_lose_no_change():
    changes = [{"segment_limit": 4}, {"check": True}, {"on_error": "raise"}, {"show": {"graph"}}]
    for _ in range(50):
        settings._process = Settings()
        gate = threading.Barrier(len(changes))

        def change(change, gate=gate):
            gate.wait()
            configure(**change)

        at_once(*(partial(change, change_) for change_ in changes))
        wanted = Settings(segment_limit=4, check=True, on_error="raise", show=frozenset({"graph"}))
        assert settings.current() == wanted


def test_environment_is_read_at_first_use_and_once(monkeypatch):
    monkeypatch.setattr(settings, "_process", None)
    monkeypatch.setenv("BURNISH_SEGMENT_LIMIT", "3")
    assert settings.current().segment_limit == 3
    monkeypatch.setenv("BURNISH_SEGMENT_LIMIT", "4")
    assert settings.current().segment_limit == 3


def test_bad_environment_is_reported_at_first_use_every_time(monkeypatch):
    monkeypatch.setattr(settings, "_process", None)
    monkeypatch.setenv("BURNISH_ON_ERROR", "ignore")
    for _ in range(2):
        with pytest.raises(UserError, match="BURNISH_ON_ERROR"):
            settings.current()


def test_watcher_receives_the_current_settings_and_every_change():
    heard = []
    stop = on_change(lambda active: heard.append(active.segment_limit))
    with patch(segment_limit=2):
        configure(segment_limit=5)
    stop()
    configure(segment_limit=6)
    assert heard == [8, 2, 2, 5]


def test_watcher_waits_until_the_environment_is_read(monkeypatch):
    monkeypatch.setattr(settings, "_process", None)
    monkeypatch.setenv("BURNISH_SEGMENT_LIMIT", "3")
    heard = []
    on_change(lambda active: heard.append(active.segment_limit))
    assert heard == []
    settings.current()
    settings.current()
    assert heard == [3]


def test_misspelt_variables_are_found():
    assert settings.unknown_variables({"BURNISH_CHEK": "1", "BURNISH_CHECK": "1", "PATH": ""}) == ["BURNISH_CHEK"]


def test_importing_burnish_does_not_fail_on_a_bad_variable():
    code = "import burnish.settings as s\ntry: s.current()\nexcept s.UserError: print('refused')"
    ran = run_program(code, environment={**os.environ, "BURNISH_ON_ERROR": "ignore"}, prepare=TORCH)
    assert ran.stdout == "refused\n", ran.stderr


def test_watcher_that_fails_costs_a_warning():
    on_change(lambda active: 1 // (active.segment_limit != 3))
    with pytest.warns(UserWarning, match="failed at a change of settings: ZeroDivisionError"), patch(segment_limit=3):
        assert settings.current().segment_limit == 3


STREAMS = """
import io, sys
class Tee:
    def write(self, text): pass
    def flush(self): pass
closed = io.StringIO()
closed.close()
kept = sys.stderr
for sys.stderr in (None, closed, object(), Tee()):
    import torch, burnish
    with burnish.settings.patch(cache=False):
        assert burnish.compile(lambda x: x + 1)(torch.ones(1)).item() == 2
sys.stderr = kept
"""


def test_stderr_need_not_be_a_file():
    run = subprocess.run([sys.executable, "-W", "error::UserWarning:burnish", "-c", STREAMS], capture_output=True)
    assert run.returncode == 0 and not run.stderr, run.stderr
