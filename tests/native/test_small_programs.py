"""Small programs through the compiler: values, strides, aliasing and mutation are eager's."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

import burnish

from ..recorded_events import recorded
from ..runtime.concurrent_threads import at_once
from ..seeding import seed
from .compare_training import alike


def both(fn, *inputs):
    """Eager's results and compiled code's, each on copies of the inputs, and the inputs afterwards."""
    outcomes = []
    for run in (fn, burnish.compile(fn)):
        with torch.no_grad():
            for _ in range(3):
                given = [x.clone() for x in inputs]
                result = run(*given)
        outcomes.append((result, given))
    return outcomes


PROGRAMS = {
    "element-wise chain": lambda x, y: torch.relu(x * 2 + y).sigmoid() * y,
    "softmax": lambda x, y: torch.softmax(x + y, -1),
    "softmax over the first": lambda x, y: torch.softmax(x, 0),
    "layer norm": lambda x, y: F.layer_norm(x + y, (6,)),
    "sums": lambda x, y: (x.sum(), x.sum(0), x.mean(1, keepdim=True), (x * y).amax(1)),
    "variance": lambda x, y: (x.var(), x.std(0), torch.var_mean(x, 1)),
    "argmax": lambda x, y: (x.argmax(), x.argmax(0), x.max(1), x.min(0)),
    "transposed": lambda x, y: (x.t() + y.t()).contiguous(),
    "reshaped": lambda x, y: (x * y).reshape(3, 8).transpose(0, 1).reshape(-1) + 1,
    "expanded": lambda x, y: x[:1].expand(4, 6) * y,
    "steps": lambda x, y: x[:, ::2] + y[:, 1::2],
    "flipped": lambda x, y: torch.flip(x, (1,)) + y,
    "joined": lambda x, y: torch.cat([x, y * 2], 1).relu(),
    "split": lambda x, y: tuple(part + 1 for part in torch.split(x * y, 2, 1)),
    "where": lambda x, y: torch.where(x > y, x, -y).masked_fill(x < 0, 3.0),
    "clamped": lambda x, y: x.clamp(-0.5, 0.5) + y.clamp_min(0),
    "casts": lambda x, y: (x * 100).to(torch.int32) + y.to(torch.bfloat16).to(torch.float64),
    "in place": lambda x, y: (x.add_(1), y.mul_(x), x[:, 1].zero_()),
    "in place on a view of an intermediate": lambda x, y: ((z := x * 2)[1:3].add_(y[1:3]), z),
    "aliases": lambda x, y: (x, x.t(), (z := x + y), z[0], z.view(-1)),
    "swapped": lambda x, y: (x.copy_(y), y.copy_(x + 1)),
    "products": lambda x, y: F.gelu(x @ y.t()) @ y + x,
    "gathered": lambda x, y: x[torch.tensor([0, 2, 2])] * y[1],
    "no elements": lambda x, y: (x[:0] + y[:0], x[:0].sum(0)),
}


@pytest.mark.parametrize("with_bias", [False, True])
def test_group_norm_with_infinite_weights_is_infinite_where_eager_is(with_bias):
    seed(0)
    weight, bias = torch.randn(6), torch.randn(6)
    weight[torch.tensor([1, 4])] = torch.tensor([torch.inf, -torch.inf])

    def fn(x, weight, bias):
        return F.group_norm(x, 2, weight, bias if with_bias else None)

    (wanted, _), (found, _) = both(fn, torch.randn(3, 6, 5) + 0.3, weight, bias)
    assert wanted[:, 1].isnan().any()
    assert wanted.isinf().any()
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_equals_eager(name):
    seed(0)
    (wanted, wanted_inputs), (found, found_inputs) = both(PROGRAMS[name], torch.randn(4, 6), torch.randn(4, 6))
    torch.testing.assert_close(found, wanted, check_stride=True)
    torch.testing.assert_close(found_inputs, wanted_inputs)


def test_aliases_of_results_share_memory():
    compiled = burnish.compile(PROGRAMS["aliases"])
    with torch.no_grad():
        for _ in range(3):
            x, y = torch.randn(4, 6), torch.randn(4, 6)
            same, turned, z, row, flat = compiled(x, y)
            assert same is x
            turned[0, 0] = 7
            z[0, 1] = 8
            assert x[0, 0] == 7 and row[1] == 8 and flat[1] == 8


def test_a_softmax_is_one_kernel():
    with recorded("loops", datum="plan") as plans, torch.no_grad():
        burnish.compile(lambda x: torch.softmax(x * 2, -1))(torch.randn(8, 32))
    assert [len(plan.steps) for plan in plans] == [1]


@pytest.mark.parametrize(
    "factor, solve",
    [(torch.linalg.lu_factor, torch.linalg.lu_solve), (torch.linalg.ldl_factor, torch.linalg.ldl_solve)],
)
def test_systems_that_were_factorized_before_are_solved_in_the_graph(factor, solve):
    """The compiler computes the result's type with pivots of its own. They must be valid: `ldl_solve` of torch 2.11
    does not check its arguments, and would write outside the matrix."""
    half = torch.randn(6, 6)
    factors, pivots = factor(half @ half.t() + torch.eye(6))
    seen = alike(
        lambda compiler: (compiler(lambda b: solve(factors, pivots, b * 2) + 1), {}),
        lambda i: (torch.randn(6, 3),),
        eager_random=False,
    )
    assert (seen.breaks, seen.refused, seen.planned) == ([], [], 1)


def test_index_out_of_range_raises_as_eager():
    compiled = burnish.compile(lambda table, i: F.embedding(i, table) * 2)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.randn(4, 2), torch.tensor([0, 3]))
        with pytest.raises(IndexError):
            compiled(torch.randn(4, 2), torch.tensor([0, 4]))


def test_threads_call_one_compiled_function_at_once():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).eval()
    compiled, wrong = burnish.compile(model), []
    inputs = [torch.randn(16, 64) for _ in range(4)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
        compiled(inputs[0])

    def work(x, want):
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(compiled(x), want, atol=1e-5):
                    wrong.append(x)

    at_once(*(partial(work, *pair) for pair in zip(inputs, wanted, strict=True)))
    assert not wrong


def test_autocast_is_compiled_in_and_does_not_cast_again():
    linear = torch.nn.Linear(8, 8)

    def fn(x):
        y = linear(x)
        with torch.autocast("cpu", enabled=False):
            return y, linear(x) * 2

    compiled = burnish.compile(fn)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(3):
            x = torch.randn(4, 8)
            torch.testing.assert_close(compiled(x), fn(x))


def test_nothing_is_called_from_a_path_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with torch.no_grad():
        compiled = burnish.compile(lambda x: torch.tanh(x) * 3)
        compiled(torch.ones(5))
        torch.testing.assert_close(compiled(torch.ones(5)), torch.tanh(torch.ones(5)) * 3)
