"""``burnish.compile`` and ``burnish.explain`` for modules that these import themselves: they register here.

compile_entry.compile(function, **kwargs)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

compile: Callable[..., Any]
explain: Callable[..., Any]
