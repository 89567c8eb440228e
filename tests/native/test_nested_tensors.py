"""Nested tensors have no shape: they pass through graphs unchanged, and guards check their parts."""

import pytest
import torch

import burnish
from burnish.settings import patch


def nested(*lengths):
    return torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths])


@pytest.mark.falls_back("refused")
def test_nested_tensors_given_and_made():
    linear = torch.nn.Linear(4, 3)

    def run(x):
        y = torch.nested.to_padded_tensor((linear(x) * 2).relu(), 0.0)
        return y, torch.nested.as_nested_tensor([y[0], y[1, :1]]).unbind()

    with patch(on_error="raise"):
        compiled = burnish.compile(run)
        for lengths in ((2, 3), (2, 3), (3, 2), (4, 1, 2), (2, 3)):
            x = nested(*lengths)
            torch.testing.assert_close(compiled(x), run(x))
            want = torch.autograd.grad(run(x)[0].sum(), linear.weight)
            torch.testing.assert_close(torch.autograd.grad(compiled(x)[0].sum(), linear.weight), want)


@pytest.mark.falls_back("refused")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torchs_encoder_makes_one_of_padding():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad(), patch(on_error="raise"):
        compiled = burnish.compile(model)
        for count, length in ((2, 5), (2, 5), (3, 6), (2, 5)):
            x, padding = torch.randn(count, length, 16), torch.zeros(count, length, dtype=torch.bool)
            padding[1, 3:] = True
            want = model(x, src_key_padding_mask=padding)
            torch.testing.assert_close(compiled(x, src_key_padding_mask=padding), want)
