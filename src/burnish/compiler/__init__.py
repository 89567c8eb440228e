"""Compiles captured graphs to programs: the driver, the program cache, adapters around a compiled graph."""

from collections.abc import Callable
from typing import Any

CompiledFn = Callable[..., Any]
"""The compiled form of a captured graph."""
