"""Attention by own kernels: sizes around those of tiles and vectors, and threads."""

import copy
import sys

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import burnish
import burnish.targets.cpu  # noqa: F401  (registers our own kernels)
from burnish.schedule.library import choose_calls
from burnish.schedule.library.autotune_library_calls import choose
from burnish.schedule.library.call_specs import AttentionSpec
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.query_block_attention import own_attention, why_not_attention
from burnish.tensors.tensor_types import TensorType

from ..recorded_events import recorded

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="there are no kernels for this machine"
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


FLOATS = [
    torch.float32,
    pytest.param(
        torch.bfloat16,
        marks=pytest.mark.skipif(
            torch.bfloat16 not in matmul_tiling_and_packing.dtypes_of_tiles(), reason="does not multiply pairs of bf16"
        ),
    ),
]


@pytest.fixture(params=FLOATS, ids=str)
def dtype(request):
    """Of heads."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def heads(batch, count, rows, size):
    return torch.randn(batch, rows, count, size).transpose(1, 2)


def own_result(q, k, v, mask=None, is_causal=False):
    tensors = [q, k, v, *([mask] if mask is not None else [])]
    types = [TensorType.of(x) for x in tensors]
    spec = AttentionSpec(*types[:3], types[3] if mask is not None else None, is_causal)
    output = TensorType.contiguous(spec.output_shape, q.dtype)
    candidate = own_attention(spec, output)
    assert candidate is not None, why_not_attention(spec, output)
    return candidate.run(*tensors)


def check(q, k, v, is_causal=False):
    mine = own_result(q, k, v, is_causal=is_causal)
    eager, exact = (
        scaled_dot_product_attention(*(x.to(dtype) for x in (q, k, v)), is_causal=is_causal)
        for dtype in (q.dtype, torch.float64)
    )
    error, allowed = (mine.double() - exact).norm(), (eager.double() - exact).norm()
    if q.dtype is torch.bfloat16:  # eager's may be smaller than that of rounding by luck
        allowed = max(allowed, (exact.bfloat16().double() - exact).norm())
    assert error <= 2 * allowed + 1e-8 * exact.norm(), (error / exact.norm(), allowed / exact.norm())


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("queries", [1, 6, 7, 8, 13, 14, 15, 29])
@pytest.mark.parametrize("keys", [1, 15, 16, 17, 31, 33, 64])
def test_rows_and_keys_around_the_size_of_a_tile(dtype, queries, keys, is_causal):
    check(heads(4, 8, queries, 16), heads(4, 8, keys, 16), heads(4, 8, keys, 16), is_causal=is_causal)


@pytest.mark.parametrize("depth", [1, 3, 15, 17, 40, 300])
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 31, 32, 33, 50])
def test_sizes_of_heads_around_the_size_of_a_vector(dtype, depth, columns):
    if dtype is torch.bfloat16:
        depth += depth % 2
    # Of very small matrices eager sums in another order, which rounds less.
    check(heads(2, 2, 33, depth), heads(2, 2, 70, depth), heads(2, 2, 70, columns))


@pytest.mark.parametrize("is_causal", [False, True])
def test_sums_over_many_keys_are_made_in_blocks(dtype, is_causal):
    check(heads(1, 1, 70, 8), heads(1, 1, 1100, 8), heads(1, 1, 1100, 8), is_causal=is_causal)
    check(heads(1, 2, 600, 8), heads(1, 2, 600, 8), heads(1, 2, 600, 8), is_causal=is_causal)


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_special_scores_are_as_in_eager(dtype, special):
    q, k, v = heads(1, 1, 5, 4).abs(), heads(1, 1, 19, 4).abs(), heads(1, 1, 19, 4)
    k[0, 0, 17, 2] = special
    torch.testing.assert_close(own_result(q, k, v), scaled_dot_product_attention(q, k, v), equal_nan=True)


def test_masked_elements_are_not_read(dtype):
    """A mask may end at the end of its memory, and masked scores may be NaN."""
    q, k, v = heads(1, 2, 5, 8), heads(1, 2, 19, 8), heads(1, 2, 19, 8)
    mask = torch.zeros(1, 1, 5, 19)
    mask[..., 11:] = -torch.inf
    want = scaled_dot_product_attention(q, k[:, :, :11], v[:, :, :11])
    torch.testing.assert_close(own_result(q, k, v, mask), want)


@pytest.mark.parametrize("batch, count", [(1, 1), (1, 3), (2, 8)])
def test_threads_share_the_heads(dtype, batch, count):
    q, k, v = heads(batch, count, 130, 32), heads(batch, count, 130, 32), heads(batch, count, 130, 32)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(own_result(q, k, v, is_causal=True))
    torch.set_num_threads(1)
    assert all(torch.equal(results[0], other) for other in results)


def test_more_threads_than_there_were_at_first_get_regions_too():
    q, k, v = (heads(2, 8, 64, 32) for _ in range(3))
    spec = AttentionSpec(*(TensorType.of(x) for x in (q, k, v)))
    torch.set_num_threads(1)
    candidate = own_attention(spec, TensorType.contiguous(spec.output_shape, torch.float32))
    want = candidate.run(q, k, v)
    torch.set_num_threads(4)
    assert all(torch.equal(candidate.run(q, k, v), want) for _ in range(20))
    torch.set_num_threads(1)


@pytest.mark.parametrize("batch, count, shared_by", [(1, 6, 6), (1, 6, 2), (3, 4, 2)])
def test_heads_that_share_their_keys(dtype, batch, count, shared_by):
    q, k, v = heads(batch, count, 40, 16), *(heads(batch, count // shared_by, 33, 16) for _ in range(2))
    spec = AttentionSpec(*(TensorType.of(x) for x in (q, k, v)), enable_gqa=True)
    for threads in (1, 3):
        torch.set_num_threads(threads)
        candidate = own_attention(spec, TensorType.contiguous(spec.output_shape, dtype))
        repeated = (x.repeat_interleave(shared_by, 1) for x in (k, v))
        assert torch.equal(candidate.run(q, k, v), own_result(q, *repeated))
    torch.set_num_threads(1)


def test_keys_after_the_last_one_are_not_read(dtype):
    """Of an odd number of keys the last one has no neighbour: the memory after it may hold anything."""
    k, v = (torch.full((1, 1, 8, 6), torch.nan) for _ in range(2))
    k[:, :, :5], v[:, :, :5] = torch.randn(2, 1, 1, 5, 6)
    check(heads(1, 1, 3, 6), k[:, :, :5], v[:, :, :5])


def test_equal_values_are_the_result(dtype):
    """The weights of a query are divided by the sum of what is multiplied with the values, also after rounding."""
    v = torch.full((1, 2, 50, 16), 3.140625)
    assert own_result(heads(1, 2, 20, 16), heads(1, 2, 50, 16), v).sub(v[:, :, :20]).abs().max() <= 2**-20


@pytest.mark.parametrize("mixed", ["mask", "output"])
def test_other_dtypes_are_refused(mixed):
    q = TensorType.of(heads(1, 1, 4, 4).bfloat16())
    mask = TensorType.contiguous((1, 1, 4, 4), torch.float32) if mixed == "mask" else None
    output = TensorType.contiguous(q.shape, torch.bfloat16 if mixed == "mask" else torch.float32)
    assert why_not_attention(AttentionSpec(q, q, q, mask), output) == "the kernels compute in another dtype"
    odd = TensorType.of(heads(1, 1, 4, 3).bfloat16())
    why = why_not_attention(AttentionSpec(odd, odd, odd), odd)
    assert why in ("an odd number of bf16 has no pairs", "the kernels compute in another dtype")


def test_heads_that_cannot_be_shared_equally_are_refused():
    def why(queries, keys, values, **rest):
        q, k, v = (TensorType.of(heads(2, n, 5, 8)) for n in (queries, keys, values))
        spec = AttentionSpec(q, k, v, **rest)
        return why_not_attention(spec, TensorType.contiguous(spec.output_shape, torch.float32))

    assert why(6, 3, 3, enable_gqa=True) is None
    assert why(6, 4, 4, enable_gqa=True) == "heads are not shared alike"
    assert why(6, 3, 3) == "heads are not shared alike"
    assert why(6, 3, 1, enable_gqa=True) == "keys, values and queries are not of the same batch and heads"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.split, self.join = torch.nn.Linear(24, 72), torch.nn.Linear(24, 24)

    def forward(self, x):
        q, k, v = self.split(x).view(*x.shape[:2], 3, 3, 8).permute(2, 0, 3, 1, 4)
        return self.join(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


@pytest.fixture
def own_attention_only(monkeypatch):
    def prefer_own(spec, **rest):
        if not isinstance(spec, AttentionSpec):
            return choose(spec, **rest)
        return choose(spec, seconds=0.001, accept=lambda candidate: candidate.name == "own")

    monkeypatch.setattr(choose_calls, "choose", prefer_own)
    monkeypatch.setattr(sys.modules["burnish.schedule.library.autotune_library_calls"], "SMALL", 0)


def test_it_is_used_in_compiled_inference_and_training_keeps_torchs(own_attention_only):
    model, x = Block(), torch.randn(2, 21, 24)
    compiled = burnish.compile(model)
    with burnish.settings.patch(never_slower=False):
        with torch.no_grad():
            with recorded("loops", datum="text") as seen:
                for _ in range(2):
                    torch.testing.assert_close(compiled(x), model(x))
            assert any("run <own>" in text for text in seen), seen
        compiled(x).sum().backward()
        mine = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(x).sum().backward()
        for a, p in zip(mine, model.parameters(), strict=True):
            torch.testing.assert_close(a, p.grad)


@pytest.mark.skipif(
    torch.bfloat16 not in matmul_tiling_and_packing.dtypes_of_tiles(), reason="does not multiply pairs of bf16"
)
@pytest.mark.parametrize("rows", [1, 21, 40])
def test_it_is_used_in_bf16_with_at_most_twice_eagers_error(own_attention_only, rows):
    model, x = Block().bfloat16(), torch.randn(2, rows, 24).bfloat16()
    with burnish.settings.patch(never_slower=False), recorded("loops", datum="text") as seen, torch.no_grad():
        mine, eager = burnish.compile(model)(x), model(x)
        exact = copy.deepcopy(model).double()(x.double())
    assert any("run <own>" in text for text in seen), seen
    error, allowed = ((y.double() - exact).norm() for y in (mine, eager))
    assert error <= 2 * allowed and mine.dtype is torch.bfloat16 and mine.stride() == eager.stride()


def repeated(x, times):
    """As transformers does it."""
    batch, count, rows, size = x.shape
    return x[:, :, None].expand(batch, count, times, rows, size).reshape(batch, count * times, rows, size)


@pytest.mark.parametrize("form", ["repeated", "enable_gqa"])
def test_keys_and_values_are_not_copied_for_heads_that_share_them(own_attention_only, form):
    def fn(q, k, v):
        k, v = k * 2, v + 1
        if form == "enable_gqa":
            return scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return scaled_dot_product_attention(q, repeated(k, 3), repeated(v, 3))

    q, k, v = heads(2, 6, 21, 8), heads(2, 2, 17, 8), heads(2, 2, 17, 8)
    with burnish.settings.patch(never_slower=False), torch.no_grad(), recorded("loops", datum="text") as texts:
        compiled = burnish.compile(fn)
        for _ in range(2):
            torch.testing.assert_close(compiled(q, k, v), fn(q, k, v))
    assert "run <own>" in texts[0]
    assert "aten.clone" not in texts[0]


def test_one_of_keys_and_values_that_is_repeated_is_copied(own_attention_only):
    def fn(q, k, v):
        return scaled_dot_product_attention(q, repeated(k, 3), v)

    q, k, v = heads(2, 6, 21, 8), heads(2, 2, 17, 8), heads(2, 6, 17, 8)
    with burnish.settings.patch(never_slower=False), torch.no_grad():
        compiled = burnish.compile(fn)
        for _ in range(2):
            torch.testing.assert_close(compiled(q, k, v), fn(q, k, v))
