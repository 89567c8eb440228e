"""torch.func over sizes that change: one graph of operators for all of them, as in a program without transforms."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap

import burnish
from burnish.captured_graph.symbolic_example_inputs import Like

from ..recorded_events import recorded
from .operator_backend import operators

SIZES = (3, 5, 6, 4, 9, 17, 8, 3)


def rows(*sizes):
    return torch.randn(*sizes)


def graphs_of(fn, make, sizes=SIZES, backend=operators):
    """How many graphs all these sizes need. Results and their strides are those of eager."""
    burnish.reset()
    compiled = burnish.compile(fn, backend=backend)
    with recorded("segment", datum="segment") as segments:
        for size in sizes:
            args = make(size)
            torch.testing.assert_close(compiled(*args), fn(*args), check_stride=True)
    return sum(segment.graph is not None for segment in segments)


def gradient(x):
    return grad(lambda t: (t.sin() * t).sum())(x)


def gradient_of_a_mean(x):
    return grad(lambda t: t.pow(2).mean())(x)


def gradient_of_a_deviation(x):
    return grad(lambda t: t.std() + t.var(0).sum())(x)


def size_read_inside(x):
    return grad(lambda t: (t.sin().view(t.shape[0], 2, 2).sum(-1) ** 2).sum() / t.shape[0])(x)


def arange_inside(x):
    return grad(lambda t: (t * torch.arange(t.shape[0], dtype=t.dtype)[:, None]).sum())(x)


def write_inside(x):
    def f(t):
        u = t.clone()
        u[:, 0] += 1
        return (u.mul_(t.shape[0]) * t).sum()

    return grad(f)(x)


def pullback_called_twice(x):
    y, pull = vjp(lambda t: t.cumsum(0) * 2, x)
    return y, pull(torch.ones_like(y))[0], pull(x)[0]


def forward_mode(x):
    return jvp(lambda t: (t @ t.t()).softmax(-1).sum(0), (x,), (torch.ones_like(x),))


def jacobians(x):
    return jacrev(lambda t: t.mean(0) * t.shape[0])(x), jacfwd(lambda t: t.sum(1))(x)


def pairs(x):
    return vmap(lambda a: vmap(lambda b: ((a - b) ** 2).sum())(x))(x)


def transforms_inside_each_other(x):
    return vmap(jacrev(lambda r: r.tanh() * r.sum()))(x)


def normalized(x):
    return grad(lambda t: F.layer_norm(t, (4,)).pow(3).sum() + F.normalize(t, dim=0).sum())(x)


PROGRAMS = (
    gradient,
    gradient_of_a_mean,
    gradient_of_a_deviation,
    size_read_inside,
    arange_inside,
    write_inside,
    pullback_called_twice,
    forward_mode,
    jacobians,
    pairs,
    transforms_inside_each_other,
    normalized,
)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph_of_operators_serves_all_sizes(fn):
    assert graphs_of(fn, lambda size: (rows(size, 4),)) == 2


def test_gradients_for_each_sample_are_compiled_for_all_batches():
    conv = nn.Conv2d(1, 2, 3)
    weights = {name: p.detach() for name, p in conv.named_parameters()}

    def fn(x):
        def loss(p, a):
            return functional_call(conv, p, (a[None],)).pow(2).mean()

        return vmap(grad(loss), (None, 0))(weights, x)

    assert graphs_of(fn, lambda size: (rows(size, 1, 6, 6),)) == 2


def test_gradients_flow_through_a_transform_of_any_size():
    def fn(x):
        y = vmap(lambda r: r.exp().sum() * r)(x).sum()
        return torch.autograd.grad(y, x)

    assert graphs_of(fn, lambda size: (rows(size, 4).requires_grad_(),)) == 2


def test_a_loss_takes_a_batch_and_its_labels_of_any_size():
    def fn(x, labels):
        return grad(lambda z: F.cross_entropy(z, labels))(x)

    assert graphs_of(fn, lambda size: (rows(size, 4), torch.randint(0, 4, (size,)))) == 2


def test_two_sizes_may_change_apart():
    def fn(x, y):
        return vmap(lambda a: vmap(lambda b: (a * b).sum())(y))(x)

    assert graphs_of(fn, lambda size: (rows(size, 4), rows(size % 4 + 2, 4))) <= 3


def test_a_size_of_one_is_broadcast_as_in_eager():
    def fn(x, weight):
        return grad(lambda w: ((x * w) ** 2).sum())(weight)

    graphs_of(fn, lambda size: (rows(size, 4), rows(size if size % 2 else 1, 4)), (3, 5, 4, 1, 7, 2, 0, 9, 1, 6))


def test_python_may_decide_by_a_size_inside_a_transform():
    def fn(x):
        return grad(lambda t: t.sum() if t.shape[0] > 6 else (t * t).sum())(x)

    assert graphs_of(fn, lambda size: (rows(size, 4),)) == 3


def test_the_programs_function_runs_once_for_each_trace():
    seen = []

    def fn(x):
        def loss(t):
            seen.append(len(seen))
            return t.pow(2).sum()

        return grad(loss)(x)

    burnish.reset()
    compiled = burnish.compile(fn, backend=operators)
    for size in SIZES:
        compiled(rows(size, 4))
    assert seen == list(range(len(SIZES)))


def test_an_error_at_one_size_is_that_of_eager():
    def fn(x):
        return grad(lambda t: (t.reshape(2, -1) ** 2).sum())(x)

    burnish.reset()
    compiled = burnish.compile(fn, backend=operators)
    for size in (4, 6, 8, 10):
        x = rows(size, 3)
        torch.testing.assert_close(compiled(x), fn(x))
    with pytest.raises(RuntimeError, match="invalid for input of size 15"):
        compiled(rows(5, 3))


def test_pullbacks_are_compiled_for_all_sizes_by_our_own_backend():
    assert graphs_of(pullback_called_twice, lambda size: (rows(size, 4),), backend="burnish") == 2


def test_no_tensor_of_the_trace_outlives_it():
    burnish.reset()
    compiled, held = burnish.compile(pullback_called_twice, backend=operators), []
    for size in SIZES[:3]:
        x = rows(size, 4)
        made = compiled(x)
        held += [weakref.ref(value) for value in (x, *made)]
        del x, made
    gc.collect()
    assert [ref() for ref in held] == [None] * len(held)


@pytest.mark.parametrize("backend", ["eager", operators])
def test_a_module_on_the_device_meta_serves_all_sizes(backend):
    module = nn.Linear(4, 3).to("meta")
    beside = torch.empty(4, 8, device="meta").t()[1:]
    parameters = {"weight": torch.ones(3, 4), "bias": torch.zeros(3)}

    def fn(x):
        return vmap(lambda row: functional_call(module, parameters, (row,)))(x), beside * 2 is None

    compiled = burnish.compile(fn, backend=backend)
    for size in (3, 5, 6, 4, 8):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), fn(x))


def test_sizes_without_an_example_are_compiled_apart(monkeypatch):
    def fn(x):
        return grad(lambda y: (y**3).mean())(x)

    def refuse(like):
        raise RuntimeError("no memory")

    compiled = burnish.compile(fn, backend="eager")
    for size in (3, 5, 6, 4, 8):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), fn(x))
        if size == 5:
            monkeypatch.setattr(Like, "made", refuse)
