"""Operators shared among processes: a crash or changed state in one process does not affect the others."""

import os
import signal

import pytest
import torch
from bench.operators import Different, JudgeOnGpu, check_operator, exactly, operators, quiet, same
from bench.sweep import Sweep, Worker, report

from bench import sweep


class Scripted:
    """In place of a process: its outcome depends on the name of the operator."""

    made = 0

    def __init__(self, device, samples):
        Scripted.made += 1
        self.asked, self.is_new, self.ended = None, True, False
        self.names = [
            ["fine", ["float32", "bfloat16"]],
            ["dies", ["float32"]],
            ["poisons", ["float32"]],
            ["wrong", ["float32"]],
        ]

    def ask(self, text):
        number, dtype = text.split()
        self.asked = f"{self.names[int(number)][0]} {dtype}"

    def hear(self, seconds):
        if self.is_new:
            self.is_new = False
            return self.names
        record = {
            "name": self.asked,
            "verdict": "equal",
            "detail": "",
            "breaks": [],
            "samples": 2,
            "way": "native",
            "ways": ["native"],
            "refusals": [],
        }
        if self.asked.startswith("dies"):
            return None
        if self.asked.startswith("wrong"):
            record.update(verdict="different", detail="off by one")
        if self.asked.startswith("poisons"):
            record.update(verdict="crashed", detail="illegal memory access", leaves=True)
        return record

    def why(self):
        return "its process ended with status -11: Segmentation fault"

    def end(self):
        assert not self.ended
        self.ended = True


def swept(monkeypatch, worker=Scripted, seconds=60.0, **how):
    Scripted.made = 0
    monkeypatch.setattr(sweep, "Worker", worker)
    found = Sweep("cuda", ("float32", "bfloat16"), 2, how.pop("processes", 1), seconds, 5.0, **how)
    found.run()
    return found


def test_process_that_dies_takes_one_operator_with_it(monkeypatch):
    found = swept(monkeypatch)
    verdicts = {record["name"]: record["verdict"] for record in found.outcomes}
    assert verdicts == {
        "fine float32": "equal",
        "dies float32": "crashed",
        "poisons float32": "crashed",
        "wrong float32": "different",
        "fine bfloat16": "equal",
    }
    assert Scripted.made == 3, "one process behind the one that died, one behind the one whose GPU refuses everything"
    text = report(found.data())
    assert "dies float32: its process ended with status -11" in text and "different  wrong float32: off by one" in text
    assert "float32: 4 operators, 6 samples: 2 crashed, 1 equal, 1 different; ran 3 native" in text


def test_each_operator_is_met_once_however_many_processes(monkeypatch):
    found = swept(monkeypatch, processes=3, only="fine")
    assert sorted(record["name"] for record in found.outcomes) == ["fine bfloat16", "fine float32"]


def test_operators_beyond_the_time_limit_are_listed(monkeypatch):
    class Slow(Scripted):
        def hear(self, seconds):
            record = super().hear(seconds)
            if self.asked == "dies float32":
                found.end = 0.0  # time is over while this one is waited for
            return record

    monkeypatch.setattr(sweep, "Worker", Slow)
    found = Sweep("cuda", ("float32",), 2, 1, 60.0, 5.0)
    found.run()
    data = found.data()
    assert [record["name"] for record in data["outcomes"]] == ["fine float32"]
    assert set(data["not_reached"]) == {"dies float32", "poisons float32", "wrong float32"}
    assert "not reached: 3" in report(data)


def test_process_that_cannot_start_is_a_reason(monkeypatch):
    class Broken(Scripted):
        def hear(self, seconds):
            return None

    found = swept(monkeypatch, Broken, processes=2)
    assert len(found.failures) == 2 and "could not start: its process ended" in report(found.data())


def test_operators_run_in_a_process_of_their_own():
    worker = Worker("cpu", 2)
    try:
        names = worker.hear(120)
        number = [name for name, _ in names].index("exp")
        assert "bfloat16" in dict(names)["exp"] and names[number][1][0] == "float32"
        worker.ask(f"{number} float32")
        record = worker.hear(60)
        # Two samples as a function, two in place.
        assert (record["name"], record["verdict"], record["way"], record["samples"]) == (
            "exp float32",
            "equal",
            "native",
            4,
        )
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.ask(f"{number} float32")
        assert worker.hear(60) is None and "status -9" in worker.why()
    finally:
        worker.end()


def test_torchs_tolerance_is_right_on_a_gpu_alone():
    x = torch.linspace(0.1, 1.0, 50)
    judge = JudgeOnGpu(torch.exp, ((x,), {}))
    assert judge(x.exp(), x.exp() * (1 + 1e-6), "result", 0) is None
    assert "of 50 elements" in judge(x.exp(), x.exp() * (1 + 1e-4), "result", 0)
    assert judge(x.exp().bfloat16(), (x.exp() * 1.01).bfloat16(), "result", 0) is None
    assert judge(x.exp().bfloat16(), (x.exp() * 1.1).bfloat16(), "result", 0) is not None


@pytest.fixture(scope="module")
def exp():
    with quiet():
        return next(op for op in operators() if op.name == "exp")


def test_samples_are_made_on_the_device(exp, monkeypatch):
    asked = []
    monkeypatch.setattr(exp, "sample_inputs", lambda device, dtype: asked.append((device, dtype)) or [])
    assert check_operator(exp, 1, "burnish", torch.float32, "cuda").samples == 0
    assert asked == [("cuda", torch.float32)] * 2
    assert torch.bfloat16 in exp.supported_dtypes("cuda")


def test_state_of_the_gpus_generator_is_looked_at(monkeypatch):
    from bench import operators as subject

    drawn = iter([0.25, 0.5])
    real = torch.rand
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda n: None)
    monkeypatch.setattr(
        torch,
        "rand",
        lambda *size, device="cpu", **how: torch.full(size, next(drawn)) if device == "cuda" else real(*size, **how),
    )
    seen = [subject.observe_call(lambda: None, ((), {})) for _ in range(2)]
    with pytest.raises(Different, match="random state"):
        same(*seen, values=True, judge=exactly)
