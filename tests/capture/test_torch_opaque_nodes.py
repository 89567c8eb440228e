"""Opaque Python calls in a graph whose results change: the call runs again, and no effect is repeated."""

import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import burnish

from ..forked_programs import TORCH, run_program

BACKENDS = pytest.mark.parametrize("backend", ["eager", "burnish"])


def reader(held):
    class Held(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * held["scale"]

        @staticmethod
        def backward(ctx, gradient):
            gradient = gradient.float()
            return gradient.sum(0) if gradient.dim() > 1 else gradient

    return Held


def scale_of_call(k):
    return torch.ones(4) if k < 3 else torch.ones(k, 4, dtype=torch.float64)


@BACKENDS
def test_inputs_written_before_a_custom_function_are_written_once(backend):
    held = {"scale": torch.ones(4)}
    function = reader(held)

    def fn(x, buffer):
        buffer.add_(1)
        made = function.apply(x * buffer.sum())
        return made.sum(-1) * made.shape[0]

    compiled, x, buffers = burnish.compile(fn, backend=backend), torch.randn(4), [torch.ones(4), torch.ones(4)]
    for k in range(6):
        held["scale"] = scale_of_call(k)
        torch.testing.assert_close(compiled(x, buffers[0]), fn(x, buffers[1]))
        assert torch.equal(*buffers)
    report = burnish.explain(fn)(x, torch.ones(4))
    assert report.graph_count == 2
    (reason,) = report.break_reasons
    assert "what was written before could not be undone" in str(reason)


@pytest.mark.falls_back("refused", only=".*burnish")
@BACKENDS
def test_inputs_written_after_a_custom_function_are_written_once_in_one_graph(backend):
    held = {"scale": torch.ones(4)}
    function = reader(held)

    def fn(x, buffer):
        made = function.apply(x)
        buffer.add_(made.sum().float())
        return made.sum(-1) * made.shape[0]

    compiled, x, buffers = burnish.compile(fn, backend=backend), torch.randn(4), [torch.ones(4), torch.ones(4)]
    for k in range(6):
        held["scale"] = scale_of_call(k)
        torch.testing.assert_close(compiled(x, buffers[0]), fn(x, buffers[1]))
        assert torch.equal(*buffers)
    assert burnish.explain(fn)(x, torch.ones(4)).graph_count == 1


@pytest.mark.falls_back("refused", only=".*burnish")
@BACKENDS
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_results_may_change_under_checkpointing(backend, use_reentrant):
    held = {"scale": torch.ones(4)}
    function = reader(held)

    def fn(x):
        return (function.apply((x * 2).sin()).sin() * 3).sum()

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    compiled(torch.arange(4.0))
    assert burnish.was_compiled(compiled)
    for k in range(6):
        held["scale"] = scale_of_call(k)
        gradients = []
        for run in (fn, compiled):
            x = torch.arange(4.0).requires_grad_()
            checkpoint(run, x, use_reentrant=use_reentrant).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.falls_back("refused", only=".*burnish")
@BACKENDS
def test_hooks_for_saved_tensors_see_each_once(backend):
    held = {"scale": torch.ones(4)}
    function = reader(held)

    def fn(x):
        return (function.apply((x * 2).sin()).sin() * 3).sum()

    compiled = burnish.compile(fn, backend=backend)
    compiled(torch.arange(4.0).requires_grad_())
    held["scale"] = torch.ones(5, 4, dtype=torch.float64)
    packed = []
    for run in (fn, compiled):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, seen=seen: seen.append(x.shape) or x, lambda x: x):
            run(torch.arange(4.0).requires_grad_())
        packed.append(seen)
    assert packed[0] == packed[1]


