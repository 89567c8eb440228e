"""Of several symbolic sizes, only those that cannot vary are specialized."""

import pytest
import torch
import torch.nn.functional as F

import burnish

from .compare_sizes import called_with, watching


@pytest.mark.parametrize(
    "name, fn",
    [
        ("joined", lambda x: torch.cat([x * 2, torch.ones(3, 5)], 1) + 1),
        ("joined, and its size asked for", lambda x: (y := torch.cat([x * 2, torch.ones(3, 5)], 1)) * y.shape[1] + 1),
        ("added", lambda x: x + torch.arange(3.0)[:, None]),
        ("taken by a call before", lambda x: (x.new_zeros(x.shape[0], x.shape[1]) + x).t() @ torch.ones(3, 2)),
        ("a product", lambda x: (torch.ones(4, 3) @ x).view(2, 2 * x.shape[1])),
        ("asked for by Python", lambda x: torch.cat([x, torch.ones(3, 2)], 1) * (2 if x.shape[0] == 3 else 1)),
    ],
)
def test_a_size_shared_with_something_else_leaves_the_other_one_symbolic(name, fn):
    seen = called_with(fn, [(torch.randn(3, n),) for n in (4, 5, 9, 40, 300, 7)], dynamic=True)
    assert seen.segments == 1 and not seen.why_closed


def test_the_row_that_is_fixed_is_guarded():
    def fn(x):
        try:
            return torch.cat([x * 2, torch.ones(3, 5)], 1).sum(1)
        except RuntimeError:
            return x.sum(0)

    called_with(fn, [(torch.randn(m, n),) for m, n in ((3, 4), (3, 9), (2, 9), (2, 4), (3, 30))], dynamic=True)


class Cache:
    def __init__(self):
        self.keys = torch.tensor([])


def test_a_conversation_in_another_batch_is_compiled_for_all_its_lengths():
    """The batch size of tokens is already known to vary when a cache is first seen; that of the cache is not."""

    def fn(x, cache):
        x = F.layer_norm(x, (8,))
        cache.keys = torch.cat([cache.keys, x], -2)
        return F.scaled_dot_product_attention(x, cache.keys, cache.keys)

    burnish.reset()
    with watching() as seen, torch.no_grad():
        compiled = burnish.compile(fn)
        for batch, tokens in ((6, 1), (3, 20), (2, 20)):
            mine, theirs = Cache(), Cache()
            for token in range(tokens):
                x = torch.randn(batch, 1 if token else 5, 8)
                torch.testing.assert_close(compiled(x, mine), fn(x, theirs))
    assert seen.segments < 8


def test_sizes_that_no_input_of_a_graph_has():
    def only_one(x, y, z):
        return x.sin() * 2 if y.shape[0] < z.shape[1] else x.cos() + y.shape[0]

    calls = [(4, 5, 9), (3, 7, 10), (8, 4, 5), (6, 9, 4), (5, 6, 6), (7, 30, 4)]
    calls = [(torch.randn(m, 128), torch.randn(n, 16), torch.randn(2, k)) for m, n, k in calls]
    seen = called_with(only_one, calls, dynamic=True)
    assert seen.is_open and not seen.why_apiece and seen.segments == 2, seen.words


def test_sizes_that_only_python_reads_before_a_break():
    def two_graphs(x, y):
        first = x.sin()
        burnish.graph_break()
        return first * y.shape[0], y.cos() + first.sum()

    calls = [(torch.randn(m, 12), torch.randn(n, 16)) for m, n in ((4, 5), (3, 7), (8, 2))]
    seen = called_with(two_graphs, calls, dynamic=True)
    assert seen.is_open and not seen.why_apiece, seen.words


def test_a_graph_after_a_break_whose_only_size_is_a_constant():
    def pooled(x, rows):
        kept = x[rows]
        return kept.view(x.shape[0], -1, 8)[:, -1].tanh() @ torch.ones(8, 2)

    calls = [(torch.randn(n, m, 8), torch.ones(n, m, dtype=torch.bool)) for n, m in ((13, 7), (13, 9), (13, 4))]
    seen = called_with(pooled, calls, dynamic=True)
    assert not seen.why_apiece, seen.words
