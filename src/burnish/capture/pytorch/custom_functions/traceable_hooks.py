"""Hooks on gradients in graphs for other compilers: a node that registers a function which a compiler may trace.

    y.register_hook(lambda g: g * s)        register_hook_on(y, s)        a function is made around this run's ``s``

The compiler traces the function with the backward pass. So its bytecode must be tensor code that reads only its
gradient, constants and tensors of its closure (`autograd_function_reads`). The handle must be dropped at once: such a
graph has no output for it.
"""

from __future__ import annotations

import dis
import functools
from types import CodeType, FunctionType
from typing import Any

import torch

from ...engine.torch_call_records import Handle
from ...guards.tensor_metadata import TENSOR_TYPES
from ...interpreter.frames import cell_value
from ...numbers.live_scalars import Expression
from ..lambda_lifting import Lifter, NotLifted, made_of
from .autograd_function_reads import ClassReader, Names, NotTraceable, is_torch_function


class RegisterHook:
    """The target of a node. Its further arguments are the tensors that the function holds."""

    def __init__(self, function: Any):
        self.made_from = function
        self.__name__ = self.__qualname__ = "register_hook_on"
        self.__module__ = __name__

    def __call__(self, tensor: torch.Tensor, *given: torch.Tensor) -> None:
        if tensor.requires_grad:
            tensor.register_hook(made_of(self.made_from, given))


class HookReader(ClassReader):
    """Reads a function whose closure holds tensors, which its node is given."""

    def __init__(self, names: Names, held: set[int]):
        super().__init__(names)
        self.held = held
        self.is_backward = self.reads_no_data = True

    def code(self, code: CodeType, function: FunctionType, ctx: str | None) -> None:
        if any("_IF_" in instruction.opname for instruction in dis.get_instructions(code)):
            raise NotTraceable(f"{function.__qualname__} branches, perhaps on data")
        super().code(code, function, ctx)

    def value(self, value: Any, name: str, attributes: tuple[str, ...]) -> None:
        if id(value) not in self.held:
            super().value(value, name, attributes)


def node_for(m: Any, function: Any) -> tuple[RegisterHook, list[Handle]] | None:
    """The node's target, and its arguments after the tensor; None if the graph must end."""
    frame, inner = m.frame, function.func if type(function) is functools.partial else function
    if frame.code.opnames[frame.pc] != "POP_TOP":
        return None
    names = Names(inner if type(inner) is FunctionType else RegisterHook)
    lifter = Lifter(m)
    try:
        if type(inner) is FunctionType:
            values = [cell_value(cell) for cell in inner.__closure__ or ()]
            HookReader(names, {id(value) for value in values if type(value) in TENSOR_TYPES}).function(inner)
        elif not is_torch_function(inner):
            return None
        made_from = lifter.value(function, "the hook")
    except (NotLifted, NotTraceable):
        return None
    m.heap.guard("outcome", None, (Expression(names.are_as_they_were, ()), True))
    return RegisterHook(made_from), [m.recorder.tensor(value) for value in lifter.tensors]
