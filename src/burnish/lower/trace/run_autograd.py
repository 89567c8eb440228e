"""Runs PyTorch's autograd on the tensors of a trace.

gradients = derivatives(outputs, inputs, tangents)          raises Untraceable if it has no formula
"""

from __future__ import annotations

import re
from typing import Any

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...ir.untraceable_graph import Untraceable

CLOSED = re.compile("backward through the graph a second time|derivative for .* is not implemented")
"""torch's errors where the captured program has already run the backward of an output, or where there is no formula."""


class UntraceableBackward(Untraceable):
    """Backward cannot start from an output, for a reason in `CLOSED`."""

    def __init__(self, words: str):
        super().__init__(f"its gradients cannot be traced: {words}")
        self.words = words


def derivatives(outputs: list[Any], inputs: list[Any], tangents: list[Any]) -> list[Any]:
    if not outputs:
        return [None] * len(inputs)
    with torch.autocast("cpu", enabled=False):  # where backward usually runs
        try:
            return list(torch.autograd.grad(outputs, inputs, tangents, allow_unused=True, retain_graph=True))
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            reraise_from_outside(error)
            if type(error) is RuntimeError and CLOSED.search(str(error)):
                raise UntraceableBackward(str(error)) from error
            raise Untraceable(f"its gradients cannot be traced: {error}") from error
