"""Numbers and sizes that depend on data, in graphs that AOTAutograd traces (``fullgraph=True``)."""

import pytest
import torch

import burnish

FNS = {
    "returned": lambda x: (x * 2, x.sum().item()),
    "arithmetic": lambda x: x * (x.sum().item() + 1),
    "masked": lambda x: x[x > 0] * 2,
    "reduced": lambda x: (x[x > 0] ** 2).sum(),
    "size": lambda x: x * x[x > 0].shape[0],
    "number as a size": lambda x: torch.zeros(int((x > 0).sum())) + 1,
}


@pytest.mark.parametrize("name", FNS)
def test_aot_eager_computes_what_eager_computes(name):
    fn = FNS[name]
    burnish.reset()
    compiled = burnish.compile(fn, backend="aot_eager", fullgraph=True)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(4, 4, requires_grad=name == "reduced")
        other = x.detach().clone().requires_grad_(x.requires_grad)
        found, wanted = compiled(x), fn(other)
        torch.testing.assert_close(found, wanted)
        if name == "returned":
            assert type(found[1]) is float
        if name == "reduced":
            found.backward()
            wanted.backward()
            torch.testing.assert_close(x.grad, other.grad)
    assert torch.equal(
        burnish.compile(FNS["masked"], backend="aot_eager", fullgraph=True)(-torch.ones(3)), torch.ones(0)
    )
