"""Attention: every candidate equals eager, with masks, causal, grouped heads, and strided heads."""

import pytest
import torch

from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_candidates.attention import as_flash
from burnish.schedule.library.call_specs import AttentionSpec
from burnish.schedule.library.measure_candidates import bind
from burnish.tensors.tensor_types import TensorType

from .library_references import bf16, check_all, f32, make_inputs, strided


def heads_apart(batch: int, heads: int, rows: int, size: int) -> TensorType:
    """As a projection gives it: [B, L, H, E] in memory."""
    return strided((batch, heads, rows, size), (rows * heads * size, size, heads * size, 1))


def joined_projection(batch: int, heads: int, rows: int, size: int) -> TensorType:
    """As a third of one projection for q, k and v: [B, L, 3, H, E] in memory."""
    step = heads * size
    return strided((batch, heads, rows, size), (rows * 3 * step, size, 3 * step, 1))


@pytest.mark.parametrize("make", [f32, heads_apart, joined_projection])
@pytest.mark.parametrize(
    "rest",
    [
        {},
        dict(is_causal=True),
        dict(scale=0.3),
        dict(scale=0.3, is_causal=True),
        dict(mask=f32(2, 3, 7, 9)),
        dict(mask=f32(1, 1, 7, 9)),
        dict(mask=f32(2, 1, 1, 9)),
        dict(mask=f32(7, 9)),
        dict(mask=TensorType.contiguous((2, 1, 7, 9), torch.bool)),
        dict(mask=f32(2, 1, 7, 9), scale=1.0),
    ],
    ids=repr,
)
def test_every_candidate_is_right(make, rest):
    names = check_all(AttentionSpec(make(2, 3, 7, 8), make(2, 3, 9, 8), make(2, 3, 9, 8), **rest))
    assert names[0] == "sdpa" and "math" in names


def test_values_of_another_size_are_right():
    check_all(AttentionSpec(f32(2, 3, 7, 8), f32(2, 3, 9, 8), f32(2, 3, 9, 5)))


def test_grouped_heads_are_right():
    check_all(AttentionSpec(f32(2, 4, 7, 8), f32(2, 2, 9, 8), f32(2, 2, 9, 8), enable_gqa=True))


def test_bfloat16_is_right():
    assert "math" not in check_all(AttentionSpec(bf16(2, 3, 7, 8), bf16(2, 3, 9, 8), bf16(2, 3, 9, 8)))


def test_fully_masked_row_equals_eager():
    for dtype in (torch.bool, torch.float32):
        spec = AttentionSpec(f32(1, 2, 5, 8), f32(1, 2, 6, 8), f32(1, 2, 6, 8), TensorType.contiguous((5, 6), dtype))
        inputs = make_inputs(spec)
        inputs["mask"] = torch.ones(5, 6, dtype=torch.bool).tril(1)
        inputs["mask"][2] = False
        if dtype is torch.float32:
            inputs["mask"] = torch.zeros(5, 6).masked_fill(~inputs["mask"], float("-inf"))
        eager, *others = (c.run(*bind(c, inputs)) for c in candidates(spec))
        for other in others:
            torch.testing.assert_close(other, eager)


def test_empty_sizes_are_right():
    for batch, rows in [(0, 5), (2, 0)]:
        spec = AttentionSpec(f32(batch, 2, rows, 8), f32(batch, 2, 6, 8), f32(batch, 2, 6, 8))
        check_all(spec)


def test_flash_is_offered_where_eager_would_take_it():
    plain = AttentionSpec(f32(2, 3, 7, 8), f32(2, 3, 7, 8), f32(2, 3, 7, 8))
    other = AttentionSpec(f32(2, 3, 7, 8), f32(2, 3, 7, 8), f32(2, 3, 7, 5))
    assert as_flash(plain)[0] and [c.name for c in candidates(plain)] == ["sdpa", "flash", "own", "math"]
    assert not as_flash(other)[0] and [c.name for c in candidates(other)] == ["sdpa", "own", "math"]
