"""Live scalars: one compilation serves all values of a Python number, with Python's arithmetic."""

import math

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish.ir.untraceable_graph import NumberLost, Untraceable
from burnish.lower.trace.trace_to_aten import trace
from burnish.settings import patch

from ..recorded_events import recorded

PROGRAMS = {
    "beside a tensor": lambda x, s: (x * s, s - x, x / s, torch.add(x, x, alpha=s)),
    "beside whole numbers": lambda x, s: (x.int() * s, x.int() + s),
    "beside half precision": lambda x, s: (x.bfloat16() * s, x.half() - s),
    "beside double precision": lambda x, s: (x.double() * s, x.double().add(x, alpha=s)),
    "as an option": lambda x, s: (F.leaky_relu(x, s), x.addcmul(x, x, value=-s), x.clamp(-s, s)),
    "as a limit": lambda x, s: (x > s, torch.where(x < s, x, s)),
    "made from others": lambda x, s: x * (1 - s**2) / (s + 1),
    "without a tensor's dimensions": lambda x, s: (x.sum() * s, x.mean() - s),
    "in what is drawn": lambda x, s: F.dropout(x, min(abs(s), 1.0)) + 1,
    "as a new tensor": lambda x, s: x + torch.full((3,), s) + torch.tensor(s),
    "alone": lambda x, s: (x * 2, s * 2),
}
VALUES = (0.5, 0.25, 2.0, 1.0, 0.0, -1.5, 1e-3, 3.0, 7.25, 1e6, 0.125)


@pytest.mark.falls_back("numbers", only=r"in what is drawn")
@pytest.mark.falls_back("limit", only=r"as a new tensor")
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_pythons(name):
    fn = PROGRAMS[name]
    x = torch.tensor([[-2.0, 0.5, 3.0], [1.0, -0.25, 8.0]])
    with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True):
        run = burnish.compile(fn)
        for value in VALUES:
            torch.manual_seed(0)
            want = fn(x, value)
            torch.manual_seed(0)
            torch.testing.assert_close(run(x, value), want)


WHOLE = {
    "beside a tensor": lambda x, n: (x * n, n - x, x / (n + 1), torch.add(x, x, alpha=n)),
    "beside whole numbers": lambda x, n: (x.int() * n, x.int() + n, x.long() - n, x.int() / (n + 1), x.int() % (n + 1)),
    "beside half precision": lambda x, n: (x.bfloat16() * n, x.half() - n),
    "as a limit": lambda x, n: (x > n, torch.where(x < n, x, n), x.clamp(-n, n)),
    "made from others": lambda x, n: x * (1 - 0.9**n) / (n + 1) + n // 2,
    "as a position": lambda x, n: (x[:, n % 3] * 2, x[:, : n % 4] + 1, x.roll(n, 1) - 1),
    "as a number of parts": lambda x, n: [part * 2 for part in torch.chunk(x, n % 3 + 1, 1)],
    "as a number of times": lambda x, n: (torch.diff(x, n=n % 3) * 2, x.repeat(n % 3 + 1, 1) + 1),
    "as a number of parts, more than there are": lambda x, n: sum(part.sum() for part in torch.chunk(x, 40 - n, 1)),
    "as a size": lambda x, n: (torch.ones(n % 3 + 1, 3) * 2, x.reshape(1 + n % 2, -1) + 1),
    "as a diagonal": lambda x, n: (x.triu(n - 3) * 2, x.diagonal(n % 3) + 1),
    "as an index that is left out": lambda x, n: F.nll_loss(x, torch.tensor([0, 2]), ignore_index=n),
    "as a factor that may be zero": lambda x, n: torch.addmm(x, x[:, :2], x[:, :3], beta=n % 2, alpha=n),
    "as a truth": lambda x, n: x * bool(n % 2) + (n > 3),
}


