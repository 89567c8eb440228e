"""The error for objects that a segment cannot rebuild."""

from __future__ import annotations

from typing import Any


class Unrebuildable(Exception):
    def __init__(self, value: Any, why: str | None = None):
        super().__init__(why or f"a {type(value).__module__}.{type(value).__qualname__} made here cannot be rebuilt")
        self.value = value
