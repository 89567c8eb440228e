"""The HTML report: what it says of a run, that it changes nothing in it, and that it works in a browser."""

import json
import os
import re
import sys

import pytest
import torch
from torch import nn

import burnish
from burnish import events
from burnish.errors import UserError
from burnish.report import html_report
from burnish.report.summary_in_words import busiest_lines

from ..browser import browser, needs_browser
from ..forked_programs import run_command, run_program

HOSTILE = "</script><script>window.ran = true</script><img src=x onerror='window.ran = true'>"


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(16, 16), 1.0

    def forward(self, x):
        y = self.inner(x) * self.scale
        if y.sum() > 1e9:
            y = y + 1
        return torch.tanh(y)


def data_of(path):
    text = path.read_text("utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


@pytest.fixture
def reported(tmp_path):
    """The page of a run with a break, a recompile, and calls."""
    model, path = Scaled(), tmp_path / "report.html"
    compiled = burnish.compile(model)
    with burnish.report(path), torch.no_grad():
        for scale in (1.0, 1.0, 1.0, 2.0, 2.0):
            model.scale = scale
            torch.testing.assert_close(compiled(torch.ones(4, 16)), model(torch.ones(4, 16)))
    return path


def test_report_names_the_break_and_the_cause_of_the_recompile(reported):
    data = data_of(reported)
    (found,) = data["breaks"]
    assert found["code"] == "B101" and found["stack"][0]["source"][3].strip() == "if y.sum() > 1e9:"
    (miss,) = data["misses"]
    assert {"source": "self.scale", "expected": "1.0", "found": "2.0"} in miss["failures"]
    made = data["segments"][miss["segment"]]
    assert made["because"] == 0 and made["place"]["name"] == "Scaled.forward"


def test_report_counts_calls_operations_and_bytes(reported):
    data = data_of(reported)
    first = data["segments"][0]
    assert first["calls"] == 2 and first["break"] == 0 and first["guard_count"] >= len(first["guards"]) > 3
    steps = [step for plan in data["graphs"][first["graph"]]["plans"] for step in plan["steps"]]
    product = next(step for step in steps if step["operations"] == 2 * 4 * 16 * 16)
    assert product["written"] == 4 * 16 * 4 and product["read"] >= (4 * 16 + 16 * 16 + 16) * 4
    assert product["calls"] == 1 and product["best"] > 0  # the other one compiled it
    assert product["total"] == product["best"] and product["estimate"] > 0
    assert any("test_html_report.py" in line and "in forward" in line for line in product["lines"])
    assert {"trace", "lower", "schedule", "codegen", "graph", "kernel"} <= {span[0] for span in data["spans"]}


def test_segments_of_before_are_observed_and_left_as_they_were(tmp_path):
    compiled, x = burnish.compile(lambda x: torch.sin(x) * 2), torch.ones(8)
    for _ in range(3):
        compiled(x)
    (segment,) = compiled.__burnish_program__.entry.segments
    before = segment.check, segment.graph, segment.finish
    with burnish.report(tmp_path / "report.html"):
        compiled(x)
    assert (segment.check, segment.graph, segment.finish) == before and not events._subscriptions[1:]
    (found,) = data_of(tmp_path / "report.html")["segments"]
    assert found["calls"] == 1 and found["at"] is None


def test_report_is_written_if_the_block_raises(tmp_path):
    with pytest.raises(KeyError), burnish.report(tmp_path / "report.html"):
        raise KeyError
    assert data_of(tmp_path / "report.html")["segments"] == []


def test_report_refuses_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        burnish.report(tmp_path / "absent" / "report.html")


def hostile_page(tmp_path):
    text = f"def f(x):\n    # {HOSTILE}\n    if x.sum() > 0:\n        return x * 2\n    return x\n"
    source = tmp_path / f"{HOSTILE.replace('/', '∕')}.py"
    source.write_text(text)
    namespace = {}
    exec(compile(text, str(source), "exec"), namespace)
    f = namespace["f"]
    f.__code__ = f.__code__.replace(co_name=HOSTILE, co_qualname=HOSTILE)
    f.__name__ = f.__qualname__ = HOSTILE
    compiled, path = burnish.compile(f), tmp_path / "report.html"
    with burnish.report(path):
        for n in (3, 3, 5):
            compiled(torch.ones(n))
    return path


def test_text_of_the_program_cannot_end_the_script(tmp_path):
    path = hostile_page(tmp_path)
    assert HOSTILE in json.dumps(data_of(path), ensure_ascii=False)
    assert len(re.findall(r"<script", path.read_text())) == 2 and "<img" not in path.read_text()


def test_page_refers_to_nothing_outside(reported):
    text = re.sub(r'<script type="application/json".*?</script>', "", reported.read_text(), flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#)|@import|url\(|fetch\(|https?://(?!www\.w3\.org/2000/svg)', text)
    assert "innerHTML" not in text and "document.write" not in text and "eval(" not in text


@pytest.fixture
def open_page():
    with browser() as started:

        def opened(path, link=""):
            page, errors = started.new_page(color_scheme="light"), []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda told: errors.append(told.text) if told.type == "error" else None)
            page.goto(f"{path.as_uri()}{link}")
            page.wait_for_selector("body[data-ready=yes]")
            return page, errors

        yield opened


@needs_browser
def test_browser_draws_searches_and_follows_links(reported, open_page):
    page, errors = open_page(reported, "#segment-0")
    assert page.locator("#segment-0[open] pre").first.inner_text().count("\n") >= 5
    assert "Graph break B101" in page.locator("#summary").inner_text()
    assert page.locator("#timeline svg rect").count() > 5 and page.locator("#kernels tbody tr").count() > 0
    page.fill("#search", "no such text")
    assert not page.locator("#break-0").is_visible() and page.locator("#kernels tbody tr:not(.hidden)").count() == 0
    page.fill("#search", "B101")
    assert page.locator("#break-0").is_visible()
    page.fill("#search", "")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    for box in page.locator("main details").all():
        box.evaluate("(box) => { box.open = true; }")
    page.wait_for_timeout(100)
    for box in page.locator("main details details").all():
        box.evaluate("(box) => { box.open = true; }")
    page.wait_for_timeout(100)
    assert "loop" in page.locator("#graphs").inner_text()
    page.locator("#kernels th").nth(3).click()
    page.mouse.move(300, 300)
    page.focus("#timeline-box")
    for key in ("+", "ArrowRight", "ArrowLeft", "-", "0"):
        page.keyboard.press(key)
    assert errors == []


@needs_browser
def test_hostile_text_does_not_run_in_a_browser(tmp_path, open_page):
    page, errors = open_page(hostile_page(tmp_path))
    for box in page.locator("main details").all():
        box.evaluate("(box) => { box.open = true; }")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None and errors == [] and page.locator("main img").count() == 0
    assert HOSTILE in page.locator("main").inner_text()


def test_command_runs_a_script_with_its_arguments_and_status(tmp_path):
    (tmp_path / "beside.py").write_text("factor = 2\n")
    (tmp_path / "script.py").write_text(
        "import sys, torch, burnish, beside\n"
        "compiled = burnish.compile(lambda x: torch.sin(x) * beside.factor)\n"
        "compiled(torch.ones(3)); compiled(torch.ones(3))\n"
        "print(__name__, *sys.argv[1:])\n"
        "sys.exit(3)\n"
    )
    words = ["-m", "burnish.cli.command_line", "report", "-o", "out.html", "script.py", "--epochs", "1"]
    run = run_command([sys.executable, *words], cwd=tmp_path, text=True)
    assert run.returncode == 3 and run.stdout == "__main__ --epochs 1\n" and "out.html" in run.stderr
    assert len(data_of(tmp_path / "out.html")["segments"]) == 1
    assert run.stderr.startswith("\n1 segment, 0 graph breaks, 0 recompiles, ") and "script.py:2" in run.stderr


def test_summary_names_the_parameter_that_changed(tmp_path):
    class Model(nn.Module):
        def training_step(self, batch, index):
            return batch[0] * index

    model = Model()
    step = burnish.compile(model.training_step)
    with burnish.report(tmp_path / "report.html") as report:
        for size in (3, 3, 5):
            step([torch.ones(size)], 1)
    (line,) = [line for line in report.summary if line.startswith("Recompiled")]
    assert line.endswith("training_step: batch[0] (shape) was (3,) and is now (5,)")
    assert any(line.startswith("Memory of the largest graph, which begins at ") for line in report.summary)


def test_local_variable_is_not_named_after_a_parameter(tmp_path):
    class Model(nn.Module):
        def forward(self, value, flag):
            args = [flag, value]
            os.getpid()
            return value * 2 if args[0] else value

    compiled = burnish.compile(Model())
    with burnish.report(tmp_path / "report.html") as report:
        for flag in (1, 0):
            compiled(torch.ones(2), flag)
    causes = [line.partition(": ")[2] for line in report.summary if line.startswith("Recompiled")]
    assert causes == ["flag was 1 and is now 0", "args[0] was 1 and is now 0"]


def test_lines_of_files_with_the_same_name_are_counted_apart():
    steps = [{"lines": [line], "total": 1.0} for line in ("/a/x.py:2 in f", "/b/x.py:2 in f", "/b/y.py:3 in f")]
    names = [line.split()[0] for line in busiest_lines([*steps, steps[0]])[1:]]
    assert names == ["/a/x.py:2", "/b/x.py:2", "y.py:3"]


def test_plug_in_cannot_change_the_report(monkeypatch):
    def section(data):
        data["breaks"].clear()
        return ["Number"], [[1]]

    monkeypatch.setattr(html_report.plugins, "call_all", lambda group, call: [("mine", call(section))])
    data = {"breaks": [{}]}
    assert html_report.sections_of_plugins(data) == [{"title": "mine", "columns": ["Number"], "rows": [["1"]]}]
    assert data == {"breaks": [{}]}


def test_setting_writes_a_report_of_each_process(tmp_path):
    program = "import torch, burnish; f = burnish.compile(torch.sin); f(torch.ones(3)); f(torch.ones(3))"
    environment = os.environ | {"BURNISH_REPORT": str(tmp_path / "reports")}
    run_program(program, environment=environment)
    (path,) = (tmp_path / "reports").iterdir()
    assert len(data_of(path)["segments"]) == 1


@pytest.fixture(scope="module")
def deep_report(tmp_path_factory):
    """Of a model of 48 layers."""
    path = tmp_path_factory.mktemp("deep") / "report.html"

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    model = nn.Sequential(*[Block() for _ in range(48)])
    compiled = burnish.compile(model)
    with burnish.report(path):
        for _ in range(3):
            compiled(torch.randn(8, 32)).sum().backward()
        with torch.no_grad():
            for _ in range(200):
                compiled(torch.randn(8, 32))
    return path


@pytest.mark.slow
def test_page_of_a_deep_model_stays_small(deep_report):
    data = data_of(deep_report)
    assert deep_report.stat().st_size < 5_000_000 and len(data["spans"]) == html_report.MOST_SPANS
    assert data["spans_left_out"] > 0


@pytest.mark.slow
@needs_browser
def test_page_of_a_deep_model_is_drawn_with_few_elements(deep_report, open_page):
    """What is folded is drawn when it is opened: so the page is there at once."""
    page, errors = open_page(deep_report)
    assert errors == [] and page.evaluate("document.getElementsByTagName('*').length") < 20_000


def test_folder_that_cannot_be_made_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    program = "import torch, burnish; print(burnish.compile(torch.sin)(torch.zeros(2)))"
    environment = os.environ | {"BURNISH_REPORT": str(tmp_path / "file" / "reports")}
    run = run_program(program, environment=environment)
    assert run.stdout == "tensor([0., 0.])\n" and "there will be no report" in run.stderr


def test_error_of_the_block_outlives_a_page_that_cannot_be_written(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    with pytest.warns(UserWarning, match="was not written"), pytest.raises(KeyError), burnish.report(folder / "r.html"):
        folder.rmdir()
        raise KeyError


def test_page_is_written_where_the_program_started(tmp_path, monkeypatch):
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    with burnish.report("r.html"), burnish.trace("t.json"):
        os.chdir("later")
    assert (tmp_path / "r.html").is_file() and (tmp_path / "t.json").is_file()


@pytest.mark.parametrize(("ending", "files", "says"), [("os.chdir('/')", 1, ""), ("shutil.rmtree(d)", 0, "no report")])
def test_setting_survives_what_happens_to_the_directory(tmp_path, monkeypatch, ending, files, says):
    program = f"import os, shutil, torch, burnish; burnish.compile(torch.sin)(torch.ones(3)); d = 'reports'; {ending}"
    environment = os.environ | {"BURNISH_REPORT": "reports"}
    monkeypatch.chdir(tmp_path)
    run = run_program(program, environment=environment)
    assert "Traceback" not in run.stderr and says in run.stderr
    assert len([*tmp_path.glob("reports/*")]) == files


@pytest.mark.parametrize("make", [burnish.report, burnish.trace])
def test_second_entry_is_refused_and_leaves_nothing_behind(tmp_path, make):
    before, made = events._subscriptions, make(tmp_path / "file")
    with pytest.raises(UserError, match="Enter it once"), made, made:
        raise AssertionError
    assert events._subscriptions == before and (tmp_path / "file").is_file()


OBSERVERS = {
    "report": lambda folder: burnish.report(folder / "report.html"),
    "trace": lambda folder: burnish.trace(folder / "trace.json"),
    "profile": lambda folder: burnish.profile(),
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_compiled_function_may_observe_another_one(tmp_path, name):
    observe, x = OBSERVERS[name], torch.ones(8)
    inner = burnish.compile(lambda x: x.sin() + 1)

    def outer(x):
        with observe(tmp_path):
            y = inner(x)
        return y * 2

    compiled, before = burnish.compile(outer), events._subscriptions
    for _ in range(4):
        torch.testing.assert_close(compiled(x), (x.sin() + 1) * 2)
    assert events._subscriptions == before


def test_integer_that_python_does_not_write_is_reported(tmp_path):
    def f(x, n):
        return x + 1 if n > 3 else x

    compiled, x = burnish.compile(f), torch.ones(3)
    with burnish.report(tmp_path / "report.html"):
        for n in (10**5000, 5, 10**6000):
            assert compiled(x, n)[0] == 2
    assert "<int of 16610 bits>" in str(data_of(tmp_path / "report.html")["segments"])
    assert "<int of 16610 bits>" in str(burnish.explain(f)(x, 10**5000))
