"""Lazy modules: initialize their parameters in their first call.

    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    burnish.compile(model, fullgraph=True)(x)          makes them, and computes with them
    burnish.compile(model, fullgraph=True)(x)          traced again: it is an ordinary module now

That happens once, so it is not an effect for later runs to repeat. It is done for real, in the traced run. The module
changes (it gets its ordinary class, its hook is removed), so its guards hold in no later call, and the traced segment
is never used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn.modules.lazy import LazyModuleMixin

from ...interpreter.frames import Raised
from ...numbers.live_scalars import Expression
from ...python.operators import guard_before_native_read

make_parameters: Callable = vars(LazyModuleMixin)["_infer_parameters"]


def infer_parameters(m: Any, args: tuple, kwargs: dict) -> Any:
    """Handle the hook that runs before the first call."""
    if m.region is not None:
        m.region.refuse("a lazy module's first call")
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
        guard_before_native_read.settle_all(m, value)
    m.guard_outcome(Expression(never_again, ()), False)
    error: BaseException | None = None
    try:
        make_parameters(*args, **kwargs)
    except BaseException as caught:
        error = caught
    m.heap.note_changes()  # the module has removed its hooks
    if error is not None:
        raise Raised(error)
    return None


def never_again() -> bool:
    """Part of the segment's check. During the trace the recorded result was False."""
    return True


HANDLERS: dict[Callable, Callable] = {make_parameters: infer_parameters}
