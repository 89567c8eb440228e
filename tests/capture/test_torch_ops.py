"""Operators with special call forms: einsum, scatter, embedding, one-hot, reductions, convolution, custom operators."""

import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.capture.pytorch import recorder_fast_path
from burnish.settings import patch

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_einsum_with_changing_equations():
    def fn(equation, *operands):
        return torch.einsum(equation, *operands)

    a, b = torch.randn(2, 3), torch.randn(3, 4)
    return fn, [("ij,jk->ik", a, b), ("ij->j", a), ("ij,jk", a, b), ("ii->i", torch.randn(3, 3)), ("ij,jk->ik", a, b)]


@program(breaks=0)
def test_scatter_in_its_forms():
    def fn(x, index, src):
        y = x.scatter(1, index, src)
        z = x.scatter_add(1, index, src)
        x.scatter_(1, index, 5.0)
        return y, z, x, x.scatter_reduce(1, index, src, reduce="amax")

    return fn, lambda i: (torch.randn(2, 4), torch.randint(0, 4, (2, 3)), torch.randn(2, 3))


@program(breaks=0)
def test_embedding_with_padding_and_bags():
    table = nn.Embedding(5, 2, padding_idx=0)
    bag = nn.EmbeddingBag(5, 2, mode="mean")

    def fn(x):
        return table(x), bag(x), F.embedding(x, table.weight * 2)

    return fn, [(torch.randint(0, 5, s),) for s in ((2, 3), (1, 4), (2, 3))]


@program_with_caller
def test_embedding_gradient_leaves_padding_alone():
    table = nn.Embedding(4, 2, padding_idx=1, sparse=False)

    def fn(x):
        return table(x).pow(2).sum()

    def caller(fn, x):
        table.zero_grad()
        fn(x).backward()
        return table.weight.grad

    return fn, caller, lambda i: (torch.randint(0, 4, (5,)),)


@program
def test_embedding_renormalises_its_weight_in_place():
    table = nn.Embedding(4, 2, max_norm=1.0)
    table.weight.requires_grad_(False)
    return table, lambda i: (torch.tensor([i % 4, (i + 1) % 4]),), table


@program
def test_one_hot_with_and_without_a_size():
    def fn(x, n):
        return F.one_hot(x, n) if n else F.one_hot(x)

    return fn, [(torch.tensor(v), n) for v, n in (([0, 2], 0), ([0, 4], 0), ([1, 1], 5), ([0, 2], 0))]


@program(breaks=0)
def test_reductions_over_dimensions():
    def fn(x, dim, keep):
        return x.sum(dim, keepdim=keep), x.mean(dim=dim), x.std(dim, correction=0), x.logsumexp(dim), x.amax(dim)

    return fn, [(torch.randn(2, 3, 4), *c) for c in ((0, False), ((0, 2), True), (-1, False), ([1], True), (0, False))]


@program(breaks=0)
def test_reductions_without_dimensions_and_arguments():
    def fn(x):
        return (
            x.sum(),
            x.min(),
            x.argmax(),
            x.prod(),
            x.median(),
            x.var(),
            x.norm(),
            x.count_nonzero(),
            x.all(),
            torch.std_mean(x),
        )

    return fn, lambda i: (torch.randn(5),)


@program(breaks=0)
def test_convolutions_with_options_of_each_kind():
    weight = torch.randn(2, 1, 3, 3)

    def fn(x, stride, padding):
        return F.conv2d(x, weight, stride=stride, padding=padding), F.max_pool2d(x, 2), F.avg_pool2d(x, 2, stride)

    return fn, [(torch.randn(1, 1, 6, 6), *c) for c in ((1, 0), (2, 1), ((1, 2), "valid"), (1, "same"), (1, 0))]


@program(breaks=0)
def test_interpolation_and_padding():
    def fn(x, size, mode):
        y = F.interpolate(x, size=size, mode=mode) if size else F.interpolate(x, scale_factor=2.0, mode=mode)
        return F.pad(y, (1, 0, 0, 1), value=2.0), F.pad(x, (1, 1, 1, 1), mode="reflect"), y.shape

    options = ((None, "nearest"), (5, "nearest"), ((2, 4), "bilinear"), (None, "nearest"))
    return fn, [(torch.randn(1, 1, 3, 3), *o) for o in options]


@program(breaks=0)
def test_normalisations():
    layers = nn.ModuleList([nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4)])

    def fn(x):
        return [layer(x) for layer in layers], F.normalize(x, dim=-1), F.layer_norm(x, (4,))

    return fn, lambda i: (torch.randn(3, 4),)


@program(breaks=0)
def test_every_activation_of_a_list():
    acts = [F.relu, F.gelu, torch.tanh, F.silu, F.softplus, lambda x: F.leaky_relu(x, 0.2), nn.ELU(), nn.Hardswish()]

    def fn(x, n):
        return [act(x) for act in acts[:n]]

    return fn, [(torch.randn(4), n) for n in (8, 3, 8)]


@program(breaks=0)
def test_comparison_chain_of_clamp_and_sign():
    def fn(x, low, high):
        y = x.clamp(low, high)
        return y, y.sign(), torch.minimum(x, y), (x > y) | (x < low if low is not None else x != x), x.lerp(y, 0.5)

    return fn, [(torch.randn(4), *c) for c in ((-0.5, 0.5), (None, 0.0), (0.0, None), (-0.5, 0.5))]


