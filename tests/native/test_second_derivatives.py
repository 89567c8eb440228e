"""Gradients of gradients through calls that are one library call forward and one backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.settings import patch

LAYERS = {
    "GRU": lambda: nn.GRU(3, 4),
    "RNN": lambda: nn.RNN(3, 4, nonlinearity="relu"),
    "LSTM with a projection": lambda: nn.LSTM(3, 4, proj_size=2),
}


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("name", LAYERS)
def test_a_gradient_penalty_through_a_recurrent_layer_has_eagers_gradients(name):
    torch.manual_seed(0)
    critic = LAYERS[name]()

    def fn(x):
        score = critic(x)[0].square().sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return score + 10 * slope.square().sum()

    x = torch.randn(5, 2, 3, requires_grad=True)
    expected = torch.autograd.grad(fn(x), [x, *critic.parameters()])
    with patch(never_slower=False):
        compiled = burnish.compile(fn)
        for _ in range(3):
            torch.testing.assert_close(torch.autograd.grad(compiled(x), [x, *critic.parameters()]), expected)


@pytest.mark.falls_back("refused")
def test_a_gradient_penalty_through_a_ctc_loss_is_eagers_error():
    def fn(x, words, positions, lengths):
        loss = F.ctc_loss((x * 2).log_softmax(-1), words, positions, lengths)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + slope.square().sum()

    x = torch.randn(8, 2, 5, requires_grad=True)
    given = torch.randint(1, 5, (2, 3)), torch.tensor([8, 8]), torch.tensor([3, 2])
    with patch(never_slower=False):
        for run in (fn, *[burnish.compile(fn)] * 3):
            with pytest.raises(RuntimeError, match="_ctc_loss_backward is not implemented"):
                run(x, *given).backward()


def ctc_loss_of(x):
    given = torch.tensor([[1, 2, 1], [3, 1, 2]]), torch.tensor([5, 5]), torch.tensor([3, 2])
    return F.ctc_loss(x.repeat(1, 1, 2).log_softmax(-1), *given)


@pytest.mark.parametrize("name", [*LAYERS, "CTC"])
def test_a_gradient_with_create_graph_that_is_only_read_is_part_of_the_graph(name):
    torch.manual_seed(0)
    score_of = ctc_loss_of if name == "CTC" else LAYERS[name]()

    def fn(x):
        score = score_of(x * 2)
        score = score if name == "CTC" else score[0].square().sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return slope.detach() * 2 + 1

    x = torch.randn(5, 2, 3, requires_grad=True)
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn, fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), fn(x))
        assert burnish.was_compiled(compiled)


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("name", LAYERS)
def test_a_gradient_of_a_recurrent_layer_that_is_returned_is_differentiated_as_in_eager(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()

    def fn(x):
        return torch.autograd.grad(layer(x * 2)[0].square().sum(), x, create_graph=True)[0]

    x = torch.randn(5, 2, 3, requires_grad=True)
    expected = torch.autograd.grad(fn(x).square().sum(), [x, *layer.parameters()])
    with patch(never_slower=False):
        compiled = burnish.compile(fn)
        for _ in range(3):
            found = torch.autograd.grad(compiled(x).square().sum(), [x, *layer.parameters()])
            torch.testing.assert_close(found, expected)
