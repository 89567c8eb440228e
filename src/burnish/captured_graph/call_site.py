"""Source location and module stack of a torch call, as nodes of captured graphs record them."""

from __future__ import annotations

from typing import Any, NamedTuple


class CallingModule(NamedTuple):
    """A module whose ``forward`` makes the call."""

    key: str
    path: str
    """How the program reaches it: ``L['self'].layers.0``."""
    kind: type


class CallSite(str):
    """The line of the call. Its further facts are for custom backends."""

    __slots__ = ("instruction", "lines", "modules")

    lines: tuple[str, ...]
    """The lines of all frames of the user's code and of modules, from the outermost one."""
    modules: tuple[CallingModule, ...]
    instruction: str
    """The name of the innermost frame's instruction: ``BINARY_OP`` for ``x + y``."""

    @classmethod
    def of(cls, text: str, lines: tuple[str, ...], modules: tuple[CallingModule, ...], instruction: str) -> CallSite:
        made = cls(text)
        made.lines, made.modules, made.instruction = lines, modules, instruction
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self),)
