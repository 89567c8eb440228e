"""Expands transcendental operations into base operations, without libraries or branches, so that they vectorize.

The scheduler's expressions say `exp`; a printer only knows operations that are machine instructions:

    >>> print(expand(unary("rsqrt", load("f32", Access(0, 0, (1,))))))
    div(1.0.f32, sqrt(b0[i0]))

Results are within 2 units in the last place over the whole range, denormals included. NaN, infinities and signed
zeros give the same results as eager. f16 and bf16 are computed in f32. exp and log of f32 are within 0.8 units:
exp is 0.69 off where it is normal, log 0.58 above 2 and up to 0.78 between 1/2 and 2. The others: tanh 0.95,
expm1 1.05, sin and cos 1.22, log1p 1.3, erf 1.3, sigmoid 1.75 (eager's is 2 off).
"""

from __future__ import annotations

from collections.abc import Callable

from ...ops.scalar_ir import COMPARISONS, OTHERS, Scalar, cast, make, maximum, minimum, walk
from ...tensors.dtypes import INTEGERS, WIDE
from . import (
    error_functions,
    exponentials,
    float_bits,
    float_division,
    hyperbolic,
    inverse_trigonometry,
    logarithms,
    philox,
    powers,
    trigonometry,
)

EXPANSIONS: dict[str, Callable[..., Scalar | None]] = {
    **exponentials.EXPANSIONS,
    **logarithms.EXPANSIONS,
    **trigonometry.EXPANSIONS,
    **inverse_trigonometry.EXPANSIONS,
    **hyperbolic.EXPANSIONS,
    **error_functions.EXPANSIONS,
    **powers.EXPANSIONS,
    **float_division.EXPANSIONS,
}

OF_INDICES: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "random_bits": philox.random_bits,
    "within": lambda x, size: maximum(minimum(x, size - 1), 0),
}
"""Operations on indices, in i64."""

PLAIN: dict[str, Callable[..., Scalar]] = {
    "ldexp": float_bits.by_powers_of_two,
    "exponent": logarithms.exponent_by_bits,
    "mantissa": logarithms.mantissa_by_bits,
}
"""Expansions of operations that only some machines have an instruction for."""

BASE = (
    COMPARISONS
    | OTHERS - OF_INDICES.keys()
    | frozenset("neg abs sqrt floor ceil trunc round add sub mul div min max and or xor shl shr not".split())
    | PLAIN.keys()
)
"""Operations that every printer supports, directly or through `plain`."""

INTEGER_DIVISION = frozenset(("floor_div", "remainder", "fmod"))
"""Operations that every printer supports for integers."""

NOT_IN_F64 = {
    **dict.fromkeys(("sin", "cos", "tan"), "the multiple of pi in an argument up to 2**1024 takes 1200 digits of it"),
    **dict.fromkeys(("asinh", "acosh", "atanh", "erfc"), "it would need more digits than f64 has"),
    "pow": "it needs a logarithm of twice as many digits, unless the exponent is a small constant",
    **dict.fromkeys(INTEGER_DIVISION, "the quotient of two f64 has up to 2098 digits"),
}


def expand(x: Scalar) -> Scalar:
    """The same value in base operations. Operations for which `why_not_expandable` gives a reason stay."""
    found: dict[Scalar, Scalar] = {}
    for node in walk(x):
        found[node] = expanded(node, tuple(found[arg] for arg in node.args))
    return found[x]


def expanded(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    """One node, given its expanded operands."""
    if node.op in OF_INDICES:
        return OF_INDICES[node.op](*args)
    value = None
    # A single power may be expandable although powers in general are not.
    if why_not_expandable(node.op, node.dtype) is None or node.op == "pow" and node.dtype == "f64":
        value = expansion(node.op, node.dtype, args)
    if value is not None:
        return value
    return node if args == node.args else make(node.op, node.dtype, args, node.payload)


def plain(x: Scalar) -> Scalar:
    """The same value without the operations of `PLAIN`."""
    found: dict[Scalar, Scalar] = {}
    for node in walk(x):
        args = tuple(found[arg] for arg in node.args)
        if node.op in PLAIN:
            found[node] = PLAIN[node.op](*args)
        else:
            found[node] = node if args == node.args else make(node.op, node.dtype, args, node.payload)
    return found[x]


def expansion(op: str, dtype: str, args: tuple[Scalar, ...]) -> Scalar | None:
    if op not in EXPANSIONS or dtype in INTEGERS and op in INTEGER_DIVISION:
        return None
    rule = EXPANSIONS[op]
    if dtype in WIDE:
        value = rule(*(cast(arg, "f32") for arg in args))
        return value if value is None else cast(value, dtype)
    return rule(*args)


def why_not_expandable(op: str, dtype: str) -> str | None:
    """Why an operation must stay a library call, or None."""
    if op in BASE or dtype in INTEGERS and (op == "pow" or op in INTEGER_DIVISION):
        return None
    if op in OF_INDICES:
        return None
    if op not in EXPANSIONS:
        return f"{op} has no expansion into base operations"
    if dtype in INTEGERS or dtype == "b8":
        return f"{op} is an operation on floats, not on {dtype}"
    if dtype == "f64" and op in NOT_IN_F64:
        return f"{op} of f64 has no expansion into base operations: {NOT_IN_F64[op]}"
    return None
