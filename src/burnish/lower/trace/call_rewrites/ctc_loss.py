"""The CTC loss of tensors of lengths in the trace: one call forward and one backward.

    F.ctc_loss(scores, words, n, m)    =>    loss, ticket = ctc_loss scores, words, n, m, 0, 1, False, True
                                             …
                                             … = ctc_loss_backward ticket, gradient, [scores, words]

The operator `_ctc_loss` returns a table for backward beside the loss. Its size is that of the longest target, which
only the data say, so the operator has no shape rule. `runtime/eager/ctc_loss.py` keeps the table out of the graph. A
loss with lengths that are Python numbers runs eagerly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ....ops.library.ctc_loss_shape_rules import CTC_LOSS, CTC_LOSS_BACKWARD, ctc_loss_gradient, ctc_loss_types
from ....tensors.device_facts import DEVICES
from ..aten_tracer import AtenTracer
from ..trace_tensor import TraceTensor
from .second_derivatives import differentiable_once
from .unseen_writes import refuse_unseen_writes

NAMES = "log_probs", "targets", "input_lengths", "target_lengths", "blank", "reduction", "zero_infinity"
DEFAULTS = {torch.ctc_loss: (0, 1, False), F.ctc_loss: (0, "mean", False)}
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2, 0: 0, 1: 1, 2: 2}


def arguments_of(target: Any, args: tuple, kwargs: dict) -> tuple[list[Any], tuple[int, int, bool]] | None:
    """The four tensors, and blank, reduction and zero_infinity; None if the call is not traced this way."""
    try:
        defaults = DEFAULTS.get(target)
    except TypeError:
        return None
    if defaults is None:
        return None
    given = dict(zip(NAMES[4:], defaults, strict=True)) | dict(zip(NAMES, args, strict=False)) | kwargs
    if given.keys() != set(NAMES):
        return None
    *tensors, blank, reduction, zero_infinity = (given[name] for name in NAMES)
    if not all(type(t) is TraceTensor for t in tensors):
        return None
    if type(blank) is not int or type(zero_infinity) is not bool or reduction not in REDUCTIONS:
        return None
    scores, *counted = tensors
    if (
        scores.dtype not in (torch.float32, torch.float64)
        or scores.ndim not in (2, 3)
        or scores.device.type not in DEVICES
        or torch.is_autocast_enabled(scores.device.type)
        or any(0 in t.shape for t in tensors)
        or any(t.dtype not in (torch.int32, torch.int64) for t in counted)
    ):
        return None
    return tensors, (blank, REDUCTIONS[reduction], zero_infinity)


def trace_ctc_loss(tracer: AtenTracer, tensors: list[Any], options: tuple[int, int, bool]) -> torch.Tensor:
    if torch.is_grad_enabled() and tensors[0].requires_grad:
        return CTCLoss.apply(tracer, options, *tensors)[0]
    return tracer.tensor(add_call(tracer, options, [t.value for t in tensors], False))


def add_call(tracer: AtenTracer, options: tuple[int, int, bool], values: list, wanted: bool) -> Any:
    types = ctc_loss_types(*(v.type for v in values), *options, wanted)
    return tracer.graph.add(CTC_LOSS, (*values, *options, wanted), {}, types, tracer.line)


class CTCLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tracer: AtenTracer, options: tuple[int, int, bool], *tensors: Any) -> tuple:
        """Eager saves scores, targets, copies of the lengths, and the result of the kernel, which may be the loss."""
        _, reduction, zero_infinity = options
        ctx.tracer = tracer
        made = tuple(map(tracer.tensor, add_call(tracer, options, [t.value for t in tensors], True)))
        is_kernels = reduction == 0 and not zero_infinity
        ctx.save_for_backward(made[-1], *tensors[:2], *made[: int(is_kernels)])
        ctx.mark_non_differentiable(made[-1])
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple:
        tracer = ctx.tracer
        ticket, *saved = ctx.saved_tensors
        values = [t.value for t in saved]
        refuse_unseen_writes(tracer.graph, ticket.value.node, values)
        args = ticket.value, gradients[0].value, values
        kind = ctc_loss_gradient(ticket.value.type, gradients[0].value.type, [v.type for v in values])

        def run() -> tuple[Any]:
            return (tracer.tensor(tracer.graph.add(CTC_LOSS_BACKWARD, args, {}, kind, tracer.line)),)

        (made,) = differentiable_once("a CTC loss", run, [*gradients, *saved])
        return None, None, made, None, None, None
