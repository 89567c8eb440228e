"""How a graph break is rendered as text."""

import dataclasses
import linecache

import pytest

from burnish.capture import breaks
from burnish.capture.breaks import Break, Location, break_record

SOURCE = "def step(x):\n    return forward(x)\n\ndef forward(x):\n    if x.sum() > 0:\n        return x\n"


@pytest.fixture
def stack(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    linecache.checkcache(str(file))
    return Location(str(file), 2, "step"), Location(str(file), 5, "forward")


def test_a_location_reads_as_file_line_and_function(stack):
    assert str(Location("model.py", 5, "forward")) == "model.py:5 in forward"
    assert stack[1].source_line() == "if x.sum() > 0:"


def test_a_location_without_source_has_an_empty_source_line():
    assert Location("<string>", 3, "f").source_line() == ""


def test_render_gives_the_event_the_line_its_callers_the_reason_and_the_cure(stack):
    text = Break(breaks.DATA_BRANCH, "bool() of x.sum() > 0", stack).render()
    file = stack[0].filename
    assert text.splitlines()[:8] == [
        "Graph break B101: Python control flow depends on a tensor's value",
        "  bool() of x.sum() > 0",
        "",
        f"  at {file}:5 in forward",
        "      if x.sum() > 0:",
        f"  called from {file}:2 in step",
        "      return forward(x)",
        "",
    ]
    flat = " ".join(text.split())
    assert f"Why {breaks.DATA_BRANCH.why} What to do {breaks.DATA_BRANCH.what_to_do} Example burnish breaks" in flat
    assert text.endswith("burnish breaks B101")


@pytest.mark.parametrize("kind", breaks.CATALOG.values(), ids=lambda kind: kind.code)
def test_every_kind_renders_within_the_width_of_a_terminal(kind):
    text = Break(kind, "something", (Location("model.py", 1, "f"),)).render()
    assert max(map(len, text.splitlines())) <= break_record.WIDTH


def test_a_deep_call_chain_is_cut_and_says_from_where_it_came():
    stack = tuple(Location("model.py", line, "f") for line in range(1, 21))
    lines = Break(breaks.OPAQUE_CALL, "call of g", stack).render().splitlines()
    assert "  at model.py:20 in f" in lines
    assert "  called from model.py:14 in f" in lines
    assert "  called from model.py:13 in f" not in lines
    assert "  … and 13 callers further out, from model.py:1 in f" in lines


def test_a_break_without_a_known_line_says_so():
    found = Break(breaks.OPAQUE_CALL, "call of g", ())
    assert "(no line of the program is known for this)" in found.render()
    assert found.headline == "B201 a call into native code with unknown behaviour: call of g"


def test_the_headline_is_one_line_even_when_the_reason_is_not(stack):
    found = Break(breaks.DISABLED_CALL, "call of report\n  reason: metrics", stack)
    assert found.headline == (
        f"B203 the function is marked to stay out of compilation: call of report reason: metrics ({stack[1]})"
    )
    assert str(found) == found.headline
    assert "\n  call of report\n    reason: metrics\n" in found.render()


def test_a_break_is_a_value_that_cannot_be_changed(stack):
    found = Break(breaks.OPAQUE_CALL, "call of g", stack)
    assert found == Break(breaks.OPAQUE_CALL, "call of g", stack)
    assert len({found, Break(breaks.OPAQUE_CALL, "call of g", stack)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.what = "call of h"
