"""The matrix of platforms, with an interpreter that is given: this one."""

import json
import subprocess
import sys

import pytest
from bench.platforms import __main__ as platforms
from bench.platforms.__main__ import main, runnable

from ..forked_programs import run_command


def run(tmp_path, *more):
    arguments = ["--given", sys.executable, "--json", str(tmp_path / "outcomes.json"), "--pytest", "", *more]
    return main([*arguments, "--part", str(tmp_path / "test_part.py")])


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The question for its versions, in a process that has imported torch."""
    run = subprocess.run
    fork = lambda command, **options: (  # noqa: E731
        run_command if "-c" in command and command[0] == sys.executable else run
    )(command, **options)
    monkeypatch.setattr(platforms.subprocess, "run", fork)


def test_outcomes_are_counted_kept_and_run_again_if_asked(tmp_path, capsys):
    part = tmp_path / "test_part.py"
    part.write_text("import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip()\n")
    assert run(tmp_path) == 1
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("test_part::test_b") and "native" in shown
    ((found,),) = (parts.values() for parts in json.loads((tmp_path / "outcomes.json").read_text()).values())
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 1, 1)
    part.write_text("def test_a(): pass\n")
    assert run(tmp_path) == 1  # as before: it goes on from the file
    assert run(tmp_path, "--again") == 0


def test_a_part_that_does_not_end_is_a_failure(tmp_path, capsys):
    (tmp_path / "test_part.py").write_text("import time\ndef test_a(): time.sleep(60)\n")
    assert run(tmp_path, "--limit", "3") == 1
    assert "not done in 3 s" in capsys.readouterr().out


def test_a_command_that_stands_for_a_python_that_is_not_there_is_passed_over(tmp_path, monkeypatch):
    command = tmp_path / "python3.99"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runnable("python3.99") is None
    command.write_text("#!/bin/sh\nexit 127\n")
    command.chmod(0o755)
    assert runnable("python3.99") is None
    command.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert runnable("python3.99") == str(command)
