"""Torch's settings changed in a compiled function: compiled pieces between the changes compute as eager does."""

import pytest
import torch

import burnish


@pytest.fixture(autouse=True)
def defaults():
    yield
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)


def check(fn, *calls):
    compiled = burnish.compile(fn)
    for args in calls:
        torch.manual_seed(1)
        want = fn(*args)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(*args), want, rtol=1e-5, atol=1e-6)
    assert burnish.was_compiled(compiled)
    return compiled


def test_pieces_under_a_default_dtype():
    def fn(x):
        y = x.sin() + torch.ones(3)
        torch.set_default_dtype(torch.float64)
        z = torch.ones(3) * 1.5 + torch.arange(3) / 2
        torch.set_default_dtype(torch.float32)
        return y, z, torch.ones(3) * x

    check(fn, *[(torch.randn(3),) for _ in range(4)])
    assert torch.get_default_dtype() is torch.float32


def test_gradients_flow_through_pieces():
    def fn(x, index):
        torch.use_deterministic_algorithms(True)
        y = torch.zeros(4, 3).index_add(0, index, x.tanh())
        torch.use_deterministic_algorithms(False)
        return (y * y).sum()

    compiled, index = burnish.compile(fn), torch.tensor([0, 1, 0, 3])
    for _ in range(4):
        x = torch.randn(4, 3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        compiled(x, index).backward()
        fn(twin, index).backward()
        torch.testing.assert_close(x.grad, twin.grad)
    assert burnish.was_compiled(compiled) and not torch.are_deterministic_algorithms_enabled()


def test_a_seed_inside_repeats_the_draws_after_it():
    def fn(x):
        torch.manual_seed(7)
        return torch.nn.functional.dropout(x, 0.5) * 2

    compiled = burnish.compile(fn)
    x = torch.ones(64)
    found = [compiled(x) for _ in range(4)]
    assert torch.equal(found[1], found[2]) and torch.equal(found[2], found[3])
    eagerly = burnish.compile(fn, options={"eager_random": True})
    for _ in range(3):
        assert torch.equal(eagerly(x), fn(x))


def test_an_error_of_a_later_call_puts_the_setting_back_before_plain_python_runs():
    def fn(x, index):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return torch.ones(3)[index] * x
        finally:
            torch.set_default_dtype(before)

    compiled = burnish.compile(fn)
    x = torch.ones(1)
    for i in (0, 1, 9, 2):
        if i == 9:
            with pytest.raises(IndexError):
                compiled(x, torch.tensor(i))
        else:
            torch.testing.assert_close(compiled(x, torch.tensor(i)), fn(x, torch.tensor(i)))
        assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("backend", ["aot_eager", lambda gm, inputs: gm.forward])
def test_other_backends_break_there(backend):
    def fn(x):
        torch.use_deterministic_algorithms(True)
        y = x * 2
        torch.use_deterministic_algorithms(False)
        return y

    compiled = burnish.compile(fn, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3) * 2)
        assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(burnish.Unsupported, match="B403"):
        burnish.compile(fn, backend=backend, fullgraph=True)(torch.ones(3))
