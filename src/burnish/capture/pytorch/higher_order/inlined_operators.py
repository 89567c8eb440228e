"""Higher-order operators that only run one function: it is inlined into the graph.

    torch.ops.higher_order.wrap(f, x)                              f(x); a node with its graph for backends of others
    torch.ops.higher_order.wrap_with_set_grad_enabled(False, f, x) f(x), between two changes of the grad mode
    torch.ops.higher_order.hints_wrapper(f, (x,), {}, hints)       f(x); hints are for other compilers
    torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)    the product of casts

In eager these operators hide their function from `torch.compile`, or are written for it alone. The functions below are
interpreted in their place. Most of torch's modules are imported on demand only, so their names are compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from ....foundation.torch_private import pytree
from ...interpreter.frames import MISSING
from .. import writes_of_calls
from . import outline_recorded_calls


def wrap(operator, function, *args, **kwargs):  # type: ignore[no-untyped-def]
    return function(*args, **kwargs)


def wrap_in_node(operator, function, args, kwargs):  # type: ignore[no-untyped-def]
    group_begins()
    try:
        answer = function(*args, **kwargs)
    except BaseException:
        group_is_left()
        raise
    group_ends()
    return answer


def group_begins() -> None:
    """Handled by `begin_group`."""


def group_is_left() -> None:
    """Handled by `leave_group`."""


def group_ends() -> None:
    """Handled by `end_group`."""


def begin_group(m: Any, args: tuple, kwargs: dict) -> None:
    m.recorder.groups.append((len(m.recorder.calls), len(m.effects), random_state()))


def random_state() -> list[bytes]:
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.numpy().tobytes() for state in (torch.get_rng_state(), *devices)]


def leave_group(m: Any, args: tuple, kwargs: dict) -> None:
    del m.recorder.groups[-1:]


def end_group(m: Any, args: tuple, kwargs: dict) -> None:
    """The calls since its beginning become one node, unless there is a graph break or anything but calls between. A
    write or another effect among the calls depends on its position. Random numbers are drawn even if they are not used.
    """
    if not m.recorder.groups:
        return
    start, effects, random = m.recorder.groups.pop()
    if (
        m.region is not None
        or random != random_state()
        or len(m.effects) != effects
        or any(at > start for at in m.recorder.clones)
        or any(writes_of_calls.writes(call.target, call.kwargs) for call in m.recorder.calls[start:])
    ):
        return
    outline_recorded_calls.group(m, start, torch.ops.higher_order.wrap, {})


def wrap_with_grad_mode(operator, enable_grad, function, *args, **kwargs):  # type: ignore[no-untyped-def]
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    made = function(*args, **kwargs)
    torch.set_grad_enabled(before)
    return made


def wrap_with_autocast(operator, device_type, dtype, enabled, cache_enabled, function, *args, **kwargs):  # type: ignore[no-untyped-def]
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return function(*args, **kwargs)


def bypass(operator, wrapper, function, *args, **kwargs):  # type: ignore[no-untyped-def]
    return wrapper(function)(*args, **kwargs)


def call_subgraph(operator, function, *operands, **options):  # type: ignore[no-untyped-def]
    return function(*operands)


def call_hinted(operator, function, args, kwargs, hints):  # type: ignore[no-untyped-def]
    return function(*args, **kwargs)


def call_strictly(function, operands):  # type: ignore[no-untyped-def]
    return function(*operands)


def call_strict_operator(operator, function, operands):  # type: ignore[no-untyped-def]
    return function(*operands)


def takes_all(*args: Any, **kwargs: Any) -> bool:
    return True


def takes_wrapper(operator: Any, wrapper: Any, *args: Any, **kwargs: Any) -> bool:
    return not isinstance(wrapper, str)


def takes_hints(operator: Any, function: Any, args: Any, kwargs: Any, hints: Any) -> bool:
    """Whether torch would accept the arguments, too."""
    numbers = (torch.Tensor, int, float, bool)
    return (
        type(args) in (tuple, list)
        and all(isinstance(value, numbers) for value in args)
        and type(kwargs) is dict
        and all(isinstance(value, numbers) for value in kwargs.values())
        and type(hints) is dict
    )


def takes_no_gradients(*args: Any, **kwargs: Any) -> bool:
    """The operator has no gradients: its backward raises an error, which torch must make."""
    leaves = pytree.tree_leaves((args, kwargs))
    return not (torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in leaves))


def takes_out_dtype(operator: Any, function: Any, dtype: Any, *args: Any) -> bool:
    allowed = sys.modules[f"{PACKAGE}.out_dtype"].ALLOWABLE_OPS  # type: ignore[attr-defined]
    return function in allowed and type(dtype) is torch.dtype and takes_no_gradients(args)


INLINED: dict[tuple[str, str], tuple[FunctionType | str, Callable[..., bool]]] = {
    ("wrap", "Wrap.__call__"): (wrap, takes_all),
    ("wrap", "WrapWithSetGradEnabled.__call__"): (wrap_with_grad_mode, takes_all),
    ("wrap", "WrapWithAutocast.__call__"): (wrap_with_autocast, takes_all),
    ("wrap", "DynamoBypassingWrapper.__call__"): (bypass, takes_wrapper),
    ("base_hop", "BaseHOP.__call__"): (call_subgraph, takes_all),
    ("hints_wrap", "HintsWrapper.__call__"): (call_hinted, takes_hints),
    ("strict_mode", "strict_mode"): (call_strictly, takes_no_gradients),
    ("strict_mode", "StrictMode.__call__"): (call_strict_operator, takes_no_gradients),
    ("out_dtype", "OutDtypeOperator.__call__"): ("out_dtype_dense", takes_out_dtype),
}
"""By module and name: the function that is interpreted, and the question whether it may be. A name is that of a
function of torch's module, which takes the same arguments without the operator."""

PACKAGE = "torch._higher_order_ops"


def call(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A call of a function of one of the modules."""
    found = INLINED.get((function.__globals__["__name__"].rpartition(".")[2], function.__qualname__))
    if found is None:
        return MISSING
    made, takes = found
    if made is wrap and m.options.shows_operators:
        return m.call(wrap_in_node, (*args[:2], args[2:], kwargs), {})
    try:
        is_taken = takes(*args, **kwargs)
    except TypeError:  # arguments that do not fit, about which torch raises its own error
        return MISSING
    if not is_taken:
        return MISSING
    if isinstance(made, str):
        return m.call(function.__globals__[made], args[1:], kwargs)
    return m.call(made, args, kwargs)


HANDLERS: dict[Callable, Callable] = {group_begins: begin_group, group_is_left: leave_group, group_ends: end_group}
BY_MODULE = {f"{PACKAGE}.{module}": call for module, _ in INLINED}
