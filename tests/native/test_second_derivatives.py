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
