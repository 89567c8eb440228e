"""Finds f32 results that are only read in half precision: approximate instructions are accurate enough for them.

    cast(mul(x, sigmoid(x)), bf16)      sigmoid may be two units of f32 off: a rounding error of bf16 is 32,768 of them

Products, quotients and selections hand on relative errors. A sum may cancel, so the operands of one are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ops.scalar_ir import Scalar, walk
from ....tensors.dtypes import WIDE

ROUGH = {"div": "rough_div", "exp": "rough_exp", "sigmoid": "rough_sigmoid"}
"""The approximate form of each operation that has one."""

HANDING_ON = frozenset(("mul", "div", "neg", "select"))


def approximate_results(roots: Sequence[Scalar]) -> set[Scalar]:
    """The expressions of f32 that may be approximate. `roots` are stored or reduced, each exactly as it is."""
    exact = set(roots)
    expressions = list(walk(*roots))
    for x in reversed(expressions):  # every reader comes before what it reads
        if x.dtype != "f32" or x.op not in HANDING_ON or x in exact:
            if not (x.op == "cast" and x.dtype in WIDE):
                exact.update(x.args)
        elif x.op == "select":
            exact.add(x.args[0])
    return {x for x in expressions if x not in exact and x.dtype == "f32"}
