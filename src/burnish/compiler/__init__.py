"""From a captured graph to a program: the driver, the program cache, adapters around a compiled graph."""

from collections.abc import Callable
from typing import Any

CompiledFn = Callable[..., Any]
"""What a captured graph becomes."""
