"""Epilogues of products are computed by own kernels if the intermediate has no other reader."""

import copy

import pytest
import torch
from torch import nn

import burnish
import burnish.targets.cpu  # noqa: F401  (registers our own kernels)
from burnish.ops.burnish_primitives import RUN
from burnish.schedule.library import choose_calls as chooser
from burnish.schedule.library.autotune_library_calls import Choice, candidates
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.own_matmul_and_convolution import NAME as OWN
from burnish.settings import patch

from ..recorded_events import recorded

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="this machine has no kernels for products"
)


@pytest.fixture(autouse=True)
def own_kernels_win(monkeypatch):
    """Measurements in which our own kernel is always the fastest if it supports the call."""

    def choose(spec, **_):
        offered = candidates(spec)
        found = next((c for c in offered if c.name == OWN), offered[0])
        return Choice(found, 1e-9, {c.name: 1e-9 if c is found else 1.0 for c in offered})

    monkeypatch.setattr(chooser, "choose", choose)


def compiled_calls(model, *inputs):
    """The library calls that a model became, and that its results are eager's."""
    graphs = []
    original = chooser.Chooser.run

    def run(self):
        graphs.append(original(self))
        return graphs[-1]

    chooser.Chooser.run = run
    try:
        burnish.reset()
        with recorded("lower.refused") as refused, torch.no_grad(), patch(never_slower=False, on_error="raise"):
            compiled = burnish.compile(model, backend="burnish")
            for _ in range(3):
                got, want = compiled(*inputs), model(*inputs)
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
                assert got.stride() == want.stride()
    finally:
        chooser.Chooser.run = original
    assert not refused
    (graph,) = graphs
    return graph


def runs(graph):
    return [node.args[0] for node in graph.nodes if node.op is RUN]


def names(graph):
    return {node.op.name for node in graph.nodes}


class Block(nn.Module):
    """A block of a residual network; the addend comes from a convolution too, or is x itself."""

    def __init__(self, is_projected, inplace=False):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.project = nn.Conv2d(8, 8, 1) if is_projected else nn.Identity()
        self.relu = nn.ReLU(inplace)

    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x))) + self.project(x))


@pytest.mark.parametrize("is_projected", [True, False])
@pytest.mark.parametrize("inplace", [True, False])
def test_residual_and_activation_become_part_of_the_convolution(is_projected, inplace):
    torch.manual_seed(0)
    x = torch.randn(2, 8, 10, 12).contiguous(memory_format=torch.channels_last)
    graph = compiled_calls(Block(is_projected, inplace).eval(), x)
    assert "residual" in [name for candidate in runs(graph) for name in candidate.operands]
    assert not {"aten.relu.default", "aten.add.Tensor"} & names(graph)


def test_residual_with_other_strides_is_added_separately():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 8, 3, padding=1).eval()

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv

        def forward(self, x, y):
            return torch.relu(self.conv(x) + y)

    x = torch.randn(2, 3, 10, 12).contiguous(memory_format=torch.channels_last)
    graph = compiled_calls(Sum(), x, torch.randn(2, 8, 10, 12))
    assert {"aten.relu.default", "aten.add.Tensor"} <= names(graph)


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.ReLU6(), nn.Sigmoid(), nn.Sequential(nn.Tanh(), nn.ReLU())],
    ids=str,
)
def test_activations_become_part_of_a_linear_layer(activation):
    torch.manual_seed(0)
    graph = compiled_calls(nn.Sequential(nn.Linear(24, 40), activation).eval(), torch.randn(2, 9, 24))
    assert len(runs(graph)) == 1 and not any(name.startswith("aten.") for name in names(graph))


@pytest.mark.parametrize(
    "function",
    [torch.sin, torch.exp, torch.floor, lambda x: x.clamp(-0.1, 0.2) * x],
    ids=["sin", "exp", "floor", "clamp"],
)
def test_functions_that_call_others_can_be_part_of_it(function):
    torch.manual_seed(0)
    linear = nn.Linear(24, 40).eval()

    class After(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            return function(self.linear(x))

    assert len(runs(compiled_calls(After(), torch.randn(20, 24)))) == 1


def test_values_with_other_readers_are_stored():
    torch.manual_seed(0)
    linear = nn.Linear(24, 24).eval()

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            y = self.linear(x)
            return torch.relu(y) + y.sum()

    graph = compiled_calls(Both(), torch.randn(20, 24))
    assert "aten.relu.default" in names(graph)


def test_nan_passes_through_a_fused_activation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval()
    x = torch.randn(20, 16)
    x[3, 4] = torch.nan
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        burnish.reset()
        compiled = burnish.compile(model, backend="burnish")
        for _ in range(3):
            assert torch.equal(compiled(x).isnan(), model(x).isnan())


def test_changed_weight_is_seen():
    torch.manual_seed(0)
    model, x = Block(True).eval(), torch.randn(1, 8, 9, 9)
    burnish.reset()
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(model, backend="burnish")
        for _ in range(2):
            compiled(x)
        model.second.weight.mul_(2)
        model.first.bias.data += 1
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(24, 70), nn.Linear(70, 24)

    def forward(self, x):
        return x + self.outer(nn.functional.gelu(self.inner(x)))


@pytest.mark.skipif(
    torch.bfloat16 not in matmul_tiling_and_packing.dtypes_of_tiles(), reason="does not multiply pairs of bf16"
)
@pytest.mark.parametrize("build", [Mlp, lambda: Block(True), lambda: Block(False, inplace=True)])
def test_epilogues_in_bf16_are_in_the_call_and_round_as_eager_does(build):
    torch.manual_seed(0)
    model = build().bfloat16().eval()
    x = torch.randn(2, 5, 24) if build is Mlp else torch.randn(2, 8, 9, 11).to(memory_format=torch.channels_last)
    x = x.bfloat16()
    with recorded("loops", datum="text") as seen, torch.no_grad(), patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(model)
        for _ in range(3):
            mine, eager = compiled(x.clone()), model(x.clone())
        exact = copy.deepcopy(model).double()(x.double())
        assert mine.dtype is torch.bfloat16 and mine.stride() == eager.stride()
        error, allowed = ((y.double() - exact).norm() for y in (mine, eager))
        assert error <= 2 * allowed
        # New weights are noticed, although the old ones are packed.
        next(model.parameters()).mul_(2)
        mine, eager = compiled(x.clone()), model(x.clone())
        assert (mine.double() - eager.double()).norm() <= 2 * allowed * 2
    text = "\n".join(seen)
    assert "run <own packed>" in text and "kernel" not in text, text
