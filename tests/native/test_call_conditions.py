"""Conditions around a call: errors, threads, their number, modes, kinds of inputs."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish.settings import patch

from ..runtime.concurrent_threads import at_once
from .compare_calls import compiled_with, equal_calls

WRONG = {
    "an index": (
        lambda x, i: F.embedding(i, x) + 1,
        (torch.randn(4, 2), torch.tensor([0, 9])),
        (torch.randn(4, 2), torch.tensor([0, 3])),
    ),
    "an index to gather": (
        lambda x, i: x.gather(0, i) + 1,
        (torch.randn(4), torch.tensor([7])),
        (torch.randn(4), torch.tensor([3])),
    ),
    "a negative index": (
        lambda x, i: x[i] + 1,
        (torch.randn(4), torch.tensor([-5])),
        (torch.randn(4), torch.tensor([-4])),
    ),
    "a singular matrix": (lambda x: torch.linalg.inv(x) * 2, (torch.zeros(2, 2),), (torch.eye(2),)),
    "a matrix that is not positive": (lambda x: torch.linalg.cholesky(x) * 2, (-torch.eye(2),), (torch.eye(2),)),
    "an integer division by zero": (
        lambda x, y: x // y,
        (torch.tensor([4]), torch.tensor([0])),
        (torch.tensor([4]), torch.tensor([3])),
    ),
    "a probability": (lambda x: torch.bernoulli(x) + 1, (torch.tensor([2.0]),), (torch.tensor([0.5]),)),
    "a target class": (
        lambda x, t: F.nll_loss(x, t) * 2,
        (torch.randn(2, 3), torch.tensor([0, 5])),
        (torch.randn(2, 3), torch.tensor([0, 2])),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_of_data_are_raised_as_in_eager_and_the_next_call_is_right(name):
    fn, wrong, right = WRONG[name]
    compiled = compiled_with(fn, *right)
    with torch.no_grad():
        with pytest.raises(Exception) as expected:
            fn(*wrong)
        with pytest.raises(type(expected.value)) as raised:
            compiled(*wrong)
        assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]
        torch.manual_seed(1)
        want = fn(*right)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(*right), want)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x + y[:, :3],
        lambda x, y: x @ y,
        lambda x, y: x.view(5),
        lambda x, y: x.add_(torch.ones(2, 4, 6)),
        lambda x, y: x.int().add_(1.5),
        lambda x, y: x.expand(4, 6).unsqueeze(0).expand(3, 4, 6)[0].unsqueeze(0).expand(2, 4, 6).add_(1),
    ],
    ids=["broadcast", "product", "view", "in place", "dtype in place", "expanded in place"],
)
def test_errors_of_shapes_and_dtypes_are_eagers(fn):
    equal_calls(fn, torch.randn(4, 6), torch.randn(4, 6), ways=("refused", "views", "native", "library"))


def work(x):
    return F.layer_norm(torch.softmax(x * 2, -1) @ x.t(), (x.shape[0],)).sum(0)


def test_threads_each_get_their_own_results():
    inputs = [torch.randn(64, 96) for _ in range(4)]
    compiled = compiled_with(work, inputs[0])
    with torch.no_grad():
        wanted = [compiled(x).clone() for x in inputs]
    wrong = []

    def run(x, want):
        with torch.no_grad():
            for _ in range(40):
                if not torch.equal(compiled(x), want):
                    wrong.append(x)

    at_once(*(partial(run, *pair) for pair in zip(inputs, wanted, strict=True)))
    assert not wrong


def test_the_number_of_threads_may_change_between_calls():
    x = torch.randn(512, 512)
    compiled = compiled_with(work, x)
    exact = work(x.double())
    with torch.no_grad():
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            errors = [(found - exact).abs().max().item() for found in (compiled(x), work(x))]
            assert errors[0] <= 2 * errors[1], errors  # which of the sums is rounded how is not the same


def test_inference_mode_gives_inference_tensors():
    x = torch.randn(4, 6)
    compiled = burnish.compile(lambda x: (x.exp(), x.t()), backend="burnish")
    with patch(never_slower=False, on_error="raise"):
        for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
            for _ in range(2):
                with mode():
                    found, turned = compiled(x)
                    torch.testing.assert_close(found, x.exp())
                    assert found.is_inference() == x.exp().is_inference()
                    assert turned.is_inference() == x.t().is_inference()


def test_inference_tensors_may_come_in():
    with torch.inference_mode():
        x = torch.randn(4, 6)
        compiled = compiled_with(lambda x: x.mul_(2) + 1, x)
        given, other = x.clone(), x.clone()
        torch.testing.assert_close(compiled(given), other.mul_(2) + 1)
        torch.testing.assert_close(given, other)


@pytest.mark.falls_back("limit")
def test_inputs_of_other_layouts_get_code_of_their_own():
    compiled = burnish.compile(lambda x: (x * 2).sum(0), backend="burnish")
    x = torch.randn(6, 6)
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        for _ in range(2):
            for given in (x, x.t(), x[::2], x[:, ::2], x[:1].expand(6, 6), x.double(), x[:0], x[:, :0], x[2:3]):
                torch.testing.assert_close(compiled(given), (given * 2).sum(0))


def test_random_numbers_are_eagers_with_the_setting():
    def fn(x):
        return F.dropout(x, 0.5) + torch.rand_like(x), torch.randn(3), torch.bernoulli(torch.full((4,), 0.5))

    equal_calls(fn, torch.randn(4, 6))


def test_the_random_state_is_left_alone_by_compiling():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    compiled_with(lambda x, w: F.gelu(F.linear(x, w)), torch.ones(8, 16), torch.ones(4, 16))
    assert torch.equal(torch.get_rng_state(), before)
