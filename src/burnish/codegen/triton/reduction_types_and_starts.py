"""How a reduction is computed: its dtypes, its start values, and the function that joins two of its values.

argmax over 50257 of bf16      f32 values with i32 positions, from (-inf, 2**31 - 1), joined by `first_argmax`
"""

from __future__ import annotations

from ...schedule.loops.loop_ir import Reduction
from ...tensors.dtypes import BITS, FLOATS, WIDE
from ..loops.coalesce_loops import LoopNest
from .triton_types import literal

FEW_POSITIONS = 1 << 31


def starts(reduction: Reduction, box: LoopNest, is_empty: bool) -> list[tuple[str, str]]:
    """The start values and their dtypes. A position starts behind all others, and is 0 if there are none."""
    dtype = accumulator_dtype(reduction)
    value = reduction.identity
    found = [(literal(float(value) if dtype in FLOATS else value, dtype), dtype)]
    if reduction.is_positional:
        # Among equals a running reduction keeps the last, so its start position is before all others.
        counted = position_dtype(box)
        behind = -1 if reduction.is_running else (1 << (BITS[counted] - 1)) - 1
        found.append((literal(0 if is_empty else behind, counted), counted))
    return found


def position_dtype(box: LoopNest) -> str:
    """The dtype in which positions are compared."""
    pairs = list(zip(box.extents, box.positions, strict=True)) if box.positions else []
    if not all(isinstance(part, int) for pair in pairs for part in pair):
        return "i64"
    return "i32" if sum((size - 1) * step for size, step in pairs) < FEW_POSITIONS - 1 else "i64"


def accumulator_dtype(reduction: Reduction) -> str:
    """The dtype it is computed in: f32 for half precision, and i32 for booleans and small integers, which wrap around
    when they are cast back."""
    dtype = reduction.value.dtype
    return WIDE.get(dtype, dtype) if dtype in FLOATS else dtype if BITS[dtype] >= 32 else "i32"


def combine(reduction: Reduction) -> str:
    """The function of `reduction_combine` that joins two of its values."""
    name = reduction.operation
    name = {
        "any": "larger",
        "all": "smaller",
        "max": "larger",
        "min": "smaller",
        "sum": "added",
        "prod": "multiplied",
    }.get(name, name)
    is_float = reduction.value.dtype in FLOATS
    if name in ("larger", "smaller"):
        return name if is_float else f"{name}_integer"
    if reduction.is_positional:
        return f"{'last' if reduction.is_running else 'first'}_{name}{'' if is_float else '_integer'}"
    return name
