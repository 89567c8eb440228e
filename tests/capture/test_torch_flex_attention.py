"""FlexAttention: one node, computed tile by tile, whose score and mask functions are graphs."""

import math
import warnings

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, and_masks, create_block_mask, flex_attention, or_masks
from torch.utils._python_dispatch import TorchDispatchMode

import burnish
from burnish.runtime.eager.flex_attention import FlexAttention

from ..seeding import seed

HEADS, LENGTH, DEPTH = 4, 300, 16


@pytest.fixture(autouse=True)
def warned_already(monkeypatch):
    """Torch warns once in a process that eager computes all scores at once."""
    monkeypatch.setattr(flex, "_WARNINGS_SHOWN", {"flex_attention_performance"})
    torch.compiler.reset()  # eager compiles as well, and remembers all calls


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return q - k < 50


def tensors(batch=2, heads=HEADS, keys=LENGTH, queries=LENGTH, dtype=torch.float32):
    seed(0)
    shapes = [(batch, HEADS, queries, DEPTH), (batch, heads, keys, DEPTH), (batch, heads, keys, DEPTH)]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def block_mask(mask_mod, queries=LENGTH, keys=LENGTH, batch=None):
    return create_block_mask(mask_mod, batch, None, queries, keys, device="cpu")


seed(0)
SLOPES = torch.rand(HEADS)
BIAS = torch.randn(HEADS, 2 * LENGTH)
DOCUMENTS = torch.arange(LENGTH) // 70
PREFIX = torch.tensor([30, 120])
CLOSED = torch.zeros(LENGTH, dtype=torch.bool)


def alibi(score, b, h, q, k):
    return score + SLOPES[h] * (k - q)


def capped(score, b, h, q, k):
    return 20 * torch.tanh(score / 20)


def biased(score, b, h, q, k):
    return score + BIAS[h, q - k + LENGTH]


CASES = {
    "plain": (None, None),
    "causal": (None, causal),
    "window": (None, and_masks(causal, window)),
    "documents": (None, and_masks(causal, lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k])),
    "prefix": (None, or_masks(causal, lambda b, h, q, k: k < PREFIX[b])),
    "alibi": (alibi, causal),
    "capped": (capped, None),
    "biased": (biased, causal),
    "a mask for each head": (alibi, lambda b, h, q, k: (q - k) % (h + 1) == 0),
    "rows without keys": (None, lambda b, h, q, k: (q > 20) & ~CLOSED[k] & (k >= q - 5)),
}


def attended(fn, *given, backend="burnish", calls=3):
    """Results of the last of some calls: all of them ran in one graph."""
    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    return [compiled(*given) for _ in range(calls)][-1]


def assert_close_to_float64(found, expected, exact):
    """At most twice eager's error, and a rounding of the result."""
    rounding = torch.finfo(expected.dtype).eps * exact.abs().max().item()
    allowed = 2 * (expected.double() - exact).abs().max().item() + rounding
    assert found.dtype is expected.dtype and found.stride() == expected.stride()
    assert (found.double() - exact).abs().max().item() <= allowed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_formula_in_float64(case, dtype):
    score_mod, mask_mod = CASES[case]
    mask = None if mask_mod is None else block_mask(mask_mod, batch=2 if case == "prefix" else None)

    def fn(q, k, v):
        return flex_attention(q * 2, k, v, score_mod=score_mod, block_mask=mask)

    given = tensors(dtype=dtype)
    expected, exact = fn(*given), fn(*[x.double() for x in given])
    assert_close_to_float64(attended(fn, *given), expected, exact)


@pytest.mark.parametrize("backend", ["eager", lambda gm, inputs: gm.forward], ids=["eager", "custom"])
def test_other_backends_get_a_node(backend):
    mask = block_mask(causal)

    def fn(q, k, v):
        b = BIAS * 2
        out = flex_attention(q, k, v, lambda s, _, h, i, j: s + b[h, i - j + LENGTH], mask)
        return out + flex_attention(q, k, v, alibi)

    given = tensors()
    torch.testing.assert_close(attended(fn, *given, backend=backend), fn(*given))


