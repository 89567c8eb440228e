"""Training steps through the default backend: uncompiled parts leave torch's switches as eager does."""

import pytest
import torch

import burnish


def losses(compiled, make_optimizer):
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    model = torch.nn.Sequential(*layers)
    optimizer = make_optimizer(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = burnish.compile(step) if compiled else step
    torch.manual_seed(1)
    return [run(torch.randn(8, 16), torch.randint(0, 4, (8,))).item() for _ in range(5)]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_of_a_compiled_step_are_those_of_eager(name):
    wanted = losses(False, OPTIMIZERS[name])
    assert losses(True, OPTIMIZERS[name]) == pytest.approx(wanted, rel=1e-5)
    assert torch.is_grad_enabled()


def test_evaluation_between_steps_sees_the_new_weights():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    compiled = burnish.compile(model)
    x = torch.randn(4, 8)
    for _ in range(4):
        compiled(x).square().sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad
                parameter.grad = None
            torch.testing.assert_close(compiled(x), model(x))


def test_a_segment_that_ends_inside_no_grad_leaves_it_on():
    weight = torch.randn(4, requires_grad=True)

    def program(x):
        with torch.no_grad():
            y = x * 2
            print(y.sum().item() > 1e9)
            z = y + weight
        return z, weight * x

    compiled = burnish.compile(program)
    for _ in range(3):
        z, product = compiled(torch.ones(4))
        assert not z.requires_grad and product.requires_grad
    assert torch.is_grad_enabled()
