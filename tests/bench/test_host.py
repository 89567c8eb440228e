"""CPU time of a model: each contestant has its own process, and one without a result gives the reason."""

import json
import sys

import pytest

from bench import host

from ..forked_programs import run_command


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    monkeypatch.setattr(host.subprocess, "run", run_command)


def test_first_and_later_calls_are_reported_for_each(tmp_path, monkeypatch, capsys):
    out = tmp_path / "host.json"
    monkeypatch.setattr(sys, "argv", ["host", "mlp", "--against", "eager", "--json", str(out)])
    host.main()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("mlp") and "eager first" in said[0] and "burnish first" in said[0]
    assert said[-1].startswith("burnish's later calls take ")
    found = json.loads(out.read_text())["seconds"]["mlp"]
    assert set(found) == {"eager", "burnish"} and all(0 < later <= first for first, later in found.values()), found


def test_missing_results_have_a_reason():
    found = host.in_a_process("mlp", "inference", "nobody", "cpu")
    assert isinstance(found, str) and "nobody" in found


@pytest.mark.parametrize("times,word", [((0.5, 0.001), "first   0.50 s, later   1.00 ms"), ("no memory", "no memory")])
def test_a_line_has_times_or_the_reason(times, word):
    assert word in host.summary_of("mlp", "train", {"burnish": times})
