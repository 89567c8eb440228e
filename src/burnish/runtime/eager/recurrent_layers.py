"""Recurrent layers that eager has no kernel for: run by eager, forward and backward, as two library calls.

    out, hidden, ticket = recurrent("gru", x, [h], weights, …, wanted=(True, …))
    gradients = recurrent_backward(ticket, [out_gradient, None], [x, h, *weights], (True, …))

A layer is thousands of small steps, which as a graph take longer to compile than they are worth. What autograd keeps of
them goes from forward to backward with the `ticket`, a tensor without elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def recurrent(
    kind: str,
    x: torch.Tensor,
    state: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    wanted: Sequence[bool] | None,
) -> tuple:
    """`wanted`: of the tensors, in order, those that gradients are wanted for; None where they are for none."""
    given = [x, *state, *weights]
    if wanted is not None:
        # `.data` has a version of its own: what else lies in the same memory may be written to. That this is not is
        # seen to by the program, to whose backward call it is an operand.
        given = [t.data.requires_grad_(is_wanted) for t, is_wanted in zip(given, wanted, strict=True)]
    count = 1 + len(state)
    before = given[1:count] if kind == "lstm" else given[1]
    with torch.set_grad_enabled(wanted is not None):
        made = getattr(
            torch._VF, kind
        )(  # type: ignore[attr-defined]
            given[0], before, given[count:], has_biases, layers, 0.0, train, bidirectional, batch_first
        )
    if wanted is None:
        return tuple(made)
    ticket = torch.empty(0, dtype=torch.uint8)
    ticket.kept = made, [t for t in given if t.requires_grad]  # type: ignore[attr-defined]
    # The states may be what autograd keeps. The output is laid together from it on a CPU; cuDNN keeps it itself.
    out = made[0].detach()
    return out.clone() if out.is_cuda else out, *(t.detach().clone() for t in made[1:]), ticket


def recurrent_backward(
    ticket: torch.Tensor,
    gradients: Sequence[torch.Tensor | None],
    inputs: Sequence[torch.Tensor],
    wanted: Sequence[bool],
) -> tuple:
    """`inputs` are what forward was given: autograd keeps some of it, so it must not be written to before."""
    made, leaves = ticket.kept  # type: ignore[attr-defined]
    pairs = [(out, gradient) for out, gradient in zip(made, gradients, strict=True) if gradient is not None]
    found = torch.autograd.grad(
        [out for out, _ in pairs], leaves, [gradient for _, gradient in pairs], retain_graph=True, allow_unused=True
    )
    return tuple(
        torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in zip(leaves, found, strict=True)
    )


FUNCTIONS: dict[str, Any] = {"recurrent": recurrent, "recurrent_backward": recurrent_backward}
