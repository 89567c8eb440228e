"""The comparison of a client's tests by eager, torch.compile and Burnish: records, lost tests, the table."""

import json
import subprocess

import pytest
from bench.clients.environments import NotPrepared, fetch, run
from bench.clients.outcomes import BURNISH, DIED, EAGER, TORCH, Outcome, gained, lost, read_record, report, table_of
from bench.clients.projects import PROJECTS


def record(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_record(path)


def outcomes(**tests):
    return {name: Outcome(outcome) for name, outcome in tests.items()}


BOTH = {
    EAGER: outcomes(a="passed", b="passed", c="failed", d="passed"),
    TORCH: outcomes(a="passed", b="passed", c="failed", d="skipped", e="passed"),
    BURNISH: outcomes(a="passed", b="failed", c="passed", d="failed"),
}


def test_test_that_ended_its_process_is_no_pass(tmp_path):
    found = record(
        tmp_path / "record",
        {"name": "a", "outcome": "begun"},
        {"name": "a", "outcome": "passed", "graphs": 3, "refused": 1, "fallbacks": ["refused"]},
        {"name": "b", "outcome": "begun"},
    )
    assert found["a"] == Outcome("passed", graphs=3, refused=1, fallbacks=["refused"])
    assert found["b"].outcome == DIED
    assert read_record(tmp_path / "nothing") == {}


def test_lost_tests_are_those_that_torch_compile_passes():
    assert lost(BOTH) == ["b"]  # d was skipped by torch.compile; e was not run by Burnish
    assert gained(BOTH) == ["c"]


def test_table_counts_each_way_and_names_what_was_lost():
    BOTH[BURNISH]["b"] = Outcome("failed", "Unsupported:\n a break", graphs=4, refused=1, fallbacks=["refused: x"])
    table = table_of({"some": BOTH}, {})
    assert table.rows == [["some", "3 / 1", "3 / 1", "2 / 2", "1", "0", "1", "4", "3", "1", "0"]]
    assert "! some: b: Unsupported: a break" in report({"some": BOTH}) and "1 × refused: x" in report({"some": BOTH})


def test_tests_about_dynamo_are_counted_apart():
    about = {"some": ("b",)}
    assert table_of({"some": BOTH}, about).rows[0][4:6] == ["0", "1"]
    assert "= some: b" in report({"some": BOTH}, about)


def test_way_that_was_not_run_is_a_dash():
    assert table_of({"some": {EAGER: BOTH[EAGER]}}, {}).rows[0][1:4] == ["3 / 1", "—", "—"]


def test_only_the_paths_of_a_project_are_fetched(tmp_path):
    repository = tmp_path / "repository"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", repository]
    (repository / "tests").mkdir(parents=True)
    (repository / "tests" / "test_it.py").write_text("then")
    (repository / "package.py").write_text("")
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    run([*git, "add", "."])
    run([*git, "commit", "--quiet", "-m", "first"])
    run([*git, "tag", "v1"])
    (repository / "tests" / "test_it.py").write_text("now")
    run([*git, "commit", "--quiet", "-am", "second"])
    fetch(f"file://{repository}", "v1", ("tests", "missing"), tmp_path / "sources")
    assert (tmp_path / "sources" / "tests" / "test_it.py").read_text() == "then"
    assert not (tmp_path / "sources" / "package.py").exists()
    with pytest.raises(NotPrepared):
        fetch(f"file://{repository}", "v2", ("tests",), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_every_project_names_a_repository_and_tests():
    for project in PROJECTS.values():
        assert project.repository.count("/") == 1 and project.tests and project.calls
        assert all(any(test.startswith(path) for path in project.paths) for test in project.tests)
