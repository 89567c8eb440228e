"""Recorder fast path: torch operations that are recorded directly, without a torch function mode.

A torch function mode sees every torch call, at the cost of several Python calls for each. Most calls in a model are of
torch's own functions on plain tensors and numbers, and the mode always receives them in the same form. So the form is
learned: the first call of ``torch.matmul`` goes through the mode, which receives one call, of ``torch.matmul``, with
equal arguments. From then on ``torch.matmul`` on plain arguments is called directly and recorded by the tracer.

    x.transpose(1, 2)              shown as torch.Tensor.transpose(x, 1, 2)            learned under "transpose"
    F.dropout(x, 0.1, training)    shown as F.dropout(x, p=0.1, training=training …)   learned, with this order
    2 - x                          shown as torch.Tensor.__rsub__(x, 2)                other arguments: never direct
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Iterable
from time import perf_counter
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from ...foundation.torch_private import (
    VariableFunctions,
    is_torch_function_enabled,
    len_torch_function_stack,
    nn_functions,
)
from ..engine.torch_call_records import Handle, TorchCall
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.emulated_frames import call_at_line
from ..interpreter.frames import MISSING
from ..numbers.detect_implicit_item_reads import SIZED_BY_FLOATS
from .torch_call_roles import IMMEDIATE, known, why_not_leaf

# The form in which a mode receives a call, by the called function. None if it cannot be predicted.
_learned: dict[Any, LearnedCallForm | None] = {}
_count_modes, _is_enabled = len_torch_function_stack, is_torch_function_enabled
OPERATORS, NN_FUNCTIONS = sys.modules["_operator"], nn_functions
TORCH_FUNCTIONS = frozenset(
    f
    for f in map(functools.partial(getattr, VariableFunctions), dir(VariableFunctions))
    if type(f) is BuiltinFunctionType
)
PLAIN = IMMEDIATE | TENSOR_TYPES
SEQUENCES = (tuple, list, torch.Size)


_new_call = tuple.__new__
_places: dict[tuple, tuple[list, list] | None] = {}


class ArgumentPosition(int):
    """The index of a call's argument: positional ones first, then keywords."""


