"""`burnish bisect` finds the rewrite that makes a command fail, or reports that none does."""

import sys
import tempfile
from pathlib import Path

import pytest

from burnish.cli import bisect_rewrites, command_line
from burnish.cli.bisect_rewrites import rewrites_in
from burnish.cli.minimize import minimize_script

from .forked_programs import READY, ProgramServer, run_command

PROGRAM = """
import torch, burnish
from burnish.lower.passes.canonicalize_products import ProductCanonicalizer

def f(x, w):
    return torch.relu(x @ w) @ torch.ones(7, 9)

right = ProductCanonicalizer.rewrite
def rewrite(self, node, args, kwargs):
    made = right(self, node, args, kwargs)
    return self.build("mul.Tensor", made, 2) if made is not None and node.results[0].shape == (8, 9) else made
ProductCanonicalizer.rewrite = rewrite

torch.manual_seed(0)
x, w = torch.randn(8, 16), torch.randn(16, 7)
compiled = burnish.compile(f)
for _ in range(3):
    torch.testing.assert_close(compiled(x, w), f(x, w))
"""

# Makes 20 rewrites, as the compiler would, and fails from some number on.
COMPILER = """
import os, sys
from pathlib import Path
fuel = min(int(os.environ["BURNISH_FUEL"]), 20)
if "BURNISH_DUMP" in os.environ:
    dump = Path(os.environ["BURNISH_DUMP"])
    dump.mkdir()
    made = ["[%d] fuse\\nnode %d\\n=>\\nkernel %d\\n\\n" % (n, n, n) for n in range(1, fuel + 1)]
    (dump / "rewrites.txt").write_text("".join(made))
print("it went wrong")
sys.exit(fuel >= {first})
"""


def left_behind():
    return set(Path(tempfile.gettempdir()).glob("burnish-bisect-*"))


@pytest.fixture
def bisect(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BURNISH_CACHE_DIR", str(tmp_path / "cache"))

    def run(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        status = command_line.main(["bisect", sys.executable, str(path)])
        return status, capsys.readouterr()

    return run


@pytest.fixture
def forked(monkeypatch):
    """Scripts run in processes that have imported the compiler; all other tests run their commands as they are."""
    server = ProgramServer(READY, {"PYTHONHASHSEED": "0"})

    def run(command, **options):
        assert options["env"]["PYTHONHASHSEED"] == "0"
        return run_command(command, server=server, **options)

    monkeypatch.setattr(bisect_rewrites.subprocess, "run", run)
    yield
    server.close()


@pytest.mark.usefixtures("forked")
def test_wrong_rewrite_of_a_pass_is_found(bisect):
    status, printed = bisect(PROGRAM)
    assert status == 0
    before, _, after = printed.out.partition("=>")
    assert "The command fails from rewrite" in before and ": canonicalize_products" in before
    assert 'script.py", line 6, in f' in before and "aten.mm.default" in before.splitlines()[-2]
    assert "= linear " in after and "= aten.mul.Tensor linear" in after
    assert "with 0 rewrites: passes" in before and "with every rewrite: fails with status 1" in before


@pytest.mark.parametrize("first", [1, 2, 13, 20])
def test_number_of_the_first_wrong_rewrite_is_found(bisect, first):
    status, printed = bisect(COMPILER.format(first=first))
    assert status == 0 and f"from rewrite {first} of 20 on: fuse\n    node {first}\n" in printed.out
    assert f"BURNISH_FUEL={first} " in printed.out and f"BURNISH_FUEL={first - 1} " in printed.out


def test_command_that_fails_without_any_rewrite_is_refused(bisect):
    before = left_behind()
    status, printed = bisect(COMPILER.format(first=0))
    assert status == 2 and "fails without any rewrite" in printed.err and "    it went wrong" in printed.err
    assert left_behind() == before


def test_command_that_passes_with_every_rewrite_is_refused(bisect):
    status, printed = bisect(COMPILER.format(first=21))
    assert status == 2 and "passes with every rewrite" in printed.err


def test_command_that_fails_now_and_then_is_refused(bisect, tmp_path):
    mark = tmp_path / "mark"
    status, printed = bisect(
        f"from pathlib import Path; m = Path({str(mark)!r}); bad = m.exists(); m.touch(); 1 // (not bad)"
    )
    assert status == 2 and "not the same in every run" in printed.err


def test_command_that_cannot_be_run_is_refused(capsys):
    assert command_line.main(["bisect", "there-is-no-such-command"]) == 2
    assert "cannot be run" in capsys.readouterr().err
    assert command_line.main(["bisect"]) == 2
    assert "takes a command that fails" in capsys.readouterr().err


def test_options_of_the_command_are_its_own(bisect, capsys):
    assert command_line.main(["bisect", sys.executable, "-c", "import sys; sys.exit(len(sys.argv))", "--all"]) == 2
    assert "fails without any rewrite" in capsys.readouterr().err


def test_first_description_of_a_rewrite_counts(tmp_path):
    assert rewrites_in(tmp_path) == {}
    (tmp_path / "rewrites.txt").write_text("[1] fuse File\na\n=>\nb\n\n[2] fold\nc\n=>\nd\n\n[1] fuse\ne\n=>\nf\n\n")
    assert rewrites_in(tmp_path) == {1: "fuse File\na\n=>\nb", 2: "fold\nc\n=>\nd"}


def test_without_a_slower_graph_nothing_is_bisected(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("")
    monkeypatch.setattr(minimize_script, "minimize", lambda *_: False)
    assert bisect_rewrites.bisect([str(script)], tmp_path / "out.py", slower=True) == "There is nothing to bisect."
