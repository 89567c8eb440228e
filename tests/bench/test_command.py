"""`burnish bench` from its arguments to its files; one small model for real."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bench.caches import variables
from bench.command import contestants
from bench.contestants import Contestant
from bench.job import TURNS, Job
from bench.models import MODELS
from bench.overhead import CONTESTANTS, Graph, beyond, measure, programs
from bench.record import Run
from bench.side_by_side import SideBySide
from torch import nn

from burnish.cli import command_line

from .test_record import small_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A model of one layer, and an environment that forgets which caches were set."""

    def build(times=1):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), (torch.randn(4 * times, 8),), {}

    monkeypatch.setitem(MODELS, "tiny", build)
    for name, place in variables(tmp_path / "before").items():
        monkeypatch.setenv(name, place)
    return tmp_path


@pytest.mark.parametrize("mode", ["inference", "train", "train-step"])
def test_tiny_model_is_measured_side_by_side(tiny, mode):
    messages = []
    names = ["eager", "burnish:backend=eager", "torch.compile:freezing"]
    job = Job("steady", names, str(tiny), model="tiny", mode=mode, rounds=2, seconds=0.01)
    if mode == "inference":
        job.contestants = names[:2]  # freezing is refused for training only; here it would compile
    row = SideBySide(job, messages.append).row()
    eager, burnish = row.results["eager"], row.results["burnish:backend=eager"]
    assert eager.why is None and burnish.why is None
    assert eager.ratio == 1.0 and len(eager.blocks) == len(burnish.blocks) == 2
    assert burnish.ratio > 0 and burnish.first_call > 0 and burnish.details["warm_calls"] >= 10
    assert eager.error_ratio == 1.0 and burnish.error_ratio == pytest.approx(1.0)
    if mode != "inference":
        assert row.results["torch.compile:freezing"].why == "freezing is for inference"
    assert [message["round"] for message in messages if message["stage"] == TURNS] == [0, 1, 2]


def test_contestant_that_computes_something_else_shows_in_the_error(tiny, monkeypatch):
    class Wrong(Contestant):
        def compile(self, fn, args, kwargs):
            return lambda *args, **kwargs: fn(*args, **kwargs) + 0.5

    class Raising(Contestant):
        def compile(self, fn, args, kwargs):
            raise ValueError("it cannot\nload this")

    known = {"eager": Contestant, "wrong": Wrong, "raising": Raising}
    monkeypatch.setattr("bench.contestants.kinds", lambda: known)
    row = SideBySide(Job("steady", list(known), str(tiny), model="tiny", rounds=2, seconds=0.01), lambda m: None).row()
    assert row.results["wrong"].error_ratio > 1e3
    assert row.results["raising"].why == "ValueError: it cannot load this" and row.results["raising"].ratio is None


def test_overhead_is_that_of_each_contestant_over_eager():
    (name, modules, fn), *_ = programs([], [])
    found = measure(name, modules, fn, rounds=2, seconds=0.01, contestants=("eager", "burnish:backend=eager", "tvm"))
    assert found.eager > 0 and set(found.over) == {"burnish:backend=eager"} and "tvm" in found.why["tvm"]
    assert set(found.beyond) == {"burnish:backend=eager"}
    stacks = [(name, modules) for name, modules, _ in programs([1, 10], [], bert=False)]
    assert stacks[1:] == [("1 module", 1), ("10 modules", 10)]
    assert "eager" in CONTESTANTS