class LearnedCallForm:
    """``by_position``: parameters passed to the mode by position; None: the arguments unchanged."""

    __slots__ = ("by_name", "by_position", "function", "is_recorded", "target")

    def __init__(self, function: Any, by_position: tuple[str, ...] | None = None, by_name: tuple[str, ...] = ()):
        self.function, self.by_position, self.by_name = function, by_position, by_name
        fixed = known(function)
        self.target, self.is_recorded = fixed.target, fixed.is_plain and function not in SIZED_BY_FLOATS

    def arguments(self, function: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """The arguments that a mode would receive, or None when they do not fit the function."""
        if self.by_position is None:
            return (function.__self__, *args) if type(
                getattr(function, "__self__", None)
            ) in TENSOR_TYPES else args, kwargs
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
        return (
            tuple([given[at] if type(at) is ArgumentPosition else at for at in by_position]),
            {name: given[at] if type(at) is ArgumentPosition else at for name, at in by_name},
        )

    def places(self, function: Any, count: int, names: tuple[str, ...]) -> tuple[list, list] | None:
        """Where to find the mode's arguments in a call with ``count`` positional arguments and these keywords: a
        ``ArgumentPosition``, or a default value."""
        assert self.by_position is not None
        values = bound(
            function,
            tuple(map(ArgumentPosition, range(count))),
            dict(zip(names, map(ArgumentPosition, itertools.count(count)), strict=False)),
        )
        if len(values) != len(self.by_position) + len(self.by_name) or count > function.__code__.co_argcount:
            return None
        return [values[name] for name in self.by_position], [(name, values[name]) for name in self.by_name]


def bound(function: FunctionType, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Values by parameter of a function without ``*`` and ``**``."""
    co = function.__code__
    names, defaults = co.co_varnames[: co.co_argcount], function.__defaults__ or ()
    return {
        **dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)),
        **(function.__kwdefaults__ or {}),
        **dict(zip(names, args, strict=False)),
        **kwargs,
    }


def name_of_call(function: Any, args: tuple, kwargs: dict) -> Any:
    """The key under which a call is learned; None if there is no fast path. Tensor methods use their name."""
    kind = type(function)
    if kind is BuiltinFunctionType:
        owner = function.__self__
        if type(owner) in TENSOR_TYPES:
            name: Any = function.__name__
        elif owner is OPERATORS:
            # The form of an operator depends on which operand is a tensor.
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
    """Whether the values are tensors, constants, and sequences of them: no user code runs for them."""
    for value in values:
        kind = type(value)
        if (
            kind not in PLAIN
            and not (kind in SEQUENCES and is_plain(value))
            and not (kind is slice and is_plain((value.start, value.stop, value.step)))
        ):
            return False
    return True


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """``perform`` for a call by the program itself, if it is learned; MISSING for any other."""
    is_method = type(function) is BuiltinFunctionType and type(function.__self__) in TENSOR_TYPES
    shown = _learned.get(function.__name__ if is_method else function)
    if shown is None or m.modes or _count_modes() or not _is_enabled():
        return MISSING
    return perform(m, shown, function, args, kwargs)


def perform(m: Any, shown: LearnedCallForm, function: Any, args: tuple, kwargs: dict) -> Any:
    """Make a call that modes would receive in this form, and record it. MISSING, without the call, unless its arguments
    are known tensors or constants, and a tensor result is always recorded."""
    recorder = m.recorder
    arguments = shown.arguments(function, args, kwargs)
    if arguments is None or not shown.is_recorded or m.region is not None or m.filters or recorder.perform is not None:
        return MISSING
    if m.unbacked_sizes.has_sizes or m.options.exports:  # `Recorder.call` has an eye on layouts there
        return MISSING
    # Handles are looked up before the call, which evicts all of this from the processor's caches.
    mark, seen = (len(recorder.calls), len(recorder.inputs)), recorder.seen
    shown_args, shown_kwargs = arguments
    table, values = recorder.known, []
    for value in (*shown_args, *shown_kwargs.values()) if shown_kwargs else shown_args:
        kind = type(value)
        if kind in TENSOR_TYPES:
            entry = table.get(id(value))
            if entry is not None and entry[0]() is value:
                handle = entry[1]
            else:
                origin = m.origins.get(id(value))
                handle = None if origin is None or origin.obj is not value else recorder.input(origin.source, value)
            if handle is None or value.numel() == 1 and not (value.is_floating_point() or value.is_complex()):
                recorder.forget_inputs(mark[1])  # it may be read as a number
                return MISSING
            values.append(handle)
        elif kind in IMMEDIATE or kind is tuple and IMMEDIATE.issuperset(map(type, value)):
            values.append(value)
        else:
            recorder.forget_inputs(mark[1])
            return MISSING
    recorder.pending_break, recorder.seen = None, seen + 1
    started = perf_counter()
    try:
        result = call_at_line(m.frame, function, args, kwargs, recorder.warnings)
    except BaseException as caught:
        error = caught
    else:
        recorder.seconds += perf_counter() - started
        why = why_not_leaf(m, result)
        if why is not None:
            m.late(*why, result)
        record_learned_call(m, shown, arguments, values, result, mark)
        if m.frame is not None:
            m.answer = (m.frame, m.frame.pc, result)
        return result
    recorder.forget_inputs(mark[1])
    if type(error) is TypeError:
        recorder.seen = seen  # bad arguments: torch raises this before the mode receives the call
    try:
        return m.fail_call(function, error, mark, seen, args, kwargs)
    finally:
        del error


def record_learned_call(
    m: Any, shown: LearnedCallForm, arguments: tuple, values: list, result: Any, mark: tuple
) -> None:
    """``values``: the arguments with handles in place of tensors. ``mark``: the recorder's state before the call."""
    recorder, (args, kwargs) = m.recorder, arguments
    calls, key = recorder.calls, id(result)
    if type(result) is torch.Tensor:
        entry = recorder.known.get(key)
        is_new = (entry is None or entry[0]() is not result) and key not in m.origins
        if is_new or len(recorder.inputs) == mark[1]:
            if is_new:
                recorder.known[key] = (weakref.ref(result), Handle(len(calls)))
            count = len(args)
            calls.append(
                _new_call(
                    TorchCall,
                    (
                        shown.target,
                        tuple(values[:count]) if kwargs else tuple(values),
                        dict(zip(kwargs, values[count:], strict=True)) if kwargs else {},
                        m.user_line(),
                    ),
                )
            )
            return
        recorder.forget_inputs(mark[1])  # the call may have changed them, and inputs are taken as they are afterwards
    break_ = recorder.why_not_record(shown.function, args, kwargs, result)
    if break_ is not None:
        recorder.undo_to(mark)
        m.late(*break_, result)


def learned_form(name: Any) -> LearnedCallForm | None:
    return _learned.get(name)


def learn(name: Any, function: Any, args: tuple, kwargs: dict, seen: list[tuple[Any, tuple, dict]]) -> None:
    """``function(*args, **kwargs)`` has run under the mode, which received ``seen``."""
    if name not in _learned and len(_learned) < 10_000:
        _learned[name] = how_shown(function, args, kwargs, *seen[0]) if len(seen) == 1 else None


def how_shown(
    function: Any, args: tuple, kwargs: dict, shown: Any, shown_args: tuple, shown_kwargs: dict
) -> LearnedCallForm | None:
    if type(function) is FunctionType and shown is not function:
        return None  # its code chooses what it calls, by `return_indices` for example
    plain = LearnedCallForm(shown)
    expected_args, expected_kwargs = plain.arguments(function, args, kwargs) or (args, kwargs)
    if (
        is_same(shown_args, expected_args)
        and shown_kwargs.keys() == expected_kwargs.keys()
        and is_same(shown_kwargs.values(), [expected_kwargs[name] for name in shown_kwargs])
    ):
        return plain
    if type(function) is not FunctionType or function.__code__.co_flags & 12:
        return None
    # Each parameter must be passed on once, with its value unchanged.
    names = function.__code__.co_varnames[: len(shown_args)]
    values = bound(function, args, kwargs)
    if (
        {*names, *shown_kwargs} != values.keys()
        or len(names) + len(shown_kwargs) != len(values)
        or not is_same(shown_args, [values[name] for name in names])
        or not is_same(shown_kwargs.values(), [values[name] for name in shown_kwargs])
    ):
        return None
    return LearnedCallForm(shown, names, tuple(shown_kwargs))


def is_same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
