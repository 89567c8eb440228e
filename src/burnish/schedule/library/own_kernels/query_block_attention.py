"""Attention by our own kernels: tiling over heads and blocks of queries.

    own_attention(spec, output)       a candidate, or None; `why_not_attention` says why

A thread takes one head of one batch. It packs keys and values like the weights of our matmul kernels (once for heads
that share them), and walks over blocks of 14 queries. A block's scores stay in the core's cache: product with the keys,
softmax, product with the values. With a causal mask each block reads no more keys than its last query attends to.

    region       of each thread: packed keys | packed values | scores of a block | one number for each of its queries

In bf16 the scores and the sums are float32. The softmax writes its weights over the scores in bf16, for the second
product, whose result stays float32 until it is divided by the sum: the region holds that too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ....tensors.dtypes import NAMES, PAIRED
from ....tensors.tensor_types import TensorType
from ..call_specs import AttentionSpec
from ..candidate import Candidate, from_steps
from . import matmul_tiling_and_packing
from .matmul_tiling_and_packing import Product, Shape, Sum, TablePlace, halved, runs_of, split_evenly

NAME = "own"

LONGEST = 4096
FEW_TASKS = 8
"""With fewer heads than this, each is split further, so that threads finish together."""


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Queries that are computed together."""

    first: int
    halves: tuple[int, ...]
    keys: int
    """The number of keys that any of them attends to."""


