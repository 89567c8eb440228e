"""The CTC loss of tensors of lengths: run eagerly, forward and backward, as two library calls.

    loss, ticket = ctc_loss(scores, words, score_lengths, word_lengths, 0, 1, True, wanted=True)
    gradient = ctc_loss_backward(ticket, loss_gradient, [scores, words])

Eager saves a table for backward whose size depends on the longest target. The `ticket`, an empty tensor, carries it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def ctc_loss(
    scores: torch.Tensor,
    targets: torch.Tensor,
    score_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
    wanted: bool,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`scores` are logarithms of probabilities. `wanted`: whether their gradient is."""
    # `.data` has a version counter of its own: other tensors in the same memory may be written to. The program ensures
    # that scores and targets are not, since they are operands of its backward call. Autograd copies the lengths.
    given = [t.data for t in (scores, targets, score_lengths, target_lengths)]
    given[0].requires_grad_(wanted)
    with torch.set_grad_enabled(wanted):
        loss = torch.ctc_loss(*given, blank, reduction, zero_infinity)
    if not wanted:
        return loss
    ticket = torch.empty(0, dtype=torch.uint8)
    ticket.kept = loss, given[0]  # type: ignore[attr-defined]
    return loss.detach().clone(), ticket  # without a reduction, autograd saves the loss itself


def ctc_loss_backward(ticket: torch.Tensor, gradient: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """`inputs` are what autograd saves, so they must not be written to before."""
    loss, scores = ticket.kept  # type: ignore[attr-defined]
    return torch.autograd.grad(loss, scores, gradient, retain_graph=True)[0]


FUNCTIONS: dict[str, Any] = {"ctc_loss": ctc_loss, "ctc_loss_backward": ctc_loss_backward}
