"""The campaign adds up what its attackers print, and fails with them."""

import subprocess

import pytest
from bench.attack import campaign, trial


@pytest.fixture
def printed(monkeypatch):
    """What each attacker prints, and its status."""
    given = {}

    def run(command, **_):
        text, status = given[command[2].rpartition(".")[2]]
        return subprocess.CompletedProcess(command, status, text, "")

    monkeypatch.setattr(campaign.subprocess, "run", run)
    monkeypatch.setattr(campaign, "SHARES", {"sizes": 10_000})
    monkeypatch.setattr(campaign.sys, "argv", ["campaign", "--count", "40", "--seed", "3"])
    return given


def test_programs_of_a_real_attacker_are_counted():
    row = campaign.attack("subclasses", 4, 5)
    assert (row.programs, row.differ, row.has_failed) == (4, 0, False) and row.compiled >= 2 and row.seconds > 0


def test_the_counts_of_attackers_are_added(printed, capsys):
    printed["sizes"] = "seed 3: 20 programs, 15 ran compiled (31 graphs), 0 differ from eager", 0
    printed["subclasses"] = "seed 3: 20 programs, 19 ran compiled, 0 differ", 0
    assert campaign.main() == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["all", "40", "34", "0"]


def test_the_errors_of_all_samples_are_shown(printed, capsys):
    ratios = [(1.0 + k / 100, f"program {k}") for k in range(150)]
    summary = "seed 3: 20 programs, 15 ran compiled (31 graphs), 0 differ from eager"
    printed["sizes"] = "\n".join([summary, *trial.distribution(ratios), *trial.distribution(ratios[-3:])]), 0
    printed["subclasses"] = "seed 3: 20 programs, 19 ran compiled, 0 differ", 0
    assert campaign.main() == 0
    text = capsys.readouterr().out
    assert "90% 2.35, 99% 2.48" in text and "    2.49 program 149" in text
    assert text.count("in eager's") == 1 and "more than twice eager's for 49 of 150 tensors" in text


@pytest.mark.parametrize(
    "text, status",
    [("seed 3: 20 programs, 15 ran compiled, 1 differ", 1), ("", -11), ("20 programs, 15 ran compiled, 0 differ", 1)],
)
def test_a_difference_and_a_death_fail_the_campaign(printed, text, status, capsys):
    printed["sizes"] = "seed 3: 20 programs, 15 ran compiled (31 graphs), 0 differ from eager", 0
    printed["subclasses"] = text, status
    assert campaign.main() == 1
    assert "--count 20" in capsys.readouterr().out
