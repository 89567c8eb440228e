"""Python's arithmetic in a driver: expressions of the language, not calls through a table of names.

    number 'operator.pow', 0.9, item          =>      number = constant_0 ** item
    number 'math.pow', number, 0.5            =>      number_1 = call_0(number, constant_0__1)

Python itself computes them, so results and errors are its own. A training step has several for each parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.elementwise.python_number_operators import function_of
from .driver_source import DriverText

UNARY = {"neg": "-", "pos": "+", "invert": "~"}
BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and_": "&",
    "or_": "|",
    "xor": "^",
}


def number_expression(text: DriverText, function: str, operands: Sequence[str]) -> str:
    """The expression for a function of numbers, by its name in the graph. The operands are names and literals."""
    module, _, name = function.partition(".")
    given = [f"({operand})" if operand.startswith("-") else operand for operand in operands]
    if module == "operator" and len(given) == 1 and name in UNARY:
        return UNARY[name] + given[0]
    if module == "operator" and len(given) == 2 and name in BINARY:
        return f" {BINARY[name]} ".join(given)
    return f"{text.bind('call', function_of(function))}({', '.join(operands)})"
