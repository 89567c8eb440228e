"""The protocol of ``__torch_function__`` in Python: the rules of the arguments are asked one after the other.

torch.stack([a, b])        # type(a).__torch_function__(torch.stack, (A,), ([a, b],)), and so on
"""

from __future__ import annotations

import re
from types import FunctionType

import torch

from .operator_protocol_polyfills import SYMBOLS, has_method

SEQUENCES = (list, tuple)


def ask_rules(values, function, kinds, args, kwargs):
    """``values``: one object of each kind, in torch's order."""
    for value in values:
        if kwargs is None:
            result = value.__torch_function__(function, kinds, args)
        else:
            result = value.__torch_function__(function, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    raise no_implementation(function, kinds, args, kwargs)


def operate(left, right, method, reflected, values, shown):
    """``left + right`` of a tensor and another object. Torch makes NotImplemented of a TypeError."""
    if values:
        try:
            result = ask_rules(values, *shown)
        except TypeError:
            result = NotImplemented
        if result is not NotImplemented:
            return result
    reflection = getattr(type(right), reflected, None) if has_method(type(right), reflected) else None
    if reflection is not None and reflection is not getattr(object, reflected, None):
        result = reflection(right, left)
        if result is not NotImplemented:
            return result
    if method == "__eq__":
        return left is right
    if method == "__ne__":
        return left is not right
    kinds = f"'{type(left).__name__}' and '{type(right).__name__}'"
    if method in COMPARISONS:
        raise TypeError(f"'{SYMBOLS[method]}' not supported between instances of {kinds}")
    raise TypeError(f"unsupported operand type(s) for {SYMBOLS[method]}: {kinds}")


COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__")


class Refuses:
    """An object whose rule implements nothing."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def no_implementation(function, kinds, args, kwargs):
    """The error that torch raises when all rules return NotImplemented. C code words it in another way than Python."""
    if isinstance(function, FunctionType):
        name = f"{function.__module__}.{function.__name__}"
        return TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {[*kinds]}")
    try:
        function(*refusing(args), **{name: refusing((value,))[0] for name, value in (kwargs or {}).items()})
    except TypeError as error:
        text = str(error)
    else:
        raise AssertionError("a call of objects without an implementation has returned")
    lines = "\n".join(f"  - tensor subclass {kind!r}" for kind in kinds)
    return TypeError(re.sub(r"  - .*Refuses'>", lambda _: lines, text))


no_implementation._burnish_constant = True


def refusing(values):
    return [
        type(value)(refusing(value)) if type(value) in SEQUENCES else Refuses() if has_rule(type(value)) else value
        for value in values
    ]


def has_rule(kind):
    """Whether the class has a rule and is not a class of tensors."""
    return hasattr(kind, "__torch_function__") and not issubclass(kind, torch.Tensor)
