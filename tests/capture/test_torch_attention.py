"""Attention and transformer layers, positions, masks and generation with a cache."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

import burnish
from burnish.settings import patch

from .call_sequences import Before
from .caller_programs import program_with_caller
from .harness import program

KINDS = ("flash", "math", "mem_efficient", "cudnn", "overrideable")


def attention_settings():
    return [getattr(torch._C, f"_get_{kind}_sdp_enabled")() for kind in KINDS], torch._C._get_sdp_priority_order()


def set_attention(settings):
    for kind, is_on in zip(KINDS, settings[0], strict=True):
        getattr(torch._C, f"_set_sdp_use_{kind}")(is_on)
    torch._C._set_sdp_priority_order(settings[1])


@program(breaks=0)
def test_attention_written_out():
    def fn(q, k, v, causal):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
        return scores.softmax(-1) @ v

    return fn, [
        (torch.randn(2, n, 4), torch.randn(2, n, 4), torch.randn(2, n, 4), c)
        for n, c in ((3, False), (3, True), (5, True), (3, False))
    ]


@program(breaks=0)
def test_scaled_dot_product_attention_with_masks():
    def fn(q, k, v, mask, causal):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    lower = torch.ones(3, 3).tril().bool()
    masks = ((None, False), (None, True), (lower, False), (torch.randn(3, 3), False), (None, False))
    return fn, [(*(torch.randn(1, 2, 3, 4) for _ in range(3)), *m) for m in masks]


@program_with_caller
def test_attention_layer_returns_weights_on_request():
    layer = nn.MultiheadAttention(4, 2, batch_first=True)

    def fn(x, weights, average):
        return layer(x, x, x, need_weights=weights, average_attn_weights=average)

    def caller(fn, x, weights, average):
        layer.zero_grad()
        out, attention = fn(x, weights, average)
        out.sum().backward()
        return out, attention, layer.in_proj_weight.grad

    return fn, caller, [(torch.randn(2, 3, 4), *w) for w in ((True, True), (False, True), (True, False), (True, True))]


@program
def test_padding_mask_of_attention():
    layer = nn.MultiheadAttention(4, 2, batch_first=True)

    def fn(x, lengths):
        mask = torch.arange(x.shape[1]) >= lengths[:, None]
        out, weights = layer(x, x, x, key_padding_mask=mask)
        return out, weights

    return fn, [(torch.randn(2, 3, 4), torch.tensor(n)) for n in ([3, 1], [2, 2], [3, 3])]


@program_with_caller
def test_encoder_layer_in_training_and_in_evaluation():
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.1, batch_first=True)

    def caller(fn, x, training):
        layer.train(training)
        with torch.set_grad_enabled(training):
            return fn(x)

    return layer, caller, [(torch.randn(1, 3, 4), t) for t in (True, False, True, False)]


@program(breaks=0)
def test_decoder_layer_with_memory():
    layer = nn.TransformerDecoderLayer(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)

    def fn(x, memory):
        return layer(x, memory, tgt_mask=mask, tgt_is_causal=True)

    return fn, lambda i: (torch.randn(1, 3, 4), torch.randn(1, 5, 4))


class Causal(nn.Module):
    """A small decoder layer: keys and values may come from earlier calls."""

    def __init__(self, width=4, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, past=None):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).split(c, dim=-1)
        q, k, v = (s.view(b, t, self.heads, c // self.heads).transpose(1, 2) for s in (q, k, v))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c)), (k, v)


@program(breaks=0)
def test_causal_block_with_and_without_a_past():
    block = Causal()
    past = (torch.randn(1, 2, 3, 2), torch.randn(1, 2, 3, 2))
    return block, [(torch.randn(1, t, 4), p) for t, p in ((3, None), (1, past), (5, None), (3, None), (1, past))]


@program_with_caller
def test_token_by_token_with_a_cache_outside():
    block = Causal()

    def caller(fn, x):
        past, outs = None, []
        for t in range(x.shape[1]):
            y, past = fn(x[:, t : t + 1], past)
            outs.append(y)
        return torch.cat(outs, dim=1), [p.shape for p in past]

    return block, caller, lambda i: (torch.randn(1, 3, 4),)


@program
def test_language_model_generates_greedily():
    embed, block, head = nn.Embedding(5, 4), Causal(), nn.Linear(4, 5)

    def fn(tokens, n):
        past, x = None, embed(tokens)
        for _ in range(n):
            y, past = block(x, past)
            token = head(y[:, -1]).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, token], dim=1)
            if token.item() == 0:
                break
            x = embed(token)
        return tokens

    return fn, [(torch.randint(0, 5, (1, t)), n) for t, n in ((2, 3), (3, 3), (1, 5), (2, 3))]


@program(breaks=0)
def test_sinusoidal_and_learned_positions():
    table = nn.Embedding(8, 4)

    def fn(x):
        t = torch.arange(x.shape[1])
        angles = t[:, None] / 10000 ** (torch.arange(0, 4, 2) / 4)
        wave = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return x + wave + table(t)

    return fn, [(torch.randn(1, n, 4),) for n in (3, 5, 3, 8)]


@program(breaks=0)
def test_rotary_positions():
    def rotate(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)

    def fn(q, k, offset):
        t = torch.arange(offset, offset + q.shape[-2], dtype=q.dtype)
        angles = torch.outer(t, 1.0 / 100 ** (torch.arange(0, 4, 2) / 4))
        cos, sin = (torch.cat([f(angles)] * 2, dim=-1) for f in (torch.cos, torch.sin))
        return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin

    return fn, [(torch.randn(1, n, 4), torch.randn(1, n, 4), o) for n, o in ((3, 0), (1, 3), (1, 4), (3, 0))]


@program(breaks=0)
def test_grouped_heads_repeat_keys():
    def fn(q, k, v):
        n = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(n, dim=1), v[:, :, None].expand(-1, -1, n, -1, -1).flatten(1, 2)
        return F.scaled_dot_product_attention(q, k, v)

    return fn, [(torch.randn(1, 4, 3, 2), torch.randn(1, h, 3, 2), torch.randn(1, h, 3, 2)) for h in (2, 1, 4, 2)]


@program
def test_routing_of_tokens_to_experts():
    gate, experts = nn.Linear(3, 2), nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def fn(x):
        weights, chosen = gate(x).softmax(-1).topk(1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(experts):
            rows, _ = torch.where(chosen == i)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * weights[rows])
        return out, torch.bincount(chosen.flatten(), minlength=2)

    return fn, [(torch.randn(n, 3),) for n in (4, 1, 4, 2)]


@program(breaks=0)
def test_multihead_attention_in_evaluation():
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
    ).eval()

    def fn(x):
        with torch.no_grad():
            return layer(x, x, x, need_weights=False)[0] + encoder(x)

    return fn, [(torch.randn(2, 5, 16),), (torch.randn(2, 5, 16),)]


def test_a_function_of_torchs_own_among_the_arguments_ends_the_graph():
    def fn(q, k, v):
        return (
            torch.ops.higher_order.flex_attention(
                q * 2, k, v, flex_attention._identity, blocks, 0.5, {"BACKEND": "AUTO"}, (), ()
            )[0]
            + 1
        )

    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    blocks = flex_attention._create_empty_block_mask(q, k).as_tuple()
    compiled = burnish.compile(fn)
    with patch(on_error="raise"):
        for _ in range(3):
            torch.testing.assert_close(compiled(q, k, v), fn(q, k, v))
    reasons = burnish.explain(fn)(q, k, v).break_reasons
    assert len(reasons) == 1 and "an argument of type function" in reasons[0].reason


# ---- the choice of kernels


def allowed():
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(), cuda.mem_efficient_sdp_enabled()


def heads(i):
    return (torch.randn(1, 2, 8, 4),)


@program(breaks=0)
def test_kernels_chosen_by_a_context_manager():
    def fn(x):
        with sdpa_kernel(SDPBackend.MATH):
            y, inside = F.scaled_dot_product_attention(x, x, x), allowed()
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
                y, deeper = F.scaled_dot_product_attention(y, y, y), allowed()
        return y, inside, deeper, allowed()

    return fn, heads


@program(breaks=0)
def test_kernels_chosen_outside_are_seen():
    def fn(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x, x, x)
        return y, allowed()

    def choose(i):
        return lambda: torch.backends.cuda.enable_flash_sdp(i != 1)

    return fn, lambda i: (torch.randn(1, 2, 8, 4), Before(choose(i)))


@program
def test_break_inside_the_choice_of_kernels():
    def fn(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x, x, x)
            burnish.graph_break()
            return F.scaled_dot_product_attention(y, y, y), allowed()

    return fn, heads


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_choice_of_kernels_is_left_as_in_eager(backend):
    """By the end of the function, by a break under fullgraph=True, and by an error in a later run."""

    def fn(x, divisor):
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(x, x, x), 12 // divisor

    def broken(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x, x, x)
            burnish.graph_break()
            return y

    before = attention_settings()
    (x,) = heads(0)
    try:
        compiled = burnish.compile(fn, backend=backend, fullgraph=True)
        for divisor in (4, 3, 0, 2):
            set_attention(before)
            if divisor == 0:
                with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                    compiled(x, torch.tensor(divisor))
            else:
                want = fn(x, torch.tensor(divisor))
                set_attention(before)
                torch.testing.assert_close(compiled(x, torch.tensor(divisor)), want)
            assert allowed() == (True, True, False)
        assert burnish.was_compiled(compiled)
        set_attention(before)
        with pytest.raises(burnish.Unsupported):
            burnish.compile(broken, backend=backend, fullgraph=True)(x)
        assert attention_settings() == before
    finally:
        set_attention(before)


@pytest.mark.parametrize("kind", ["function", "layer"])
def test_kernels_chosen_around_a_compiled_call_are_noticed(kind):
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    fns = {
        "function": lambda q: F.scaled_dot_product_attention(q, q, q),
        "layer": lambda q: layer(q, q, q, need_weights=False)[0],
    }
    compiled, q = burnish.compile(fns[kind]), torch.randn(2, 4, 8)
    for _ in range(3):
        compiled(q)
    for _ in range(2):
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
            compiled(q)
        with sdpa_kernel(SDPBackend.MATH):
            torch.testing.assert_close(compiled(q), fns[kind](q))
        torch.testing.assert_close(compiled(q), fns[kind](q))
