"""Finds expressions of loop variables that 32 bits hold: a GPU computes them in one instruction, not in two.

le(sub(i3, i2), 0.i64)      i2, i3 < 512: the difference is between -511 and 511, and is compared in i32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ops.scalar_ir import COMPARISONS, Scalar, walk

Range = tuple[int, int]
"""The least and the greatest value."""

RANGES: dict[str, Callable[..., Range]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": lambda x, y: (min(a * b for a in x for b in y), max(a * b for a in x for b in y)),
    "neg": lambda x: (-x[1], -x[0]),
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
}

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def narrow_indices(roots: Sequence[Scalar], extents: Sequence[object]) -> set[Scalar]:
    """The expressions of i64 whose values, and those of all their operands, fit into i32. Constants are among them only
    where a narrow expression reads them."""
    ranges: dict[Scalar, Range] = {}
    for x in walk(*roots):
        found = range_of(x, [ranges.get(arg) for arg in x.args], extents)
        if found is not None and found[0] >= LEAST and found[1] <= MOST:
            ranges[x] = found
    return {x for x in ranges if x.op != "const"}


def range_of(x: Scalar, args: Sequence[Range | None], extents: Sequence[object]) -> Range | None:
    if x.dtype != "i64":
        return None
    if x.op == "const":
        return x.payload, x.payload
    if x.op == "index":
        extent = extents[x.payload]
        return (0, extent - 1) if isinstance(extent, int) else None
    rule = RANGES.get(x.op)
    return None if rule is None or None in args else rule(*args)


def is_narrow_comparison(x: Scalar, narrow: set[Scalar]) -> bool:
    """Whether it compares narrow expressions with each other or with constants that 32 bits hold."""
    return (
        x.op in COMPARISONS
        and any(arg in narrow for arg in x.args)
        and all(arg in narrow or arg.op == "const" and LEAST <= arg.payload <= MOST for arg in x.args)
    )
