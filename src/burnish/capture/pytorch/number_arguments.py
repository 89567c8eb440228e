"""Which arguments of torch calls may be numbers that differ between the calls of a segment.

    x * n               a value: n is an input of the graph
    torch.zeros(n)      a size: a symbol, with formulas for the sizes of results
    x.sum(n)            anything else: n is guarded, and a constant

Graphs for the backends of others are made as the program makes the calls, so more of their arguments may differ.
"""

from __future__ import annotations

from typing import Any

from ...foundation.torch_private import OpOverload, OpOverloadPacket

# Value arguments: the number changes the result's data, never its shape or type. Live scalars stay live there.
VALUE_CALLS = frozenset(
    """
    add sub mul div true_divide rsub pow fmod remainder clamp clamp_min clamp_max lt le gt ge eq ne fill_
    add_ sub_ mul_ div_ pow_ clamp_ clamp_min_ clamp_max_ masked_fill masked_fill_ where addcmul addcdiv
    addcmul_ addcdiv_
    lerp lerp_ full_like threshold leaky_relu elu hardtanh softplus dropout __rpow__ __rdiv__ __rsub__ __rtruediv__
    subtract multiply divide floor_divide floor_divide_ remainder_ fmod_ atan2 maximum minimum xlogy copysign ldexp
    __radd__ __rmul__ greater less greater_equal less_equal not_equal arctan2 float_power heaviside __rfloordiv__
    __eq__ __pow__ __ipow__ __floordiv__ __rmod__ bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ __iand__
    __ior__ __ixor__ __lshift__ __rlshift__ __rshift__ __rrshift__ __ilshift__ __irshift__
    scalar_tensor
""".split()
)

# Calls that take an integer of the program as a size or an index. The compiler knows how their results depend on it.
SIZED = frozenset(
    """
    zeros ones full empty rand randn arange linspace eye new_zeros new_ones new_full new_empty view reshape expand
    repeat broadcast_to __getitem__ getitem __setitem__ setitem triu tril select narrow topk kthvalue split tile pad
    repeat_interleave randint randperm
""".split()
)

# Calls with results that are no one formula of the number: a shift by more than the size begins again.
PIECEWISE = frozenset(["roll"])

# Calls with a size and a number that fills the result, by the position of the number.
FILLED = {"full": 1, "new_full": 2}
FILLS = frozenset(("full", "new_full", "full_like", "fill_", "fill"))
"""Calls that fill tensors with a number, and raise an error if it is too large for their dtype."""

# ... and where a graph for another backend runs: a number there decides about sizes, but no meaning.
SIZED_AS_CALLED = SIZED | frozenset(
    """
    interpolate upsample conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d unfold fold
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d pixel_shuffle
""".split()
)

# There, the argument that is a value, by position and keyword.
VALUES_AS_CALLED = {
    "roll": (1, "shifts"),
    "tril": (1, "diagonal"),
    "triu": (1, "diagonal"),
    "tril_": (1, "diagonal"),
    "triu_": (1, "diagonal"),
    "norm": (1, "p"),
    "__setitem__": (2, "value"),
}

OPERATORS = (OpOverload, OpOverloadPacket)
OF_TORCH = ("aten", "prims", "prim")


def is_of_torch(operator: Any) -> bool:
    return str(operator).partition(".")[0] in OF_TORCH


OF_MANY_TENSORS = ("_foreach_", "_fused_")  # called by optimizers: all their number arguments are value arguments


def takes_live_numbers(target: Any) -> bool:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if isinstance(target, OPERATORS):
        if not is_of_torch(target):  # a name says nothing of them: see `torch_library_operators.call_with_numbers`
            return False
        name = name.partition(".")[0]
    return name in VALUE_CALLS or name.startswith(OF_MANY_TENSORS)


def is_filled_by_number(name: str, args: tuple, kwargs: dict) -> bool:
    """Whether all numbers among the arguments are constants, but for the one that fills the result."""
    at = FILLED.get(name)
    if at is None or any(type(size) is not int for size in sizes_of(args[at - 1] if len(args) >= at else ())):
        return False
    return all(type(size) is int for size in sizes_of(kwargs.get("size", ())))


def sizes_of(size: Any) -> Any:
    return size if isinstance(size, (tuple, list)) else (size,)


def sized(options: Any) -> frozenset[str]:
    """The calls that take symbolic sizes."""
    return SIZED_AS_CALLED if options.shows_operators else SIZED


def value_argument(options: Any, name: str) -> tuple[int, str]:
    """Where a call takes a number that changes values only, among arguments that do more."""
    return VALUES_AS_CALLED.get(name, NOWHERE) if options.shows_operators else NOWHERE


NOWHERE = (-1, "")