@program(breaks=0)
def test_sorting_with_ties_and_searching():
    def fn(x, values):
        ordered, index = torch.sort(x, stable=True)
        places = torch.searchsorted(ordered, values), torch.bucketize(values, ordered)
        return ordered, index, places, x.argsort(descending=True)

    lists = ([3.0, 1.0, 2.0], [2.0, 2.0, 1.0], [0.0, 0.0, 9.0])
    return fn, [(torch.tensor(v), torch.tensor([1.5, 2.0])) for v in lists]


@program
def test_decompositions_of_matrices():
    def fn(a):
        spd = a @ a.mT + torch.eye(3, dtype=a.dtype)
        q, r = torch.linalg.qr(a)
        solved = torch.linalg.solve(spd, a), spd.inverse()
        return torch.linalg.cholesky(spd), q.abs() @ r.abs(), solved, torch.linalg.det(spd)

    return fn, lambda i: (torch.randn(3, 3, dtype=torch.float64),)


@program
def test_singular_matrix_raises_and_is_repaired():
    def fn(a):
        try:
            return torch.linalg.inv(a)
        except torch.linalg.LinAlgError:
            return torch.linalg.pinv(a)

    return fn, [
        (torch.tensor(v, dtype=torch.float64),)
        for v in ([[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]], [[2.0, 1.0], [0.0, 2.0]])
    ]


@program
def test_histograms_and_counts_of_data():
    def fn(x):
        counts = torch.bincount(x)
        return counts, torch.histc(x.float(), bins=3, min=0, max=3), x.unique_consecutive(), torch.cumsum(counts, 0)

    return fn, [(torch.tensor(v),) for v in ([0, 1, 1], [3, 3, 0], [5], [0, 1, 1])]


@program(breaks=0)
def test_cat_stack_and_friends_of_lists_and_generators():
    def fn(parts, dim):
        together = torch.cat(parts, dim)
        return together, torch.stack([p.sum() for p in parts]), torch.block_diag(*parts), torch.vstack(tuple(parts))

    return fn, [([torch.randn(2, 2) for _ in range(n)], d) for n, d in ((2, 0), (3, 1), (1, -1), (2, 0))]


@program(breaks=0)
def test_operators_written_as_symbols():
    def fn(x, y, k):
        a = x + y - k * x / (y**2 + 1) // 1 % 3
        return a, x @ y, -x, +y, abs(x), x > k, (x < y) & ~(x == y), k - x, 2**x, k / y, k @ y if k is x else k * y

    return fn, [(torch.randn(3), torch.randn(3), k) for k in (1, 2.5, 1, 3)]


@program(breaks=0)
def test_functions_as_values():
    def fn(x, names):
        for op in (getattr(torch, n) for n in names):
            x = op(x)
        method = torch.Tensor.mul
        return method(x, 2), torch.Tensor.sum(x), list(map(torch.sin, x.unbind())), x.__add__(1), 1 + x

    return fn, [(torch.randn(3), n) for n in (("sin", "cos"), ("exp",), (), ("sin", "cos"))]


@program
def test_data_dependent_repeat():
    def fn(x, counts):
        y = x.repeat_interleave(counts)
        return y, y.shape[0], torch.split(y, counts.tolist())

    return fn, [(torch.arange(3.0), torch.tensor(c)) for c in ([1, 2, 3], [0, 0, 1], [2, 2, 2], [1, 2, 3])]


def test_a_custom_operator_that_returns_tensors_and_a_list_of_them():
    @torch.library.custom_op("burnish_tests::some_and_more", mutates_args=())
    def some_and_more(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return x + 1, [x * 2, x * 3]

    def fn(x):
        some, more = some_and_more(x.sin())
        return some + more[1], more

    with patch(on_error="raise", never_slower=False):
        compiled = burnish.compile(fn)
        for _ in range(3):
            x = torch.randn(3)
            torch.testing.assert_close(compiled(x), fn(x))


@torch.library.custom_op("ops_tests::above", mutates_args=())
def above(x: torch.Tensor, least: float) -> torch.Tensor:
    return x[x > least].clone()


@torch.library.custom_op("ops_tests::shifted", mutates_args=())
def shifted(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


@shifted.register_fake
def _(x, by):
    return torch.empty_like(x)


@program(breaks=1)
def test_a_registered_operator_whose_size_depends_on_the_data():
    def fn(x):
        found = torch.ops.ops_tests.above(x, 0.5)
        return found[:4] * 2, found.shape[0], found[-2:]

    return fn, lambda i: (torch.linspace(0, 1, 12) ** (i + 1),)


@program(breaks=0)
def test_a_registered_operator_with_a_shape_rule():
    def fn(x):
        return torch.ops.ops_tests.shifted(x.sin(), 2.0)[:4] * 2

    return fn, lambda i: (torch.randn(12),)


@program(breaks=0)
def test_pooling_with_indices_does_not_teach_how_pooling_without_is_recorded():
    recorder_fast_path._learned.pop(F.adaptive_max_pool1d, None)

    def fn(x):
        values, where = F.adaptive_max_pool1d(x, 3, return_indices=True)
        return values, where, F.adaptive_max_pool1d(x, 2) * 2

    return fn, [(torch.randn(2, 3, 7, requires_grad=True),) for _ in range(3)]
