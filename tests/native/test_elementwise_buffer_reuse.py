"""Elementwise results that reuse their operand's buffer: eager's results in every call."""

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish.schedule.library.autotune_library_calls import candidates

from ..recorded_events import recorded

IMAGE = torch.randn(2, 8, 16, 16)


def layers(x, weight, more):
    """Results of convolutions, added up and divided."""
    for _ in range(2):
        x = torch.cat((x, x.flip(0)), 1)
        x = (F.conv2d(x, weight, padding=1) + F.conv2d(x, more)) / 2
        x = x / x.sum(1, keepdim=True)
    return F.interpolate(x, scale_factor=2) + 1


def steps(x, *_):
    for dim in (1, 2, 3, 1):
        x = torch.softmax(x * 2, dim)
    return x, x.flatten(1)


def by_library(monkeypatch, into):
    """Every product is the library's, into memory of ours or not."""
    from burnish.schedule.library import choose_calls

    def choose(spec, **_):
        found = [c for c in candidates(spec) if c.steps is None and not c.prepare]
        candidate = next((c for c in found if (c.run_into is not None) is into), found[0])
        return choose_calls.Choice(candidate, 1e-9, {candidate.name: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("fn", [layers, steps])
@pytest.mark.parametrize("gradients", [False, True])
def test_results_are_eagers(monkeypatch, fn, into, gradients):
    by_library(monkeypatch, into)
    compiled = burnish.compile(fn)
    with recorded("loops", datum="plan") as plans:
        weights = [torch.randn(8, 16, 3, 3), torch.randn(8, 16, 1, 1)]
        for call in range(4):
            given = [(part + call).requires_grad_(gradients) for part in (IMAGE, *weights)]
            expected, got = fn(*given), compiled(*given)
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
            if gradients:
                leaves = [x for x in given if x.requires_grad]
                sums = [
                    torch.stack([part.sin().sum() for part in parts]).sum()
                    if isinstance(parts, tuple)
                    else parts.sin().sum()
                    for parts in (expected, got)
                ]
                wanted, found = (torch.autograd.grad(total, leaves, allow_unused=True) for total in sums)
                torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)
    assert any(plan.in_place for plan in plans) or gradients and fn is steps  # each of its results is saved


def test_the_reused_buffer_may_belong_to_a_library_call(monkeypatch):
    by_library(monkeypatch, False)
    compiled = burnish.compile(layers)
    with recorded("loops", datum="plan") as plans, torch.no_grad():
        compiled(IMAGE, torch.randn(8, 16, 3, 3), torch.randn(8, 16, 1, 1))
    below = [below for plan in plans for below in plan.in_place.values()]
    assert any(value.node.op.name == "run" and value not in plan.offsets for plan in plans for value in below)
