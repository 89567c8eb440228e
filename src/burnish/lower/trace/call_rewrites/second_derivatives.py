"""Gradients of gradients through calls whose backward is one library call: the graph is refused.

    (g,) = torch.autograd.grad(gru(x).sum(), x, create_graph=True)
    g.square().sum().backward()                                        runs eagerly

Autograd would see no way from such a gradient back to the inputs, and take its derivative to be zero. A gradient that
is only read, as by a logger, is part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....ir.untraceable_graph import Untraceable


def differentiable_once(of: str, run: Callable[[], Sequence[Any]], tensors: Sequence[Any]) -> Sequence[Any]:
    """To be called in a backward function, where grad mode is on only with ``create_graph``. Returns what ``run``
    returns. ``tensors``: what that depends on."""
    return Once.apply(of, run, *tensors) if torch.is_grad_enabled() else run()


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, of: str, run: Callable[[], Sequence[Any]], *tensors: Any) -> tuple:
        ctx.of = of
        return tuple(run())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple:
        raise Untraceable(f"second derivatives of {ctx.of} are computed by eager")
