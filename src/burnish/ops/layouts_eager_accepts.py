"""The operand layouts that eager kernels accept, for nodes that run torch's own kernel.

    accepts_any_strides(op)               whether operands may have any strides
    why_not_taken(op, types)              why a kernel that does not check strides would misread these operands
    reads_gaps(type)                      whether a product would read the memory between the rows of its left operand
    eager_stride_or_none(type, stride)    the strides to copy an operand to, if eager gave it `stride`

Inside the graph, strides may differ from eager's: a layer norm of a transposed tensor stays transposed, for example.
Many kernels rely on torch code that checks the strides or makes a copy before it calls them:

    scaled_dot_product_attention     uses its blocked kernel if the last stride is 1; that kernel does not check
    lstm                             calls `contiguous()`; oneDNN's layer reads x as flat memory
    pdist, embedding_bag, ctc_loss   the same

    mm, addmm, addbmm                oneDNN's products of two bytes an element read beyond the end of a row

So a kernel gets its operands with eager's strides (`Node.eager_strides`), unless it is listed here.
`tests/ops/test_eager_kernel_layouts.py` calls the listed kernels on operands with other strides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tensors.eager_strides import is_dense, preserved_stride
from ..tensors.tensor_types import TensorType, has_stride
from .operator_record import Op

ANY = frozenset(
    f"aten.{name}"
    for name in """
    mm.default addmm.default bmm.default baddbmm.default addbmm.default addr.default mv.default dot.default
    convolution.default convolution_backward.default constant_pad_nd.default
    _adaptive_avg_pool2d.default _adaptive_avg_pool2d_backward.default
    avg_pool2d.default avg_pool2d_backward.default avg_pool3d.default avg_pool3d_backward.default
    max_pool2d_with_indices.default max_pool2d_with_indices_backward.default
    adaptive_max_pool2d.default adaptive_max_pool2d_backward.default
    upsample_nearest2d.default upsample_nearest2d_backward.default
    upsample_bilinear2d.default upsample_bilinear2d_backward.default
    upsample_bicubic2d.default upsample_bicubic2d_backward.default
    reflection_pad2d.default reflection_pad2d_backward.default
    replication_pad2d.default replication_pad2d_backward.default
    cat.default stack.default roll.default gather.default index.Tensor index_select.default
    embedding.default embedding_dense_backward.default index_add.default index_copy.default index_put.default
    scatter.src scatter.value scatter_add.default slice_backward.default select_backward.default
    sum.default sum.dim_IntList mean.default mean.dim amax.default amin.default prod.default prod.dim_int
    max.default max.dim min.default min.dim argmax.default argmin.default all.default any.default
    var.correction var_mean.correction std.correction linalg_vector_norm.default
    cumsum.default cumprod.default sort.default sort.stable topk.default
    _softmax.default _log_softmax.default _softmax_backward_data.default _log_softmax_backward_data.default
    native_layer_norm.default tril.default triu.default masked_select.default nonzero.default
""".split()
)


def accepts_any_strides(op: Op) -> bool:
    """True for our own operators and those with a loop rule (loops take any strides), and for the listed kernels."""
    return op.target is None or op.rule is not None or op.name in ANY


ROWS = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": slice(0, 3),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": slice(1, 4),  # the gradient is copied there
    "aten.mkldnn_rnn_layer.default": slice(0, 1),
    "aten._pdist_forward.default": slice(0, 1),
    "aten._weight_norm_interface.default": slice(0, 1),
}
"""Kernels that assume a last stride of 1 for these of their tensors, without a check."""


LEFT = {"aten.mm.default": 0, "aten.addmm.default": 1, "aten.addbmm.default": 1}
"""Products that pass the left operand's rows to oneDNN as they are, and the position of that operand. `addbmm` calls
`addmm` for each matrix; `bmm` and `baddbmm` copy."""

STEP = 32
"""Elements of two bytes in a row of a matrix unit's tile."""


def reads_gaps(type: TensorType) -> bool:
    """Whether a product may read the memory between the rows of this left operand, or of its matrices.

    oneDNN's kernels for matrix units (AMX) load a row in steps of 32 elements of two bytes. They load the last step
    whole and multiply the elements beyond the row by zero. The result is NaN where that memory holds NaN or infinity.
    This function does not ask which processor it is, because a program file may run on another one.
    """
    if type.ndim < 2 or type.dtype not in (torch.bfloat16, torch.float16) or not type.is_on_host:
        return False
    (rows, columns), (down, across) = type.shape[-2:], type.stride[-2:]
    return rows > 1 and (across == 1 or columns == 1) and down != columns and columns % STEP != 0


def why_not_taken(op: Op, types: Sequence[TensorType]) -> str | None:
    """Why a kernel would misread operands of these types."""
    left = LEFT.get(op.name)
    if left is not None and reads_gaps(types[left]):
        return f"{op} reads the gaps between rows, and is given {types[left]}"
    for type in types[ROWS.get(op.name, slice(0))]:
        if type.ndim and type.shape[-1] > 1 and type.stride[-1] != 1 and type.numel:
            return f"{op} reads rows without gaps, and is given {type}"
    return None


def eager_stride_or_none(type: TensorType, stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides to copy a value to; None if it has eager's `stride` already. If eager's strides overlap or have gaps,
    the copy is dense in the same order of dimensions."""
    if has_stride(type, stride):
        return None
    eager = TensorType(type.shape, stride, type.dtype, type.device)
    dense = stride if is_dense(eager) else preserved_stride(eager)
    return None if has_stride(type, dense) else dense
