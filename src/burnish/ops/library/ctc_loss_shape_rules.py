"""Shape rules of the CTC loss and its gradient (`lower.trace.call_rewrites.ctc_loss`).

ctc_loss(f32[50, 4, 20], …, reduction=0, …, wanted=True)      f32[4], u8[0]
ctc_loss(f32[50, 4, 20], …, reduction=1, …, wanted=False)     f32[]
"""

from __future__ import annotations

import torch

from ...tensors.tensor_types import TensorType
from ..operator_record import fresh, record, shape

CTC_LOSS = record("ctc_loss")
CTC_LOSS_BACKWARD = record("ctc_loss_backward")
CTC_LOSS_BACKWARD.notes["reads_forward_memory"] = True  # through the ticket, in which autograd holds the tensors


@shape("ctc_loss")
def ctc_loss_types(
    scores: TensorType,
    targets: TensorType,
    score_lengths: TensorType,
    target_lengths: TensorType,
    blank: int,
    reduction: int,
    zero_infinity: bool,
    wanted: bool,
) -> TensorType | tuple[TensorType, ...]:
    """With gradients the last result is a ticket for what autograd saved."""
    loss = fresh(scores, scores.shape[1:2] if scores.ndim == 3 and reduction == 0 else ())
    return (loss, TensorType.contiguous((0,), torch.uint8)) if wanted else loss


@shape("ctc_loss_backward")
def ctc_loss_gradient(ticket: TensorType, gradient: TensorType, inputs: list[TensorType]) -> TensorType:
    return fresh(inputs[0], inputs[0].shape)
