"""The line of progress: when it is drawn, what it says, and that it is erased."""

import io
import re
import sys
import time
import types

import pytest
import torch

import burnish
from burnish import events
from burnish.report import compile_progress
from burnish.report.rich_output import console_on


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(compile_progress, "PATIENCE", 0.05)
    monkeypatch.setattr(compile_progress, "INTERVAL", 0.01)
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal()


def fn(x):
    return torch.sin(x) + 1


def wait_until(condition):
    """The thread that draws may get no turn for seconds on a busy machine."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def compile_slowly(monkeypatch, drawn_on=None):
    """A graph whose plan takes long to make: until its line is drawn there."""
    from burnish.compiler import compile_graph

    made = compile_graph.make_plan

    def slow(*args, **kwargs):
        events.emit("stage.begin", stage="schedule")
        time.sleep(0.3)
        wait_until(lambda: drawn_on is None or "fuse and plan memory" in drawn_on.getvalue())
        return made(*args, **kwargs)

    monkeypatch.setattr(compile_graph, "make_plan", slow)
    compiled = burnish.compile(fn)
    for _ in range(2):
        compiled(torch.ones(3))


@pytest.mark.parametrize("has_rich", [True, False])
def test_line_says_what_is_compiled_and_how_far_and_is_erased(terminal, monkeypatch, has_rich):
    if has_rich:
        pytest.importorskip("rich")
        monkeypatch.setenv("TERM", "xterm")
    else:
        monkeypatch.setattr(compile_progress, "console_on", lambda stream, width: None)
    compile_progress.start(lambda: True, terminal)
    compile_slowly(monkeypatch, terminal)
    wait_until(lambda: terminal.getvalue().endswith("\r\x1b[K"))
    first, *lines, last = terminal.getvalue().split("\r\x1b[K")
    assert first == last == "" and lines
    assert (
        ("━" if has_rich else "█████") in lines[-1]
        and "\n" not in lines[-1]
        and "compiling 2 operations from test_compile_progress.py:" in lines[-1]
    )
    assert any(re.search(r"in fn: fuse and plan memory \(\d+ s\)", line) for line in lines)


@pytest.mark.parametrize("colors", [True, False])
def test_line_shows_the_rest_of_the_bar_and_has_no_line_ends(monkeypatch, colors):
    console = pytest.importorskip("rich.console").Console
    made = console(file=Terminal(), width=200, color_system="256" if colors else None, no_color=not colors)
    line = compile_progress.progress_line(made, 0.0, "compiling a\nb\r\x1b[1mc", 60)
    assert ("━" if colors else "░") * compile_progress.CELLS in line
    assert "compiling a b  [1mc" in line and "\n" not in line and "\r" not in line
    assert len(compile_progress.progress_line(made, 1.0, "x" * 300, 40).split("\x1b[0m")[-1]) <= 40


@pytest.mark.parametrize("rich", [None, types.ModuleType("rich")], ids=["hidden", "another"])
def test_no_console_without_a_rich_that_can_be_imported(monkeypatch, rich):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", rich)
    monkeypatch.setenv("TERM", "xterm")
    assert console_on(Terminal()) is None


def test_line_in_a_notebook_is_covered_with_blanks(terminal, monkeypatch):
    class OutStream(io.StringIO):
        """What ipykernel puts in the place of stderr."""

    OutStream.__module__ = "ipykernel.iostream"
    output = OutStream()
    compile_progress.start(lambda: True, output)
    compile_slowly(monkeypatch, output)
    wait_until(lambda: output.getvalue().endswith(" \r"))
    first, *lines, blanks, last = output.getvalue().split("\r")
    assert first == last == blanks.strip() == "" and "\x1b" not in output.getvalue()
    assert lines and all(len(line) == len(blanks) and "compiling 2 operations" in line for line in lines)


def test_short_compilation_draws_nothing(terminal, monkeypatch):
    monkeypatch.setattr(compile_progress, "PATIENCE", 60.0)
    made = []
    monkeypatch.setattr(compile_progress, "console_on", lambda *args: made.append(args))
    compile_progress.start(lambda: True, terminal)
    compile_slowly(monkeypatch)
    assert terminal.getvalue() == "" and not made  # a console imports rich


def test_nothing_is_drawn_if_unwanted_or_without_a_terminal(terminal, monkeypatch):
    compile_progress.start(lambda: False, terminal)
    plain = io.StringIO()
    compile_progress.start(lambda: True, plain)
    compile_slowly(monkeypatch)
    assert terminal.getvalue() == plain.getvalue() == ""


@pytest.mark.parametrize("other", [None, io.StringIO(), object()])
def test_nothing_is_drawn_on_what_replaces_the_terminal(terminal, monkeypatch, other):
    monkeypatch.setattr("sys.stderr", terminal)
    stop = compile_progress.start(lambda: True)
    monkeypatch.setattr("sys.stderr", other)  # of another kind; the thread must not fail there either
    failed = []
    monkeypatch.setattr("threading.excepthook", failed.append)
    compile_slowly(monkeypatch)
    stop()
    assert terminal.getvalue() == "" and failed == [] and getattr(other, "getvalue", str)() == ""


def test_failed_compilation_ends_the_line(terminal):
    progress = compile_progress.Progress(lambda: True, terminal)
    events.subscribe(progress.on_event, ["stage.begin", "stage.end"])

    @events.stage("compile", "graph_module")
    def compile_graph(graph_module):
        time.sleep(0.2)
        raise KeyError

    with pytest.raises(KeyError):
        compile_graph(torch.fx.symbolic_trace(fn))
    assert not progress.running and progress.ended.is_set()


def test_measuring_advances_the_bar():
    compilation = compile_progress.Compilation("a graph", time.monotonic())
    compilation.enter("measure")
    before = compilation.done()
    compilation.part, compilation.detail = 0.5, " 20/40"
    assert compilation.done() > before and "measure library calls 20/40" in compilation.text()
