"""Benchmark processes: results, crashes and timeouts. The processes here are small scripts."""

import json
import os
import sys

import pytest
from bench.caches import folder_of, variables
from bench.conductor import Conductor, Outcome, Plan, environment
from bench.job import TURNS, Job
from bench.progress import Progress
from bench.record import Cold

TELL = """
import json, os, sys, time
def tell(**message):
    os.write(int(sys.argv[1]), (json.dumps(message) + "\\n").encode())
"""


class Scripted(Conductor):
    """Runs a script in place of the worker."""

    def __init__(self, script, **plan):
        self.heard = []
        super().__init__(Plan(["eager", "burnish"], **plan), self.heard.append)
        self.script = script

    def command(self, job):
        return [sys.executable, "-c", TELL + self.script, str(job.messages)]

    def outcome(self):
        return self.run(Job("steady", ["eager", "burnish"], "/nonexistent"))


def test_process_returns_its_result():
    conductor = Scripted(f"tell(stage='builds'); tell(stage={TURNS!r}, round=1, rounds=2); tell(result=[1, 2])")
    outcome = conductor.outcome()
    assert outcome.result == [1, 2] and outcome.why is None
    assert [message["stage"] for message in conductor.heard if message] == ["builds", TURNS]


def test_long_result_arrives_whole():
    assert Scripted("tell(result='x' * 1_000_000)").outcome().result == "x" * 1_000_000


def test_process_that_fails_says_why():
    assert Scripted("tell(failed='ValueError: no'); sys.exit(1)").outcome().why == "ValueError: no"


