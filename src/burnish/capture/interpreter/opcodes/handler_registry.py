"""The registry of opcode handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, Callable] = {}
RESOLVERS: dict[str, Callable[[int, Any], Any]] = {}

# Opcodes without a handler, and why: the frame that reaches one runs natively from the call on (a named break).
REFUSED: dict[str, str] = {}

LOCAL_READS = frozenset(
    """
    LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR DELETE_FAST LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW
    LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_CLOSURE
""".split()
)
LOCAL_WRITES = {"STORE_FAST", "STORE_FAST_STORE_FAST"}
NO_FALL_THROUGH = frozenset(
    """
    RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT
""".split()
)


def op(*names: str, resolve: Callable[[int, Any], Any] | None = None) -> Callable[[Callable], Callable]:
    """Register a handler for the given opcodes."""

    def enter(fn: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = fn
            if resolve is not None:
                RESOLVERS[name] = resolve
            else:
                RESOLVERS.pop(name, None)
        return fn

    return enter


def refuse(why: str, *names: str) -> None:
    for name in names:
        REFUSED[name] = why


def unhandled(opname: str) -> Callable:
    def handler(machine: Any, frame: Any, arg: Any) -> None:
        machine.refuse_opcode(opname)

    return handler


def constant(arg: int, code: Any) -> Any:
    return code.co.co_consts[arg]


def name(arg: int, code: Any) -> str:
    return code.co.co_names[arg]
