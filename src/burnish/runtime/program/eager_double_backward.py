"""Runs a graph again in eager, for gradients that compiled code does not compute, such as those of gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...foundation.torch_private import peek_interpreter_stack, pop_dynamic_layer_stack, push_dynamic_layer_stack


def run_again(eager: Callable, inputs: Sequence[Any], written: Sequence[int], drawn: torch.Tensor | None) -> Any:
    """A second run, which draws the same random numbers and leaves the inputs as they are. `drawn`: torch's random
    state before the first run."""
    given = [x.detach().clone() if k in written else x for k, x in enumerate(inputs)] if written else inputs
    if drawn is None:
        return eager(*given)
    now = torch.get_rng_state()
    torch.set_rng_state(drawn)
    try:
        return eager(*given)
    finally:
        torch.set_rng_state(now)


@contextlib.contextmanager
def at_no_level() -> Iterator[None]:
    """Outside of the transforms of ``torch.func``, where the first run was."""
    levels = []
    try:
        while peek_interpreter_stack() is not None:
            levels.append(pop_dynamic_layer_stack())
        yield
    finally:
        while levels:
            push_dynamic_layer_stack(levels.pop())


def apart(inputs: Sequence[Any]) -> list[Any]:
    """Views: an input may have been computed from another one, whose gradient must not go through it."""
    return [x.view_as(x) if needs_gradient(x) else x for x in inputs]


def needs_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad
