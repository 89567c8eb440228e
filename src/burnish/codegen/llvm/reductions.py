"""Prints reductions: start values, accumulation, and joining of partial results.

    r0 = max x     start -inf; a = max(a, x) lane by lane, in several vectors; at the end the vectors, and then the
                   halves of the last one, are joined until a single number is left

An accumulator is a list of operands: one, or two for argmax and argmin (the best value and its position).
"""

from __future__ import annotations

from ...schedule.loops.loop_ir import Reduction
from ...tensors.dtypes import FLOATS, WIDE
from .llvm_types import literal, register, vector
from .scalar_operations import LlvmOperations

Accumulator = list[str]


def accumulator_dtype(reduction: Reduction) -> str:
    """The dtype it is computed in: half precision is accumulated in float and rounded at the end, as eager does."""
    dtype = reduction.value.dtype
    return WIDE.get(dtype, dtype)


def types(reduction: Reduction, width: int) -> list[str]:
    value = register(accumulator_dtype(reduction), width)
    return [value, vector("i64", width)] if reduction.is_positional else [value]


def is_cascaded(reduction: Reduction) -> bool:
    """Whether it is summed in nested blocks, so that the rounding error of a long sum stays small."""
    return reduction.op == "sum" and accumulator_dtype(reduction) in FLOATS


def identity(reduction: Reduction, width: int) -> Accumulator:
    start = [literal(reduction.identity, accumulator_dtype(reduction), width)]
    return [*start, literal(0, "i64", width)] if reduction.is_positional else start


def take(
    to: LlvmOperations, reduction: Reduction, a: Accumulator, x: str, position: str | None, is_ordered: bool
) -> Accumulator:
    """Adds one more value. With growing positions (`is_ordered`) ties need no comparison of positions."""
    if position is None:
        return join(to, reduction, a, [x])
    if not is_ordered:
        return join(to, reduction, a, [x, position])
    better = _is_better(to, reduction, x, a[0])
    return [to.select(better, accumulator_dtype(reduction), x, a[0]), to.select(better, "i64", position, a[1])]


def join(to: LlvmOperations, reduction: Reduction, a: Accumulator, b: Accumulator) -> Accumulator:
    dtype = accumulator_dtype(reduction)
    match reduction.operation:
        case "sum":
            return [to.apply("add", dtype, [a[0], b[0]])]
        case "prod":
            return [to.apply("mul", dtype, [a[0], b[0]])]
        case "any":
            return [to.apply("or", "b8", [a[0], b[0]])]
        case "all":
            return [to.apply("and", "b8", [a[0], b[0]])]
        case "max" | "min":
            return [to.apply(reduction.operation, dtype, [a[0], b[0]])]
    better = _is_better(to, reduction, b[0], a[0])
    equal = to.compare("eq", dtype, a[0], b[0])
    if dtype in FLOATS:
        both = to.apply("and", "b8", [to.apply("is_nan", dtype, [a[0]]), to.apply("is_nan", dtype, [b[0]])])
        equal = to.apply("or", "b8", [equal, both])
    earlier = to.apply("and", "b8", [equal, to.compare("lt", "i64", b[1], a[1])])
    chosen = to.apply("or", "b8", [better, earlier])
    return [to.select(chosen, dtype, b[0], a[0]), to.select(chosen, "i64", b[1], a[1])]


def _is_better(to: LlvmOperations, reduction: Reduction, x: str, than: str) -> str:
    dtype = accumulator_dtype(reduction)
    comparison = "gt" if reduction.operation == "argmax" else "lt"
    if reduction.is_running:
        # The last of equal values wins, and the last NaN.
        better = to.compare({"gt": "ge", "lt": "le"}[comparison], dtype, x, than)
        return to.apply("or", "b8", [better, to.apply("is_nan", dtype, [x])]) if dtype in FLOATS else better
    better = to.compare(comparison, dtype, x, than)
    if dtype not in FLOATS:
        return better
    # A NaN beats any number, but not an earlier NaN.
    numbers = to.apply("not", "b8", [to.apply("is_nan", dtype, [than])])
    first_nan = to.apply("and", "b8", [to.apply("is_nan", dtype, [x]), numbers])
    return to.apply("or", "b8", [better, first_nan])


def join_lanes(to: LlvmOperations, reduction: Reduction, a: Accumulator) -> Accumulator:
    """Reduces the lanes of a vector to one: its halves are joined, then the halves of the result."""
    width = to.width
    while width > 1:
        half = width // 2
        halves = []
        for start in (0, half):
            order = ", ".join(f"i32 {lane}" for lane in range(start, start + half))
            halves.append(
                [
                    to.emit(f"shufflevector {type} {part}, {type} poison, <{half} x i32> <{order}>")
                    if half > 1
                    else to.emit(f"extractelement {type} {part}, i64 {start}")
                    for type, part in zip(types(reduction, width), a, strict=True)
                ]
            )
        to = LlvmOperations(to.code, to.scope, half)
        a = join(to, reduction, *halves)
        width = half
    return a


def finish(to: LlvmOperations, reduction: Reduction, a: Accumulator) -> str:
    """The result, in the dtype of the reduction."""
    if reduction.is_positional:
        return a[1]
    return to.cast(a[0], accumulator_dtype(reduction), reduction.dtype)
