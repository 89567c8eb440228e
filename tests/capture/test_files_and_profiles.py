"""Functions that work with files, the profiler or the terminal: one break, however much Python they are made of."""

import io

import pytest
import torch
import tqdm
import tqdm.auto
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


@pytest.mark.falls_back("refused")  # where the progress bar ends: it has a `__del__`
def test_a_step_of_a_progress_bar_is_one_break():
    def fn(x, steps, bar, shown):
        progress = bar(range(steps), desc="steps", file=shown, mininterval=0)
        for step in progress:
            x = x.sin() + step
            progress.set_postfix(step=step)
        return x

    for bar in (tqdm.tqdm, tqdm.auto.tqdm):
        found = burnish.explain(fn)(torch.ones(3), 4, bar, io.StringIO()).break_reasons
        assert {reason.source.kind.code for reason in found if reason.source} == {"B202", "B302"} and len(found) < 10
        compiled = burnish.compile(fn)
        for steps in (3, 4, 3, 0):
            ours, theirs = io.StringIO(), io.StringIO()
            torch.testing.assert_close(compiled(torch.ones(3), steps, bar, ours), fn(torch.ones(3), steps, bar, theirs))
            assert ours.getvalue().count("steps") == theirs.getvalue().count("steps")


@pytest.mark.falls_back("refused")
def test_a_progress_bar_around_a_generator_of_the_program():
    def parts(x, order):
        for k in range(3):
            order.append(k)
            yield x * k

    def fn(x, order):
        total = x
        for part in tqdm.tqdm(parts(x.exp(), order), file=io.StringIO(), mininterval=0):
            total = total + part
            order.append("used")
        return total

    compiled = burnish.compile(fn)
    for value in (1.0, 2.0, 3.0):
        ours, theirs = [], []
        x = torch.full((3,), value)
        torch.testing.assert_close(compiled(x, ours), fn(x, theirs))
        assert ours == theirs
