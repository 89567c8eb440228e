"""Sparse tensors inside a function: the calls that take or make them run as they are, and the rest is compiled."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burnish

from .compare_training import alike

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def made(places, values, sizes=(5, 5)):
    return torch.sparse_coo_tensor(places, values, sizes, check_invariants=True)


def product(model, places, values, x):
    return (torch.sparse.mm(made(places, values.sin() * 2), model(x).tanh()) * 2).relu().sum()


def dense(model, places, values, x):
    return made(places, values.sin() * 2 + 1).to_dense() @ model(x).tanh().cos() + x.sin().sum() * 2


def given(model, places, values, x):
    graph = made(places, values)
    return layers(model, graph, x)


def layers(model, graph, x):
    """A convolution over the edges of a graph, twice."""
    x = torch.spmm(graph, model(x)).relu()
    return F.log_softmax(torch.spmm(graph, model(x).tanh() * 2) + x, 1)


def added(model, places, values, x):
    y = (model(x) @ torch.ones(4, 5)).sin()
    return ((y + made(places, values.cos() * 3)) * 2).sigmoid().mean()


def summed(model, places, values, x):
    y = model(x).tanh() * 2 + x.cos() * x.sin()
    return torch.sparse.sum(made(places, values.exp() + 1), 0).to_dense() @ (y * y).relu()


def compressed(model, places, values, x):
    graph = torch.sparse_csr_tensor(torch.arange(6), places[1, :5], values[:5].sin(), (5, 5))
    return (graph @ (model(x).tanh() * 2 + x)).relu() * 2 - x.cos()


def returned(model, places, values, x):
    return (model(x).sin() * 2 + x.cos()).relu().sum(), made(places, (values.sin() * 2).cos()).to_dense()


def scaled_in_place(model, places, values, x):
    graph = made(places, values.detach().cos() + 2)
    graph.mul_(3)
    y = model(x).tanh() * 2 + x
    return (torch.sparse.mm(graph, y.sin().relu() + y) * 2).cos() + x


def under_no_grad(model, places, values, x):
    with torch.no_grad():
        weights = torch.sparse.mm(made(places, values.exp() + 1), (x.sin() * 2).cos())
    return (model(x).tanh() * weights * 2 + weights).relu()


PROGRAMS = [product, dense, given, added, summed, compressed, returned, scaled_in_place, under_no_grad]


class Model(nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program, self.layer = program, nn.Linear(4, 4)

    def forward(self, *given):
        return self.program(self.layer, *given)


def training(make):
    def build(compiler):
        model = make()
        run = compiler(model)

        def step(*given):
            model.zero_grad()
            results = run(*given)
            first = results[0] if isinstance(results, tuple) else results
            first.square().sum().backward()
            if isinstance(results, torch.Tensor):
                return results.detach()
            return [result.detach() for result in results]

        return step, (model,)

    return build


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_surrounds_calls_with_sparse_tensors_is_compiled(program):
    def data(i):
        count = 5 + 5 * (i % 3)
        values = torch.randn(count, requires_grad=i % 2 == 0)
        return torch.randint(0, 5, (2, count)), values, torch.randn(5, 4)

    seen = alike(training(lambda: Model(program)), data, steps=12)
    assert (seen.breaks, seen.refused) == ([], [])
    assert seen.planned and seen.native


def test_a_sparse_graph_may_be_an_input():
    def data(i):
        return made(torch.randint(0, 5, (2, 6 + i)), torch.randn(6 + i)), torch.randn(5, 4)

    seen = alike(training(lambda: Model(layers)), data, steps=12)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], 1)
    assert seen.planned and seen.native


class Words(nn.Module):
    """Its tables get sparse gradients."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 4, sparse=True)
        self.bags = nn.EmbeddingBag(20, 4, mode="sum", sparse=True)
        self.table = nn.Parameter(torch.randn(20, 4))
        self.layer = nn.Linear(4, 4)

    def forward(self, words):
        rows = (self.layer(self.words(words)).tanh() * 2 + 1).relu()
        bags = (self.layer(self.bags(words.view(2, -1))) * 2).sin()
        picked = self.table.gather(0, words[:, None].expand(-1, 4), sparse_grad=True)
        return (rows * 2 + picked).cos().sum() + (bags * bags).sum()


def test_training_with_sparse_gradients_is_compiled():
    seen = alike(training(Words), lambda i: (torch.randint(0, 20, (6,)),), steps=12)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], 1)
    assert seen.planned and seen.native


def test_without_gradients_such_tables_are_compiled_as_a_whole():
    def build(compiler):
        model = Words().requires_grad_(False)
        return compiler(model), (model,)

    seen = alike(build, lambda i: (torch.randint(0, 20, (6,)),), steps=3)
    assert (seen.breaks, seen.refused, seen.segments, seen.native) == ([], [], 1, [])


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("sparse", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_a_sparse_tensor_with_a_history_may_be_written(sparse):
    def fn(x):
        return x.mul_(2)

    compiled = burnish.compile(fn)
    for i in range(3):
        found, expected = [], []
        for run, results in ((compiled, found), (fn, expected)):
            weight = torch.eye(3).mul_(i + 1).requires_grad_()
            result = run(getattr(weight * 3, sparse)())
            result.to_dense().sum().backward()
            results += [result.layout, result.to_dense(), weight.grad]
        assert found[0] is expected[0]
        torch.testing.assert_close(found[1:], expected[1:])
