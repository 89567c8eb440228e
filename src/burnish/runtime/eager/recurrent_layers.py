"""Recurrent layers without a kernel in eager: run eagerly, forward and backward, as two library calls.

    out, hidden, ticket = recurrent("gru", x, [h], weights, …, wanted=(True, …))
    gradients = recurrent_backward(ticket, [out_gradient, None], [x, h, *weights], (True, …))

A layer is thousands of small steps; compiling them as a graph takes longer than it saves. The `ticket`, an empty
tensor, carries autograd's saved values from forward to backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...foundation.torch_private import VF


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
    """`wanted`: for each tensor, in order, whether its gradient is wanted; None where no gradient is."""
    given = [x, *state, *weights]
    if wanted is not None:
        # `.data` has a version counter of its own: other tensors in the same memory may be written to. The program
        # ensures that this one is not, since it is an operand of its backward call.
        given = [t.data.requires_grad_(is_wanted) for t, is_wanted in zip(given, wanted, strict=True)]
    count = 1 + len(state)
    before = given[1:count] if kind == "lstm" else given[1]
    with torch.set_grad_enabled(wanted is not None):
        made = getattr(VF, kind)(
            given[0], before, given[count:], has_biases, layers, 0.0, train, bidirectional, batch_first
        )
    if wanted is None:
        return tuple(made)
    ticket = torch.empty(0, dtype=torch.uint8)
    ticket.kept = made, [t for t in given if t.requires_grad]  # type: ignore[attr-defined]
    # Autograd may save the states. On a CPU the output is assembled from them; cuDNN saves the output itself.
    out = made[0].detach()
    return out.clone() if out.is_cuda else out, *(t.detach().clone() for t in made[1:]), ticket


def recurrent_backward(
    ticket: torch.Tensor,
    gradients: Sequence[torch.Tensor | None],
    inputs: Sequence[torch.Tensor],
    wanted: Sequence[bool],
) -> tuple:
    """`inputs` are those of forward: autograd saves some of them, so they must not be written to before."""
    made, leaves = ticket.kept  # type: ignore[attr-defined]
    pairs = [(out, gradient) for out, gradient in zip(made, gradients, strict=True) if gradient is not None]
    found = torch.autograd.grad(
        [out for out, _ in pairs], leaves, [gradient for _, gradient in pairs], retain_graph=True, allow_unused=True
    )
    return tuple(
        torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in zip(leaves, found, strict=True)
    )


FUNCTIONS: dict[str, Any] = {"recurrent": recurrent, "recurrent_backward": recurrent_backward}
