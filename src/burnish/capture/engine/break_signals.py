"""The signals that end a trace at a graph break: before the instruction that breaks, or after its operation, and the
error for objects that a segment cannot rebuild."""

from __future__ import annotations

from typing import Any

from .. import breaks


class Stop(BaseException):
    """The segment ends before the current instruction, which has not been executed."""

    def __init__(self, kind: breaks.BreakKind, what: str):
        self.kind, self.what = kind, what


class BreakAfterOperation(BaseException):
    """The segment ends before the current instruction, whose operation has been executed with this answer."""

    def __init__(self, kind: breaks.BreakKind | None, what: str, value: Any = None, error: BaseException | None = None):
        self.kind, self.what, self.value, self.error = kind, what, value, error


class Unrebuildable(Exception):
    def __init__(self, value: Any, why: str | None = None):
        super().__init__(why or f"a {type(value).__module__}.{type(value).__qualname__} made here cannot be made again")
        self.value = value
