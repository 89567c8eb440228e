"""The GPU benchmark driver. GPU time is short, so its commands are checked without one."""

import importlib
import json
import shlex
import subprocess
import time
from pathlib import Path

import pytest
import torch
from bench.command import chosen_models, contestants
from bench.gpu import PARTS, Driver, Part

from bench import gpu

COMMANDS = [(part, text) for part in PARTS for text in (*part.commands, *part.rehearsal)]


@pytest.mark.parametrize("part,text", COMMANDS, ids=[f"{part.name}-{k}" for k, (part, _) in enumerate(COMMANDS)])
def test_arguments_of_every_command_are_taken(part, text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    flag, module, *arguments = shlex.split(text.format(json="out.json", minutes="1.5"))
    assert flag == "-m"
    if module == "pytest":
        return
    options = importlib.import_module("bench.command" if module == "bench" else module).parser().parse_args(arguments)
    assert str(options.json) == "out.json"
    if text in part.commands:
        assert options.device == "cuda"
    if module == "bench":
        assert chosen_models(options) == options.model and contestants(options.against, options.modes)


def test_all_of_it_fits_in_half_an_hour_and_each_part_in_nine_minutes():
    assert sum(part.minutes for part in PARTS) <= 28 and max(part.minutes for part in PARTS) <= 9


def python(code):
    return f"-c {shlex.quote(code)}"


def test_part_that_fails_says_so_and_the_others_go_on(tmp_path, capsys):
    tmp_path = tmp_path / "with a space"
    parts = [
        Part("breaks", 1, "", (python("print('so far'); raise SystemExit(3)"), python("print('second')")), ()),
        Part("lacks", 1, "no_such_package", (python("print('never')"),), ()),
        Part("works", 1, "", (python("open('{json}', 'w').write('1')"),), ()),
    ]
    driver = Driver(tmp_path)
    driver.run(parts)
    assert [(done.part, done.status) for done in driver.done] == [
        ("breaks", 3),
        ("breaks", 0),
        ("lacks", "missing: pip install no_such_package"),
        ("works", 0),
    ]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [found["json"] for found in summary["commands"]] == [None, None, None, "works.json"]
    assert summary["commands"][0]["last"] == ["so far"] and (tmp_path / "works.json").read_text() == "1"
    printed = capsys.readouterr().out
    assert "-- breaks: status 3" in printed and "second" in (tmp_path / "gpu.log").read_text()


@pytest.fixture
def started(monkeypatch):
    """The minutes count from the first line that a command prints: a busy machine may take all of them to start it."""

    class Started(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            log, until = Path(kwargs["stdout"].name), time.monotonic() + 120
            while not log.read_bytes().splitlines()[-1].strip().isalpha() and time.monotonic() < until:
                time.sleep(0.01)

    monkeypatch.setattr(gpu.subprocess, "Popen", Started)


def test_a_timeout_ends_a_command_that_may_write_its_results(tmp_path, monkeypatch, started):
    monkeypatch.setattr(gpu, "LEAVING_SECONDS", 120)
    code = (
        "import time\ntry:\n    print('works', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    print('leaves')"
    )
    driver = Driver(tmp_path)
    driver.run([Part("long", 0.01, "", (python(code), python("print('never')")), ())])
    first, second = driver.done
    assert first.status == "stopped: the part's minutes were over" and first.last == ("works", "leaves")
    assert second.status == "stopped: the part's minutes were over before it began" and second.last == ()


def test_command_that_does_not_listen_is_killed(tmp_path, monkeypatch, started):
    monkeypatch.setattr(gpu, "LEAVING_SECONDS", 0.3)
    code = (
        "import signal, time\nfor number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)"
    )
    driver = Driver(tmp_path)
    driver.run([Part("deaf", 0.01, "", (python(code),), ())])
    assert driver.done[0].last == ("deaf",)


def test_leftovers_of_an_earlier_run_are_not_shown_as_this_ones(tmp_path):
    (tmp_path / "one.json").write_text("old")
    driver = Driver(tmp_path)
    driver.run([Part("one", 1, "", (python("pass"),), ())])
    assert driver.done[0].json is None and not (tmp_path / "one.json").exists()


@pytest.mark.slow
def test_rehearsal_runs_every_part_in_small(tmp_path):
    assert gpu.main(["--rehearse", "--out", str(tmp_path)]) == 0
    assert len(json.loads((tmp_path / "bandwidth.json").read_text())["found"]) == 6
    assert len(list(tmp_path.glob("*.json"))) == len(COMMANDS) // 2 - 1 + 1  # one for each but the tests, a summary


def test_without_a_gpu_nothing_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "Driver", None)
    assert gpu.main(["--out", str(tmp_path)]) == 2 and "--rehearse" in capsys.readouterr().err
