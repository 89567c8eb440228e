"""Direct calls: torch operations that are recorded without torch showing them.

A torch function mode sees every torch call, at the price of several calls of Python for each. Most calls in a model are
C functions on plain tensors and numbers, and what the mode would be shown of them is always the same. So it is learned:
the first call of ``torch.matmul`` goes through the mode, which sees one call, of ``torch.matmul``, on the very
arguments. From then on ``torch.matmul`` on plain arguments is called as it is and written down by the tracer.

    x.transpose(1, 2)        shown as torch.Tensor.transpose(x, 1, 2)       learned under "transpose"
    2 - x                    shown as torch.Tensor.__rsub__(x, 2)           other arguments: never direct
"""

from __future__ import annotations

import functools
import sys
from types import BuiltinFunctionType
from typing import Any

import torch

from .metadata import TENSOR_TYPES
from .torch_calls import IMMEDIATE

# How a call is shown to a mode: the function, by what was called. None where that cannot be foretold.
_shown_as: dict[Any, Any] = {}
_count_modes, _is_enabled = torch._C._len_torch_function_stack, torch._C._is_torch_function_enabled
OPERATORS, NN_FUNCTIONS = sys.modules["_operator"], torch._C._nn
TORCH_FUNCTIONS = frozenset(f for f in map(functools.partial(getattr, torch._C._VariableFunctions),
                                           dir(torch._C._VariableFunctions)) if type(f) is BuiltinFunctionType)
PLAIN = IMMEDIATE | TENSOR_TYPES
SEQUENCES = (tuple, list, torch.Size)


def name_of_call(function: Any, args: tuple, kwargs: dict) -> Any:
    """Under what the call is learned; None where another way is needed. Methods of tensors go by their name."""
    if type(function) is not BuiltinFunctionType:
        return None
    owner = function.__self__
    if type(owner) in TENSOR_TYPES:
        name: Any = function.__name__
    elif owner is OPERATORS:
        # Which operand is a tensor decides about how an operator is shown.
        name = (function, *[type(a) in TENSOR_TYPES for a in args])
        if True not in name:
            return None
    elif owner is NN_FUNCTIONS or owner is None and function in TORCH_FUNCTIONS:
        name = function
    else:
        return None
    if not is_plain(args) or kwargs and not is_plain(kwargs.values()) or _count_modes() or not _is_enabled():
        return None
    return name


def is_plain(values: Any) -> bool:
    """Whether the values are tensors, constants, and sequences of them: no code of the user's runs for them."""
    for value in values:
        kind = type(value)
        if kind not in PLAIN and not (kind in SEQUENCES and is_plain(value)) \
                and not (kind is slice and is_plain((value.start, value.stop, value.step))):
            return False
    return True


def shown_as(name: Any) -> Any:
    return _shown_as.get(name)


def learn(name: Any, function: Any, args: tuple, kwargs: dict, seen: list[tuple[Any, tuple, dict]]) -> None:
    """``function(*args, **kwargs)`` has been performed under the mode, which saw ``seen``."""
    if name in _shown_as:
        return
    if len(_shown_as) > 10_000:
        return
    _shown_as[name] = None
    if len(seen) != 1:
        return
    shown, shown_args, shown_kwargs = seen[0]
    if type(name) is str:
        args = (function.__self__, *args)
    if len(shown_args) == len(args) and all(a is b for a, b in zip(shown_args, args, strict=True)) \
            and shown_kwargs.keys() == kwargs.keys() and all(shown_kwargs[k] is v for k, v in kwargs.items()):
        _shown_as[name] = shown
