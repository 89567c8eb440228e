"""Runs torch operations under the recorder; queries that need no graph node are answered first.

    call_torch(m, x.requires_grad_, (), {})        # already required: no call is recorded

A call that torch keeps from the recorder is a break, made late.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from ... import breaks
from ...guards.changing_numbers import NUMBERS
from ...guards.tensor_metadata import TENSOR_TYPES, WithoutRules
from ...interpreter.frames import MISSING
from ...numbers import constant_tensors, graph_numbers
from ...numbers.live_scalars import Live
from ...numpy_calls import graph_arrays
from ...pytorch import (
    number_arguments,
    tensor_assertions,
    tensor_hooks_and_data,
    torch_call_roles,
    torch_library_operators,
)
from ...subclasses import make_tensors
from ...symbolic_sizes import guard_integer_arguments
from ...symbolic_sizes.unbacked_sizes import takes_sizes
from ..operators import guard_before_native_read
from . import torch_function_of_non_tensors

METHOD_KINDS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def call_torch(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    if m.changing:
        args = tuple([numbers_read_at_once(m, value) for value in args])
        kwargs = {name: numbers_read_at_once(m, value) for name, value in kwargs.items()}
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in TENSOR_TYPES and issubclass(type(value), (list, tuple, dict)):
            m.heap.expose(value)
    answer = MISSING if m.modes else torch_function_of_non_tensors.call(m, function, args, kwargs)
    return call_operation(m, function, args, kwargs) if answer is MISSING else answer


def numbers_read_at_once(m: Any, value: Any) -> Any:
    """For a list of numbers that change from call to call: one with live numbers. Torch reads it at once."""
    if type(value) is list and value and all(type(part) in NUMBERS for part in value):
        return m.heap.items_read_at_once(value)
    return value


def call_operation(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    name = getattr(function, "__name__", "")
    if m.modes and name != "as_subclass":  # which no mode receives
        return perform(m, function, name, args, kwargs)
    answer = answer_without_node(m, function, name, args, kwargs)
    if answer is not MISSING:
        return answer
    if m.symbolic_sizes is not None or m.unbacked_sizes.has_sizes:
        answer = with_symbolic_sizes(m, function, name, args, kwargs)
        if answer is not None:
            return answer
    if isinstance(function, number_arguments.OPERATORS) and not number_arguments.is_of_torch(function):
        m.recorder.keeps_numbers = torch_library_operators.are_kept(m, function, args, kwargs)
        if m.recorder.keeps_numbers:
            try:
                return perform(m, function, name, args, kwargs)
            finally:
                m.recorder.keeps_numbers = False
    given = args if name == "full" or type(function) in METHOD_KINDS else (getattr(function, "__self__", None), *args)
    is_function = not isinstance(getattr(function, "__self__", None), torch.Tensor)
    if m.symbolic_sizes is not None:
        guard_integer_arguments.check(m.symbolic_sizes, name, args if is_function else given, kwargs)
    if not number_arguments.takes_live_numbers(function) and not number_arguments.is_filled_by_number(
        name, given, kwargs
    ):
        value_at = number_arguments.value_argument(m.options, name)[0] - (not is_function)
        args = settle_arguments(m, name, args, kwargs, takes_sizes(m, name), value_at)
    args, kwargs = constant_tensors.with_numbers(m, function, name, args, kwargs)
    if name in torch_call_roles.STATE and not m.recorder.changes_its_own(
        name, args[0] if args and type(function) in METHOD_KINDS else getattr(function, "__self__", None)
    ):
        # A break before the call: it may change an input that the graph so far was recorded with.
        return m.stop(breaks.TENSOR_STATE, f"{name}() on a tensor")
    return perform(m, function, name, args, kwargs)


def perform(m: Any, function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    seen = m.recorder.seen
    value = m.perform(function, *args, **kwargs)
    if m.recorder.seen == seen and name not in torch_call_roles.FACTS:
        # Torch kept the call from the recorder (``set_``): not to be recorded, not to be taken for a constant.
        on_tensor = any(isinstance(x, torch.Tensor) for x in (getattr(function, "__self__", None), *args, value))
        m.late(*torch_call_roles.break_of_hidden_call(name, on_tensor), value)
    return value


def read(m: Any, function: Any, name: str, args: tuple) -> Any:
    """The answer of ``item`` or ``tolist`` that does not end the graph; MISSING if there is none."""
    tensor = args[0] if args else getattr(function, "__self__", None)
    number = constant_tensors.number_read(m, tensor)
    if number is not None:
        return number
    if constant_tensors.is_known(m, tensor):
        return m.plainly(function, *args)
    if name == "tolist":
        return graph_numbers.read_list(m, tensor) if graph_numbers.list_stays_in_graph(m, tensor) else MISSING
    if not graph_numbers.is_called_by_torch(m):
        answer = tensor_assertions.compared(m, tensor)
        if answer is not MISSING:
            return answer
    if name == "item" and m.options.fullgraph and getattr(tensor, "dtype", None) is torch.bool:
        from ...numbers import truths_of_graph_numbers  # few programs pass a truth on

        if truths_of_graph_numbers.reads_truth(m, tensor):
            return truths_of_graph_numbers.read(m, tensor)
    return graph_numbers.read(m, tensor) if graph_numbers.stays_in_graph(m, tensor) else MISSING


def answer_without_node(m: Any, function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """The answer to a call that needs no node, or that no torch function mode would receive; MISSING for others."""
    given = args if type(function) in METHOD_KINDS else (getattr(function, "__self__", None), *args)
    if name in ("as_tensor", "tensor"):
        answer = graph_numbers.tensor_of(m, args, kwargs)
        return MISSING if answer is None else answer
    if name == "new_tensor" and len(given) == 2 and type(given[0]) in TENSOR_TYPES:
        chosen = {key: value for key, value in kwargs.items() if value is not None}
        answer = graph_numbers.tensor_of(m, given[1:], {"dtype": given[0].dtype, "device": given[0].device, **chosen})
        return MISSING if answer is None else answer
    if name == "requires_grad_" and is_required_now(m, given, kwargs):
        return given[0]
    if name == "numpy" and kwargs == {"force": True} and len(given) == 1:
        return graph_arrays.forced_array_of(m, given[0])
    if kwargs or not given:
        return MISSING
    tensor = given[0]
    if name == "as_subclass" and len(given) == 2:
        return make_tensors.show_as(m, *given)
    if name in ("item", "tolist"):
        return read(m, function, name, args)
    if name == "numpy" and len(given) == 1:
        return MISSING if graph_arrays.why_not_shown(m, tensor) else graph_arrays.answer_array_of(m, tensor)
    if name == "retain_grad" and len(given) == 1 and tensor_hooks_and_data.retain_grad(m, tensor) is None:
        return None
    return MISSING


def settle_arguments(m: Any, name: str, args: tuple, kwargs: dict, takes_graph_numbers: bool, value_at: int) -> tuple:
    """The arguments of a call that may depend on the value of a number: live scalars are guarded, but for sizes and the
    argument at `value_at`."""
    if any([issubclass(type(a), Live) for a in args]):
        args = tuple(
            [
                a
                if at == value_at
                or m.symbolic_sizes is not None
                and m.symbolic_sizes.takes(a, name)
                or takes_graph_numbers
                and graph_numbers.is_graph_number(a)
                else guard_before_native_read.settled(a)
                for at, a in enumerate(args)
            ]
        )
    if not takes_graph_numbers:
        for value in (*args, *kwargs.values()) if kwargs else args:
            graph_numbers.settle_numbers(m, value)
    return args


def with_symbolic_sizes(m: Any, function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """The answer to a question for a size that is open; None where the call is to be made."""
    given = args if type(function) in METHOD_KINDS else (getattr(function, "__self__", None), *args)
    if (
        given
        and type(given[0]) in TENSOR_TYPES
        and name in torch_call_roles.FACTS
        and name not in torch_call_roles.SIZELESS
    ):
        arguments = (*map(guard_before_native_read.settled, given[1:]), *kwargs.values())
        answer = m.unbacked_sizes.asked(name, given[0], arguments)
        return m.symbolic_sizes.asked(name, given[0], arguments) if answer is None and m.symbolic_sizes else answer
    return None


def is_required_now(m: Any, given: tuple, kwargs: dict) -> bool:
    """Whether ``tensor.requires_grad_(flag)`` changes nothing, or has just been recorded."""
    tensor, flags = given[0], (*given[1:], *kwargs.values()) or (True,)
    if len(flags) != 1 or not m.knows(tensor):
        return False
    if type(tensor).__module__ == "torch.nested._internal.nested_tensor":
        with WithoutRules():
            return bool(tensor.requires_grad is flags[0])
    if type(tensor) not in TENSOR_TYPES:
        return False
    return (
        tensor.requires_grad is flags[0] or tensor_hooks_and_data.set_requires_grad(m, tensor, flags[0]) is not MISSING
    )