@torch.library.custom_op("burnish_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


class Positive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[x > 0].clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def in_graph(x):
    return x[x > 0].clone()


burnish.allow_in_graph(in_graph)


@pytest.mark.falls_back("limit")
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("select", [positive, Positive.apply, in_graph], ids=["operator", "function", "in graph"])
@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_sizes_of_results_may_depend_on_data(select, dynamic, backend):
    def fn(x):
        y = select(x * 2)
        return y * y.shape[0], y.sum() + x.mean()

    compiled = burnish.compile(fn, dynamic=dynamic, backend=backend)
    for size, count in ((6, 1), (6, 3), (7, 3), (8, 2), (9, 4), (9, 0), (9, 6), (12, 7), (12, 1)):
        x = -torch.ones(size)
        x[:count] = 1
        for made, expected in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(made, expected)


class FirstOnes(torch.autograd.Function):
    """Its size follows from data by way of Python, without an operator that has such a size."""

    @staticmethod
    def forward(ctx, x):
        return x.narrow(0, 0, int((x > 0).sum())).clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.cat([gradient, gradient.new_zeros(6 - gradient.shape[0])])


class SplitAtCount(FirstOnes):
    """Torch reads the number out of memory: no operator is called."""

    @staticmethod
    def forward(ctx, x):
        return torch.tensor_split(x, (x > 0).sum().reshape(1))[0].clone()


class FrozenForSome(torch.autograd.Function):
    """What depends on data is whether the result requires gradients."""

    @staticmethod
    def forward(ctx, x):
        made = x.narrow(0, 0, 1) * 2
        if bool((x > 0).sum() > 2):
            ctx.mark_non_differentiable(made)
        return made

    @staticmethod
    def backward(ctx, gradient):
        return torch.cat([gradient * 2, gradient.new_zeros(5)])


class CountInBuffer(FirstOnes):
    @staticmethod
    def forward(ctx, x):
        count = torch.zeros(2, dtype=torch.long)
        count[0] = (x > 0).sum()
        return x.narrow(0, 0, int(count[0])).clone()


class CopyInBuffer(FirstOnes):
    @staticmethod
    def forward(ctx, x):
        copy = torch.zeros(6)
        copy.copy_(x)
        return x[: int((copy > 0).sum())].clone()


class SumInBuffer(FirstOnes):
    @staticmethod
    def forward(ctx, x):
        count = torch.tensor(0)
        torch.sum(x > 0, 0, out=count)
        return x.narrow(0, 0, count.item()).clone()


READ_DATA = [FirstOnes, SplitAtCount, FrozenForSome, CountInBuffer, CopyInBuffer, SumInBuffer]


@pytest.mark.falls_back("limit")
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("function", READ_DATA)
def test_a_function_that_reads_data_by_any_call_is_compared(function, backend, writes):
    def fn(x, total):
        if writes:
            total.add_(1)
        y = function.apply(x * 2)
        return y * y.shape[0], y.requires_grad, y.shape[0]

    compiled = burnish.compile(fn, backend=backend)
    totals = torch.zeros(2), torch.zeros(2)
    for count in (1, 3, 3, 2, 5, 1, 6):
        x = -torch.ones(6)
        x[:count] = 1
        x.requires_grad_()
        made, expected = compiled(x, totals[0]), fn(x, totals[1])
        assert made[1:] == expected[1:]
        torch.testing.assert_close((made[0], totals[0]), (expected[0], totals[1]))


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        scale = torch.arange(x.shape[-1], device=x.device) + 1
        return x * torch.sigmoid(x * scale)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Turned(torch.autograd.Function):
    """Operators change the shape of a tensor in place."""

    @staticmethod
    def forward(ctx, x):
        y = torch.ones(1, dtype=x.dtype) * x
        y.t_().unsqueeze_(0)
        return y.squeeze(0).t() + 0

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@pytest.mark.parametrize("function", [Swish, Doubled, Turned])
def test_a_function_that_reads_no_data_is_in_the_graph_behind_a_write(function):
    def fn(x, total):
        total.add_(1)
        return function.apply(x * 2) + 1

    compiled = burnish.compile(fn, fullgraph=True)
    totals = torch.zeros(2), torch.zeros(2)
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        torch.testing.assert_close(compiled(x, totals[0]), fn(x, totals[1]))
    assert torch.equal(*totals)


@torch.library.custom_op("burnish_tests::with_fake", mutates_args=())
def with_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@with_fake.register_fake
def _(x):
    return torch.empty_like(x)


class Forward(torch.autograd.Function):
    """Torch has no kernel in C++ that runs without data for what these call."""

    @staticmethod
    def backward(ctx, gradient):
        return torch.zeros(3, 4)


class Picked(Forward):
    @staticmethod
    def forward(ctx, x):
        return x[torch.arange(2)]


class Normalized(Forward):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.batch_norm(x, None, None, training=True)


class Attended(Forward):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])


