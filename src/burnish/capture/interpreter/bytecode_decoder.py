"""Bytecode decoder: from CPython code objects to arrays of handlers; liveness of locals.

First stage of capture. A code object is decoded once: caches and EXTENDED_ARG vanish, arguments are resolved
(constants, names, jump targets as instruction indices), and every instruction is paired with its handler:

    def f(x): return x + 1      ->   [(resume, 0), (load_fast, 0), (load_const, 1), (binary_op, 0), (return_value, 0)]

A new CPython version is a new table in ``versions/``. Nothing here depends on the version except the shape of the
inline cache table.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Callable
from types import CodeType
from typing import Any

from .decoded_code import Code, Handler
from .frames import BY_CODE
from .opcodes import instruction_table

EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
# Jumps whose argument counts backwards.
BACKWARD = frozenset(op for name, op in dis.opmap.items() if "JUMP_BACKWARD" in name or name == "END_ASYNC_FOR")
JUMPS = frozenset(op for op in dis.hasjrel if op < 256)


def decode(co: CodeType) -> Code:
    found = _decoded_by_id.get(id(co))
    if found is None or found.co is not co:
        found = _decoded_by_id[id(co)] = _decode(co)
        if len(_decoded_by_id) > 20_000:
            _decoded_by_id.clear()
    return found


def _decode(co: CodeType) -> Code:
    units, index_of = _units(co)
    code = Code(co, [dis.opname[op] for _, op, _, _ in units], _lines(co, units), _exception_table(co, index_of))
    code.instructions = _bind(code, units, index_of)
    return code


def _bind(code: Code, units: list, index_of: list[int]) -> list[tuple[Callable, Any]]:
    bound: list[tuple[Callable, Any]] = []
    keyword_names: tuple[str, ...] = ()
    for _, op, arg, after in units:
        name = dis.opname[op]
        if op in JUMPS:
            target = after - 2 * arg if op in BACKWARD else after + 2 * arg
            argument: Any = index_of[target // 2]
        else:
            argument = instruction_table.resolve(name, arg, code)
        if name == "KW_NAMES":
            keyword_names = code.co.co_consts[arg]
        elif name == "CALL":
            # KW_NAMES belongs to the next CALL. It is folded into it, so that a break between them cannot lose it.
            argument, keyword_names = (arg, keyword_names), ()
        instruction = instruction_table.handler(name), argument
        bound.append(_alike.setdefault(instruction, instruction) if type(argument) is int else instruction)
    return bound


_decoded_by_id: dict[int, Code] = {}
_alike: dict[tuple[Callable, int], tuple[Callable, int]] = {}
"""Most instructions repeat, like ``LOAD_FAST 1``: one shared object for all of them stays in the processor's caches."""


