"""Interprets `__torch_function__` of arguments that are not tensors.

    class Pair:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None): ...

    torch.stack([Pair(), Pair()])        # calls Pair.__torch_function__(torch.stack, (Pair,), ([…],))

Only torch knows which calls consult ``__torch_function__``, in which order and with which arguments. So the call runs
once under a mode, which receives it before any rule does, and raises. Rules of tensor classes run in the graph
(``graph_recorder``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function

from ....concurrency.outside_errors import reraise_from_outside
from ....foundation.torch_private import len_torch_function_stack as _count_modes
from ....foundation.torch_private import pop_mode, push_mode
from ...guards.tensor_metadata import TENSOR_TYPES
from ...guards.value_or_identity import UNEXPOSED
from ...interpreter.frames import MISSING
from ..polyfills.torch_function_polyfills import SEQUENCES, ask_rules, has_rule, operate


class ReceivedCall(NamedTuple):
    """A call as the rules receive it."""

    function: Any
    kinds: tuple[type, ...]
    args: tuple
    kwargs: dict | None


class Received(BaseException):
    """Not an Exception: torch's own code must not handle it."""


class CallProbe(TorchFunctionMode):
    shown: ReceivedCall | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.shown = ReceivedCall(func, types, args, kwargs)
        raise Received


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A call of a torch function by the rules of its arguments; MISSING where no rule is asked, or one of a tensor."""
    if not takes_rules(args) and not (kwargs and takes_rules(kwargs.values())) or _count_modes():
        return MISSING
    shown = receive_first_call(function, args, kwargs)
    if shown is None or not is_call_of(function, shown.function):
        return MISSING
    values = first_of_each_kind(shown)
    return MISSING if values is None else m.call(ask_rules, (values, *shown), {})


def operator(m: Any, left: torch.Tensor, right: Any, method: str, reflected: str) -> Any:
    """``left + right`` for a tensor and an object that is none: the object's rule, then its reflected method. MISSING
    where torch takes the object as it is, as it does a subclass of float."""
    if type(left) not in TENSOR_TYPES or _count_modes():
        return MISSING
    slot = getattr(torch.Tensor, method, None)
    if slot is None:  # divmod
        return m.call(operate, (left, right, method, reflected, (), None), {})
    shown = receive_first_call(slot, (left, right), {})
    values = () if shown is None else first_of_each_kind(shown)
    if values is None:
        if has_rule(type(right)) or slot(left, right) is not NotImplemented:
            return MISSING
        values = ()  # torch shows some operators even where it refuses the operand
    return m.call(operate, (left, right, method, reflected, values, shown), {})


def takes_rules(values: Iterable[Any]) -> bool:
    """Whether an argument, or an element of a list or tuple, is an object with a rule and not a tensor."""
    for value in values:
        kind = type(value)
        if kind in UNEXPOSED:
            continue
        if kind in SEQUENCES:
            if takes_rules(value):
                return True
        elif has_rule(kind):
            return True
    return False


def receive_first_call(function: Any, args: tuple, kwargs: dict) -> ReceivedCall | None:
    """The first call that torch shows to modes; None where it shows none."""
    probe, modes = CallProbe(), _count_modes()
    try:
        push_mode(probe)
        function(*args, **kwargs)
    except Received:
        return probe.shown
    except Exception as error:
        reraise_from_outside(error)
        return None
    finally:
        if _count_modes() > modes:
            pop_mode()
    return None


def is_call_of(function: Any, shown: Any) -> bool:
    """Whether what a mode received first is the call itself, and no call within it."""
    return (
        shown is function
        or function is handle_torch_function
        or getattr(shown, "__name__", None) == getattr(function, "__name__", "")
    )


def first_of_each_kind(shown: ReceivedCall) -> tuple | None:
    """The objects whose rules torch asks, in order; None if one is a tensor with a rule of its own."""
    given = [*flat(shown.args), *flat((shown.kwargs or {}).values())]
    found = []
    for kind in shown.kinds:
        if kind in TENSOR_TYPES:
            continue  # the rule of plain tensors refuses calls with other kinds of objects
        value = next((value for value in given if type(value) is kind), MISSING)
        if value is MISSING or issubclass(kind, torch.Tensor):
            return None
        found.append(value)
    return tuple(found) or None


def flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in SEQUENCES:
            yield from flat(value)
        else:
            yield value
