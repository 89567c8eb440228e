"""The handler of each instruction, what its argument means, and which locals it uses. Importing this registers all
handlers."""

from __future__ import annotations

import dis
import importlib
from collections.abc import Callable
from typing import Any

from ..versions.behavior import INSTRUCTIONS
from . import (
    arithmetic,
    calls,
    class_bodies,
    containers,
    control_flow,
    exceptions,
    generators,
    handler_registry,
    names_and_attributes,
    stack,
)

version = importlib.import_module(f"..versions.{INSTRUCTIONS}", __package__)
FAMILIES = (
    stack,
    names_and_attributes,
    arithmetic,
    control_flow,
    calls,
    class_bodies,
    containers,
    exceptions,
    generators,
    version,
)


def handler(opname: str) -> Callable:
    found = handler_registry.HANDLERS.get(opname)
    return found if found is not None else handler_registry.unhandled(opname)


def resolve(opname: str, arg: int, code: Any) -> Any:
    """The handler's argument: the meaning of ``arg`` in this code object."""
    resolver = handler_registry.RESOLVERS.get(opname)
    return arg if resolver is None else resolver(arg, code)


def why_not_handled(opname: str) -> str | None:
    """Why an opcode has no handler, or None when it has one. A frame that reaches such an opcode breaks."""
    if opname in handler_registry.HANDLERS:
        return None
    return handler_registry.REFUSED.get(opname)


def flow(opname: str, arg: Any, code: Any) -> tuple[int, int, bool, bool]:
    """(locals read, locals written, may jump, may fall through) of an instruction, for the liveness analysis."""
    uses = kills = 0
    if opname in handler_registry.LOCAL_READS:
        for at in arg if isinstance(arg, tuple) else (arg,):
            uses |= 1 << at
    elif opname in handler_registry.LOCAL_WRITES:
        for at in arg if isinstance(arg, tuple) else (arg,):
            kills |= 1 << at
    elif opname == "STORE_FAST_LOAD_FAST":
        kills, uses = 1 << arg[0], (0 if arg[0] == arg[1] else 1 << arg[1])
    op = dis.opmap[opname]
    jumps = op in dis.hasjrel
    falls = opname not in handler_registry.NO_FALL_THROUGH
    return uses, kills, jumps, falls
