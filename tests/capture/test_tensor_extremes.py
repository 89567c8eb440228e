"""``min`` and ``max`` of tensors with one element, in one graph."""

import pytest
import torch

import burnish
from burnish.errors import Unsupported

from .caller_programs import program_with_caller
from .harness import program

NAN = float("nan")


def pairs():
    return [(torch.tensor(v),) for v in ([1.0, 2.0], [3.0, -1.0], [0.0, -0.0], [NAN, 1.0], [1.0, NAN], [-2.0, -2.5])]


@program(breaks=0)
def test_the_result_is_computed_with():
    def fn(x):
        low, high = min(x[0], x[1]), max([x[0] * 2, x[1], x.sum()])
        return (x - low) / (high - low + 1), low + 1, high * 2

    return fn, pairs()


@program(breaks=0)
def test_results_of_temporary_tensors_are_returned():
    def fn(x):
        return min(x[0] + 1, x[1] * 2), max(x.sum(), x.mean(), x.prod()), 1 / max(x[0] + 0, x[1] + 0).clone()

    return fn, pairs()


@program(breaks=0)
def test_other_dtypes_and_shapes():
    def fn(x):
        y = x.nan_to_num().long()
        return max(y[:1] + 1, y[1:] + 0), min(y[0] + 0, y[1] * 2) + 1, max(y[0] > 0, y[1] > 0)

    return fn, pairs()


@program_with_caller(breaks=0)
def test_the_result_is_the_object_that_python_chooses():
    kept = []

    def fn(x, a, b):
        first, second = x[0] + 1, x[1] + 1
        low = min(first, second)
        kept.append(max(a, b))
        return first, second, low, min(x[0], x[1]), max(a, b), [low, max(first, second, x.sum())]

    def caller(fn, x, a, b):
        first, second, low, view, high, (again, top) = fn(x, a, b)
        view.fill_(9)
        same = low is first, low is second, high is a, high is b, again is low, top is first, kept[-1] is high
        return x, low, high, top, same

    return fn, caller, [(x, x[0] * 2, x[1] + 0) for (x,) in pairs()], kept


def fails(fn, *args):
    burnish.reset()
    with pytest.raises(Unsupported):
        burnish.compile(fn, fullgraph=True)(*args)


def test_a_difference_that_can_be_seen_is_an_error():
    x = torch.tensor([1.0, 2.0])

    def written(x):
        a, b = x[0] + 1, x[1] + 1
        low = min(a, b)
        low.add_(1)
        return a, b

    fails(written, x)
    fails(lambda x: min(x[0], x[1]).view(1), x)
    fails(lambda a, b: a + 1 if max(a, b) is a else b + 1, x[0], x[1])
    fails(lambda x: min(x[0], x[1]) * 2, x.clone().requires_grad_())


def test_the_compiled_graph_gives_eagers_result():
    def fn(x):
        return (x * min(x.sum(), x.prod())).tanh(), max(x[0], x[1]) * 2

    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, options={"never_slower": False})
    for (x,) in pairs():
        torch.testing.assert_close(compiled(x), fn(x), equal_nan=True)
    assert burnish.was_compiled(compiled)
