"""Torch function modes that the program enters: their rules are interpreted in place of torch's calls.

    with Doubled():                  entered in the tracer only, not on torch's stack
        y = torch.sin(x)             Doubled.__torch_function__ is interpreted:
                                     sin = torch.sin(x)
                                     mul = sin.mul(2)

Torch shows each call to the recorder, which is the only mode on torch's stack. The recorder has the rule of the
innermost mode interpreted. During the rule this mode is not entered, as in torch.

A segment must not end inside such a block, because the next one begins with torch's own stack. If a trace ends there,
plain Python goes on with the modes on torch's stack, and the segment is not kept. The next trace breaks where the
program enters the first mode (``Program.capabilities.enters_modes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...foundation.torch_private import (
    get_current_function_mode,
    get_current_function_mode_stack,
    get_torch_function_state,
    pop_mode,
    push_mode,
)
from ...foundation.torch_private import len_torch_function_stack as _count_modes
from .. import breaks
from ..interpreter.frames import MISSING


def why_not_enter(m: Any, mode: Any) -> str | None:
    if not m.capabilities.enters_modes:
        return "the graph ends inside its block"
    if m.region is not None and not getattr(m.region, "is_rule", False):
        return "it is in a region, which may be given up"
    if not isinstance(type(mode).__torch_function__, FunctionType):
        return "its rule is not a Python function"
    return None


def enter(m: Any, args: tuple, kwargs: dict) -> Any:
    push(m, args, kwargs)
    return args[0]


def push(m: Any, args: tuple, kwargs: dict) -> None:
    why = why_not_enter(m, *args)
    if why is not None:
        m.stop(breaks.GLOBAL_SWITCH, f"a torch function mode is entered: {why}")
    m.modes.append(args[0])


def pop(m: Any, args: tuple, kwargs: dict) -> Any:
    if not m.modes:
        m.stop(breaks.GLOBAL_SWITCH, "a torch function mode is left")
    return m.modes.pop()


def leave(m: Any, args: tuple, kwargs: dict) -> None:
    pop(m, (), {})


def enter_device(m: Any, device: torch.device) -> torch.device:
    """``with torch.device("meta"):`` puts a mode on top of the others."""
    from ...foundation.torch_private import DeviceContext

    push(m, (m.made(DeviceContext(device)),), {})
    return device


UNSEEN = frozenset(("torch.autograd", "torch._tensor", "torch.utils.checkpoint", "torch.utils.hooks", "torch"))
"""Modules with functions for which a segment holds other calls than torch would show to a mode."""
IN_TORCH = frozenset(
    ("backward", "grad", "register_hook", "register_post_accumulate_grad_hook", "checkpoint", "cond")
    + ("setup_input_hook", "setup_output_hook")
)
PACKAGES = ("torch._functorch", "torch._higher_order_ops", "torch.nn.attention.flex_attention")


def check(m: Any, function: FunctionType) -> None:
    """Stop at a function that is not interpreted, and that the modes would receive, or whose inner calls."""
    module = function.__globals__.get("__name__") or ""
    if (
        module in UNSEEN
        and function.__name__ in IN_TORCH
        or module.startswith(PACKAGES)
        and module != "torch._functorch.functional_call"
        and not (function.__code__.co_qualname.startswith("vmap") and are_of_masks(m))
    ):
        refuse(m, function.__qualname__)


OF_MASKS = "torch._dynamo._trace_wrapped_higher_order_op", "TransformGetItemToIndex"
"""The class of a mode without state, for the functions of masks, which `vmap` calls with places in a row."""


def are_of_masks(m: Any) -> bool:
    """Whether the program has entered modes with which a node can call `vmap`."""
    return all((type(mode).__module__, type(mode).__qualname__) == OF_MASKS for mode in m.modes)


@contextmanager
def set_aside(m: Any) -> Iterator[list[type]]:
    """For a node that enters modes of these classes itself."""
    entered, m.modes[:] = [*m.modes], []
    try:
        yield list(map(type, entered))
    finally:
        m.modes[:] = entered


def refuse(m: Any, what: str) -> None:
    if m.modes:
        m.stop(breaks.GLOBAL_SWITCH, f"{what} under a torch function mode")


def default_device(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.get_default_device()``, which asks torch's stack, and makes a tensor under the modes on it."""
    if not m.modes:
        return MISSING
    if any(type(mode).__module__ != "torch.utils._device" for mode in m.modes):
        refuse(m, "get_default_device()")
    with entered_in_torch(m):
        return m.plainly(torch.get_default_device)


def asked_for(question: FunctionType) -> Any:
    """A query of the stack: on torch's is only the recorder."""

    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        with entered_in_torch(m):
            return m.plainly(question, *args, **kwargs)

    return handler


HANDLERS = {
    get_current_function_mode: asked_for(get_current_function_mode),
    get_current_function_mode_stack: asked_for(get_current_function_mode_stack),
    torch.get_default_device: default_device,
    TorchFunctionMode.__enter__: enter,
    TorchFunctionMode.__exit__: leave,
    push_mode: push,
    pop_mode: pop,
}


def call_natively(m: Any, func: Any, args: tuple, kwargs: dict | None) -> Any:
    """A call after a break inside the same native function: torch itself calls the rules."""
    with entered_in_torch(m):
        return func(*args, **kwargs or {})


@contextmanager
def entered_in_torch(m: Any) -> Iterator[None]:
    """The modes are on torch's stack in here: for queries, and for what runs natively."""
    entered, count = [*m.modes], _count_modes()
    try:
        enter_in_torch(m)
        yield
    finally:
        while _count_modes() > count:
            pop_mode()
        m.modes[:] = entered


def enter_in_torch(m: Any) -> None:
    """Plain Python goes on: the modes move to torch's stack."""
    while m.modes:
        push_mode(m.modes.pop(0))


def is_inside_block(m: Any) -> bool:
    """Whether the trace ends inside a block that changes what torch's calls do, or which function receives them."""
    return bool(m.modes) or m.ends_in_level or get_torch_function_state() != m.rules_at_start
