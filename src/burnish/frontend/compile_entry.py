"""``burnish.compile`` for modules that ``api`` itself imports: ``api`` registers the function here.

compile_entry.compile(function, **kwargs)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

compile: Callable[..., Any]
