"""Numbers and sizes that depend on data, in graphs that AOTAutograd traces (``fullgraph=True``)."""

import pytest
import torch

import burnish

FNS = {
    "returned": lambda x: (x * 2, x.sum().item()),
    "arithmetic": lambda x: x * (x.sum().item() + 1),
    "power": lambda x: x * (x.sum().item() ** 2 + 1) ** 0.5,
    "tensor of elements": lambda x: x + torch.tensor([x[0, 0], 1, x[1, 1], x[0].sum()]),
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


def test_power_of_a_negative_number_is_complex_behind_aot_eager():
    def fn(x):
        return x * x.sum().item() ** 0.5

    compiled = burnish.compile(fn, backend="aot_eager", fullgraph=True)
    for sign in (1.0, 2.0, -1.0, 3.0):
        x = torch.full((3,), sign)
        found = compiled(x)
        assert found.dtype == (torch.complex64 if sign < 0 else torch.float32)
        assert torch.equal(found, fn(x))


def test_aot_eager_compiles_a_step_of_adam():
    def trained(compiled):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 2)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            optimizer.step()

        run = burnish.compile(step, backend="aot_eager") if compiled else step
        for _ in range(4):
            run(torch.randn(3, 4))
        return [*layer.parameters()]

    burnish.reset()
    torch.testing.assert_close(trained(True), trained(False))
