"""Recurrent layers in training: eager's kernels forward and backward, with the rest of the step fused."""

import pytest
import torch
from torch import nn

import burnish
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_training import alike, trained

LAYERS = {
    "LSTM": lambda: nn.LSTM(4, 6),
    "LSTM, batch first": lambda: nn.LSTM(4, 6, batch_first=True),
    "LSTM of two layers": lambda: nn.LSTM(4, 6, num_layers=2, dropout=0.3, bidirectional=True),
    "LSTM without bias": lambda: nn.LSTM(4, 6, bias=False),
    "LSTM with a projection": lambda: nn.LSTM(4, 6, proj_size=3),
    "GRU": lambda: nn.GRU(4, 6),
    "GRU, batch first": lambda: nn.GRU(4, 6, batch_first=True),
    "GRU of two layers": lambda: nn.GRU(4, 6, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True),
    "RNN": lambda: nn.RNN(4, 6, batch_first=True),
    "RNN with ReLU": lambda: nn.RNN(4, 6, nonlinearity="relu"),
}


def training(make, is_whole, state, compiler):
    model = nn.ModuleDict({"layer": make(), "head": nn.LazyLinear(3)})
    model["head"](model["layer"](torch.zeros(2, 2, 4))[0])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def loss_of(x):
        layer = model["layer"]
        count = layer.num_layers * (2 if layer.bidirectional else 1)
        zeros = torch.zeros(count, x.shape[0] if layer.batch_first else x.shape[1], layer.hidden_size)
        y, last = layer(x, zeros) if state and not isinstance(layer, nn.LSTM) else layer(x)
        last = last if isinstance(last, torch.Tensor) else last[1]
        return nn.functional.gelu(model["head"](y)).square().mean() + last.sum() / 8

    return trained(loss_of, optimizer, is_whole, compiler), (model,)


@pytest.mark.parametrize("is_whole", [False, True], ids=["forward", "whole step"])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_train_in_one_graph(name, is_whole):
    with recorded("graph.failed") as failed:
        seen = alike(
            lambda compiler: training(LAYERS[name], is_whole, "GRU" in name, compiler),
            lambda i: (torch.randn(3, 2, 4),),
            steps=4,
        )
    assert (seen.breaks, seen.refused, seen.given_up, failed) == ([], [], [], [])
    assert seen.planned == 2 if not is_whole else seen.planned >= 1


def test_a_long_layer_is_one_call_each_way():
    model, x = nn.GRU(4, 6, batch_first=True), torch.randn(2, 200, 4, requires_grad=True)
    with recorded("lower") as passes, patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x: model(x)[0].sin(), fullgraph=True)
        for _ in range(2):
            found = torch.autograd.grad(compiled(x).sum(), [x, *model.parameters()])
    expected = torch.autograd.grad(model(x)[0].sin().sum(), [x, *model.parameters()])
    torch.testing.assert_close(found, expected)
    assert max(len(event.data["graph"].nodes) for event in passes if event.data["stage"] == "trace") < 30


@pytest.mark.parametrize("computed", ["the state is zeros", "the state and the input are computed"])
@pytest.mark.parametrize("name", ["GRU", "RNN", "RNN with ReLU", "LSTM with a projection"])
def test_backward_reads_the_state_that_forward_read(name, computed):
    """Autograd holds that memory, so nothing may write to it even where the values could be computed again."""
    torch.manual_seed(0)
    layer, head = LAYERS[name](), nn.LazyLinear(4)
    head(layer(torch.zeros(2, 1, 4))[0])

    def fn(x):
        x = x if computed == "the state is zeros" else x.sin() + 1
        return head(layer(x)[0][-1]).log_softmax(-1)[..., 1].sum()

    weights = [*layer.parameters(), *head.parameters()]
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn, fullgraph=True)
        for length in (3, 5, 4, 7, 2):
            x = torch.randn(length, 1, 4)
            for _ in range(2):
                found = torch.autograd.grad(compiled(x), weights)
                torch.testing.assert_close(found, torch.autograd.grad(fn(x), weights))


def test_backward_of_a_layer_may_run_twice_and_weights_changed_between_are_an_error():
    model, x = nn.GRU(4, 6), torch.randn(5, 2, 4, requires_grad=True)
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x: model(x)[0].square().sum(), fullgraph=True)
        compiled(x)
        loss = compiled(x)
        first = torch.autograd.grad(loss, x, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(loss, x, retain_graph=True), first)
        with torch.no_grad():
            model.weight_hh_l0.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("layer", [nn.GRU, nn.RNN])
def test_a_write_through_data_between_a_recurrent_layer_and_its_backward_is_seen(layer):
    net = layer(3, 4)

    def fn(x):
        scaled = x * 2
        made = net(scaled)[0]
        scaled.data.mul_(2)
        return made, scaled

    x = torch.randn(5, 2, 3)
    wanted = torch.autograd.grad(fn(x)[0].sum(), list(net.parameters()))
    with patch(never_slower=False):
        compiled = burnish.compile(fn)
        for _ in range(3):
            torch.testing.assert_close(torch.autograd.grad(compiled(x)[0].sum(), list(net.parameters())), wanted)
