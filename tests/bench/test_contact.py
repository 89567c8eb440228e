"""The first minutes on a GPU: time there is short, so the commands are rehearsed without one."""

import importlib
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from bench.apart import ROOT, paths
from bench.command import chosen_models, contestants
from bench.contact.check_runner import Check, Runner
from bench.contact.commands import COMMANDS, MINUTES

from bench import pretend

CHECKS = [(command, check) for command, made in COMMANDS.items() for check in made()]
LINES = [(check, text) for _, check in CHECKS for text in (check.command, check.rehearsal) if text]


@pytest.mark.parametrize("check,text", LINES, ids=[f"{check.name}-{k}" for k, (check, _) in enumerate(LINES)])
def test_arguments_of_every_command_are_taken(check, text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    flag, module, *arguments = shlex.split(text.format(json="out.json", minutes="1.5"))
    assert flag == "-m"
    if module == "pytest":
        assert (ROOT / arguments[0]).exists()
        return
    options = importlib.import_module("bench.command" if module == "bench" else module).parser().parse_args(arguments)
    assert str(options.json) == "out.json"
    if text == check.command:
        assert options.device == "cuda"
    if module == "bench":
        assert chosen_models(options) == options.model and contestants(options.against, options.modes)


def test_contact_takes_four_minutes_and_no_command_more_than_nine_and_a_half():
    assert MINUTES["contact"] <= 4 and max(MINUTES.values()) <= 9.5
    for command in COMMANDS:
        names = [check.name for check in COMMANDS[command]()]
        assert len(names) == len(set(names))


def runner(tmp_path, minutes=5.0, **options):
    from bench.contact.place import Place

    return Runner(
        "some", tmp_path, minutes, places=lambda folder, check: [lambda: on_cpu(Place(folder, "cpu"))], **options
    )


def on_cpu(place):
    import contextlib

    return contextlib.nullcontext(place)


def lines_of(tmp_path):
    return [json.loads(line) for line in (tmp_path / "some.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def lenient(monkeypatch):
    """A process that is forked from one with threads warns, and this one has some."""
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")


def good(place):
    place.figure(speed=1 / 3)


def wrong(place):
    place.note("inputs of it: f32[3]")
    place.figure(before=1)
    place.same(torch.tensor([1.0, 5.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).double(), "sums")


def dies(place):
    print("about to die", flush=True)
    os.abort()


def hangs(place):
    place.figure(before=2)
    time.sleep(600)


def test_each_check_has_a_line_and_a_failing_one_its_details(tmp_path, capsys):
    found = runner(tmp_path)
    found.run([Check("good", good), Check("wrong", wrong), Check("dies", dies), Check("last", good)])
    lines = lines_of(tmp_path)
    assert [(line["name"], line["ok"]) for line in lines] == [
        ("good", True),
        ("wrong", False),
        ("dies", False),
        ("last", True),
    ]
    assert lines[0]["figure"] == {"speed": 0.3333} and lines[1]["figure"] == {"before": 1}
    assert "1 of 2 elements are wrong, the first at (1,): 5, eager 2" in lines[1]["error"]
    assert "about to die" in lines[2]["error"]
    details = (tmp_path / "some.details.txt").read_text()
    assert "inputs of it: f32[3]" in details and "in wrong" in details and "==== good" not in details
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == [
        "good",
        "wrong",
        "dies",
        "last",
    ]


def test_a_check_that_hangs_says_where_and_keeps_its_figures(tmp_path):
    found = runner(tmp_path)
    found.run([Check("hangs", hangs, seconds=3), Check("after", good)])
    first, second = lines_of(tmp_path)
    assert first["ok"] is False and first["figure"] == {"before": 2} and "not done after 3 s" in first["error"]
    assert second["ok"] and "in hangs" in (tmp_path / "some.details.txt").read_text()


def test_checks_beyond_the_time_limit_are_listed(tmp_path):
    runner(tmp_path, minutes=0.01).run([Check("never", good)])
    (line,) = lines_of(tmp_path)
    assert line["ok"] is None and "minutes were over" in line["error"]


def test_a_command_that_is_stopped_may_write_its_results(tmp_path):
    code = (
        "import sys, time\ntry:\n    print('works', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    open(sys.argv[1], 'w').write('[7]')"
    )
    command = f"-c {shlex.quote(code.replace('{', '{{'))} {{json}}"
    runner(tmp_path).run([Check("long", command=command, seconds=3)])
    (line,) = lines_of(tmp_path)
    assert line["ok"] is False and line["figure"]["result"] == [7]


def test_checks_run_side_by_side_but_for_those_that_are_timed(tmp_path):
    found = runner(tmp_path, at_once=3)
    slow = Check("slow", lambda place: time.sleep(0.5))
    found.run(
        [replace(slow, name="a"), replace(slow, name="b"), replace(slow, name="c", alone=True), replace(slow, name="d")]
    )
    assert [line["name"] for line in lines_of(tmp_path)][2:] == ["c", "d"]


@pytest.fixture
def pretended_gpu():
    if (why := pretend.why_not()) is not None:  # asked here, for it compiles the GPU
        pytest.skip(why)


def rehearsed(tmp_path, *words, limit=1200):
    env = {**os.environ, "PYTHONPATH": paths()}
    for name in ("BURNISH_CHECK", "_BURNISH_COMPARE_RESULTS"):
        env.pop(name, None)
    command = [sys.executable, "-m", "bench.contact", *words, "--rehearse", "--out", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit)
    assert ran.returncode == 0, f"{ran.stdout[-6000:]}\n{ran.stderr[-3000:]}"
    return [json.loads(line) for line in ran.stdout.splitlines()[:-1]]


@pytest.mark.usefixtures("pretended_gpu")
def test_a_few_checks_of_each_kind_are_rehearsed(tmp_path):
    pytest.importorskip("triton")
    wanted = "versions,first kernel,first call in a thread,bare thread,streams,capture"
    lines = rehearsed(tmp_path, "contact", "--only", wanted)
    assert len(lines) == 7 and all(line["ok"] for line in lines)
    assert (tmp_path / "contact.jsonl").read_text().count("\n") == 7


@pytest.mark.usefixtures("pretended_gpu")
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_rehearsed(command, tmp_path):
    pytest.importorskip("triton")
    assert all(line["ok"] for line in rehearsed(tmp_path, command, limit=3000))
