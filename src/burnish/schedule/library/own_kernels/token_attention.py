"""Attention of one query by our own kernel: what a language model computes for its next token.

    own_token_attention(spec, output)     a candidate, or None; `why_not_token_attention` says why

A thread takes one head of the keys, and all queries that share it. It walks over blocks of keys: scores, softmax with
the largest score so far, and the weighted sum of the values, in float32, without a copy of either. f32, bf16 and f16.

Lengths and steps are numbers in the step's table, not in its code: with a cache that grows the step stays native.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch

from ....tensors.dtypes import SINGLES
from ....tensors.tensor_types import TensorType
from ..call_specs import AttentionSpec
from ..candidate import Candidate, from_steps
from . import matmul_tiling_and_packing, query_block_attention

NAME = "own token"


MOST_DEPTH = 256
"""The query and the sum of the values are on the stack."""

MOST_SHARING = 64


@dataclass(frozen=True, slots=True)
class TokenAttention:
    """Steps are in elements."""

    dtype: torch.dtype
    depth: int
    columns: int
    mask_dtype: torch.dtype | None
    sharing: int
    """Queries that share a head of the keys."""
    tasks: int
    heads: int
    """Of the keys, in each batch."""
    keys: int
    steps: tuple[int, ...]
    """From batch to batch and head to head in q, k, v, the result and the mask; from row to row in k and v."""
    scale: int
    """The bits of a float."""


def own_token_attention(spec: AttentionSpec, output: TensorType) -> Candidate | None:
    if why_not_token_attention(spec, output) is not None:
        return None
    attention = token_attention_of(spec, output)
    return from_steps(
        NAME,
        spec,
        tuple(spec.inputs),
        output,
        lambda: [matmul_tiling_and_packing.maker().token_attention(attention)],
        sizes_in_table=True,
    )


def why_not_token_attention(spec: AttentionSpec, output: TensorType) -> str | None:
    shape = matmul_tiling_and_packing.shape_here()
    if shape is None:
        return "there are no kernels for this machine"
    if spec.q.ndim != 4 or spec.q.shape[2] != 1:
        return "there are several queries"
    if spec.is_causal:
        return "the query sees the first key only"
    for name, type in (*spec.inputs.items(), ("the result", output)):
        if name != "mask" and type.dtype is not spec.q.dtype or type.dtype not in SINGLES:
            return f"{name} is {type}: the kernel computes in one dtype of {SINGLES}"
    why = query_block_attention.why_not_laid_out(spec, output)
    if why is not None:
        return why
    depths = spec.q.shape[3], spec.v.shape[3]
    if any(depth % shape.lanes or depth > MOST_DEPTH for depth in depths):
        return "rows are no whole vectors, or long"
    return "many heads share the keys" if spec.q.shape[1] // spec.k.shape[1] > MOST_SHARING else None


def token_attention_of(spec: AttentionSpec, output: TensorType) -> TokenAttention:
    batch, heads, keys, depth = spec.k.shape
    mask = (0, 0)
    if spec.mask is not None:
        mask = tuple(
            step if size > 1 else 0 for size, step in zip(spec.mask.shape[:2], spec.mask.stride[:2], strict=True)
        )
    pairs = [type.stride[:2] for type in (spec.q, spec.k, spec.v, output)]
    scale = depth**-0.5 if spec.scale is None else spec.scale
    return TokenAttention(
        spec.q.dtype,
        depth,
        spec.v.shape[3],
        spec.mask and spec.mask.dtype,
        spec.q.shape[1] // heads,
        batch * heads,
        heads,
        keys,
        (*(step for pair in (*pairs, mask) for step in pair), spec.k.stride[2], spec.v.stride[2]),
        int.from_bytes(struct.pack("<f", scale), "little"),
    )
