"""Convolutions on a GPU take the faster layout: whole programs against eager, with simulated times."""

import contextlib
import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

import burnish
from burnish import events
from burnish.ops.burnish_primitives import CONV, RUN
from burnish.schedule.layouts.channels_last_strides import is_channels_last
from burnish.schedule.library import gpu_convolution_times
from burnish.schedule.library.autotune_library_calls import memory
from burnish.schedule.library.call_specs import ConvSpec
from burnish.schedule.library.measure_candidates import Clock

from ..codegen.run_kernel import is_interpreted
from . import simulated_gpu
from .simulated_gpu import interpreted

pytestmark = pytest.mark.skipif(not is_interpreted(), reason="Triton's interpreter is too old")


class Watch:
    """The simulated seconds of a convolution, by the layout of its result."""

    def __init__(self):
        self.last, self.contiguous, self.copy = 1e-3, 2e-3, 1e-12
        self.measured = 0

    def seconds(self, run):
        self.measured += 1
        made = run()
        made = next(x for x in made if x is not None) if isinstance(made, tuple) else made
        return self.last if made.is_contiguous(memory_format=torch.channels_last) else self.contiguous


@pytest.fixture
def watch(monkeypatch):
    made = Watch()
    clock = Clock(made.seconds, lambda device: contextlib.nullcontext(), lambda device: "a stand-in")
    device = replace(simulated_gpu.MACHINE, clock=lambda: clock, copy_seconds=made.copy)
    monkeypatch.setattr(simulated_gpu, "MACHINE", device)
    monkeypatch.setattr(gpu_convolution_times, "SMALL", 0)
    memory.clear()
    yield made
    memory.clear()


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 1),
    )


def lying(run):
    """The layouts of the inputs of convolutions in the plans: True for channels-last."""
    found = []

    def note(event):
        if event.kind == "loops":
            found.extend(
                is_channels_last(node.args[1][0].type)
                for node in event.data["plan"].graph.nodes
                if node.op is RUN and isinstance(node.args[0].spec, ConvSpec)
            )
            assert all(node.op is not CONV for node in event.data["plan"].graph.nodes)

    burnish.reset()
    stop = events.subscribe(note)
    try:
        run()
    finally:
        stop()
    return found


def same(model, x, **options):
    """As `lying`; results equal eager's."""
    eager, wants_gradients = copy.deepcopy(model), any(p.requires_grad for p in model.parameters())

    def both():
        with interpreted(), torch.set_grad_enabled(wants_gradients):
            compiled = burnish.compile(model, fullgraph=True, **options)
            for _ in range(2):
                got, want = compiled(x), eager(x)
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
                assert got.stride() == want.stride()
        if wants_gradients:
            for out in (got, want):
                out.square().sum().backward()
            for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)
                assert mine.grad.stride() == theirs.grad.stride()

    return lying(both)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_all_take_the_faster_layout(watch, last, training):
    if not last:
        watch.last, watch.contiguous = watch.contiguous, watch.last
    model = network().requires_grad_(training).train(training)
    assert same(model, torch.randn(2, 3, 12, 12)) == [last] * 4
    assert watch.measured == (16 if training else 8), "each in two ways, forward and backward"


def test_measurements_are_cached(watch):
    model = network().requires_grad_(False).eval()
    same(model, torch.randn(2, 3, 12, 12))
    before = watch.measured
    assert same(model, torch.randn(2, 3, 12, 12)) == [True] * 4 and watch.measured == before


def test_no_layout_changes_if_the_copy_costs_more(watch, monkeypatch):
    monkeypatch.setattr(simulated_gpu, "MACHINE", replace(simulated_gpu.MACHINE, copy_seconds=1.0))
    model = network().requires_grad_(False).eval()
    assert same(model, torch.randn(2, 3, 12, 12)) == [False] * 4
    assert same(model, torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)) == [True] * 4


def test_an_unmeasurable_layout_is_not_changed(watch, monkeypatch):
    def too_large(run):
        raise torch.OutOfMemoryError("CUDA out of memory")

    clock = Clock(too_large, lambda device: contextlib.nullcontext(), lambda device: "a full one")
    monkeypatch.setattr(simulated_gpu, "MACHINE", replace(simulated_gpu.MACHINE, clock=lambda: clock))
    model = network().requires_grad_(False).eval()
    assert same(model, torch.randn(2, 3, 12, 12)) == [False] * 4


def test_lines_and_volumes_are_convolutions_as_well(watch):
    lines = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 4, 3)).requires_grad_(False)
    assert same(lines, torch.randn(2, 3, 12)) == [False] * 2 and not watch.measured
    volumes = nn.Sequential(nn.Conv3d(3, 4, 2), nn.ReLU(), nn.Conv3d(4, 4, 2)).requires_grad_(False)
    watch.last, watch.contiguous = 1e-3, 1e-3
    same(volumes, torch.randn(2, 3, 5, 5, 5))
    assert watch.measured == 4
