"""``burnish.compile`` for modules that the API itself imports. The API registers it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

compile: Callable[..., Any]