# Sizes as small as 1 give other operators, and the position of a diagonal is a constant.
@pytest.mark.falls_back("sizes", only=r"as a number of times|as a size")
@pytest.mark.falls_back("numbers", only=r"as a diagonal")
@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_pythons(name):
    fn = WHOLE[name]
    x = torch.tensor([[-2.0, 0.5, 3.0], [1.0, -0.25, 8.0]])
    with torch.no_grad(), patch(never_slower=False, on_error="raise", segment_limit=100):
        run = burnish.compile(fn)
        for number in (3, 5, 3, 5, 1, 2, 1, 7, 0, 0, 9, 4, 12, 12, 2, 30):
            torch.testing.assert_close(run(x, number), fn(x, number), msg=lambda text, n=number: f"{n}: {text}")


def test_a_bool_beside_a_number_is_not_a_number():
    run = burnish.compile(lambda x, n, flag: x * n + flag)
    with patch(never_slower=False, on_error="raise"):
        for n, flag in ((2, True), (3, False), (4, True), (5, False), (6, True), (7, False)):
            assert torch.equal(run(torch.ones(2), n, flag), torch.full((2,), float(n + flag)))


@pytest.mark.parametrize("kind", (int, float))
def test_one_compilation_takes_all_numbers(kind):
    with recorded("loops") as compiled, torch.no_grad(), patch(never_slower=False, on_error="raise"):
        run = burnish.compile(lambda x, s: (x * s * 0.01).exp())
        for k in map(kind, range(40)):
            assert torch.allclose(run(torch.ones(3), k), torch.full((3,), 0.01 * k).exp())
    assert 0 < len(compiled) <= 2, "once for the first number, once for all others"


@pytest.mark.parametrize("kind", (int, float))
def test_numbers_beside_an_input_that_is_written_to(kind):
    def fn(x, n):
        y = x * n
        x.add_(1.0)
        return y

    with patch(never_slower=False, on_error="raise"):
        run = burnish.compile(fn)
        for n in map(kind, range(6)):
            x = torch.ones(3)
            assert torch.equal(run(x, n), torch.full((3,), float(n)))
            assert torch.equal(x, torch.full((3,), 2.0))


def test_numbers_that_backward_reads():
    """Autograd saves tensors alone."""

    def fn(x, w, s):
        return (F.linear(x, w) * s).square().mean() + s * w.square().mean()

    with recorded("graph.failed", datum="text") as failed, patch(never_slower=False, on_error="raise"):
        run, x = burnish.compile(fn), torch.randn(4, 3)
        for value in VALUES:
            w = torch.randn(2, 3, requires_grad=True)
            (found,) = torch.autograd.grad(run(x, w, value), w)
            torch.testing.assert_close(found, torch.autograd.grad(fn(x, w, value), w)[0])
    assert not failed


def test_a_number_that_decides_how_many_parts_there_are_is_not_open():
    """Torch cuts a row of three into three for any large number of parts."""
    gm = torch.fx.symbolic_trace(lambda x, n: (torch.chunk(x, n, 1)[0] * 2,))
    with pytest.raises((NumberLost, Untraceable)):
        trace(gm, [torch.ones(2, 3), 2], live_scalar_types=(int,))
    assert trace(gm, [torch.ones(2, 3), 2]).graph.nodes


@pytest.mark.parametrize(
    "fn",
    (lambda x, n: (torch.ones(n) + 1,), lambda x, n: (x.expand(n, 2, 3) * 2,), lambda x, n: (torch.arange(n) * 2,)),
)
def test_a_number_used_as_a_size_is_specialized(fn):
    with pytest.raises((NumberLost, Untraceable)):
        trace(torch.fx.symbolic_trace(fn), [torch.ones(2, 3), 4], live_scalar_types=(int,))


@pytest.mark.parametrize("value", [2, 2.5, True])
def test_a_number_that_torch_makes_a_tensor_of_is_cast(value):
    """So `torch.vmap` casts a number to the dtype of what it is multiplied with."""

    def fn(x):
        return torch.ops.aten._to_copy.default(value, dtype=torch.float32) * x, torch.ops.aten._to_copy.default(value)

    x = torch.randn(3)
    compiled = burnish.compile(fn, fullgraph=True)
    for _ in range(2):
        for found, wanted in zip(compiled(x), fn(x), strict=True):
            assert found.dtype == wanted.dtype and torch.equal(found, wanted)


