"""Gradients of gradients through calls whose backward is one library call: the graph is refused.

    (g,) = torch.autograd.grad(gru(x).sum(), x, create_graph=True)
    g.square().sum().backward()                                        runs eagerly

Autograd would see no way from such a gradient back to the inputs, and take its derivative to be zero.
"""

from __future__ import annotations

import torch

from ....ir.untraceable_graph import Untraceable


def refuse_second_derivatives(of: str) -> None:
    """To be called in a backward function: grad mode is on there only with ``create_graph``."""
    if torch.is_grad_enabled():
        raise Untraceable(f"second derivatives of {of} are computed by eager")
