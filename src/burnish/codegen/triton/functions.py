"""Transcendental operations as functions of Triton, from their expansions.

    exp of f32      =>      def exp_f32(x): ...         beside the kernel that calls it

They are the polynomials of `codegen.mathematics`, so that numbers do not depend on the device.
"""

from __future__ import annotations

import functools

from ...ops.scalar import Access, Scalar, load, make, walk
from ..mathematics import expand, plain, why_not_expandable
from .operations import Operations, is_printable
from .types import literal

ARGUMENTS = "xyz"


def needs_function(x: Scalar) -> bool:
    return bool(x.args) and not is_printable(x.op, x.args[0].dtype)


def function_name(op: str, dtype: str) -> str:
    return f"{op}_{dtype}"


def why_not_printable(root: Scalar) -> str | None:
    """Why an expression cannot be printed, if it cannot."""
    for x in walk(root):
        if needs_function(x):
            why = why_not_written(x.op, x.args[0].dtype, len(x.args))
            if why is not None:
                return why
    return None


@functools.cache
def why_not_written(op: str, dtype: str, arguments: int) -> str | None:
    why = why_not_expandable(op, dtype)
    if why is not None:
        return why
    left = next((x for x in walk(expansion_of(op, dtype, arguments)) if needs_function(x)), None)
    return None if left is None else f"Triton has no form for {left.op} of {left.args[0].dtype}"


@functools.cache
def expansion_of(op: str, dtype: str, arguments: int) -> Scalar:
    given = tuple(load(dtype, Access(k, 0, ())) for k in range(arguments))
    return plain(expand(make(op, dtype, given)))


@functools.cache
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
    operations = Operations(emit)
    for x in walk(root):
        args = [names[arg] for arg in x.args]
        match x.op:
            case "load":
                names[x] = ARGUMENTS[x.payload.buffer]
            case "const":
                names[x] = literal(x.payload, x.dtype)
            case "cast":
                names[x] = emit(operations.cast(args[0], x.args[0].dtype, x.dtype))
            case "bitcast":
                names[x] = emit(operations.bitcast(args[0], x.args[0].dtype, x.dtype))
            case _:
                names[x] = emit(operations.apply(x.op, x.dtype if x.op == "select" else x.args[0].dtype, args))
    return "\n".join([*lines, f"    return {names[root]}"])


__all__ = ["function_name", "function_text", "needs_function", "why_not_printable"]
