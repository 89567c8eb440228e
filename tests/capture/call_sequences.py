"""Sequences of calls for programs: data of either sign, and actions between two calls.

return fn, [(x,), (x, Before(lambda: setattr(config, "scale", 3.0))), (x, Before(lambda: made[-1](x)))]
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .harness import Keywords


class Before(Keywords):
    """Plain Python run just before a call, out of the compiler's sight; given as a call's last argument."""

    def __init__(self, action: Callable, **kwargs):
        self.action, self.given = action, kwargs

    @property
    def kwargs(self):
        self.action()
        return self.given


def swing(i: int, *shape: int) -> torch.Tensor:
    """Random data, all positive in even calls and all negative in odd ones."""
    data = torch.rand(*(shape or (4,))) + 0.5
    return data if i % 2 == 0 else -data


def swinging(i: int) -> tuple[torch.Tensor]:
    return (swing(i),)


def ordinary(i: int) -> tuple[torch.Tensor]:
    return (torch.randn(4),)