@dataclass(frozen=True, slots=True)
class Attention:
    spec: AttentionSpec
    output: TensorType
    blocks: tuple[QueryBlock, ...]
    scores: Product
    """The product of a block's queries and the keys. It has one place for each block."""
    values: Product
    """The product of a block's scores and the values; each block has its own sum."""
    splits: int
    """The number of tasks into which the blocks of a head are split."""
    regions: int
    """The number of threads that may run at once."""

    @property
    def tasks(self) -> int:
        return self.spec.q.shape[0] * self.spec.q.shape[1] * self.splits

    @property
    def shared_by(self) -> int:
        """The number of query heads that read the same keys and values."""
        return self.spec.q.shape[1] // self.spec.k.shape[1]

    @property
    def scores_row(self) -> int:
        """The stride from one query's scores to the next."""
        return self.scores.outputs

    @property
    def pair(self) -> int:
        """How many numbers along a sum take the place of one float32."""
        return 4 // self.scores.item

    @property
    def value_steps(self) -> int:
        return self.values.depth // self.pair

    @property
    def keys_bytes(self) -> int:
        lanes, steps = self.scores.shape.lanes, self.spec.q.shape[3] // self.pair
        return 4 * self.scores.outputs * (-(-steps // lanes) * lanes)

    @property
    def values_bytes(self) -> int:
        # The last panel may be narrower, but it is written at full width.
        return 4 * (matmul_tiling_and_packing.packed_columns(self.values) * self.value_steps + self.values.panel)

    @property
    def scores_bytes(self) -> int:
        return 4 * 2 * self.scores.shape.half * self.scores_row

    @property
    def sums_row(self) -> int:
        """The stride between the results of two queries in the region; 0 where they are written to the output."""
        return 0 if self.pair == 1 else matmul_tiling_and_packing.packed_columns(self.values)

    @property
    def region_bytes(self) -> int:
        size = self.keys_bytes + self.values_bytes + self.scores_bytes
        size += 4 * 2 * self.scores.shape.half * (self.sums_row + 1)
        return -(-size // 64) * 64


def own_attention(spec: AttentionSpec, output: TensorType) -> Candidate | None:
    if why_not_attention(spec, output) is not None:
        return None
    shape = matmul_tiling_and_packing.shape_here()
    assert shape is not None
    attention = attention_of(spec, output, shape, torch.get_num_threads())
    return from_steps(
        NAME,
        spec,
        tuple(spec.inputs),
        output,
        lambda: [matmul_tiling_and_packing.maker().attention(attention)],
        scratch=attention.regions * attention.region_bytes + 64,
    )


def why_not_laid_out(spec: AttentionSpec, output: TensorType) -> str | None:
    """What no kernel of ours takes, whatever its dtype."""
    for name, type in (*spec.inputs.items(), ("the result", output)):
        if not type.is_on_host:
            return f"{name} is {type}: the kernels compute on the CPU"
        if type.numel == 0:
            return f"{name} is empty"
        if type.ndim != 4:
            return f"{name} has {type.ndim} dimensions"
        if type.stride[3] != 1 and type.shape[3] != 1:
            return f"the rows of {name} have gaps between their numbers"
    if spec.k.shape[:2] != spec.v.shape[:2] or spec.k.shape[0] != spec.q.shape[0]:
        return "keys, values and queries are not of the same batch and heads"
    if spec.q.shape[1] % spec.k.shape[1] if spec.enable_gqa else spec.q.shape[1] != spec.k.shape[1]:
        return "heads are not shared alike"
    if spec.mask is not None and spec.mask.shape[3] != spec.k.shape[2]:
        return "the mask is the same for all keys"
    return None


def why_not_attention(spec: AttentionSpec, output: TensorType) -> str | None:
    if matmul_tiling_and_packing.shape_here() is None:
        return "there are no kernels for this machine"
    dtypes = {type.dtype for type in (*spec.inputs.values(), output)}
    if len(dtypes) > 1 or spec.q.dtype not in matmul_tiling_and_packing.dtypes_of_tiles():
        return "the kernels compute in another dtype"
    if spec.q.dtype in PAIRED and spec.q.shape[3] % 2:
        return f"an odd number of {NAMES[spec.q.dtype]} has no pairs"
    why = why_not_laid_out(spec, output)
    if why is not None:
        return why
    if spec.scale is not None and spec.scale <= 0:
        return "the scale turns the order of the scores around"
    if max(spec.k.shape[2], spec.q.shape[2]) > LONGEST:
        return "it is longer than the tables are meant for"
    return None


def attention_of(spec: AttentionSpec, output: TensorType, shape: Shape, threads: int) -> Attention:
    """`threads` is the number of threads that may run at once."""
    batch, heads, queries, depth = spec.q.shape
    keys, columns = spec.v.shape[2:]
    panel = shape.lanes * shape.vectors
    row = -(-keys // panel) * panel
    blocks, first = [], 0
    for size in split_evenly(queries, 2 * shape.half):
        last = first + size
        blocks.append(QueryBlock(first, halved(size, shape.half), min(last, keys) if spec.is_causal else keys))
        first = last
    dtype = NAMES[spec.q.dtype]
    is_half = spec.q.dtype in PAIRED
    q_step, out_step = spec.q.stride[2], -(-columns // shape.lanes) * shape.lanes if is_half else output.stride[2]
    # Weights in half precision are written over the scores: the step from one query to the next stays the same.
    weights_row = row * 2 if is_half else row
    sums = {seen: number for number, seen in enumerate(dict.fromkeys(block.keys for block in blocks))}
    to_scores, to_out = [], []
    for block in blocks:
        second = block.halves[0]
        first_out = 0 if is_half else block.first
        # The second group of a tile without one is never accessed.
        to_scores.append(
            TablePlace(block.halves, (block.first * q_step, (block.first + second) * q_step), (0, second * row))
        )
        to_out.append(
            TablePlace(
                block.halves,
                (0, second * weights_row),
                (first_out * out_step, (first_out + second) * out_step),
                sums[block.keys],
            )
        )
    score_sums = (Sum(q_step, row, runs_of([0], depth, dtype)),)
    scores = Product(row, depth, score_sums, (tuple(to_scores),), shape, dtype=dtype)

    def in_pairs(count: int) -> int:
        return count + count % 2 if is_half else count

    value_sums = tuple(Sum(weights_row, out_step, runs_of([0], in_pairs(seen), dtype)) for seen in sums)
    values = Product(columns, in_pairs(keys), value_sums, (tuple(to_out),), shape, dtype=dtype)
    splits = min(-(-FEW_TASKS // (batch * heads)), len(blocks))
    return Attention(spec, output, tuple(blocks), scores, values, splits, min(threads, batch * heads * splits))
