"""Every Python snippet of the pages runs: a page from top to bottom, in a process of its own, under the usual settings.

A process for each page, because pages about frameworks change torch as these are imported, and because a reader starts
with nothing compiled as well. Pages that need the same framework are started together (`run_page.py`).
"""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from ..forked_programs import READY, TORCH, run_command
from . import pages

ELSEWHERE = {
    "breaks": "tests/breaks/test_pages.py",
    "dev/capture": "tests/api/test_docs.py",
    "dev/recipes": "tests/docs/test_recipes.py",
    "ecosystem": "tests/integrations/with_docs.py",
    "ecosystem-accelerate": "tests/integrations/with_docs.py",
    "ecosystem-lightning": "tests/integrations/with_docs.py",
    "ecosystem-torch": "tests/integrations/with_docs.py",
    "questions": "tests/docs/test_questions.py",
}
"""Pages that were there before, and the tests that run what they show."""

ALL = {page.relative_to(pages.DOCS).with_suffix("").as_posix(): page for page in sorted(pages.DOCS.rglob("*.md"))}
SNIPPETS = {name: pages.snippets_of(page.read_text("utf-8")) for name, page in ALL.items()}
HERE = {name: page for name, page in ALL.items() if name not in ELSEWHERE and SNIPPETS[name]}
NEEDS = {
    "lightning-fabric": "lightning.pytorch",
    "lightning-trainer": "lightning.pytorch",
    "accelerate": "accelerate",
    "diffusers": "diffusers",
}
NEWER = {"from-torch-compile": (2, 15), "modes-and-options": (2, 13)}  # the torch that a page uses names of
LONGEST = 600  # seconds: distinguishes pages that hang from a busy machine
RUN = Path(__file__).with_name("run_page.py")
each_page = pytest.mark.parametrize("name", HERE)


@pytest.fixture(scope="module")
def reports(request, tmp_path_factory):
    """The result of a page; the first one runs all pages of this session that need the same framework."""
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and "reports" in item.fixturenames
    }
    found = {}

    def report(name):
        if name not in found:
            needed = NEEDS.get(name, "burnish")
            into = tmp_path_factory.mktemp(needed.partition(".")[0])
            together = sorted(each for each in asked if NEEDS.get(each, "burnish") == needed)
            done = run(needed, into, *(HERE[each] for each in together))
            for each in together:
                file = into / f"{each}.txt"
                found[each] = file.read_text("utf-8") if file.exists() else done.stdout + done.stderr
        return found[name]

    return report


def run(needed, into, *files):
    """As a reader would: the settings of the tests are taken away, but an internal failure is not a reason to go on."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BURNISH_")}
    environment |= {
        "BURNISH_ON_ERROR": "raise",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join([str(pages.DOCS.parent / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(RUN), "--import", needed, "--into", str(into), *map(str, files)]
    prepare = TORCH if needed in NEEDS.values() else READY  # a framework is imported before Burnish
    return run_command(command, cwd=into, env=environment, text=True, timeout=LONGEST, prepare=prepare)


@each_page
def test_the_snippets_of_a_page_run_and_print_the_shown_output(name, reports):
    if name in NEEDS and find_spec(NEEDS[name].partition(".")[0]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    if tuple(map(int, torch.__version__.split(".")[:2])) < NEWER.get(name, (0, 0)):
        pytest.skip(f"the page is about torch {'.'.join(map(str, NEWER[name]))}")
    assert reports(name) == ""


@each_page
def test_a_page_with_snippets_proves_something(name):
    snippets = pages.snippets_of(HERE[name].read_text("utf-8"))
    proofs = sum(
        bool(re.search(r"^ *(assert|torch\.testing\.)", s.code.body, re.MULTILINE)) or s.output is not None
        for s in snippets
    )
    assert proofs * 2 >= len(snippets), f"{proofs} of {len(snippets)} snippets assert or show anything"


@each_page
def test_output_blocks_follow_a_snippet(name):
    text = HERE[name].read_text("utf-8")
    shown = [block for block in pages.blocks_of(text) if pages.is_output(block)]
    assert len(shown) == sum(s.output is not None for s in pages.snippets_of(text))


def test_a_page_that_is_left_out_here_is_tested_where_it_says():
    root = pages.DOCS.parent
    for name, test in ELSEWHERE.items():
        assert name in ALL
        assert not test or re.search(r"\.md\b|PAGES", (root / test).read_text("utf-8"))


def test_a_snippet_that_fails_is_reported_with_the_line_of_the_page(tmp_path):
    report = report_of(tmp_path, "# Page\n\n```python\nx = 1\n\nassert x == 2\n```\n")
    assert "page.md:4 raised" in report and 'page.md", line 6' in report


@pytest.mark.parametrize(("shown", "is_right"), [("one … two", True), ("one … three", False)])
def test_output_that_differs_is_reported(tmp_path, shown, is_right):
    report = report_of(tmp_path, f'```python\nprint("one 1 two")\n```\n\n```text title="Output"\n{shown}\n```\n')
    assert report == "" if is_right else "one 1 two\n\nand the page shows\none … three" in report


def test_a_page_that_ends_its_process_is_reported(tmp_path):
    assert "ended with status" in report_of(tmp_path, "```python\nimport os\nos.abort()\n```\n")


def report_of(folder, text):
    page = folder / "page.md"
    page.write_text(text, "utf-8")
    (folder / "out").mkdir()
    done = run("pages", folder / "out", page)
    assert not done.stderr
    return (folder / "out" / "page.txt").read_text("utf-8")
