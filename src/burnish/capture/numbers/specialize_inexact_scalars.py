"""Numbers that a graph takes in the tensor's type, where torch reads them in Python's, or asks what they are.

    x ** n                  an odd n above 2**24 is no longer odd in float32
    F.pad(x, p, value=n)    raises an error for a number that a half cannot hold
    F.dropout(x, p)         is x itself for p = 0, and draws no numbers for p = 1
    x.clamp(max=n)          is NaN if n is, and raises an error for a number that x cannot hold
    x.add(y, alpha=n)       raises an error for a number that x cannot hold

A live scalar stays one while the graph does the same for it, under a guard of that; any other becomes a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...runtime.argument_trees import tensors_in
from ..engine.torch_call_records import NotRecordable
from . import live_scalars

POWERS = frozenset("pow pow_ __pow__ __ipow__".split())
LOW, HIGH = (1, "min"), (2, "max")
BOUNDS = {
    **dict.fromkeys(("clamp", "clamp_"), (LOW, HIGH)),
    **dict.fromkeys(("clamp_min", "clamp_min_"), (LOW,)),
    **dict.fromkeys(("clamp_max", "clamp_max_"), ((1, "max"),)),
    **dict.fromkeys(
        ("_foreach_clamp_min", "_foreach_clamp_max", "_foreach_minimum", "_foreach_maximum"), ((1, "scalar"),)
    ),
    "hardtanh": ((1, "min_val"), (2, "max_val")),
}
BY_KEYWORD = 1 << 10
"""In place of a position."""
SUMS = "add add_ sub sub_ subtract subtract_ rsub _foreach_add _foreach_sub".split()
WITH_FACTOR = "addcmul addcmul_ addcdiv addcdiv_ _foreach_addcmul _foreach_addcdiv".split()
CONVERTED = {
    **dict.fromkeys(SUMS, ((BY_KEYWORD, "alpha"),)),
    **dict.fromkeys(WITH_FACTOR, ((3, "value"),)),
    **dict.fromkeys(("masked_fill", "masked_fill_", "lerp", "lerp_", "_foreach_lerp"), ((2, "value"), (2, "weight"))),
    "leaky_relu": ((1, "negative_slope"),),
    "softplus": ((1, "beta"), (2, "threshold")),
    "elu": ((1, "alpha"),),
}
"""Numbers that torch converts to the type of the tensor, and that may be NaN."""
ARGUMENTS = {
    **dict.fromkeys(POWERS, ((1, "exponent"),)),
    "pad": ((3, "value"),),
    "dropout": ((1, "p"),),
    **BOUNDS,
    **CONVERTED,
}


def with_exact_numbers(name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a torch call, with live scalars settled where the graph would take another number."""
    name = name.partition(".")[0]  # of an overload
    for at, keyword in ARGUMENTS.get(name, ()):
        number = args[at] if len(args) > at else kwargs.get(keyword)
        if not isinstance(number, live_scalars.Live):
            continue
        if number.expression.in_graph:
            if name == "dropout" and not is_between(number.plain(), 0, 1):
                raise NotRecordable("a number read from a tensor")
            continue
        tensor = args[0] if args else kwargs.get("self", kwargs.get("input"))
        if is_exact_argument(name, number, (tensor, *args[1:]) if name in CONVERTED else tensor):
            continue
        if len(args) > at:
            args = (*args[:at], number.settle(), *args[at + 1 :])
        else:
            kwargs = {**kwargs, keyword: number.settle()}
    return args, kwargs


def is_exact_argument(name: str, number: Any, tensor: Any) -> bool:
    if name in POWERS:
        return is_exact_exponent(tensor, number)
    if name == "dropout":
        return bool(live_scalars.apply(is_between, number, 0, 1))
    if name in CONVERTED:
        return is_exact_bound(tensor, number, is_converted)
    return name in BOUNDS and is_exact_bound(tensor, number)


def is_between(number: float, low: float, high: float) -> bool:
    return low < number < high


def is_held(number: float, largest: float) -> bool:
    return abs(number) <= largest or math.isinf(number)


def is_converted(number: float, largest: float) -> bool:
    return not abs(number) > largest or math.isinf(number)


def is_exact_bound(tensors: Any, bound: Any, is_accepted: Callable[[float, float], bool] = is_held) -> bool:
    if type(bound) is live_scalars.LiveInt:
        return True
    dtypes = {x.dtype for x in tensors_in(tensors)}
    floats = [dtype for dtype in dtypes if dtype.is_floating_point] or [torch.get_default_dtype()]
    return live_scalars.apply(is_accepted, bound, min(torch.finfo(dtype).max for dtype in floats))


def is_exact_exponent(base: Any, exponent: Any) -> bool:
    if not isinstance(base, torch.Tensor):
        return False
    is_number_of_floats = base.dtype.is_floating_point or base.dtype.is_complex
    if not is_number_of_floats and type(exponent) is live_scalars.LiveInt:
        return True
    limits = torch.finfo(base.dtype if is_number_of_floats else torch.get_default_dtype())
    return live_scalars.apply(is_exact, exponent, limits.tiny, 2 / limits.eps, limits.max)


def is_exact(number: float, least: float, most: float, largest: float) -> bool:
    """Whether a number is zero, or neither too small to be a normal float nor too large to be odd or even. The graph
    raises torch's error for one beyond the largest."""
    return number == 0 or least <= abs(number) <= most or abs(number) > largest
