"""Whether autograd's hooks for saved tensors may be used: a switch that the program reads, and sets around a block.

    with torch.autograd.graph.disable_saved_tensors_hooks("not inside of a transform"):
        y = x.exp() * x                 # the graph reads no such switch: it is set after the graph, in the same order

Entering such hooks is a break. What was set before has happened by then, so that it raises as in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ..numbers.live_scalars import Expression, settled
from ..segments.effects import Effect

ASK = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message
SWITCHES = (torch._C._autograd._saved_tensors_hooks_disable, torch._C._autograd._saved_tensors_hooks_enable)


def ask(m: Any, args: tuple, kwargs: dict) -> Any:
    """The message of whoever has disabled the hooks, or None; guarded unless the program has set it itself."""
    message = m.plainly(ASK, *args, **kwargs)
    if not any(effect.function in SWITCHES for effect in m.effects):
        m.guard_outcome(Expression(operator.eq, (Expression(ASK, ()), message)), True)
    return message


def _switch(function: Any) -> Callable:
    def switch(m: Any, args: tuple, kwargs: dict) -> Any:
        given = tuple(map(settled, args))
        m.plainly(function, *given, **kwargs)
        m.effects.append(Effect.of(m, function, given, kwargs))

    return switch


BUILTINS: dict[Any, Callable] = {ASK: ask, **{function: _switch(function) for function in SWITCHES}}
