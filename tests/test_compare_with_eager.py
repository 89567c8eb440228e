"""With the setting `check` the first calls of a compiled graph are compared with eager."""

from dataclasses import replace

import pytest
import torch

import burnish
from burnish.compiler import compare_with_eager
from burnish.errors import InternalError
from burnish.ir.rewriter import Rewriter
from burnish.lower.passes.canonicalize_products import ProductCanonicalizer
from burnish.ops.scalar_ir import make
from burnish.schedule import pipeline

from .seeding import seed


@pytest.fixture(autouse=True)
def comparison(monkeypatch):
    monkeypatch.setattr(compare_with_eager, "is_on", True)


@pytest.fixture
def wrong_products(monkeypatch):
    """A pass that doubles each product."""
    right = ProductCanonicalizer.rewrite

    def rewrite(self, node, args, kwargs):
        made = right(self, node, args, kwargs)
        return made if made is None else self.build("mul.Tensor", made, 2)

    monkeypatch.setattr(ProductCanonicalizer, "rewrite", rewrite)


def call_twice(f, *args):
    compiled = burnish.compile(f)
    for _ in range(3):
        made = compiled(*args)
    return made


def test_wrong_result_is_found(wrong_products):
    def f(x, w):
        return x.sin(), torch.relu(x @ w)

    with pytest.raises(InternalError) as caught:
        call_twice(f, torch.randn(4, 5), torch.randn(5, 6))
    message = str(caught.value)
    assert "output 1 differs by up to " in message and "and eager's numbers go up to " in message
    assert "test_compare_with_eager.py" in message and "burnish bisect" in message


def test_number_that_is_read_from_a_tensor_may_be_rounded_otherwise():
    third = torch.tensor(1 / 3)
    got, want = third.item(), torch.nextafter(third, torch.tensor(1.0)).item()
    compare_with_eager.look([got], [want], ["output 0"], "a graph")
    for got, want in ((0.25, 0.75), (1 / 3, 1 / 3 + 1e-8)):
        with pytest.raises(InternalError, match="output 0 differs"):
            compare_with_eager.look([got], [want], ["output 0"], "a graph")


def test_float64_of_a_number_of_float32_may_be_rounded_otherwise():
    third = torch.tensor([1 / 3])
    got, want = third.double(), torch.nextafter(third, torch.ones(1)).double()
    compare_with_eager.look([got], [want], ["output 0"], "a graph", lambda: [want])
    for got, want in ((third.double(), third.double() + 1e-8), (third.double(), torch.tensor([0.34]).double())):
        with pytest.raises(InternalError, match="output 0 differs"):
            compare_with_eager.look([got], [want], ["output 0"], "a graph", lambda want=want: [want])


def test_wrong_kernel_is_found(monkeypatch):
    right = pipeline.build_kernel

    def build_kernel(*args):
        launch = right(*args)
        loop = launch.kernel.loops[0]
        stage = loop.stages[0]
        (store,) = stage.stores
        negative = make("neg", store.value.dtype, (store.value,), None)
        stage = replace(stage, stores=(replace(store, value=negative),))
        loop = replace(loop, stages=(stage,))
        return replace(launch, kernel=replace(launch.kernel, loops=(loop,)))

    monkeypatch.setattr(pipeline, "build_kernel", build_kernel)
    with pytest.raises(InternalError, match="output 0 differs"):
        call_twice(lambda x: x.sin() + 2, torch.randn(64))


def test_wrong_write_is_found(wrong_products):
    def f(x, w):
        x.copy_(torch.relu(x @ w))

    with pytest.raises(InternalError, match="input 0, at the end, differs"):
        call_twice(f, torch.randn(5, 5), torch.randn(5, 5))


def test_wrong_gradient_is_found(monkeypatch):
    right = Rewriter.run

    def run(self):
        graph = right(self)
        if isinstance(self, ProductCanonicalizer):
            graph.outputs = [*graph.outputs[:1], *reversed(graph.outputs[1:])]
        return graph

    monkeypatch.setattr(Rewriter, "run", run)
    x, y = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    compiled = burnish.compile(lambda x, y: (x.sin() * y.exp()).sum())
    with pytest.raises(InternalError, match="backward of a graph .*: the gradient of input 0 differs"):
        for _ in range(3):
            compiled(x, y).backward()


def test_wrong_gradient_of_one_piece_is_found(monkeypatch):
    right = Rewriter.run

    def run(self):
        graph = right(self)
        if isinstance(self, ProductCanonicalizer):
            graph.outputs = [*graph.outputs[:-2], *reversed(graph.outputs[-2:])]
        return graph

    monkeypatch.setattr(Rewriter, "run", run)
    x, y = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def f(x, y):
        features = x.sin() * y.exp()
        return features, features.square().sum()

    compiled = burnish.compile(f)
    with pytest.raises(InternalError, match="backward of a graph .*: the gradient of input 0 differs"):
        for _ in range(3):
            compiled(x, y)[1].backward()


@pytest.mark.parametrize("start", [0, 1])
def test_gradients_of_pieces_are_compared(start, monkeypatch):
    seen = []
    right = compare_with_eager.look
    monkeypatch.setattr(compare_with_eager, "look", lambda *args: (seen.append(args[3]), right(*args)))
    weight = torch.randn(3, 3, requires_grad=True)

    def f(x):
        features = (x @ weight).tanh()
        return features, features.exp() * weight

    compiled = burnish.compile(f)
    for _ in range(3):
        outputs = compiled(torch.randn(3, 3, requires_grad=True))
        sum(x.square().sum() for x in outputs[start:]).backward()
    assert any(name.startswith("backward") for name in seen)


def test_inputs_are_written_once_and_views_stay_views():
    def f(x, y):
        x.mul_(2)
        y.add_(1)
        return x + y

    base = torch.ones(8)
    compiled = burnish.compile(f)
    for n in range(1, 4):
        compiled(base[:4], base[2:6])
    twin = torch.ones(8)
    for _ in range(3):
        f(twin[:4], twin[2:6])
    assert torch.equal(base, twin)


@pytest.mark.parametrize("eager_random", [False, True])
def test_random_numbers_are_generated_once(eager_random):
    def f(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.randn(32, 32)
    made = []
    for is_checked in (False, True):
        burnish.reset()
        seed(3)
        with burnish.settings.patch(check=is_checked, eager_random=eager_random):
            compiled = burnish.compile(f)
            made.append([compiled(x) for _ in range(4)])
    for a, b in zip(*made, strict=True):
        assert torch.equal(a, b)


def test_roundings_of_a_sum_that_cancels_out_are_not_a_fault():
    def f(x):
        return (x * 1e8).sum() - x.sum() * 1e8

    call_twice(f, torch.randn(1000))


def test_nan_and_infinity_are_equal_to_themselves():
    x = torch.tensor([0.0, -1.0, float("inf"), float("nan")])
    call_twice(lambda x: (x.log(), x / 0, x - x), x)


def test_memory_that_nothing_was_written_to_is_not_compared():
    def f(x):
        return torch.empty_like(x), x + 1

    call_twice(f, torch.randn(1000))


def test_only_first_calls_are_compared(monkeypatch):
    looked = []
    right = compare_with_eager.look
    monkeypatch.setattr(compare_with_eager, "look", lambda *args: (looked.append(1), right(*args)))
    compiled = burnish.compile(lambda x: x.sin() + 1)
    for _ in range(8):
        compiled(torch.randn(4))
    assert len(looked) == compare_with_eager.CALLS


@pytest.mark.parametrize(
    "got,want,why",
    [
        (torch.ones(2), torch.ones(2), None),
        (torch.ones(2), torch.ones(2) + 1e-5, None),
        (torch.ones(2), torch.ones(2) + 1e-2, "differs by up to"),
        (torch.ones(2), torch.ones(2).double(), "has the dtype"),
        (torch.ones(2), torch.ones(3), "has the shape"),
        (torch.ones(2, 3), torch.ones(3, 2).T, "has the strides"),
        (torch.ones(1, 3), torch.ones(3, 1).T, None),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "differs in 50.0%"),
        (1.5, 1.5, None),
        (1.5, 2, "is 1.5, and eager's 2"),
        (torch.tensor([float("nan")]), torch.ones(1), "differs by up to inf"),
    ],
)
def test_values_are_compared(got, want, why):
    found = compare_with_eager.why_different(got, want)
    assert found is None if why is None else why in found


def test_gradients_that_are_only_roundings_are_compared_with_float64():
    """A bias in front of a batch norm has the gradient 0, and each kernel its own roundings of it."""
    layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 8))
    compiled = burnish.compile(lambda x: (layers(x) * 1e3).pow(2).sum())
    for _ in range(4):
        compiled(torch.randn(256, 64)).backward()


@pytest.mark.parametrize("writes", [False, True])
def test_backward_is_compared_unless_a_weight_was_written_past_autograd(writes, monkeypatch):
    seen = []
    right = compare_with_eager.look
    monkeypatch.setattr(compare_with_eager, "look", lambda *args: (seen.append(args[3]), right(*args)))
    weight = torch.randn(3, 3, requires_grad=True)
    compiled = burnish.compile(lambda x: (x @ weight).sum())
    for _ in range(3):
        out = compiled(torch.randn(2, 3, requires_grad=True))
        if writes:
            weight.data.mul_(5)
        out.backward()
    assert any(name.startswith("backward") for name in seen) is not writes
