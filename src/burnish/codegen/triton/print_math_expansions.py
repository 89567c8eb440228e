"""Prints transcendental operations as Triton functions, from their expansions.

    exp of f32      =>      def exp_f32(x): ...         beside the kernel that calls it

Most are the polynomials of `codegen.math`. `fast_math_intrinsics` has those that use GPU instructions.
"""

from __future__ import annotations

from collections.abc import Callable

from ...concurrency.first_value_cache import once
from ...ops.scalar_ir import Access, Scalar, load, make, walk
from ..math.expand_operations import expand, plain, why_not_expandable
from .fast_math_intrinsics import expanded
from .scalar_operations import TritonOperations, is_printable, operand
from .triton_types import literal

ARGUMENTS = "xyz"

EVEN_DIVISIONS = frozenset((("sinh", "f32"), ("cosh", "f32")))
"""Functions whose divisors are all far from the ends of the range, and so are their quotients."""


def needs_function(x: Scalar) -> bool:
    return bool(x.args) and not is_printable(x.op, x.args[0].dtype)


def function_name(op: str, dtype: str) -> str:
    return f"{op}_{dtype}"


def why_not_printable(root: Scalar) -> str | None:
    """Why an expression cannot be printed, or None."""
    for x in walk(root):
        if needs_function(x):
            why = why_not_written(x.op, x.args[0].dtype, len(x.args))
            if why is not None:
                return why
    return None


@once
def why_not_written(op: str, dtype: str, arguments: int) -> str | None:
    why = why_not_expandable(op, dtype)
    if why is not None:
        return why
    left = next((x for x in walk(expansion_of(op, dtype, arguments)) if needs_function(x)), None)
    return None if left is None else f"Triton has no form for {left.op} of {left.args[0].dtype}"


@once
def expansion_of(op: str, dtype: str, arguments: int) -> Scalar:
    given = tuple(load(dtype, Access(k, 0, ())) for k in range(arguments))
    by_instructions = expanded(op, dtype, given)
    return plain(expand(make(op, dtype, given)) if by_instructions is None else by_instructions)


def operation_text(x: Scalar, args: list[str], emit: Callable[[str], str], functions: set[tuple[str, str]]) -> str:
    """The text of an operation. The functions that it calls are added to `functions`."""
    if all(arg.op == "const" for arg in x.args):
        args = [operand(args[0]), *args[1:]]  # Python would fold plain numbers by its own rules.
    operations, dtype = TritonOperations(emit), x.args[0].dtype
    match x.op:
        case "cast":
            return operations.cast(args[0], dtype, x.dtype)
        case "bitcast":
            return operations.bitcast(args[0], dtype, x.dtype)
        case _ if needs_function(x):
            functions.add((x.op, dtype))
            return f"{function_name(x.op, dtype)}({', '.join(map(operand, args))})"
        case _:
            return operations.apply(x.op, x.dtype if x.op == "select" else dtype, args)


@once
def function_text(op: str, dtype: str) -> str:
    arguments = 2 if op in ("pow", "atan2", "random_bits", "remainder", "fmod", "floor_div") else 1
    lines = [f"def {function_name(op, dtype)}({', '.join(ARGUMENTS[:arguments])}):"]
    names: dict[Scalar, str] = {}

    def emit(text: str) -> str:
        if text.isidentifier():
            return text
        lines.append(f"    t{len(lines)} = {text}")
        return f"t{len(lines) - 1}"

    root = expansion_of(op, dtype, arguments)
    for x in walk(root):
        args = [names[arg] for arg in x.args]
        match x.op:
            case "load":
                names[x] = ARGUMENTS[x.payload.buffer]
            case "const":
                names[x] = literal(x.payload, x.dtype)
            case "div" if (op, dtype) in EVEN_DIVISIONS:
                names[x] = emit(TritonOperations(emit).quotient(*args))
            case _:
                names[x] = emit(operation_text(x, args, emit, set()))
    return "\n".join([*lines, f"    return {names[root]}"])
