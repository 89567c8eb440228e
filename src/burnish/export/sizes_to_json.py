"""Serialize the symbolic sizes of an exported graph as JSON, and read them back.

    encode_size(SymbolicSize("b", 2, 1))           {"size": ["b", 2, 1]}
    encode_term(("eq", ("mod", "b", 8), 0))    {"eq": [{"mod": [{"symbol": "b"}, 8]}, 0]}

The reader trusts nothing: an operation is looked up in a table of a few on numbers, a symbol must be one that the file
declares, and formulas are no deeper than `DEEPEST`. They are trees of data; none of them is evaluated as text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..errors import UserError
from .symbolic_sizes import OPERATIONS, Condition, SizeRange, SymbolicSize, Term
from .values_to_json import entry, flag, parts, read_number, shown, whole

DEEPEST = 100
"""As deep as the formulas of a trace."""

LONGEST_NAME = 500
MOST_CONDITIONS = 10_000
LARGEST = 1 << 63
OF_ONE = frozenset("neg pos abs truth is_int is_float is_word round int float sqrt floor ceil".split())


# ---- writing


def encode_size(size: int | SymbolicSize) -> Any:
    return size if isinstance(size, int) else {"size": [size.symbol, size.factor, size.added]}


def encode_range(symbol: SizeRange) -> dict[str, Any]:
    return {
        "name": symbol.name,
        "example": symbol.example,
        "least": symbol.least,
        "most": symbol.most,
        "named": symbol.is_named,
        "below": symbol.below,
        "above": symbol.above,
    }


def encode_condition(condition: Condition) -> dict[str, Any]:
    return {"term": encode_term(condition.term), "value": condition.value, "line": condition.line}


def encode_term(term: Term) -> Any:
    if isinstance(term, str):
        return {"symbol": term}
    if isinstance(term, tuple):
        return {term[0]: [encode_term(part) for part in term[1:]]}
    return {"number": repr(term)} if isinstance(term, float) else term


# ---- reading


def read_ranges(written: Any) -> list[SizeRange]:
    found = [read_range(what) for what in parts(written)]
    if len({symbol.name for symbol in found}) < len(found):
        raise UserError("it declares two sizes of one name")
    return found


def read_range(written: Any) -> SizeRange:
    most = entry(written, "most")
    made = SizeRange(
        shown(entry(written, "name"), "the name of a size", LONGEST_NAME),
        whole(entry(written, "example"), "the size in the example"),
        whole(entry(written, "least"), "the least of a size"),
        None if most is None else whole(most, "the most of a size"),
        flag(entry(written, "named"), "whether a size has a name of its own"),
        shown(entry(written, "below"), "why a size has a least"),
        shown(entry(written, "above"), "why a size has a most"),
    )
    if not made.holds(made.example):
        raise UserError(f"its size {made.name!r:.60} is {made.example} in the example, and may only be {made.limits}")
    return made


def read_size(written: Any, symbols: Collection[str]) -> int | SymbolicSize:
    if type(written) is not dict:
        return whole(written, "a size")
    symbol, factor, added = parts(entry(written, "size"), 3)
    if whole(factor, "the factor of a size") < 1:
        raise UserError("it has a size with the factor 0")
    if type(added) is not int or not -LARGEST < added < LARGEST:
        raise UserError(f"{added!r:.60} stands where what is added to a size should")
    return SymbolicSize(read_symbol(symbol, symbols), factor, added)


def read_symbol(written: Any, symbols: Collection[str]) -> str:
    if type(written) is not str or written not in symbols:
        raise UserError(f"it speaks of the size {written!r:.60}, which it does not declare")
    return written


def read_conditions(written: Any, symbols: Collection[str]) -> list[Condition]:
    found = parts(written)
    if len(found) > MOST_CONDITIONS:
        raise UserError(f"it has {len(found)} conditions on sizes, and at most {MOST_CONDITIONS} are read")
    return [read_condition(what, symbols) for what in found]


def read_condition(written: Any, symbols: Collection[str]) -> Condition:
    line = entry(written, "line")
    return Condition(
        read_term(entry(written, "term"), symbols),
        flag(entry(written, "value"), "what a condition is to be"),
        None if line is None else shown(line, "a line of source"),
    )


def read_term(written: Any, symbols: Collection[str], depth: int = 0) -> Term:
    if type(written) is int:
        if not -LARGEST < written < LARGEST:
            raise UserError(f"{written!r:.60} stands where a number should")
        return written
    if type(written) is not dict or len(written) != 1:
        raise UserError(f"{written!r:.60} stands where a formula of sizes should")
    if depth == DEEPEST:
        raise UserError(f"it holds a formula of sizes nested more than {DEEPEST} deep")
    ((name, content),) = written.items()
    if name == "symbol":
        return read_symbol(content, symbols)
    if name == "number":
        return read_number(content)
    if name not in OPERATIONS:
        raise UserError(f"it computes a size by the unknown operation {name!r:.60}")
    operands = parts(content, 1 if name in OF_ONE else 2)
    return (name, *[read_term(part, symbols, depth + 1) for part in operands])
