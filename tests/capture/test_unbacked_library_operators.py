"""Library operators whose results have sizes from data (`torch.library.get_ctx().new_dynamic_size()`), in one graph."""

import itertools

import pytest
import torch
from torch import nn

import burnish
from burnish.errors import Unsupported

from .harness import program

COUNT = itertools.count()
VALUES = ([1.0, -1.0, 2.0, 0.2], [-1.0, -2.0, -3.0, -4.0], [4.0, 5.0, 6.0, 7.0], [-1.0, 7.0, -2.0, 0.4])


def vectors():
    return [(torch.tensor(values),) for values in VALUES]


def operator(function, fake):
    made = torch.library.custom_op(f"unbacked_library::op{next(COUNT)}", mutates_args=())(function)
    made.register_fake(fake)
    return made


def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


def positive_of(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kept = x[x > 0]
    return torch.outer(kept, kept), x[x < 0.5].clone(), x.sum()


def parts_of(x):
    ctx = torch.library.get_ctx()
    size = ctx.new_dynamic_size()
    return x.new_empty(size, size), x.new_empty(ctx.new_dynamic_size(min=0, max=99)), x.new_empty(())


@program(breaks=0)
def test_one_size_from_data():
    op = operator(positive, positive_of)

    def fn(x):
        y = op(x)
        return y, y * 2 + 1, y.sum(), y.reshape(-1, 1), torch.ones(y.shape[0])

    return fn, vectors()


@program(breaks=0)
def test_several_results_with_several_sizes():
    op = operator(parts, parts_of)

    def fn(x):
        square, low, total = op(x)
        return square.sum(1) * total, torch.cat([low, square.flatten()]).sin(), square.shape[0] + low.shape[0]

    return fn, vectors()


def test_positions_from_an_operator_through_the_compiler():
    def above(scores: torch.Tensor, threshold: float) -> torch.Tensor:
        return torch.nonzero(scores > threshold).flatten()

    def above_of(scores, threshold):
        return scores.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    op, linear = operator(above, above_of), nn.Linear(3, 2)

    def fn(boxes, scores):
        return linear(boxes[op(scores, 0.5)]).softmax(-1)

    compiled = burnish.compile(fn, fullgraph=True)
    for _ in range(4):
        given = torch.randn(6, 3), torch.rand(6)
        torch.testing.assert_close(compiled(*given), fn(*given))
    assert burnish.was_compiled(compiled)


def test_function_without_data_that_is_wrong_is_refused():
    op = operator(positive, lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size(), 2))
    with pytest.raises(Unsupported, match="size of its result depends on the data"):
        burnish.compile(lambda x: op(x) + 1, fullgraph=True)(torch.ones(3))
