"""Decoded code objects as data: instructions, lines, the exception table. ``bytecode_decoder`` makes them."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from ..engine.interpreted_or_native import OUR_PATH, PEEKERS, may_observe

CO_OPTIMIZED, CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 0x1, 0x20, 0x80, 0x200
CO_ITERABLE_COROUTINE = 0x100  # a generator that may be awaited, by types.coroutine


class Handler(NamedTuple):
    """One row of the exception table: instructions in [start, end) unwind to ``target`` with ``depth`` values left."""

    start: int
    end: int
    target: int
    depth: int
    push_index: bool


class Code:
    """A decoded code object."""

    __slots__ = """
        args_total at_lines by_instruction cells class_at co dead handlers instructions is_async is_body is_generator
        is_ours is_special lines live n_locals names opnames parameters plain_parameters positions
    """.split()

    instructions: list[tuple[Callable, Any]]

    def __init__(self, co: CodeType, opnames: list[str], lines: list[int], handlers: list[Handler]):
        self.co = co
        self.names = co.co_varnames + tuple(n for n in co.co_cellvars if n not in co.co_varnames) + co.co_freevars
        self.n_locals = len(self.names)
        self.cells = frozenset((*co.co_cellvars, *co.co_freevars))
        self.class_at = self.names.index("__class__") if "__class__" in self.names else -1  # for super()
        self.is_body = not co.co_flags & CO_OPTIMIZED  # of a class: its names are in a dictionary
        self.is_generator = bool(co.co_flags & CO_GENERATOR)
        self.is_async = bool(co.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE))
        # Others need no why_not_interpret().
        self.is_special = self.is_async or not PEEKERS.isdisjoint(co.co_names) or may_observe(co)
        self.is_ours = co.co_filename.startswith(OUR_PATH)  # no code of the program
        self.args_total = co.co_argcount + co.co_kwonlyargcount + bool(co.co_flags & 4) + bool(co.co_flags & 8)
        self.plain_parameters = -1 if co.co_kwonlyargcount or co.co_flags & 12 else co.co_argcount
        self.at_lines: dict[int, CodeType] = {}  # see ``emulated_frames.call_at_line``
        self.live: list[int] | None = None
        self.positions: list[Any] | None = None
        self.dead: dict[int, tuple[int, ...]] = {}
        self.opnames, self.lines, self.handlers = opnames, lines, handlers
        self.by_instruction: list[Handler | None] = [None] * len(opnames)
        for row in handlers:
            self.by_instruction[row.start : row.end] = [row] * (row.end - row.start)

    def handler_at(self, index: int) -> Handler | None:
        return self.by_instruction[index]

    def __repr__(self) -> str:
        return f"<Code {self.co.co_qualname}>"
