"""The break catalog is complete, its pages are up to date, and its examples are programs that run."""

import functools
import re
import warnings

import pytest
import torch

import burnish
from burnish import events
from burnish.capture import breaks
from burnish.capture.breaks import break_kind, calls, data, language, limits, state

from . import break_pages
from .examples import EXAMPLES, run_example

KINDS = [pytest.param(kind, id=kind.code) for kind in breaks.CATALOG.values()]


@pytest.fixture(autouse=True)
def markers(monkeypatch):
    """The examples run plainly here: the markers do nothing, and settings they change are put back."""
    monkeypatch.setattr(burnish, "disable", lambda fn=None, *, reason=None: fn or (lambda fn: fn), raising=False)
    monkeypatch.setattr(burnish, "graph_break", lambda: None, raising=False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_docs_breaks_md_equals_the_catalog():
    stale = "stale: run python -m tests.breaks.break_pages"
    assert break_pages.PAGES.read_text(encoding="utf-8") == break_pages.write_pages(), stale


def test_every_constant_is_in_the_catalog_once_under_a_code_of_its_own():
    constants = {
        name: kind
        for group in (data, calls, language, state, limits)
        for name, kind in vars(group).items()
        if isinstance(kind, breaks.BreakKind)
    }
    assert sorted(kind.code for kind in constants.values()) == sorted(breaks.CATALOG)
    for name, kind in constants.items():
        assert breaks.CATALOG[kind.code] is kind
        assert getattr(breaks, name) is kind
        assert kind.name == name.lower().replace("_", "-")


def test_a_code_cannot_be_taken_twice(monkeypatch):
    monkeypatch.setattr(break_kind, "CATALOG", dict(break_kind.CATALOG))
    texts = dict(title="t", why="w", what_to_do="d", broken="b", fixed="f")
    with pytest.raises(AssertionError, match="B101 is taken by data-branch"):
        break_kind.kind("B101", "again", **texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_complete_and_belongs_to_a_group(kind):
    assert re.fullmatch(r"B[1-5]\d\d", kind.code)
    assert kind.code[:2] in break_kind.GROUPS
    assert kind.title and not kind.title.endswith("."), "a title is followed by a colon"
    for prose in (kind.why, kind.what_to_do):
        assert prose[0].isupper() or prose[0] == "`"
        assert prose.endswith(".")
        assert "  " not in prose and "\n" not in prose
        assert prose.count("`") % 2 == 0
    assert kind.broken != kind.fixed


@pytest.mark.parametrize(("name", "code"), [pytest.param(*example, id=example[0]) for example in EXAMPLES])
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_an_example_is_a_program_that_runs_fn(name, code):
    calls = []

    def counted(fn):
        def call(*args):
            calls.append(args)
            return fn(*args)

        return call

    run_example(name, code, counted)
    assert calls


def codes_of(name, code):
    """The breaks of an example whose ``fn`` is compiled, and the limits that it hits."""
    codes = set()
    stop = events.subscribe(lambda event: codes.add(event.data["break_"].kind.code), {"breaks"})
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run_example(name, code, burnish.compile)
        if not codes:  # code that runs eagerly without a break: under fullgraph=True the reason is an error
            try:
                run_example(name, code, functools.partial(burnish.compile, fullgraph=True))
            except burnish.Unsupported as error:
                codes.add(error.reason.kind.code)
    stop()
    return codes | set(re.findall(r"\bB5\d\d\b", " ".join(str(each.message) for each in shown)))


@pytest.mark.falls_back
@pytest.mark.parametrize("kind", KINDS)
def test_the_broken_example_breaks_for_this_reason_and_the_fixed_one_does_not(kind, monkeypatch):
    monkeypatch.undo()  # the markers are real here
    assert kind.code in codes_of(f"{kind.code}-broken", kind.broken)
    assert kind.code not in codes_of(f"{kind.code}-fixed", kind.fixed)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_page_its_index_entry_leads_to(kind):
    text = break_pages.write_pages()
    assert text.count(f'<a id="{kind.code.lower()}"></a>\n### {kind.code} {kind.name}: {kind.title}\n') == 1
    assert text.count(f"](#{kind.code.lower()})") == 1
    assert kind.broken in text and kind.fixed in text
