"""Attention of one query by our own kernel: right for every length, sharing, mask and layout, with caches that grow."""

import pytest
import torch
from torch.nn import functional as F

from burnish.codegen.llvm import target_cpu
from burnish.codegen.llvm.compile_to_machine_code import emitted, symbols
from burnish.codegen.llvm.functions import token_attention
from burnish.codegen.llvm.functions.token_attention import TokenForm, print_token_attention
from burnish.codegen.llvm.target_cpu import preset
from burnish.runtime.program.native_kernels import load
from burnish.schedule.library.call_specs import AttentionSpec
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.token_attention import own_token_attention, why_not_token_attention
from burnish.tensors.tensor_types import TensorType

from ..seeding import seed
from .library_references import error, rounding

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="this machine has no kernels for products"
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def numbers(shape, dtype, seeded=0):
    seed(seeded)
    return torch.randn(shape).to(dtype)


def spec_of(q, k, v, mask=None, scale=None):
    types = [None if t is None else TensorType.of(t) for t in (q, k, v, mask)]
    return AttentionSpec(*types, False, scale, q.shape[1] != k.shape[1])


def exactly(q, k, v, mask=None, scale=None):
    q, k, v, mask = (None if t is None else t.double() for t in (q, k, v, mask))
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return torch.nan_to_num(torch.softmax(scores if mask is None else scores + mask, -1)) @ v


def check(q, k, v, mask=None, scale=None):
    """With at most eager's error, and no other memory changes."""
    spec = spec_of(q, k, v, mask, scale)
    shape = (*q.shape[:3], v.shape[3])
    output = TensorType.contiguous(shape, q.dtype)
    candidate = own_token_attention(spec, output)
    assert candidate is not None, why_not_token_attention(spec, output)
    memory = torch.full((output.numel + 128,), torch.nan, dtype=q.dtype)
    out = memory[64:-64].view(shape)
    candidate.run_into(out, *[t for t in (q, k, v, mask) if t is not None])
    exact = exactly(q, k, v, mask, scale)
    eager = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    allowed = max(error(torch.nan_to_num(eager), exact), rounding(exact, q.dtype))
    assert error(out, exact) <= allowed * (2.5 if q.dtype is torch.float32 else 1.02)
    assert memory[:64].isnan().all() and memory[-64:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("keys", [1, 2, 5, 16, 33, 127, 128, 129, 400])
@pytest.mark.parametrize("batch,heads,shared", [(1, 4, 1), (2, 4, 2), (1, 6, 6)])
def test_every_length_and_sharing(batch, heads, shared, keys, dtype):
    q = numbers((batch, heads, 1, 64), dtype)
    k, v = numbers((batch, heads // shared, keys, 64), dtype, 1), numbers((batch, heads // shared, keys, 64), dtype, 2)
    check(q, k, v)
    check(q, k, v, scale=0.2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("depth,columns", [(16, 16), (80, 96), (256, 128), (32, 256)])
def test_every_width(depth, columns, dtype):
    q, k = numbers((1, 2, 1, depth), dtype), numbers((1, 2, 70, depth), dtype, 1)
    check(q, k, numbers((1, 2, 70, columns), dtype, 2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 1), (1, 4, 1), (2, 4, 1)], ids=repr)
def test_masks_hide_keys_and_whole_rows(shape, mask_dtype, dtype):
    q, k, v = (numbers((2, 4, rows, 32), dtype, rows) for rows in (1, 300, 300))
    mask = numbers((*shape, 300), mask_dtype)
    mask[..., 200:] = -torch.inf
    mask[..., :3] = -torch.inf
    mask[-1, -1] = -torch.inf
    spec = spec_of(q, k, v, mask)
    candidate = own_token_attention(spec, TensorType.contiguous(q.shape, dtype))
    exact = exactly(q, k, v, mask.expand(2, 4, 1, 300))
    out = candidate.run(q, k, v, mask)
    assert error(out, exact) <= (16 if dtype is torch.float32 else 2) * rounding(exact, dtype)
    assert not out[-1, -1].any()  # where everything is hidden


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_part_of_a_cache_and_heads_after_the_rows(dtype):
    cache = numbers((2, 2, 50, 64), dtype)
    q = numbers((2, 1, 4, 64), dtype, 1).transpose(1, 2)
    check(q, cache[:, :, :37], cache[:, :, 13:])
    rows = numbers((2, 40, 2, 64), dtype, 2).transpose(1, 2)
    check(q, rows, rows.flip(2))
    check(q[:, :2], rows[:, :1].expand(2, 2, 40, 64), rows)


def test_nan_in_a_key_reaches_the_heads_that_read_it():
    q, k, v = (numbers((1, 4, rows, 32), torch.float32, rows) for rows in (1, 40, 40))
    k[0, 2, 7, 3] = torch.nan
    v[0, 1, 5, 4] = torch.nan
    out = own_token_attention(spec_of(q, k, v), TensorType.contiguous(q.shape, torch.float32)).run(q, k, v)
    assert torch.equal(
        out.isnan(), exactly(q, k, v).isnan() | out.isnan() & (torch.arange(4) == 2)[None, :, None, None]
    )
    assert out[0, 2].isnan().all() and out[0, 1].isnan().sum() == 1 and not out[0, 0].isnan().any()


@pytest.mark.parametrize(
    "queries,keys,depth,causal",
    [((1, 2, 2, 32), 40, 32, False), ((1, 2, 1, 32), 40, 32, True), ((1, 2, 1, 20), 40, 20, False)],
)
def test_other_attention_is_refused(queries, keys, depth, causal):
    q, k = torch.randn(queries), torch.randn(1, 2, keys, depth)
    spec = AttentionSpec(TensorType.of(q), TensorType.of(k), TensorType.of(k), None, causal)
    assert why_not_token_attention(spec, TensorType.of(q)) is not None


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_other_machines_have_the_same_kernel(machine, dtype, monkeypatch):
    if target_cpu.why_not_runnable(machine) is not None:
        pytest.skip("this processor cannot run it")
    there = preset(machine)

    def function(form: TokenForm):
        text = print_token_attention(form, there)
        return load(emitted(text, there), "token_attention", symbols())

    monkeypatch.setattr(token_attention, "function", function)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    q, k, v = (numbers((1, 4, rows, 64), kind, rows) for rows in (1, 131, 131))
    check(q, k, v)
    check(q, k, v, numbers((1, 1, 1, 131), kind, 9))
