"""Direct calls: torch operations that are recorded without torch showing them.

A torch function mode sees every torch call, at the price of several calls of Python for each. Most calls in a model are
of torch's own functions on plain tensors and numbers, and what the mode would be shown of them is always the same. So
it is learned: the first call of ``torch.matmul`` goes through the mode, which sees one call, of ``torch.matmul``, on
the very arguments. From then on ``torch.matmul`` on plain arguments is called as it is and written down by the tracer.

    x.transpose(1, 2)              shown as torch.Tensor.transpose(x, 1, 2)            learned under "transpose"
    F.dropout(x, 0.1, training)    shown as F.dropout(x, p=0.1, training=training …)   learned, with this order
    2 - x                          shown as torch.Tensor.__rsub__(x, 2)                other arguments: never direct
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import torch

from .metadata import TENSOR_TYPES
from .torch_calls import IMMEDIATE, known

# How a call is shown to a mode, by what is called. None where that cannot be foretold.
_learned: dict[Any, Shown | None] = {}
_count_modes, _is_enabled = torch._C._len_torch_function_stack, torch._C._is_torch_function_enabled
OPERATORS, NN_FUNCTIONS = sys.modules["_operator"], torch._C._nn
TORCH_FUNCTIONS = frozenset(f for f in map(functools.partial(getattr, torch._C._VariableFunctions),
                                           dir(torch._C._VariableFunctions)) if type(f) is BuiltinFunctionType)
PLAIN = IMMEDIATE | TENSOR_TYPES
SEQUENCES = (tuple, list, torch.Size)


_places: dict[tuple, tuple[list, list] | None] = {}


class Given(int):
    """The number of an argument of a call: those by position, then those by name."""


class Shown(NamedTuple):
    function: Any
    by_position: tuple[str, ...] | None = None  # parameters shown by position; None: the arguments as they are
    by_name: tuple[str, ...] = ()

    def arguments(self, function: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """The arguments that a mode would be shown, or None when they do not fit the function."""
        if self.by_position is None:
            return (function.__self__, *args) if type(getattr(function, "__self__", None)) in TENSOR_TYPES else args, \
                kwargs
        key = (function, len(args), *kwargs)
        places = _places.get(key, key)
        if places is key:
            if len(_places) > 10_000:
                _places.clear()
            places = _places[key] = self.places(function, len(args), tuple(kwargs))
        if places is None:
            return None
        given = (*args, *kwargs.values())
        by_position, by_name = places
        return (tuple([given[at] if type(at) is Given else at for at in by_position]),
                {name: given[at] if type(at) is Given else at for name, at in by_name})

    def places(self, function: Any, count: int, names: tuple[str, ...]) -> tuple[list, list] | None:
        """Where the arguments shown are found in a call with ``count`` positional arguments and those named: a
        ``Given``, or a default value as it is."""
        assert self.by_position is not None
        values = bound(function, tuple(map(Given, range(count))), dict(zip(names, map(Given, itertools.count(count)),
                                                                           strict=False)))
        if len(values) != len(self.by_position) + len(self.by_name) or count > function.__code__.co_argcount:
            return None
        return [values[name] for name in self.by_position], [(name, values[name]) for name in self.by_name]


def bound(function: FunctionType, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Values by parameter of a function without ``*`` and ``**``."""
    co = function.__code__
    names, defaults = co.co_varnames[: co.co_argcount], function.__defaults__ or ()
    return {**dict(zip(names[len(names) - len(defaults):], defaults, strict=True)), **(function.__kwdefaults__ or {}),
            **dict(zip(names, args, strict=False)), **kwargs}


def name_of_call(function: Any, args: tuple, kwargs: dict) -> Any:
    """Under what the call is learned; None where another way is needed. Methods of tensors go by their name."""
    kind = type(function)
    if kind is BuiltinFunctionType:
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
    elif kind is FunctionType and function.__module__ == "torch.nn.functional":
        name = function
    else:
        return None
    if not is_plain(args) or kwargs and not is_plain(kwargs.values()) or _count_modes() or not _is_enabled():
        return None
    return name


def is_plain(values: Iterable[Any]) -> bool:
    """Whether the values are tensors, constants, and sequences of them: no code of the user's runs for them."""
    for value in values:
        kind = type(value)
        if kind not in PLAIN and not (kind in SEQUENCES and is_plain(value)) \
                and not (kind is slice and is_plain((value.start, value.stop, value.step))):
            return False
    return True


def shown_as(function: Any, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict] | None:
    """The call that modes would be shown, where it is learned, takes tensors and constants alone and is recorded
    whenever it answers a tensor; None for any other."""
    is_method = type(function) is BuiltinFunctionType and type(function.__self__) in TENSOR_TYPES
    shown = _learned.get(function.__name__ if is_method else function)
    if shown is None or not known(shown.function).is_plain:
        return None
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in PLAIN and not (type(value) is tuple and IMMEDIATE.issuperset(map(type, value))):
            return None
    if _count_modes() or not _is_enabled():
        return None
    arguments = shown.arguments(function, args, kwargs)
    return None if arguments is None else (shown.function, *arguments)


def learned(name: Any) -> Shown | None:
    return _learned.get(name)


def learn(name: Any, function: Any, args: tuple, kwargs: dict, seen: list[tuple[Any, tuple, dict]]) -> None:
    """``function(*args, **kwargs)`` has been performed under the mode, which saw ``seen``."""
    if name not in _learned and len(_learned) < 10_000:
        _learned[name] = how_shown(function, args, kwargs, *seen[0]) if len(seen) == 1 else None


def how_shown(function: Any, args: tuple, kwargs: dict, shown: Any, shown_args: tuple, shown_kwargs: dict,
              ) -> Shown | None:
    plain = Shown(shown)
    expected_args, expected_kwargs = plain.arguments(function, args, kwargs) or (args, kwargs)
    if is_same(shown_args, expected_args) and shown_kwargs.keys() == expected_kwargs.keys() \
            and is_same(shown_kwargs.values(), [expected_kwargs[name] for name in shown_kwargs]):
        return plain
    if shown is not function or type(function) is not FunctionType or function.__code__.co_flags & 12:
        return None
    # Each parameter must be shown once, as what it is.
    names = function.__code__.co_varnames[: len(shown_args)]
    values = bound(function, args, kwargs)
    if {*names, *shown_kwargs} != values.keys() or len(names) + len(shown_kwargs) != len(values) \
            or not is_same(shown_args, [values[name] for name in names]) \
            or not is_same(shown_kwargs.values(), [values[name] for name in shown_kwargs]):
        return None
    return Shown(shown, names, tuple(shown_kwargs))


def is_same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
