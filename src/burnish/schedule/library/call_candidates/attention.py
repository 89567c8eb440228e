"""The candidates of attention without gradients.

    sdpa     eager: `scaled_dot_product_attention`, which picks one of the following by its own rules
    flash    torch's blocked kernel for the CPU, called directly
    own      our own kernel, see `own_kernels.query_block_attention`
    own token  the same for one query, see `own_kernels.token_attention`
    math     two batched products and a softmax

    >>> [c.name for c in attention_candidates(AttentionSpec(q, k, v))]
    ['sdpa', 'flash', 'own', 'math']

The result of flash has the strides of q. Where heads are split from a projection, [B, L, H, E] in memory, joining them
again is a view.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ....foundation.torch_private import fused_sdp_choice, safe_softmax
from ....tensors.tensor_types import TensorType
from ..call_specs import AttentionSpec
from ..candidate import Candidate, Operand, OperatorCall, from_call
from ..own_kernels.query_block_attention import own_attention
from ..own_kernels.token_attention import own_token_attention

aten = torch.ops.aten

Q, K, V, MASK = (Operand(name) for name in ("q", "k", "v", "mask"))
_FLASH = 1
"""The number in torch's `SDPBackend`."""


def attention_candidates(spec: AttentionSpec) -> Iterator[Candidate]:
    """All ways to compute the spec, eager's first."""
    contiguous = TensorType.contiguous(spec.output_shape, spec.q.dtype, spec.q.device)
    is_flash, flash = as_flash(spec)
    names = tuple(spec.inputs)
    yield Candidate("sdpa", spec, names, partial(_sdpa, spec), flash if is_flash else contiguous)
    if is_flash and why_not_flash(spec) is None:
        keywords = (("attn_mask", MASK if spec.mask else None), ("scale", spec.scale))
        call = OperatorCall(
            aten._scaled_dot_product_flash_attention_for_cpu.default,
            (Q, K, V, 0.0, spec.is_causal),
            keywords=keywords,
            which=0,
        )
        yield from_call("flash", spec, call, flash)
    for own in (own_attention, own_token_attention):
        candidate = own(spec, flash if is_flash else contiguous)
        if candidate is not None:
            yield candidate
    if why_not_math(spec) is None:
        yield Candidate("math", spec, names, partial(_math, spec), contiguous)


def as_flash(spec: AttentionSpec) -> tuple[bool, TensorType]:
    """Whether eager uses the blocked kernel, and its result type, with the strides of q. torch says both, for tensors
    whose memory is never touched."""
    q, k, v, mask = (
        type and torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device)
        for type in (spec.q, spec.k, spec.v, spec.mask)
    )
    with torch.no_grad():
        picked = fused_sdp_choice(q, k, v, mask, 0.0, spec.is_causal, scale=spec.scale, enable_gqa=spec.enable_gqa)
        return picked == _FLASH, TensorType.of(torch.empty_like(q))


def why_not_flash(spec: AttentionSpec) -> str | None:
    if spec.enable_gqa:
        return "heads are shared, which eager prepares"
    if any(type.stride[-1] != 1 and type.shape[-1] != 1 for type in spec.inputs.values()):
        return "rows have gaps between their numbers, which the kernel does not see"
    if spec.mask is not None and spec.mask.dtype is torch.bool:
        return "the mask is boolean, which eager turns into numbers"
    return None


def why_not_math(spec: AttentionSpec) -> str | None:
    if spec.q.dtype is not torch.float32 and spec.q.dtype is not torch.float64:
        return "intermediate results would be rounded to a shorter dtype than eager's"
    if spec.is_causal and spec.mask is not None:
        return "a mask and a causal one"
    return "something is empty" if any(type.numel == 0 for type in spec.inputs.values()) else None


def _sdpa(
    spec: AttentionSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, 0.0, spec.is_causal, scale=spec.scale, enable_gqa=spec.enable_gqa
    )


def _math(
    spec: AttentionSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    if spec.enable_gqa:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scale = spec.q.shape[-1] ** -0.5 if spec.scale is None else spec.scale
    scores = torch.matmul(q * scale, k.transpose(-1, -2))
    if spec.is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
        scores = scores.masked_fill_(later, float("-inf"))
    elif mask is not None:
        scores = scores.masked_fill_(~mask, float("-inf")) if mask.dtype is torch.bool else scores.add_(mask)
    # A fully masked row gives zeros, as in eager's kernels.
    weights = torch.softmax(scores, -1) if mask is None else safe_softmax(scores, -1)
    return torch.matmul(weights, v)
