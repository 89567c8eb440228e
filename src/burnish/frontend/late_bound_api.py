"""``burnish.compile`` and ``burnish.explain`` for modules that these import themselves.

late_bound_api.compile(function, **kwargs)       registered by the API
late_bound_api.explain(function)                 imported when it is called
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

compile: Callable[..., Any]


def explain(function: Any) -> Callable[..., Any]:
    return importlib.import_module("burnish.frontend.explain_call").explain(function)
