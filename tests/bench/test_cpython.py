"""CPython's own tests: outcomes, reasons and the table."""

import json

import pytest
from bench.cpython import DEFAULT, DIED, FULLGRAPH, LEFT_OUT, MODULES, PASSED, main, passed, read_record, reason

from bench import cpython


def test_modules_are_named_once():
    assert len(set(MODULES)) == len(MODULES)


def test_last_line_about_a_method_counts(tmp_path):
    path = tmp_path / "record.jsonl"
    lines = [["a", LEFT_OUT, ""], ["a", DIED, ""], ["a", PASSED, ""], ["b", LEFT_OUT, ""], ["b", DIED, ""]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_record(path)
    assert found == {"a": (PASSED, ""), "b": (DIED, "")} and passed(found) == "1 / 2"


def test_reason_is_the_detail_of_a_graph_break():
    text = "Traceback:\n  x\nburnish.errors.Unsupported: Graph break B201: native code\n  call of gc.collect\n  at f\n"
    assert reason(text) == "B201 call of gc.collect"
    assert reason("Traceback:\n  x\nAssertionError: 1 != 2\n") == "AssertionError: 1 != 2"


def test_methods_run_compiled_in_processes_of_their_own(tmp_path, capsys):
    path = tmp_path / "found.json"
    arguments = ["test_bool", "-k", "test_math", "--json", str(path)]
    assert main(arguments) == 0
    by_way = json.loads(path.read_text())["test_bool"]
    assert {way: [outcome for outcome, _ in tests.values()] for way, tests in by_way.items()} == {
        DEFAULT: [PASSED],
        FULLGRAPH: [PASSED],
    }
    assert "test_bool    1 / 1      1 / 1" in capsys.readouterr().out


@pytest.mark.parametrize("outcome, status", [(PASSED, 0), ("failed", 1)])
def test_a_difference_in_default_mode_is_a_failure(monkeypatch, capsys, outcome, status):
    tests = {"test_x": (outcome, "AssertionError: 1 != 2")}
    monkeypatch.setattr(cpython, "run_apart", lambda *_: (tests, ""))
    assert main(["test_bool", "--way", DEFAULT]) == status
    assert ("AssertionError: 1 != 2" in capsys.readouterr().out) == bool(status)
