"""Shape rules of matrix products and of CPU attention.

mm(f32[2, 3], f32[3, 4])          f32[2, 4]
"""

from __future__ import annotations

import torch

from ...tensors.eager_strides import elementwise_stride
from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import common_dtype, compute_dtype, kind
from ..memory_format import copied
from ..operator_record import Arguments, NoRule, broadcast_shape, call_shape, fresh, shape


def agree(*sizes: int) -> None:
    if len(set(sizes)) != 1:
        raise NoRule(f"sizes {sizes} of a product differ")


def of_rank(rank: int, *operands: TensorType) -> None:
    if any(operand.ndim != rank for operand in operands):
        raise NoRule(f"operands {operands} do not all have {rank} dimensions")
    if len({operand.dtype for operand in operands}) != 1:
        raise NoRule(f"operands {operands} have several dtypes")


@shape("aten.mm.default")
def mm(a: TensorType, b: TensorType) -> TensorType:
    of_rank(2, a, b)
    agree(a.shape[1], b.shape[0])
    return fresh(a, (a.shape[0], b.shape[1]))


call_shape("aten.mm.dtype")(lambda a: fresh(a.self, mm(a.self, a.mat2).shape, a.out_dtype))
call_shape("aten.addmm.default", "aten._addmm_activation.default")(lambda a: mm(a.mat1, a.mat2))


@shape("aten.bmm.default")
def bmm(a: TensorType, b: TensorType) -> TensorType:
    of_rank(3, a, b)
    agree(a.shape[0], b.shape[0])
    agree(a.shape[2], b.shape[1])
    return fresh(a, (a.shape[0], a.shape[1], b.shape[2]))


call_shape("aten.bmm.dtype")(lambda a: fresh(a.self, bmm(a.self, a.mat2).shape, a.out_dtype))
call_shape("aten.baddbmm.default")(lambda a: bmm(a.batch1, a.batch2))
call_shape("aten.addbmm.default")(lambda a: fresh(a.self, bmm(a.batch1, a.batch2).shape[1:]))


@shape("aten.mv.default")
def mv(a: TensorType, x: TensorType) -> TensorType:
    if a.ndim != 2 or x.ndim != 1:
        raise NoRule(f"mv of {a} and {x}")
    agree(a.shape[1], x.shape[0])
    return fresh(x, a.shape[:1])


call_shape("aten.addmv.default")(lambda a: fresh(a.mat, mv(a.mat, a.vec).shape))


@shape("aten.dot.default", "aten.vdot.default")
def dot(a: TensorType, b: TensorType) -> TensorType:
    of_rank(1, a, b)
    agree(a.shape[0], b.shape[0])
    return fresh(a, ())


@shape("aten.addr.default")
def addr(bias: TensorType, a: TensorType, b: TensorType, **_: object) -> TensorType:
    """Eager computes it as an element-wise product of a column and a row, which determines the strides."""
    dtype = common_dtype([bias, a, b])
    column = TensorType((a.shape[0], 1), (a.stride[0], 1), a.dtype, a.device)
    row = TensorType((1, b.shape[0]), (b.shape[0] * b.stride[0], b.stride[0]), b.dtype, b.device)
    found = broadcast_shape([column.shape, row.shape])
    return TensorType(found, elementwise_stride(found, [bias, column, row]), dtype, a.device)


@shape("aten.linear.default", "aten.mkldnn_linear.default")
def linear(x: TensorType, weight: TensorType, bias: TensorType | None = None, *_: object) -> TensorType:
    agree(x.shape[-1], weight.shape[-1])
    return fresh(x, (*x.shape[:-1], *weight.shape[:-1]))


@shape("aten.matmul.default")
def matmul(a: TensorType, b: TensorType) -> TensorType:
    """The result is dense for every layout of the operands."""
    if not a.ndim or not b.ndim or a.dtype != b.dtype:
        raise NoRule(f"matmul of {a} and {b}")
    left = a.shape if a.ndim > 1 else (1, *a.shape)
    right = b.shape if b.ndim > 1 else (*b.shape, 1)
    agree(left[-1], right[-2])
    batch = broadcast_shape([left[:-2], right[:-2]]) if left[:-2] or right[:-2] else ()
    if batch:
        raise NoRule("the result's strides depend on how the batch is folded")
    return fresh(a, (*left[-2:-1][: a.ndim > 1], *right[-1:][: b.ndim > 1]))


@call_shape("aten._trilinear.default")
def trilinear(call: Arguments) -> TensorType:
    rank = call.i1.ndim + len(call.expand1)
    sizes = []
    for operand, added in ((call.i1, call.expand1), (call.i2, call.expand2), (call.i3, call.expand3)):
        own = iter(operand.shape)
        sizes.append(tuple(1 if k in added else next(own) for k in range(rank)))
    full = broadcast_shape(sizes)
    return fresh(call.i1, [n for k, n in enumerate(full) if k not in call.sumdim])


call_shape("aten.trace.default")(lambda a: fresh(a.self, (), a.self.dtype if kind(a.self.dtype) > 1 else torch.int64))


@call_shape("aten.dist.default")
def dist(call: Arguments) -> TensorType:
    if call.self.dtype != call.other.dtype:
        raise NoRule(f"a distance between {call.self.dtype} and {call.other.dtype}")
    return fresh(call.self, (), call.self.dtype.to_real())


@shape("aten._cdist_forward.default")
def cdist(a: TensorType, b: TensorType, p: float, compute_mode: int | None) -> TensorType:
    batch = broadcast_shape([a.shape[:-2], b.shape[:-2]]) if a.ndim > 2 or b.ndim > 2 else ()
    return fresh(a, (*batch, a.shape[-2], b.shape[-2]))


call_shape("aten._euclidean_dist.default")(lambda a: cdist(a.x1, a.x2, 2, None))
call_shape("aten._pdist_forward.default")(
    lambda a: fresh(a.self, (max(a.self.shape[0] * (a.self.shape[0] - 1) // 2, 0),))
)
call_shape("aten.linalg_cross.default")(lambda a: fresh(a.self, broadcast_shape([a.self.shape, a.other.shape])))


# -- attention ---------------------------------------------------------------------------------------------------------


@call_shape("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention_for_cpu(call: Arguments) -> tuple[TensorType, TensorType]:
    """The output has the query's layout. The log-sum-exp is a transposed view of [batch, positions, heads]."""
    query = call.query
    if call.value.shape[-1] != query.shape[-1]:
        raise NoRule("values of another width than queries")
    batch, heads, length, _ = query.shape
    sums = TensorType((batch, heads, length), (length * heads, 1, heads), compute_dtype(query.dtype), query.device)
    return copied(query), sums


@shape("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_for_cpu_backward(
    grad_out: TensorType, query: TensorType, key: TensorType, value: TensorType, *_: object, **__: object
) -> tuple[TensorType, ...]:
    def heads_inside(x: TensorType) -> TensorType:
        batch, heads, length, width = x.shape
        laid = fresh(x, (batch, length, heads, width)).stride
        return TensorType(x.shape, (laid[0], laid[2], laid[1], laid[3]), x.dtype, x.device)

    return heads_inside(query), heads_inside(key), heads_inside(value)
