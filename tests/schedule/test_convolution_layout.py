"""Forward and backward of a convolution share the layout that is faster in total; results are eager's in both."""

import copy

import pytest
import torch
from torch import nn

import burnish
from burnish.ops.burnish_primitives import RUN
from burnish.schedule.layouts.channels_last_strides import is_channels_last
from burnish.schedule.library.autotune_library_calls import memory
from burnish.schedule.library.measure_candidates import Measurement
from burnish.settings import patch

from ..recorded_events import recorded

BACKWARD = "aten.convolution_backward.default"


def network():
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.Conv2d(32, 24, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(24, 8, 1, stride=2),
    )


def gradients(module, x, run):
    x = x.detach().clone().requires_grad_()
    run(x).square().mean().backward()
    return [x.grad, *[p.grad for p in module.parameters()]]


def planned(monkeypatch, seconds):
    """The operators' nodes in the plans, where `seconds` of a spec are what was measured of its gradients."""
    monkeypatch.setattr("burnish.schedule.layouts.convolution_layout.gradient_seconds", lambda spec, _: seconds(spec))
    torch.manual_seed(0)
    module, x = network(), torch.randn(4, 8, 26, 26)
    exact, eager = copy.deepcopy(module).double(), copy.deepcopy(module)
    with recorded("loops", datum="plan") as plans, patch(never_slower=False, on_error="raise"):
        found = gradients(module, x, burnish.compile(module))
    want = gradients(exact, x.double(), exact)
    near = gradients(eager, x, eager)
    for a, b, c in zip(want, near, found, strict=True):
        off, allowed = ((part - a).abs().max() for part in (c, b))
        assert off <= 2 * allowed + 1e-6 * a.abs().max()
        assert c.stride() == b.stride()
    return [node for plan in plans for node in plan.graph.nodes]


@pytest.mark.parametrize("last", [True, False])
def test_all_take_the_faster_layout(monkeypatch, last):
    def seconds(spec):
        # Less than any product takes: no matrices here.
        return 1e-9 if is_channels_last(spec.conv.x) is last else 1.0

    found = [node for node in planned(monkeypatch, seconds) if node.op.name == BACKWARD]
    assert len(found) == 5
    for node in found:
        assert [is_channels_last(value.type) for value in node.args[:2]] == [last, last]


def test_gradients_of_windows_of_one_pixel_are_products_where_those_are_faster(monkeypatch):
    nodes = planned(monkeypatch, lambda spec: 1.0 if is_channels_last(spec.conv.x) else 2.0)
    windows = [node.args[2].shape[2:] for node in nodes if node.op.name == BACKWARD]
    assert sorted(windows) == [(1, 1), (3, 3), (3, 3), (3, 3)], "of the pixels that are stepped over there is no matrix"


def test_gradients_as_products_are_row_major_if_a_library_requires_it(monkeypatch):
    """The gradient of the weight is a product of a transposed matrix, which oneDNN would copy."""

    def measured(candidates):
        taken = next((candidate for candidate in candidates if candidate.name == "onednn"), candidates[0])
        return Measurement({taken.name: 1e-6})

    monkeypatch.setattr(memory, "pinned", measured)
    nodes = planned(monkeypatch, lambda spec: 1.0 if is_channels_last(spec.conv.x) else 2.0)
    taken = [node.args[0] for node in nodes if node.op is RUN]
    assert any(candidate.name == "onednn" and candidate.rows == ("x",) for candidate in taken)
