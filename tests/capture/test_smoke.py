"""The smallest programs."""

import torch

from .harness import program


@program(breaks=0)
def test_sin_plus_cos():
    def fn(x, y):
        return torch.sin(x) + torch.cos(y)

    return fn, lambda i: (torch.randn(4), torch.randn(4))