def test_process_that_dies_is_reported_with_signal_turn_and_last_output():
    outcome = Scripted(
        "tell(stage='compiles', contestant='burnish'); "
        "print('so it ends', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    ).outcome()
    assert outcome.contestant == "burnish"
    assert outcome.why == "the process ended with signal SIGKILL; its last output: so it ends"


def test_silent_process_is_stopped():
    outcome = Scripted("tell(stage='compiles', contestant='burnish'); time.sleep(60)", limit=3).outcome()
    assert outcome.hangs and outcome.why.startswith("no message for") and outcome.contestant == "burnish"


def test_interrupted_run_takes_its_process_along():
    conductor = Scripted("tell(stage='compiles', pid=os.getpid()); time.sleep(60)")

    def interrupt(message):
        if message:
            conductor.pid = message["pid"]
            raise KeyboardInterrupt

    conductor.listener = interrupt
    with pytest.raises(KeyboardInterrupt):
        conductor.outcome()
    with pytest.raises(ProcessLookupError):
        os.kill(conductor.pid, 0)


def test_warnings_of_burnish_are_recorded():
    outcome = Scripted("print('x.py:3: UserWarning: burnish: f runs eagerly'); tell(result=1)").outcome()
    assert outcome.warnings == ["x.py:3: UserWarning: burnish: f runs eagerly"]


class PreparedOutcomes(Conductor):
    """Gives prepared outcomes, and records the jobs."""

    def __init__(self, outcomes, **plan):
        super().__init__(Plan(["eager", "burnish", "torch.compile"], **plan))
        self.outcomes, self.asked = outcomes, []

    def run(self, job):
        self.asked.append((job.kind, tuple(job.contestants)))
        return self.outcomes.pop(0)


def measured(*names):
    results = {name: {"seconds": 1.0, "ratio": 1.0, "first_call": 5.0} for name in names}
    return Outcome({"model": "m", "mode": "inference", "results": results, "breaks": 0}, foreign_load=0.25)


def started(seconds):
    return Outcome(
        {
            "process": 3.0,
            "torch_import": 1.0,
            "build": 1.0,
            "own_import": 0.0,
            "first_call": seconds,
            "memory_built": 1,
            "memory_peak": 2,
            "memory_steady": 2,
        },
        foreign_load=0.5,
    )


def test_contestant_with_which_the_process_dies_is_left_out():
    conductor = PreparedOutcomes(
        [Outcome(why="signal", contestant="torch.compile"), measured("eager", "burnish")], starts=0
    )
    row = conductor.row("m")
    assert conductor.asked == [("steady", ("eager", "burnish", "torch.compile")), ("steady", ("eager", "burnish"))]
    assert row.results["torch.compile"].why == "signal" and row.results["burnish"].ratio == 1.0
    assert list(row.results) == ["eager", "burnish", "torch.compile"] and row.foreign_load == 0.25


def test_without_eager_there_is_a_reason_for_everybody():
    row = PreparedOutcomes([Outcome(why="no such library")], starts=0).row("m")
    assert row.results["eager"].why == "no such library"
    assert row.results["burnish"].why == "eager does not run it: no such library"


def test_first_call_is_that_of_the_process_of_its_own():
    row = PreparedOutcomes([started(0.5), started(0.25), Outcome(why="broken"), measured("eager", "burnish")]).row("m")
    assert row.results["burnish"].first_call == 0.25 and isinstance(row.results["burnish"].cold, Cold)
    assert row.results["burnish"].cold.foreign_load == 0.5
    assert row.results["torch.compile"].why == "broken"


def test_warm_starts_follow_the_cold_ones():
    starts = [started(seconds) for seconds in (3.0, 1.0, 2.0, 0.3, 0.1, 0.2)]
    outcomes = [*starts, Outcome(why="broken"), Outcome(why="broken"), measured("eager")]
    row = PreparedOutcomes(outcomes, starts=3, warm=True).row("m")
    assert (row.results["eager"].cold.first_call, row.results["eager"].warm.first_call) == (2.0, 0.2)


def test_middle_one_of_several_starts_counts():
    outcomes = [
        *map(started, (3.0, 1.0, 2.0)),
        *map(started, (9.0, 7.0, 8.0)),
        Outcome(why="broken"),
        measured("eager", "burnish"),
    ]
    row = PreparedOutcomes(outcomes, starts=3).row("m")
    assert row.results["eager"].first_call == 2.0 and row.results["burnish"].first_call == 8.0


def test_contestant_that_is_not_installed_is_not_started(monkeypatch):
    monkeypatch.setattr("bench.conductor.importlib.util.find_spec", lambda name: None)
    assert Conductor(Plan([])).why_not("openvino").startswith("onnx and onnxscript and openvino not installed")


def test_contestants_have_caches_of_their_own_and_no_settings_that_slow_them(monkeypatch):
    monkeypatch.setenv("BURNISH_CHECK", "1")
    one, two = (environment(Job("cold", [name], "/caches")) for name in ("burnish", "torch.compile:freezing"))
    for name in variables(folder_of("/caches", "x")):
        assert one[name].startswith("/caches/") and one[name] != two[name]
    assert "BURNISH_CHECK" not in one
    assert "/" not in folder_of("", "torch.compile:backend=../x").name


class Terminal:
    def __init__(self, is_terminal):
        self.is_terminal, self.text = is_terminal, ""

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_for_terminals_only(is_terminal):
    stream = Terminal(is_terminal)
    with Progress(2, stream) as progress:
        progress.begin("bert")
        progress({"stage": "compiles", "contestant": "burnish"})
        progress({})
        progress.finish()
    assert ("1/2 bert · burnish compiles" in stream.text) == is_terminal
    assert bool(stream.text) == is_terminal


def test_progress_fills_with_finished_work():
    progress = Progress(2, Terminal(False))
    progress.begin("bert")
    assert progress.line().startswith("░" * 20)
    progress({"stage": TURNS, "round": 12, "rounds": 12})
    assert progress.line().startswith("█" * 10 + "░" * 10)
    progress.finish()
    progress.begin("gpt2")
    assert json.dumps("2/2 gpt2")[1:-1] in progress.line()
