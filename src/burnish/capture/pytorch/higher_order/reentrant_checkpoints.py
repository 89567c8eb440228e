"""Checks that a checkpoint region is equivalent to a `use_reentrant=True` checkpoint.

Torch runs such a function without gradients, then again in backward, with a backward pass of its own. Gradients reach
the tensors among its arguments, and leaves. Its results require gradients because an argument does.
"""

from __future__ import annotations

from typing import Any

import torch

from ....runtime.argument_trees import tensors_in
from ....tensors.tensor_types import is_leaf
from ...engine.torch_call_records import handles_in


def why_not_alike(args: tuple, kwargs: dict) -> str | None:
    """Asked before the call."""
    if kwargs:
        return "arguments by name"
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
        return "no argument that requires gradients"
    if any(x.requires_grad for arg in args if not isinstance(arg, torch.Tensor) for x in tensors_in(arg)):
        return "a tensor inside of an argument that requires gradients"
    return None


def why_not_alike_after(
    recorder: Any, start: int, given: dict[int, Any], before: list[torch.Tensor], answer: Any
) -> str | None:
    """Asked after the call, whose result is ``answer``. ``before``: the values that the graph had computed before and
    that the function reads."""
    results = answer if type(answer) is tuple else (answer,)
    for x in results:
        if not isinstance(x, (torch.Tensor, int, float, str, type(None))):
            return "a result that is not a tensor"
        if isinstance(x, torch.Tensor):
            if id(x) in given or recorder.tracer.heap.origin_of(x) is not None or x._is_view():
                return "a result that is not a new tensor"
            if x.requires_grad != (x.is_floating_point() or x.is_complex()):
                return "a result that does not depend on what requires gradients"
    handles = [handle for call in recorder.calls[start:] for handle in handles_in((call.args, call.kwargs))]
    outside = [recorder.examples[handle.key] for handle in handles if handle.call is None]
    for x in (*outside, *before):
        if isinstance(x, torch.Tensor) and x.requires_grad and not is_leaf(x) and id(x) not in given:
            return "a tensor with a history that is not an argument"
    return None
