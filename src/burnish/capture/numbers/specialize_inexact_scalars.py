"""Numbers that a graph takes in the tensor's type, where torch reads them in Python's.

    x ** n                  an odd n above 2**24 is no longer odd in float32
    F.pad(x, p, value=n)    raises an error for a number that a half cannot hold

A live scalar stays one while the two are the same, under a guard of that; any other becomes a constant.
"""

from __future__ import annotations

from typing import Any

import torch

from . import live_scalars

POWERS = frozenset("pow pow_ __pow__ __ipow__".split())
ARGUMENTS = {**dict.fromkeys(POWERS, (1, "exponent")), "pad": (3, "value")}


def with_exact_numbers(name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a torch call, with live scalars settled where the graph would take another number."""
    if name not in ARGUMENTS:
        return args, kwargs
    at, keyword = ARGUMENTS[name]
    number = args[at] if len(args) > at else kwargs.get(keyword)
    if not isinstance(number, live_scalars.Live) or number.expression.in_graph:
        return args, kwargs
    if name in POWERS and is_exact_exponent(args[0] if args else kwargs.get("self", kwargs.get("input")), number):
        return args, kwargs
    if len(args) > at:
        return (*args[:at], number.settle(), *args[at + 1 :]), kwargs
    return args, {**kwargs, keyword: number.settle()}


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
