"""BURNISH_SHOW and BURNISH_DUMP: stages printed as they happen, or written as files."""

import ast
import sys
import threading

import pytest
import torch

import burnish
from burnish import events

from ..forked_programs import TORCH, run_command

PROGRAM = """
    import torch, burnish

    @burnish.compile(backend="eager")
    def fn(x, n):
        y = x.sin() * n
        if y.sum() > 0:
            return y
        return -y

    for n in (1, 2):
        fn(torch.ones(3), n)
"""


def branching(x):
    y = x.sin()
    if y.sum() > 0:
        return y * 2
    return y * 3


def test_show_prints_the_stages_asked_for(run_alone):
    _, output = run_alone(PROGRAM, BURNISH_SHOW="breaks")
    assert output.count("[breaks] Graph break B101") == 2
    assert "[guards" not in output and "[graph" not in output
    _, output = run_alone(PROGRAM, BURNISH_SHOW="guards,graph")
    assert "[guards.missed]" in output and "[graph]" in output and "[breaks]" not in output


def test_nothing_is_printed_where_nothing_is_asked_for(run_alone):
    assert run_alone(PROGRAM) == ("", "")


def test_wrong_stage_is_an_error_at_the_first_call_that_traces(run_alone):
    _, output = run_alone(PROGRAM, status=1, BURNISH_SHOW="brakes")
    assert "UserError" in output and "'brakes', which is not a stage" in output


def test_importing_alone_does_not_read_the_environment(run_alone):
    run_alone("import burnish", prepare=TORCH, BURNISH_SHOW="brakes", BURNISH_CHECK="maybe")


def test_dump_writes_a_directory_for_each_segment(run_alone, tmp_path):
    directory = tmp_path / "new" / "dump"
    run_alone(PROGRAM, BURNISH_DUMP=str(directory))
    made = sorted(place.name for place in directory.iterdir())
    assert [name[:7] for name in made] == ["0001-fn", "0002-fn", "0003-fn", "0004-fn"][: len(made)] and len(made) >= 3
    first = directory / made[0]
    assert sorted(file.name for file in first.iterdir()) == ["break.txt", "check.py", "finish.py", "graph.py"]
    assert "B101" in (first / "break.txt").read_text()
    for file in directory.rglob("*.py"):
        ast.parse(file.read_text())
    graph = (first / "graph.py").read_text()
    assert "def forward(self, x)" in graph and "float32[3]" in graph
    check = (first / "check.py").read_text()
    assert "def check(S):" in check and "# k0 = " in check
    assert "def finish(V, G):" in (first / "finish.py").read_text()


def test_second_run_goes_on_counting(run_alone, tmp_path):
    run_alone(PROGRAM, BURNISH_DUMP=str(tmp_path))
    count = len(list(tmp_path.iterdir()))
    run_alone(PROGRAM, BURNISH_DUMP=str(tmp_path))
    numbers = sorted(int(place.name[:4]) for place in tmp_path.iterdir())
    assert numbers == list(range(1, 2 * count + 1))


def test_settings_from_code_turn_both_on_and_off(tmp_path, capfd):
    compiled = burnish.compile(branching, backend="eager")
    with burnish.settings.patch(show="breaks", dump=tmp_path):
        compiled(torch.ones(3))
    output = capfd.readouterr().err
    assert output.count("[breaks]") == 1
    written = len(list(tmp_path.iterdir()))
    assert written == 2
    assert not events.is_watched()
    compiled(-torch.ones(3))
    assert capfd.readouterr().err == "" and len(list(tmp_path.iterdir())) == written


def test_setting_of_one_thread_prints_nothing_of_another(capfd):
    compiled = burnish.compile(branching, backend="eager")
    inside, done = threading.Event(), threading.Event()

    def other():
        with burnish.settings.patch(show="breaks"):
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60)
    compiled(torch.ones(3))
    done.set()
    thread.join()
    assert capfd.readouterr().err == ""
    assert not events.is_watched()


def test_directory_that_cannot_be_written_is_a_warning_and_no_failure(tmp_path):
    compiled = burnish.compile(branching, backend="eager")
    file = tmp_path / "file"
    with burnish.settings.patch(dump=file / "below"):
        file.write_text("in the way")
        with pytest.warns(RuntimeWarning, match="subscriber"):
            torch.testing.assert_close(compiled(torch.ones(3)), branching(torch.ones(3)))


def test_dump_does_not_run_code_of_the_user(tmp_path):
    class Loud:
        def __repr__(self):
            raise AssertionError("was asked for its repr")

        factor = 2.0

    loud = Loud()
    compiled = burnish.compile(lambda x, loud: x * loud.factor, backend="eager")
    with burnish.settings.patch(dump=tmp_path):
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), loud), torch.full((2,), 2.0))
    assert list(tmp_path.iterdir())


def test_command_line_shows_the_page_of_a_break():
    done = run_command([sys.executable, "-m", "burnish.cli.command_line", "breaks", "B101"], text=True, check=True)
    assert "B101" in done.stdout
