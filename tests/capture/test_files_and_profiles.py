"""Functions of torch that work with files or the profiler: one break, however much Python they are made of."""

import io

import torch
from torch.profiler import ProfilerActivity, profile, schedule

import burnish

from .harness import program


def save_and_load(x):
    y = x * 2
    file = io.BytesIO()
    torch.save({"y": y}, file)
    file.seek(0)
    return y + torch.load(file)["y"]


@program
def test_a_tensor_is_saved_and_loaded():
    return save_and_load, lambda i: (torch.full((3,), 1.0 + i),)


def test_saving_is_one_break():
    def fn(x, file):
        y = x * 2
        torch.save(y, file)
        return y + 1

    report = burnish.explain(fn)(torch.ones(3), io.BytesIO())
    assert [reason.source.kind.code for reason in report.break_reasons] == ["B202"]
    assert "torch.save" in str(report.break_reasons[0]) and report.graph_count == 2


def test_a_step_of_the_profiler_is_one_break():
    ready = []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda p: ready.append(len(p.events())),
    ) as p:

        def fn(x):
            y = x.sin()
            p.step()
            return y * 2

        assert burnish.explain(fn)(torch.ones(3)).graph_break_count == 1
        compiled = burnish.compile(fn)
        for _ in range(4):
            torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() * 2)
    assert len(ready) == 1 and ready[0] > 0
