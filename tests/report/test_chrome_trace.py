"""The timeline as a file, and the names of ranges in torch's profiler."""

import json
import time

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import burnish
from burnish import events
from burnish.errors import UserError
from burnish.frontend.live_programs import live_segments

from ..recorded_events import recorded


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(16, 16), 1.0

    def forward(self, x):
        return torch.sort(torch.tanh(self.inner(x)) * self.scale)[0] + 1


def warmed(model, x):
    compiled = burnish.compile(model)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
    return compiled


def test_trace_holds_stages_calls_kernels_and_recompiles(tmp_path):
    model, x = Scaled(), torch.ones(4, 16)
    compiled = burnish.compile(model)
    before = time.time_ns()
    with burnish.trace(tmp_path / "trace.json"), torch.no_grad():
        for scale in (1.0, 1.0, 1.0, 2.0):
            model.scale = scale
            torch.testing.assert_close(compiled(x), model(x))
    after = time.time_ns()
    written = json.loads((tmp_path / "trace.json").read_text())
    spans = [event for event in written["traceEvents"] if event["ph"] == "X"]
    assert {"trace", "lower", "schedule", "codegen"} <= {span["name"] for span in spans}
    kinds = {span["cat"] for span in spans}
    assert {"burnish.call", "burnish.kernel", "burnish.library", "burnish.compile", "burnish.guards"} == kinds
    assert any("test_chrome_trace.py" in span.get("args", {}).get("line", "") for span in spans)
    times = [written["baseTimeNanoseconds"] + 1000 * span["ts"] for span in spans]
    assert before - 1e6 <= min(times) <= max(times) <= after + 1e6 and all(span["dur"] >= 0 for span in spans)
    (recompile,) = [event for event in written["traceEvents"] if event["ph"] == "i"]
    assert recompile["args"] == {"source": "self.scale", "expected": "1.0", "found": "2.0"}
    (thread,) = [event["args"]["name"] for event in written["traceEvents"] if event["ph"] == "M"]
    assert thread == "MainThread"


def test_trace_refuses_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        burnish.trace(tmp_path / "absent" / "trace.json")


def test_profiler_names_segments_kernels_and_library_calls():
    model, x = Scaled(), torch.ones(4, 16)
    compiled = warmed(model, x)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as found:
        torch.testing.assert_close(compiled(x), model(x))
    names = [event.name for event in found.events() if event.name.startswith("burnish")]
    assert [name for name in names if name.startswith("burnish segment test_chrome_trace.py:")] and len(names) >= 4
    assert any(name.startswith("burnish kernel") and "test_chrome_trace.py" in name for name in names)
    assert any("aten.sort" in name and "in forward" in name for name in names)


def test_profiler_names_stages_of_what_is_compiled_meanwhile():
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as found:
        compiled = warmed(Scaled(), torch.ones(4, 16))
    names = {event.name for event in found.events()}
    assert {"burnish compile", "burnish lower", "burnish schedule", "burnish codegen"} <= names
    assert any(name.startswith("burnish segment") for name in names) and burnish.was_compiled(compiled)


def test_nothing_is_replaced_before_and_after_a_profiler():
    x = torch.ones(4, 16)
    compiled = warmed(Scaled(), x)
    (segment,) = [segment for segment, _ in live_segments()]
    before = segment.check, segment.graph, segment.finish
    with profile(activities=[ProfilerActivity.CPU]), torch.no_grad():
        compiled(x)
        assert segment.check is not before[0]
    assert (segment.check, segment.graph, segment.finish) == before and not events.is_watched("stage.begin")


def test_loaded_program_names_lines_of_this_file(tmp_path):
    """What is on disk was compiled from a file whose lines have moved since."""
    x, names = torch.ones(4, 16), []
    for blank in ("", "\n\n\n"):
        text = f"{blank}def f(x):\n    y = torch.sort(x)[0]\n    return torch.sin(y)\n"
        namespace = {"torch": torch}
        exec(compile(text, "moved.py", "exec"), namespace)
        with burnish.settings.patch(cache=True, cache_dir=tmp_path, check=False):
            with recorded("cache.program") as loaded:
                compiled = warmed(namespace["f"], x)
        assert bool(loaded) is bool(blank)
        with profile(activities=[ProfilerActivity.CPU]) as found, torch.no_grad():
            compiled(x)
        names.append([event.name for event in found.events() if "aten.sort" in event.name and "burnish" in event.name])
        burnish.reset()
    assert [len(some) for some in names] == [1, 1]
    assert names[0][0].endswith("moved.py:2 in f") and names[1][0].endswith("moved.py:5 in f")


def test_profiler_that_ends_inside_a_trace_leaves_nothing_behind(tmp_path):
    model, x = Scaled(), torch.ones(4, 16)
    compiled = warmed(model, x)
    (segment,) = [segment for segment, _ in live_segments()]
    before = segment.check, segment.graph, segment.finish
    profiler = profile(activities=[ProfilerActivity.CPU])
    with torch.no_grad():
        profiler.start()
        trace = burnish.trace(tmp_path / "trace.json")
        trace.__enter__()
        compiled(x)
        profiler.stop()
        torch.testing.assert_close(compiled(x), model(x))
        trace.__exit__(None, None, None)
        assert (segment.check, segment.graph, segment.finish) == before
    calls = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert sum(call["cat"] == "burnish.call" for call in calls) == 2


def test_failure_to_name_ranges_does_not_end_the_profile(monkeypatch):
    from burnish.report import profiler_ranges

    compiled, x = warmed(Scaled(), torch.ones(4, 16)), torch.ones(4, 16)
    (segment,) = [segment for segment, _ in live_segments()]
    before = segment.check, segment.graph

    def broken(function, part):
        if part.kind == "kernel":
            raise KeyError("planted")
        return function

    monkeypatch.setattr(profiler_ranges, "around", broken)
    with burnish.settings.patch(on_error="fallback"), pytest.warns(UserWarning, match="no names in this profile"):
        with profile(activities=[ProfilerActivity.CPU]) as found, torch.no_grad():
            compiled(x)
    assert found.events() and (segment.check, segment.graph) == before


def test_profiler_ends_even_if_the_ranges_do_not(monkeypatch):
    from burnish.report import profiler_ranges

    monkeypatch.setattr(profiler_ranges, "start", lambda programs: [].pop)
    with (
        pytest.warns(UserWarning, match="has no names in this profile: IndexError"),
        burnish.settings.patch(on_error="fallback"),
        profile(activities=[ProfilerActivity.CPU]),
    ):
        assert torch.autograd.profiler._is_profiler_enabled
    assert not torch.autograd.profiler._is_profiler_enabled
