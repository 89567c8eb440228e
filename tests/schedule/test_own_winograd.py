"""Winograd's form of a convolution: right for every cut of an image into tiles, and where numbers are not finite."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish.schedule.library import autotune_library_calls
from burnish.schedule.library.choose_calls import OWN_WAYS
from burnish.schedule.library.measure_candidates import Measurement, bind
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing, winograd_convolution
from burnish.schedule.library.own_kernels.winograd_convolution import NAME, own_winograd, strips, why_not_winograd

from .library_references import f32, make_inputs
from .test_own_kernels import EPILOGUES, check, conv, with_residual

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="this machine has no kernels for products"
)

CONVOLUTIONS = {
    "even": conv(1, 32, 8, 8, 32, (3, 3), padding=1),
    "odd": conv(1, 32, 7, 9, 48, (3, 3), padding=1),
    "several images": conv(3, 48, 5, 6, 32, (3, 3), padding=1),
    "without a border": conv(1, 32, 13, 14, 64, (3, 3)),
    "a wide border": conv(2, 32, 6, 7, 32, (3, 3), padding=2),
    "one result": conv(1, 32, 3, 3, 32, (3, 3)),
    "one line": conv(1, 32, 3, 20, 32, (3, 3)),
    "a long sum": conv(1, 272, 6, 6, 32, (3, 3), padding=1),
    "x is contiguous": conv(2, 32, 9, 12, 32, (3, 3), padding=1, x=f32(2, 32, 9, 12)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_is_right(name):
    spec = CONVOLUTIONS[name]
    check(spec, make=own_winograd)
    check(replace(spec, bias=None), make=own_winograd)
    check(with_residual(spec), make=own_winograd)


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue_is_computed_after_bias_and_residual(name):
    expression, function = EPILOGUES[name]
    check(CONVOLUTIONS["odd"], expression, function, make=own_winograd)
    check(with_residual(CONVOLUTIONS["odd"]), expression, function, make=own_winograd)


@pytest.mark.parametrize("name", ["several images", "without a border", "x is contiguous"])
def test_strips_may_end_anywhere(name, monkeypatch):
    spec = CONVOLUTIONS[name]
    monkeypatch.setattr(winograd_convolution, "STRIP_BYTES", 70_000)
    assert len(strips(spec, None)) > 2
    check(spec, make=own_winograd)
    check(with_residual(spec), *EPILOGUES["relu"], make=own_winograd)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_special_numbers_come_out_as_in_eager(name, special):
    """An infinite pixel is a difference of infinities in the transformed tile, and a large one overflows there."""
    spec = CONVOLUTIONS[name]
    inputs = make_inputs(spec)
    inputs["x"][0, 3, 1, 2] = inputs["x"][-1, 7, -1, -1] = special
    candidate = own_winograd(spec)
    result = candidate.run(*bind(candidate, inputs))
    eager = F.conv2d(inputs["x"], inputs["weight"], inputs["bias"], padding=spec.padding)
    finite = eager.isfinite()
    assert torch.equal(result.isnan(), eager.isnan())
    assert torch.equal(result[result.isinf()], eager[eager.isinf()])
    torch.testing.assert_close(result[finite], eager[finite], rtol=1e-5, atol=1e-5)


def test_an_infinite_weight_is_left_to_eager():
    spec = CONVOLUTIONS["even"]
    inputs = make_inputs(spec)
    inputs["weight"][5, 6, 1, 1] = torch.inf
    candidate = own_winograd(spec)
    assert candidate.prepare(inputs["weight"], inputs["bias"]) == (None, None)


def test_a_masked_window_is_left_to_eager():
    """Its result does not depend on pixels under a mask. In the transformed products they only cancel."""
    spec = CONVOLUTIONS["even"]
    candidate, inputs = own_winograd(spec), make_inputs(spec)
    for masked in ((slice(None), slice(None), 2), (0, slice(None), 1, 1)):
        weight = inputs["weight"].clone()
        weight[masked] = 0
        assert candidate.prepare(weight, inputs["bias"]) == (None, None)
    weight = inputs["weight"].clone()
    weight[:, :, 0, 0] *= 1e3
    assert candidate.prepare(weight, inputs["bias"]) == (None, None)
    weight = inputs["weight"].clone()
    weight[:, 3] = 0
    weight[5] = 0
    assert None not in candidate.prepare(weight, inputs["bias"])


@pytest.mark.parametrize("large", [1e4, 1e8])
def test_small_results_under_a_large_pixel_are_accurate(large):
    """Where weights of one output are small at the place of a large pixel, its parts cancel."""
    spec = conv(1, 32, 12, 12, 32, (3, 3), padding=1, bias=None)
    candidate, inputs = own_winograd(spec), make_inputs(spec)
    inputs["x"][:, 4] = large
    inputs["weight"][7, 4] = 0
    inputs["weight"][9, 4] *= 1e-6
    y = candidate.run(*bind(candidate, inputs)).double()
    exact = F.conv2d(inputs["x"].double(), inputs["weight"].double(), padding=1)
    eager = F.conv2d(inputs["x"], inputs["weight"], padding=1).double()
    for output in (7, 9):
        allowed = 2 * (eager - exact)[:, output].abs().max() + 1e-5 * exact[:, output].abs().max()
        assert (y - exact)[:, output].abs().max() <= allowed


def test_weights_may_lie_in_any_order():
    spec = CONVOLUTIONS["odd"]
    turned = torch.empty(spec.weight.shape).to(memory_format=torch.channels_last)
    spec = replace(spec, weight=replace(spec.weight, stride=turned.stride()))
    inputs = make_inputs(spec)
    check(spec, make=own_winograd, inputs=inputs)
    inputs["x"][0, 0, 0, 0] = torch.inf
    candidate = own_winograd(spec)
    result = candidate.run(*bind(candidate, inputs))
    eager = F.conv2d(inputs["x"], inputs["weight"], inputs["bias"], padding=1)
    assert torch.equal(result.isinf(), eager.isinf()) and torch.equal(result.isnan(), eager.isnan())


REFUSED = {
    "steps": conv(1, 32, 8, 8, 32, (3, 3), stride=2, padding=1),
    "not 3 x 3": conv(1, 32, 8, 8, 32, (5, 5), padding=1),
    "not 3 x 3, depthwise": conv(1, 32, 8, 8, 32, (3, 3), padding=1, groups=32),
    "whole vectors": conv(1, 40 + 1, 8, 8, 32, (3, 3), padding=1),
    "too few": conv(1, 16, 8, 8, 32, (3, 3), padding=1),
    "may change": replace(CONVOLUTIONS["even"], is_frozen=False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_says_why_it_does_not_fit(name):
    assert name.partition(",")[0] in why_not_winograd(REFUSED[name])
    assert own_winograd(REFUSED[name]) is None


@pytest.fixture
def always_chosen(monkeypatch):
    """Whatever the clock says."""
    measure = autotune_library_calls.measure

    def measured(candidates, seconds):
        made = measure(candidates, seconds)
        if NAME in made.least:
            made.least[NAME] = min(made.least.values()) / 10
        return made

    monkeypatch.setattr(autotune_library_calls, "measure", measured)
    autotune_library_calls.memory.clear()
    yield
    autotune_library_calls.memory.clear()


class Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        y = F.silu(self.norm(self.first(x)))
        return torch.relu(self.second(y) + x)


def test_a_model_runs_with_it(always_chosen, monkeypatch):
    made = []
    monkeypatch.setitem(OWN_WAYS, NAME, lambda *given: made.append(own_winograd(*given)) or made[-1])
    torch.manual_seed(0)
    model = Block(64).eval()
    compiled = burnish.compile(model, fullgraph=True)
    with torch.no_grad(), burnish.settings.patch(never_slower=False):
        for _ in range(3):
            x = torch.randn(2, 64, 30, 31).to(memory_format=torch.channels_last)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
        model.second.weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
        model.first.weight[0, 0, 0, 0] = torch.inf
        assert torch.equal(compiled(x).isnan(), model(x).isnan())
    assert sum(candidate is not None and "residual" in candidate.operands for candidate in made) == 1


def test_a_later_program_reads_it_from_disk(always_chosen, tmp_path, happened):
    x, results = torch.randn(1, 32, 9, 10), []
    with burnish.settings.patch(cache=True, cache_dir=tmp_path, check=False, never_slower=False), torch.no_grad():
        for _ in range(2):
            torch.manual_seed(0)
            model = Block(32).eval()
            burnish.reset()
            happened.clear()
            compiled = burnish.compile(model)
            compiled(x)
            results.append(compiled(x))
        assert "cache.program" in happened and "kernels" not in happened
        torch.testing.assert_close(results[0], model(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def test_it_is_asked_to_be_clearly_faster():
    """Than a direct sum, which rounds as libraries do and needs no larger weights."""
    spec = CONVOLUTIONS["even"]
    memory = autotune_library_calls.Measurements(pinned=lambda found: pinned(found, 0.95))
    large = replace(spec, x=f32(9, 32, 64, 64))
    assert autotune_library_calls.choose(large, seconds=0.001, memory=memory).candidate.name != NAME
    memory.pinned = lambda found: pinned(found, 0.85)
    assert autotune_library_calls.choose(large, seconds=0.001, memory=memory).candidate.name == NAME


def pinned(found, times):
    return Measurement({c.name: times if c.name == NAME else 1.0 for c in found})
