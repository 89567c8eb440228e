"""Transcendental operations of the scalar language as base operations: no library, no branch, so they vectorize."""

from __future__ import annotations

from collections.abc import Callable

from ...ops.scalar import Scalar, cast, make, walk
from . import arcs, division, error_functions, exponentials, hyperbolic, logarithms, powers, trigonometry

EXPANSIONS: dict[str, Callable[..., Scalar]] = {
    **exponentials.EXPANSIONS,
    **logarithms.EXPANSIONS,
    **hyperbolic.EXPANSIONS,
    **error_functions.EXPANSIONS,
    **arcs.EXPANSIONS,
    **division.EXPANSIONS,
    **powers.EXPANSIONS,
    **trigonometry.EXPANSIONS,
}


def expand(x: Scalar) -> Scalar:
    found: dict[Scalar, Scalar] = {}
    for node in walk(x):
        args = tuple(found[arg] for arg in node.args)
        found[node] = expanded(node, args)
    return found[x]


def expanded(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    rule = EXPANSIONS.get(node.op)
    if rule is None:
        return node if args == node.args else make(node.op, node.dtype, args, node.payload)
    if node.dtype in ("f16", "bf16"):
        return cast(rule(*(cast(arg, "f32") for arg in args)), node.dtype)
    return rule(*args)


def why_not_expandable(op: str, dtype: str) -> str | None:
    """Why an operation has to stay a library call, or None."""
    if op in EXPANSIONS and dtype in ("f16", "bf16", "f32"):
        return None
    return f"{op} of {dtype} has no expansion"