def test_time_beyond_the_graph_excludes_reading_the_clock(monkeypatch):
    class Clock:
        now = 0.0

        def __call__(self):
            self.now += 1e-6  # reading the clock takes time as well
            return self.now

        def work(self, seconds):
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr("bench.overhead.perf_counter", clock)
    graph = Graph(lambda: clock.work(3e-3))

    def call():
        clock.work(7e-5)
        graph()

    assert beyond(call, graph, seconds=0.01) == pytest.approx(7e-5)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["brt"], 'no model called "brt". Did you mean "bert"'),
        (["bert", "--against", "tvm"], 'no contestant called "tvm"'),
        (["bert", "--modes", "max"], 'no mode called "max"'),
        (["sincos", "--train-step"], "function without weights"),
        (["bert", "--plot", "picture.gif"], ".png"),
        (["--read", "absent.json"], "absent.json cannot be read"),
        (["bert", "--compare", "absent.json"], "absent.json cannot be read"),
        (["bert", "--json", "/proc/none/out.json"], "cannot be written"),
    ],
)
def test_impossible_requests_are_reported_before_anything_is_measured(
    arguments, message, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.command.Conductor", None)
    assert command_line.main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_arguments_go_to_the_benchmark_untouched(capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(["bench", "--help"])
    assert ended.value.code == 0 and "usage: burnish bench" in capsys.readouterr().out


def test_installed_package_without_its_source_says_what_to_do(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(command_line, "__file__", str(tmp_path / "lib" / "burnish" / "cli.py"))
    assert command_line.main(["bench", "bert"]) == 2
    assert "checkout" in capsys.readouterr().err


def test_eager_and_burnish_always_take_part():
    assert contestants("torch.compile, eager") == ["eager", "burnish", "torch.compile"]
    assert contestants(None) == ["eager", "burnish", "torch.compile"]


def test_modes_bring_both_compilers():
    assert contestants(None, "default,max-autotune") == [
        "eager",
        "burnish",
        "torch.compile",
        "burnish:max-autotune",
        "torch.compile:max-autotune",
    ]
    assert contestants("onnxruntime", "reduce-overhead") == [
        "eager",
        "burnish",
        "onnxruntime",
        "burnish:reduce-overhead",
        "torch.compile:reduce-overhead",
    ]


class OneRow:
    """In place of the processes: every model has the same row."""

    def __init__(self, plan, progress):
        pass

    def row(self, model):
        row = small_run().rows[0]
        row.model = model
        if model == "gpt2":
            os.kill(os.getpid(), signal.SIGTERM)  # Ctrl-C arrives as an exception by itself
        if model == "t5":
            row.results["burnish"].why = "it failed"
        return row


def test_run_is_written_printed_and_read_again(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("bench.command.Conductor", OneRow)
    path = tmp_path / "run.json"
    assert command_line.main(["bench", "bert", "lstm", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert [row.model for row in Run.read(path).rows] == ["bert", "lstm"] and "geomean" in printed
    assert command_line.main(["bench", "--read", str(path), "--compare", str(path)]) == 0
    again = capsys.readouterr().out
    assert again.startswith(printed.split("\n\n")[0]) and "Burnish then and now" in again


def test_interrupted_run_keeps_its_results(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("bench.command.Conductor", OneRow)
    path = tmp_path / "run.json"
    assert command_line.main(["bench", "bert", "gpt2", "--json", str(path)]) == 130
    assert [row.model for row in Run.read(path).rows] == ["bert"]
    assert "1 of 2 models" in capsys.readouterr().err


def test_failure_of_burnish_is_in_the_status(monkeypatch):
    monkeypatch.setattr("bench.command.Conductor", OneRow)
    assert command_line.main(["bench", "t5"]) == 1


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plot_is_a_picture(ending, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"picture.{ending}"
    small_run().write(tmp_path / "run.json")
    assert command_line.main(["bench", "--read", str(tmp_path / "run.json"), "--plot", str(path)]) == 0
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == "png" else b"<svg" in path.read_bytes()[:1000], start


@pytest.mark.slow
def test_whole_command_measures_starts_memory_and_turns(tmp_path):
    path = tmp_path / "run.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench",
            "mlp",
            "--against",
            "eager",
            "--rounds",
            "2",
            "--seconds",
            "0.02",
            "--json",
            str(path),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = Run.read(path).rows[0]
    for name in ("eager", "burnish"):
        result = row.results[name]
        assert result.ratio > 0 and result.first_call == result.cold.first_call > 0
        cold = result.cold
        assert cold.process > cold.torch_import + cold.build + cold.own_import + cold.first_call
        assert cold.memory_peak >= cold.memory_steady > 0 and cold.memory_peak > cold.memory_built > 0
    assert json.loads(path.read_text())["machine"]["cores"] >= 1
