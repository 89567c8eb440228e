"""Chains of element-wise operators that are longer than Python's stack is deep."""

import torch

import burnish


def test_a_long_chain_is_one_expression():
    def fn(x):
        for k in range(250):
            x = torch.sin(x) + k % 3
        return x

    with burnish.settings.patch(on_error="raise"):
        compiled = burnish.compile(fn, fullgraph=True)
        x = torch.rand(64)
        assert torch.allclose(compiled(x), fn(x), atol=1e-6)
