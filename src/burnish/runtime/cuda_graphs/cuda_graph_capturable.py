"""Find out in an ordinary run whether a program can be captured as a CUDA graph.

    made, why = witnessed(program, inputs, device)          why: "aten._local_scalar_dense.default waits for the GPU"

A capture that fails half way costs more than one that is never started. Operators that synchronize with the GPU
cannot be captured. Operators on the CPU can, and would be wrong: they would run once, at capture, and not in
replays. A dispatch mode sees each operator. It does not see our own kernels, but an operator allocates what they
store to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...foundation.torch_private import len_torch_dispatch_stack, pop_torch_dispatch_stack, push_on_torch_dispatch_stack
from ..argument_trees import tensors_in

WAITING = ("data_dependent_output", "cudagraph_unsafe")
"""Torch's own tags of operators."""

MASKS = (torch.bool, torch.uint8)


class Witness:
    def __init__(self, device: torch.device):
        self.device = device
        self.why: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if self.why is None:
            self.why = self.why_not(func, args, kwargs or {}, made)
        return made

    def why_not(self, func: Any, args: tuple, kwargs: dict, made: Any) -> str | None:
        if any(tag.name in WAITING for tag in func.tags):
            return f"{func} waits for the GPU"
        if func.__name__.startswith("index") and any(x.dtype in MASKS for x in tensors_in(args[1:2])):
            return f"{func} waits for the GPU: one of its indices is a mask"
        # A number may be passed as a CPU tensor of no dimensions: its value becomes part of the graph.
        given = [x for x in tensors_in((args, kwargs)) if x.ndim]
        # The state of attention's random numbers is on the GPU in a capture, and on the CPU otherwise.
        is_attention = func.__name__.startswith("_scaled_dot_product_")
        for x in (*given, *(x for x in tensors_in(made) if x.ndim or not is_attention)):
            if x.device != self.device:
                return f"{func} is given or makes something on {x.device}"
        return None


def witnessed(program: Callable[..., Any], inputs: Sequence[Any], device: torch.device) -> tuple[Any, str | None]:
    """The program's result, and why such a run cannot be captured; None where it can."""
    witness = Witness(device)
    modes = len_torch_dispatch_stack()
    try:
        push_on_torch_dispatch_stack(witness)  # type: ignore[arg-type]  # an interrupt may come behind it
        return program(*inputs), witness.why
    finally:
        if len_torch_dispatch_stack() > modes:
            pop_torch_dispatch_stack(None)
