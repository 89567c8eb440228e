"""Shape rules of GPU attention: flash attention and memory-efficient attention.

    _scaled_dot_product_flash_attention(bf16[2, 8, 100, 64], …)
        =>  bf16[2, 8, 100, 64], f32[2, 8, 100], none, none, 100, 100, u64[2], u64[], bf16[0]

torch chooses the kernel: flash attention for half precisions, the memory-efficient one for f32 and for masks, cuDNN's
if requested. Lengths are returned as numbers and passed to backward. cuDNN's has no rule: its result types are found by
calling the kernel.
"""

from __future__ import annotations

import torch

from ...tensors.device_facts import CPU
from ...tensors.tensor_types import TensorType
from ..memory_format import copied
from ..operator_record import Arguments, NoRule, call_shape, fresh


def swapped(x: TensorType) -> TensorType:
    """Heads and positions swapped: the kernels store [batch, positions, heads, width]."""
    if x.ndim != 4:
        raise NoRule("no batch of heads")
    (a, b, c, d), (e, f, g, h) = x.shape, x.stride
    return TensorType((a, c, b, d), (e, g, f, h), x.dtype, x.device)


def laid_as(x: TensorType) -> TensorType:
    return swapped(copied(swapped(x)))


def heads_inside(x: TensorType, width: int) -> TensorType:
    batch, heads, length, _ = x.shape
    return swapped(fresh(x, (batch, length, heads, width)))


@call_shape("aten._scaled_dot_product_flash_attention.default")
def flash_attention(call: Arguments) -> tuple[TensorType | int | None, ...]:
    """Output, log-sum-exp, two results only for nested tensors, both lengths, the random state, and a debug mask."""
    if call.return_debug_mask:
        raise NoRule("a mask for debugging")
    query = call.query
    sums = fresh(query, query.shape[:3], torch.float32)
    state = fresh(query, (2,), torch.uint64), fresh(query, (), torch.uint64)
    return laid_as(query), sums, None, None, query.shape[2], call.key.shape[2], *state, fresh(query, (0,))


call_shape("aten._scaled_dot_product_flash_attention_backward.default")(
    lambda a: (laid_as(a.query), laid_as(a.key), laid_as(a.value))
)


@call_shape("aten._scaled_dot_product_efficient_attention.default")
def efficient_attention(call: Arguments) -> tuple[TensorType, ...]:
    """The log-sum-exp is padded to a multiple of 32 positions. The random state is on the CPU, except while a CUDA
    graph is captured."""
    batch, heads, length, _ = call.query.shape
    padded = -(-length // 32) * 32 if call.compute_log_sumexp else 0
    sums = fresh(call.query, (batch, heads, padded), torch.float32)
    state = TensorType.contiguous((), torch.int64, CPU)
    return heads_inside(call.query, call.value.shape[3]), sums, state, state


@call_shape("aten._scaled_dot_product_efficient_attention_backward.default")
def efficient_attention_backward(call: Arguments) -> tuple[TensorType | None, ...]:
    if call.grad_input_mask[3]:
        raise NoRule("a gradient of the mask")
    return *(heads_inside(x, x.shape[3]) for x in (call.query, call.key, call.value)), None
