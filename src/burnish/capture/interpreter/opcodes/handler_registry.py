"""The registry of opcode handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, Callable] = {}
RESOLVERS: dict[str, Callable[[int, Any], Any]] = {}

# Opcodes without a handler, and why: the frame that reaches one runs natively from the call on (a named break).
REFUSED: dict[str, str] = {}

# For the liveness analysis. The argument of an instruction on locals is their number, or numbers.
LOCAL_READS: set[str] = set()
LOCAL_WRITES: set[str] = set()
NO_FALL_THROUGH: set[str] = set()


def op(
    *names: str,
    resolve: Callable[[int, Any], Any] | None = None,
    reads_local: bool = False,
    writes_local: bool = False,
    falls_through: bool = True,
) -> Callable[[Callable], Callable]:
    """Register a handler for the given opcodes."""

    def enter(fn: Callable) -> Callable:
        LOCAL_READS.update(names if reads_local else ())
        LOCAL_WRITES.update(names if writes_local else ())
        NO_FALL_THROUGH.update(() if falls_through else names)
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
