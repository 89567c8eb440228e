"""Prints the epilogue of a sum: an expression that is computed while the sum is in a register.

value = self.after_sum(epilogue, value)           inline, or a call of the function below
text = self.epilogue_function(epilogue)            the function of a long expression, for the module
"""

from __future__ import annotations

from ....ops.scalar_ir import Scalar, walk
from ...math.expand_operations import expand
from ..scalar_operations import evaluate
from ..target_cpu import Host
from .function_printer import FunctionPrinter

CHEAP = 8
"""The most scalar operations of an epilogue that is printed inline."""


class EpiloguePrinter(FunctionPrinter):
    def __init__(self, target: Host):
        super().__init__(target)
        self.result_type = self.vector
        """The vectors of the result in memory."""

    def after_sum(self, root: Scalar | None, value: str) -> str:
        if root is None:
            return value
        if self.is_cheap(root):
            return evaluate(self.operations, root, value)
        return self.put(f"call {self.result_type} @epilogue({self.result_type} {value})")

    def is_cheap(self, root: Scalar) -> bool:
        """Whether it is printed inline for every sum. Any other epilogue is a function, called for each sum."""
        return sum(1 for _ in walk(expand(root))) <= CHEAP

    def epilogue_function(self, root: Scalar | None) -> list[str]:
        if root is None or self.is_cheap(root):
            return []

        def body() -> None:
            self.result = evaluate(self.operations, root, "%x")

        vector = self.result_type
        return [self.function(f"{vector} @epilogue({vector} %x)", body, f"ret {vector} {{result}}")]
