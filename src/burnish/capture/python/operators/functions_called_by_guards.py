"""Functions in the expressions of live values and of guards, called again on every run."""

from __future__ import annotations

from typing import Any

from ...interpreter import frames as fr
from ...interpreter.frames import UNBOUND


def join(*parts: str) -> str:
    return "".join(parts)


def formatted(text: str, *values: Any) -> str:
    return text % values


def summed(start: float, *numbers: float) -> float:
    return sum(numbers, start)


def is_nan(value: float) -> bool:
    return value != value


def is_unbound(cell: Any) -> bool:
    return fr.cell_value(cell) is UNBOUND
