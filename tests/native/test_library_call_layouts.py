"""Library calls that ignore strides: a value inside a graph may have other strides than in eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burnish
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_calls import equal_calls


def transposed(*shape):
    """Its first dimension is the innermost one."""
    return torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))


def normed(x):
    """Contiguous in eager. An own kernel keeps the strides of x."""
    return F.layer_norm(x, x.shape[-1:])


def lstm(size, hidden, **options):
    torch.manual_seed(0)
    return nn.LSTM(size, hidden, **options)


PROGRAMS = {
    "attention": (lambda x: F.scaled_dot_product_attention(*[normed(x)] * 3), (1, 2, 6, 4)),
    "attention of a softmax": (lambda x: F.scaled_dot_product_attention(*[x.softmax(-1)[None]] * 3)[0], (2, 4, 8)),
    "attention with a mask": (
        lambda x: F.scaled_dot_product_attention(*[x.contiguous()] * 3, attn_mask=normed(x @ x.transpose(-1, -2))),
        (1, 2, 6, 4),
    ),
    "an LSTM": (lambda x, net=lstm(5, 7): net(normed(x))[0], (3, 2, 5)),
    "an LSTM both ways": (lambda x, net=lstm(5, 7, bidirectional=True): net(normed(x))[0], (3, 2, 5)),
    "a weight norm": (lambda x: torch._weight_norm(normed(x), x[:, :1].abs(), 0), (5, 4)),
    "distances": (lambda x: F.pdist(normed(x)), (5, 4)),
    "bags": (lambda x: F.embedding_bag(torch.tensor([0, 1, 2, 3]), normed(x), torch.tensor([0, 2])), (6, 4)),
    "draws": (lambda x: torch.multinomial(normed(x).sigmoid(), 2), (5, 4)),
    "another dtype": (lambda x: x.relu().softmax(-1).round().contiguous().view(torch.int16) + 1, (5, 4)),
}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "LSTM" not in name])
def test_a_kernel_gets_the_strides_of_eager(name):
    fn, shape = PROGRAMS[name]
    equal_calls(fn, transposed(*shape), ways=("native",))


WIDTH = 65


def without_gaps(x):
    """A copy in eager. Inside a graph it is a view of x."""
    return torch.narrow_copy(x, -1, 0, WIDTH)


PRODUCTS = {
    "a product": lambda x, w, y: without_gaps(x) @ w,
    "a linear layer": lambda x, w, y: F.linear(without_gaps(x), w.T.contiguous(), y[0]),
    "a scaled sum": lambda x, w, y: torch.addmm(y, without_gaps(x), w, beta=0.5),
    "a sum of products": lambda x, w, y: torch.addbmm(y, without_gaps(x).expand(2, -1, -1), w.expand(2, -1, -1)),
    "one matrix of a batch": lambda x, w, y: torch.bmm(without_gaps(x)[None], w[None])[0],
    "a layer with an activation": lambda x, w, y: F.linear(without_gaps(x), w.T, y[0]).relu(),
    "a convolution": lambda x, w, y: F.conv2d(w.view(1, WIDTH, 8, -1), without_gaps(x)[:, :, None, None]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_bf16_read_no_gap_of_a_view_that_eager_copies(name, dynamic):
    fn = PRODUCTS[name]
    torch.manual_seed(0)
    x, w, y = (torch.randn(shape, dtype=torch.bfloat16) for shape in ((33, 80), (WIDTH, 40), (33, 40)))
    x[:, WIDTH:] = torch.nan
    exact = fn(x.double(), w.double(), y.double())
    with torch.no_grad(), patch(never_slower=False, on_error="raise"), recorded("breaks", "graph.failed") as failed:
        compiled = burnish.compile(fn, dynamic=dynamic)
        for _ in range(3):
            error, eagers = ((result.double() - exact).norm() for result in (compiled(x, w, y), fn(x, w, y)))
            assert error <= 2 * max(eagers, (exact.bfloat16() - exact).norm())
    assert not failed


TRAINED = ("attention", "an LSTM", "an LSTM both ways", "a weight norm", "distances")


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_such_kernels_are_eagers(name):
    fn, shape = PROGRAMS[name]
    x = transposed(*shape).requires_grad_()
    for compiled in ran_compiled(fn, x):
        found, want = compiled(x), fn(x)
        torch.testing.assert_close(found, want)
        assert found.stride() == want.stride()
        found, want = (torch.autograd.grad(y.sin().sum(), x)[0] for y in (found, want))
        torch.testing.assert_close(found, want)
        assert found.stride() == want.stride()


@pytest.mark.parametrize("is_both", [False, True])
def test_an_lstm_of_frozen_weights_after_a_transposed_norm(is_both):
    net, x = lstm(5, 7, bidirectional=is_both).requires_grad_(False).eval(), transposed(3, 2, 5)
    fn = lambda x: net(normed(x))[0]  # noqa: E731
    for compiled in ran_compiled(fn, x):
        torch.testing.assert_close(compiled(x), fn(x))


def ran_compiled(fn, x, calls=3):
    """The compiled function, for each of some calls; none of them may be eager's but the first."""
    with recorded("lower.refused", datum="text") as refusals, patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        for _ in range(calls):
            yield compiled
    assert not refusals