def test_the_node_handed_over_is_torchs_operator():
    seen = []

    def backend(gm, inputs):
        seen.extend(node.target for node in gm.graph.nodes)
        return gm.forward

    attended(lambda q, k, v: flex_attention(q, k, v, alibi), *tensors(), backend=backend)
    assert torch.ops.higher_order.flex_attention in seen


def test_shared_heads_scale_and_lse():
    def fn(q, k, v):
        return flex_attention(q, k, v, enable_gqa=True, scale=0.3, return_aux=AuxRequest(lse=True))

    given = tensors(heads=2)
    (out, aux), (expected, other) = attended(fn, *given), fn(*given)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(aux.lse, other.lse)
    assert type(aux) is type(other) and aux.max_scores is None


def test_lse_by_the_old_argument_warns_once_as_in_eager():
    compiled = burnish.compile(lambda q, k, v: flex_attention(q, k, v, return_lse=True))
    given = tensors()
    with pytest.warns(FutureWarning, match="return_lse is deprecated"):
        first = compiled(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = compiled(*given)
    torch.testing.assert_close(second, first)
    assert len(compiled.__burnish_program__.entry.segments) == 2


def test_transposed_queries_give_transposed_results():
    def fn(q, k, v):
        return flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), block_mask=mask)

    mask = block_mask(causal, 40, 40)
    given = [torch.randn(2, 40, 3, 8) for _ in range(3)]
    found, expected = attended(fn, *given), fn(*given)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("queries,keys", [(1, 700), (130, 700), (257, 513), (5, 3)])
def test_lengths_that_are_no_multiples_of_a_tile(queries, keys):
    mask = block_mask(lambda b, h, q, k: q + 600 >= k, queries, keys)

    def fn(q, k, v):
        return flex_attention(q, k, v, capped, mask)

    given = tensors(queries=queries, keys=keys)
    torch.testing.assert_close(attended(fn, *given), fn(*given))


# The sums over blocks of a mask whose length is open are not compiled, and what follows them is for each size.
BLOCKS_IN_GRAPH = pytest.mark.falls_back("refused", "numbers", "sizes")


@pytest.mark.parametrize("made", ["before", pytest.param("in the graph", marks=BLOCKS_IN_GRAPH), "none"])
def test_lengths_that_vary_stay_open(made):
    """After eight graphs a function would run eagerly."""

    def fn(x, mask):
        if made == "in the graph":
            mask = create_block_mask(causal, None, None, x.shape[2], x.shape[2], device="cpu")
        return flex_attention(x, x, x, alibi, mask)

    compiled = burnish.compile(fn, fullgraph=True)
    for length in (40, 50, 60, 70, 80, 90, 100, 300, 310, 35):
        x = torch.randn(1, HEADS, length, DEPTH)
        mask = block_mask(causal, length, length) if made == "before" else None
        torch.testing.assert_close(compiled(x, mask), fn(x, mask))
    assert len(compiled.__burnish_program__.entry.segments) <= 4


@pytest.mark.falls_back("refused")
def test_sizes_that_fit_no_longer_are_torchs_errors():
    """Lengths are open: whether they fit each other is guarded."""
    mask = block_mask(causal, 40, 40)
    compiled = burnish.compile(lambda q, k: flex_attention(q, k, k, block_mask=mask if k.shape[2] < 99 else None))
    for queries, keys in ((40, 40), (50, 120), (60, 130), (40, 40)):
        q, k = (torch.randn(1, HEADS, length, DEPTH) for length in (queries, keys))
        torch.testing.assert_close(compiled(q, k), flex_attention(q, k, k, block_mask=mask if keys < 99 else None))
    for shape in ((1, 3, 40, DEPTH), (1, HEADS, 41, DEPTH), (2, HEADS, 40, DEPTH), (1, HEADS, 40, DEPTH + 1)):
        q, k = torch.randn(1, HEADS, 40, DEPTH), torch.randn(shape)
        with pytest.raises(Exception) as expected:
            flex_attention(q, k, k, block_mask=mask)
        with pytest.raises(type(expected.value)) as found:
            compiled(q, k)
        assert str(found.value) == str(expected.value)


