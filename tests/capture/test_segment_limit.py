"""The segment limit, internal failures, and the state that they leave."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import burnish
from burnish.capture.engine.tracer import Tracer
from burnish.settings import patch


@pytest.mark.falls_back("limit")
def test_past_the_limit_a_point_runs_eagerly_with_one_warning_that_names_the_cause():
    def fn(x, config):
        return x * len(config["scale"])

    compiled = burnish.compile(fn, backend="eager")
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(20):
            assert torch.equal(compiled(x, {"scale": "a" * i}), x * i)
    ours = [str(w.message) for w in seen if "burnish" in str(w.message)]
    assert len(ours) == 1
    assert "config['scale'] was 'aaaaaaa' and is now 'aaaaaaaa'" in ours[0], ours[0]
    assert len(compiled.__burnish_program__.entry.segments) == 8


def test_a_point_inside_of_what_stands_in_for_c_code_is_told_by_the_user_s_line():
    def fn(x):
        return max([x.sum(), x.mean()], key=lambda t: t * 2)

    compiled = burnish.compile(fn, backend="eager")
    assert compiled(torch.ones(3)) == 3
    points = [point.location for point in compiled.__burnish_program__.continuations.values()]
    line = fn.__code__.co_firstlineno + 1
    assert points
    assert {(at.filename, at.line) for at in points} == {(__file__, line)}


def test_the_limit_is_a_setting():
    def fn(x, n):
        return x + n

    compiled = burnish.compile(fn, backend="eager")
    with patch(segment_limit=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(5):
            compiled(torch.ones(1), i)
    assert len(compiled.__burnish_program__.entry.segments) == 2


@pytest.fixture
def broken_subscripts(monkeypatch):
    def broken(machine, container, key):
        raise KeyError("a defect put there by the test")

    monkeypatch.setattr(Tracer, "subscript", broken)


def test_an_internal_error_raises_with_the_setting(broken_subscripts):
    compiled = burnish.compile(lambda x: x[0] + 1, backend="eager")
    with pytest.raises(burnish.InternalError, match="a defect put there by the test"):
        compiled(torch.ones(2))


@pytest.mark.falls_back("internal")
def test_an_internal_error_falls_back_to_eager_and_leaves_a_dump_that_replays(broken_subscripts):
    def fn(x, log):
        y = x * 2
        log.append("once")
        return y[0] + 1

    compiled = burnish.compile(fn, backend="eager")
    log: list[str] = []
    with patch(on_error="fallback"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        results = [compiled(torch.full((2,), float(i)), log) for i in range(3)]
    assert [r.item() for r in results] == [1.0, 3.0, 5.0]
    assert log == ["once"] * 3
    ours = [str(w.message) for w in seen if "burnish" in str(w.message)]
    assert len(ours) == 1
    place = Path(re.search(r"\S*burnish-failure-\w+", ours[0]).group())
    assert "a defect put there by the test" in (place / "report.txt").read_text()
    exec(compile((place / "replay.py").read_text(), "replay.py", "exec"), {})


def test_a_failing_backend_is_reported_as_such():
    def backend(graph_module, inputs):
        raise RuntimeError("no code for you")

    compiled = burnish.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(burnish.BackendError, match="no code for you"):
        compiled(torch.ones(1))