class OfUser(Forward):
    @staticmethod
    def forward(ctx, x):
        return with_fake(x)


class Solved(Forward):
    @staticmethod
    def forward(ctx, x):
        return torch.linalg.lu_solve(*torch.linalg.lu_factor(torch.eye(3)), x)


class Put(Forward):
    @staticmethod
    def forward(ctx, x):
        return x.clone().index_put_((torch.arange(2),), torch.ones(4))


@pytest.mark.parametrize("function", [Picked, Normalized, Attended, OfUser, Solved, Put])
def test_types_that_rules_of_the_compiler_know_do_not_depend_on_data(function):
    def fn(x, total):
        total.add_(1)
        return function.apply(x * 2) + 1

    compiled = burnish.compile(fn, fullgraph=True)
    totals = torch.zeros(2), torch.zeros(2)
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        made, expected = compiled(x, totals[0]), fn(x, totals[1])
        assert made.stride() == expected.stride()
        torch.testing.assert_close(made, expected)
    assert torch.equal(*totals)


@torch.library.custom_op("burnish_tests::turned_for_some", mutates_args=())
def turned_for_some(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() if x.sum() > 0 else x.clone()


@pytest.mark.falls_back("limit")
@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_strides_of_results_may_depend_on_data(dynamic, backend):
    def fn(x):
        y = turned_for_some(x * 2)
        return y * 2, y.stride(), y.reshape(-1) + 1

    compiled = burnish.compile(fn, dynamic=dynamic, backend=backend)
    for rows, value in ((3, 1), (3, -1), (4, 1), (5, -1), (5, 1), (3, 1)):
        x = torch.arange(1.0, 1 + 4 * rows).reshape(rows, 4) * value
        made, expected = compiled(x), fn(x)
        assert made[1] == expected[1] and made[0].stride() == expected[0].stride()
        torch.testing.assert_close(made[0::2], expected[0::2])


draw = torch.randn


class Noisy(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * draw(4)


def test_finding_out_whether_a_function_reads_data_draws_no_random_numbers():
    def fn(x):
        return Noisy.apply(x * 2)

    x = torch.randn(3, 4)
    torch.manual_seed(0)
    made = burnish.compile(fn, backend="eager")(x), torch.rand(2)
    torch.manual_seed(0)
    torch.testing.assert_close(made, (fn(x), torch.rand(2)))


class Deprecated(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.softmax(x)


def test_finding_out_whether_a_function_reads_data_gives_no_warning_again():
    def fn(x):
        return Deprecated.apply(x * 2)

    compiled = burnish.compile(fn, backend="eager")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        compiled(torch.randn(3, 4))
    assert len(seen) == 1


WITHOUT_DYNAMO = """
import sys, torch, burnish

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        y.add_(x)
        return (y * 2.5).sum(1) @ torch.ones(3, dtype=x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.expand(3, 3) * 2.5

x = torch.ones(3, 3, requires_grad=True)
assert burnish.compile(lambda x: Doubled.apply(x) + 1)(x).item() == 23.5
print("torch._dynamo" in sys.modules)
"""


def test_the_run_without_data_imports_no_dynamo():
    assert run_program(WITHOUT_DYNAMO, prepare=TORCH).stdout == "False\n"


@BACKENDS
def test_a_lambda_that_is_allowed_in_the_graph_writes_to_nothing(backend):
    """The name of a node that ends in an underscore is that of a write."""
    weight = torch.ones(3)
    scaled = torch.compiler.allow_in_graph(lambda x: x * weight)
    burnish.reset()
    compiled = burnish.compile(lambda x: scaled(x) + 1, backend=backend, fullgraph=True)
    for k in range(3):
        x = torch.full((3,), float(k))
        assert torch.equal(compiled(x), x + 1)