def test_a_number_that_is_returned_twice():
    """It has no memory that two results could share."""

    def fn(x):
        largest = x.max()
        return x * 2, largest.item(), f"{largest.item():.3f}", [largest.item()]

    compiled = burnish.compile(fn, fullgraph=True)
    for _ in range(3):
        x = torch.randn(5)
        found, wanted = compiled(x), fn(x)
        assert found[1:] == wanted[1:] and torch.equal(found[0], wanted[0])


def test_a_function_that_has_no_result_for_some_numbers_is_compiled():
    """As the mixing of images takes the root of what a random share leaves."""

    def fn(x):
        share = x.mean().item()
        return x * math.sqrt(1 - share) + math.log(2 - share) / (share - 0.75)

    with recorded("lower.refused", datum="text") as refused, burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(fn)
        for share in (0.25, 0.5, -3.0, 0.125):
            x = torch.full((4,), share)
            torch.testing.assert_close(compiled(x), fn(x))
        assert refused == [] and burnish.was_compiled(compiled)
        for share, kind in ((1.5, ValueError), (0.75, ZeroDivisionError)):
            with pytest.raises(kind):
                compiled(torch.full((4,), share))
        torch.testing.assert_close(compiled(x), fn(x))


CLAMPS = {
    "below": lambda x, n: x.clamp(max=n),
    "above": lambda x, n: torch.clamp(x, n),
    "between": lambda x, n: (x * 2).clamp_(n, 2.0),
    "of several": lambda x, n: torch._foreach_maximum([x, x + 1], n)[1],
}


@pytest.mark.parametrize("clamp", CLAMPS.values(), ids=CLAMPS)
def test_a_bound_that_the_graph_reads_may_be_nan(clamp):
    def fn(x, bound):
        return clamp(x, bound.sum().item()) * 2

    compiled = burnish.compile(fn, fullgraph=True)
    x = torch.tensor([-1.0, 0.5, 3.0, math.nan])
    for bound in (1.0, 0.25, math.nan, 2.0, math.inf):
        torch.testing.assert_close(
            compiled(x, torch.tensor([bound])), fn(x, torch.tensor([bound])), equal_nan=True, rtol=0, atol=0
        )


CONVERTED = {
    "filled": lambda x, n: x.masked_fill(x > 0, n),
    "filled in place": lambda x, n: (x * 1).masked_fill_(x > 0, n),
    "a factor of the second": lambda x, n: torch.sub(x, x, alpha=n),
    "a factor of the product": lambda x, n: x.addcmul(x, x, value=n),
    "a factor of all products": lambda x, n: torch._foreach_addcdiv([x], [x], [x + 3], value=n)[0],
    "a weight": lambda x, n: torch.lerp(x, x + 1, n),
    "a slope": lambda x, n: F.leaky_relu(x, n),
    "a scale": lambda x, n: F.elu(x, n),
    "a threshold": lambda x, n: F.softplus(x, 1.0, n),
}


@pytest.mark.parametrize("call", [*CLAMPS.values(), *CONVERTED.values()], ids=[*CLAMPS, *CONVERTED])
def test_a_number_that_the_tensor_cannot_hold_raises_an_error(call):
    state = [0.0]

    def fn(x):
        return call(x, state[0])

    compiled = burnish.compile(fn)
    x = torch.tensor([-1.0, 0.5, 3.0])
    for bound in (1.0, 0.5, 1.5, 1.25, 1e39, 0.75, -1e39):
        state[0] = bound
        if abs(bound) < 1e38:
            torch.testing.assert_close(compiled(x), fn(x))
            continue
        with pytest.raises(RuntimeError) as expected:
            fn(x)
        with pytest.raises(RuntimeError, match=str(expected.value).partition("\n")[0]):
            compiled(x)