def test_infinite_scores():
    def fn(q, k, v):
        return flex_attention(
            q,
            k,
            v,
            lambda s, b, h, i, j: torch.where((i == 3) & (j == 5), math.inf, s),
            return_aux=AuxRequest(lse=True),
        )

    given = tensors()
    torch.testing.assert_close(attended(fn, *given)[0], fn(*given)[0], equal_nan=True)
    torch.testing.assert_close(attended(fn, *given)[1].lse, fn(*given)[1].lse, equal_nan=True)


def test_masks_are_seen_when_their_tensors_change():
    """The tiles that a mask leaves out are remembered for the content of its tensors, not for the tensors."""
    documents = torch.zeros(LENGTH, dtype=torch.int64)
    mask = block_mask(lambda b, h, q, k: documents[q] == documents[k])
    compiled = burnish.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), fullgraph=True)
    given = tensors()
    for limit in (300, 128, 10, 128):
        documents.data.copy_(torch.arange(LENGTH) // limit)
        torch.testing.assert_close(compiled(*given), flex_attention(*given, block_mask=mask))


def node_of(fn, *given):
    """The node's target."""
    nodes = []

    def backend(gm, inputs):
        nodes.extend(node.target for node in gm.graph.nodes if isinstance(node.target, FlexAttention))
        return gm.forward

    burnish.register_backend(backend, name="seeing", runs_python=True)
    attended(fn, *given, backend="seeing", calls=1)
    return nodes[0]


def test_memory_grows_with_the_length_and_not_with_its_square():
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            for x in made if isinstance(made, (tuple, list)) else (made,):
                if isinstance(x, torch.Tensor):
                    self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
            return made

    length = 2048
    documents = torch.arange(length) // 100
    mask = block_mask(lambda b, h, q, k: documents[q] == documents[k], length, length)
    given = tensors(1, queries=length, keys=length)
    node = node_of(lambda q, k, v: flex_attention(q, k, v, capped, mask), *given)
    operands = [x.requires_grad_() for x in given]
    with Largest() as largest:
        node(*operands, documents)[0].sum().backward()
    assert 0 < largest.elements <= 1 << 20 < HEADS * length * length


def test_tables_in_closures_are_rebound():
    table = SLOPES

    def fn(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + table[h] * (i - j).abs())

    compiled, given = burnish.compile(fn, fullgraph=True), tensors()
    for value in (SLOPES, SLOPES * 2, SLOPES * 3):
        table = value
        torch.testing.assert_close(compiled(*given), fn(*given))


def test_numbers_in_closures_are_guarded():
    limit = 20

    def fn(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(i - j < limit, s, -1.0))

    compiled, given = burnish.compile(fn, fullgraph=True), tensors()
    for value in (20, 50, 20):
        limit = value
        torch.testing.assert_close(compiled(*given), fn(*given))


def test_gradients_of_a_table_of_biases():
    """Torch computes no gradients of query, key and value on CPUs, but those of tensors that a score reads."""
    mask = block_mask(causal)

    def fn(q, k, v, table, slope):
        out = flex_attention(q, k, v, lambda s, b, h, i, j: s * slope[0] + table[h, i - j + LENGTH].tanh(), mask)
        return out.square().sum()

    def gradients(function, dtype):
        table, slope = BIAS.to(dtype).requires_grad_(), torch.ones(1, dtype=dtype, requires_grad=True)
        given = [x.to(dtype) for x in tensors()]
        for _ in range(3):
            found = torch.autograd.grad(function(*given, table, slope), (table, slope))
        return found

    compiled = burnish.compile(fn, fullgraph=True)
    found, expected, exact = gradients(compiled, torch.float32), gradients(fn, torch.float32), None
    exact = gradients(fn, torch.float64)
    for one, other, third in zip(found, expected, exact, strict=True):
        assert_close_to_float64(one, other, third)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_node(case):
    """As on a GPU, where torch computes them: the node itself, against autograd through the formula in float64."""
    score_mod, mask_mod = CASES[case]
    mask = None if mask_mod is None else block_mask(mask_mod, 140, 280, batch=2 if case == "prefix" else None)
    given = tensors(heads=2, queries=140, keys=280)
    reads = {"alibi": [SLOPES], "biased": [BIAS], "documents": [DOCUMENTS], "prefix": [PREFIX]}.get(case, [])
    reads += {"a mask for each head": [SLOPES], "rows without keys": [CLOSED]}.get(case, [])
    made = node_of(lambda q, k, v: flex_attention(q, k, v, score_mod, mask, enable_gqa=True), *given)

    def gradients(attend, dtype):
        operands = [x.to(dtype).requires_grad_() for x in given]
        out, lse = attend(*operands)
        (out.double().sin().sum() + (lse.isfinite() * lse.nan_to_num(0, 0, 0)).double().cos().sum()).backward()
        return [x.grad for x in operands]

    def formula(q, k, v):
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        b, h, i, j = (torch.arange(n) for n in (2, HEADS, 140, 280))
        at = b.view(-1, 1, 1, 1), h.view(-1, 1, 1), i.view(-1, 1), j
        scores = q @ k.transpose(2, 3) / math.sqrt(DEPTH)
        scores = scores if score_mod is None else score_mod(scores, *at)
        scores = scores if mask_mod is None else scores.masked_fill(~mask_mod(*at), float("-inf"))
        lse = scores.logsumexp(-1)
        return (scores - lse.masked_fill(lse.isinf(), 0).unsqueeze(-1)).exp() @ v, lse

    def node(q, k, v):
        out, lse, _ = made(q, k, v, *reads)
        return out, lse * math.log(2)

    exact = gradients(formula, torch.float64)
    for found, expected in ((gradients(node, torch.float64), exact), (gradients(node, torch.float32), exact)):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(
                one.double(), other, rtol=2e-4, atol=2e-4 if one.dtype is torch.float32 else 1e-9
            )


@pytest.mark.parametrize(
    "score_mod, why",
    [
        (lambda s, b, h, q, k: s + BIAS[h][q], "in score_mod of flex_attention"),
        (lambda s, b, h, q, k: s + torch.stack([s, s]).sum(0), "not computed element by element"),
        (lambda s, b, h, q, k: s.double(), "returns torch.float64"),
        (lambda s, b, h, q, k: s + torch.rand(()), "random numbers"),
        (lambda s, b, h, q, k: print(b.dtype) or s, "a call of print"),
    ],
)
def test_functions_that_are_not_computed_for_blocks_are_eagers(score_mod, why, capsys):
    compiled = burnish.compile(lambda q, k, v: flex_attention(q, k, v, score_mod), fullgraph=True)
    with pytest.raises(burnish.Unsupported, match=why):
        compiled(*tensors(queries=20, keys=20))
    assert not capsys.readouterr().out


@pytest.mark.falls_back("refused")
def test_what_torch_rejects_raises_torchs_error():
    q, k, v = tensors(queries=40, keys=40)
    learnt = q.clone().requires_grad_()
    other = block_mask(causal, 200, 200)

    for fn, given in (
        (lambda q, k, v: flex_attention(q, k, v), (learnt, k, v)),
        (lambda q, k, v: flex_attention(q, k[:, :3], v[:, :3]), (q, k, v)),
        (lambda q, k, v: flex_attention(q, k, v, block_mask=other), (q, k, v)),
        (lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True)), (q, k, v)),
        (lambda q, k, v: flex_attention(q, k, v, kernel_options={"BACKEND": "no"}), (q, k, v)),
    ):
        with pytest.raises(Exception) as expected:
            fn(*given)
        compiled = burnish.compile(fn)
        for _ in range(3):
            with pytest.raises(type(expected.value)) as found:
                compiled(*given)
            assert str(found.value) == str(expected.value)