def _units(co: CodeType) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """(offset, opcode, argument, offset after its caches) of each instruction, and instruction index by code unit."""
    raw = co.co_code
    units: list[tuple[int, int, int, int]] = []
    index_of = [0] * (len(raw) // 2 + 1)
    extended = 0
    position, end = 0, len(raw)
    while position < end:
        op = raw[position]
        index_of[position // 2] = len(units)
        if op == EXTENDED_ARG:
            extended = (extended | raw[position + 1]) << 8
            position += 2
            continue
        after = position + 2 + 2 * _caches(op)
        units.append((position, op, extended | raw[position + 1], after))
        for unit in range(position // 2 + 1, after // 2):
            index_of[unit] = len(units) - 1
        extended = 0
        position = after
    index_of[end // 2] = len(units)
    return units, index_of


_CACHE_TABLE: Any = opcode._inline_cache_entries  # dis itself reads it; it has no public equivalent


def _caches(op: int) -> int:
    if isinstance(_CACHE_TABLE, dict):
        return _CACHE_TABLE.get(dis.opname[op], 0)
    return _CACHE_TABLE[op]


def _lines(co: CodeType, units: list) -> list[int]:
    """The source line of each instruction."""
    lines = [co.co_firstlineno] * len(units)
    ranges = list(co.co_lines())
    at = 0
    for i, (offset, *_rest) in enumerate(units):
        while at < len(ranges) - 1 and offset >= ranges[at][1]:
            at += 1
        lines[i] = ranges[at][2] or (lines[i - 1] if i else co.co_firstlineno)
    return lines


Position = tuple[int | None, int | None, int | None, int | None]
"""Line, last line, column and last column of an instruction in the source."""


def position_of(code: Code, at: int) -> Position:
    if code.positions is None:
        everywhere = list(code.co.co_positions())
        code.positions = [everywhere[offset // 2] for offset, *_ in _units(code.co)[0]]
    line, *rest = code.positions[max(0, min(at, len(code.positions) - 1))]
    return (code.lines[at], None, None, None) if line is None else (line, *rest)


def _exception_table(co: CodeType, index_of: list[int]) -> list[Handler]:
    """Parse ``co_exceptiontable`` (Objects/exception_handling_notes.txt in CPython describes the varints)."""
    rows = []
    data = iter(co.co_exceptiontable)

    def number() -> int:
        byte = next(data)
        value = byte & 63
        while byte & 64:
            byte = next(data)
            value = (value << 6) | (byte & 63)
        return value

    while True:
        try:
            start = number()
        except StopIteration:
            return rows
        length, target, depth_lasti = number(), number(), number()
        rows.append(
            Handler(
                index_of[start], index_of[start + length], index_of[target], depth_lasti >> 1, bool(depth_lasti & 1)
            )
        )


LOOKS_AT_LOCALS = frozenset(("locals", "vars", "eval", "exec", "dir", "f_locals"))
"""Names of functions that may read any variable."""


def live_locals(code: Code) -> list[int]:
    """Liveness: for each instruction, a bit mask of the fast locals that may still be read from there on.

    Used at breaks: a local that is not read again need not be saved. Frames that can look at all their locals keep
    them.
    """
    if code.live is not None:
        return code.live
    n = len(code.instructions)
    everything = (1 << code.n_locals) - 1
    if not LOOKS_AT_LOCALS.isdisjoint(code.co.co_names):
        code.live = [everything] * (n + 1)
        return code.live
    uses, kills, successors = [0] * n, [0] * n, [()] * n
    for i, (_, arg) in enumerate(code.instructions):
        uses[i], kills[i], jump, falls = instruction_table.flow(code.opnames[i], arg, code)
        nexts = [arg] if jump else []
        if falls and i + 1 < n:
            nexts.append(i + 1)
        handler = code.handler_at(i)
        if handler:
            nexts.append(handler.target)
        successors[i] = tuple(nexts)
    # Cells and free variables are also read by closures, the first argument by super(): always live.
    # Parameters of a builtin iterator are its state.
    cells = 1 if "super" in code.co.co_names else 0
    if code.co in BY_CODE:
        cells = (1 << code.args_total) - 1
    for j, name in enumerate(code.names):
        if name in code.co.co_cellvars or name in code.co.co_freevars:
            cells |= 1 << j
    live = [0] * (n + 1)
    changed = True
    while changed:
        changed = False
        for i in range(n - 1, -1, -1):
            after = 0
            for s in successors[i]:
                after |= live[s]
            handler = code.handler_at(i)
            # An exception may leave before the store happened: values that the handler reads stay live.
            kept = live[handler.target] if handler else 0
            now = uses[i] | (after & ~kills[i]) | kept
            if now != live[i]:
                live[i], changed = now, True
    code.live = [mask | cells for mask in live]
    return code.live


def dead_locals(code: Code, at: int) -> tuple[int, ...]:
    """The fast locals that are not read from instruction ``at`` on."""
    dead = code.dead.get(at)
    if dead is None:
        alive = live_locals(code)[at]
        dead = code.dead[at] = tuple(i for i in range(code.n_locals) if not alive >> i & 1)
    return dead
