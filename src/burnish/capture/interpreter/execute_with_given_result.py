"""Completes an instruction whose operation has already run: only its result is stored."""

from __future__ import annotations

from typing import Any, NoReturn

from .frames import Frame, Raised
from .instruction_loop import Machine


class CompletedInstruction(Machine):
    """Executes one instruction with an operation that has already run: every operation returns that result."""

    def __init__(self, frame: Frame, value: Any, error: BaseException | None):
        super().__init__(frame)
        self.value, self.error = value, error

    def answer(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise Raised(self.error)
        return self.value

    def raise_error(self, error: BaseException, again: bool = False) -> NoReturn:
        if again:
            self.reraised = self.error
        assert self.error is not None
        raise Raised(self.error)


class RaisedByCall(Machine):
    """Raises the error of a call, whose operands have left the stack."""

    def __init__(self, frame: Frame, error: BaseException):
        super().__init__(frame)
        self.error = error

    def step(self) -> None:
        try:
            self.unwind(self.error)
        finally:
            del self.error


for _name in """
    load_attr store_attr delete_attr binary unary truth subscript store_subscript delete_subscript length format iterate
    iterate_in_loop next_for unpack call import_name import_from load_global load_builtin load_builtin_unasked load_cell
    to_tuple to_dict match_keys raise_from contains
""".split():
    setattr(CompletedInstruction, _name, CompletedInstruction.answer)
CompletedInstruction.extend = lambda self, method, target, other: self.answer()  # type: ignore[method-assign]
CompletedInstruction.send = lambda self, receiver, value: _sent(self)  # type: ignore[method-assign]


def _sent(machine: CompletedInstruction) -> tuple[bool, Any]:
    if isinstance(machine.error, StopIteration):
        return True, machine.error.value
    return False, machine.answer()
