"""Generalizes loop nests compiled for a few sizes into one loop nest for symbolic sizes.

    loop i0 < 49152 rows                    loop i0 < n rows            n = 768*s0
      b1[i0] = ...               =>           b1[i0] = ...
    loop i0 < 49920 rows

The boxes must differ only in their numbers. A number that is equal in all boxes stays; any other must be a formula of
the sizes. The printer chooses the object that represents a formula in the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ...ops.scalar_ir import Scalar, cast, const, make
from ...schedule.loops.loop_ir import Kernel
from ...tensors.dtypes import FLOATS
from ...tensors.fit_size_formulas import Formula, NoFormula, Space, StructureDiffers
from .coalesce_loops import LoopNest, simplify_together


def boxes_for_sizes(kernels: Sequence[Kernel], expands: bool = True) -> list[list[LoopNest]]:
    """For each loop of kernels that differ only in numbers: its boxes, one per kernel, all simplified in the same
    way."""
    first = kernels[0]
    if any(k.dtypes != first.dtypes or k.stored != first.stored or len(k.loops) != len(first.loops) for k in kernels):
        raise StructureDiffers(f"the kernel {first.name} is another one for other sizes")
    loops = list(zip(*(kernel.loops for kernel in kernels), strict=True))
    if any(len({len(loop.extents) for loop in same}) > 1 for same in loops):
        raise StructureDiffers(f"the loops of {first.name} are others for other sizes")
    return [simplify_together(same, expands) for same in loops]


class SizeGeneralizer:
    """Merges examples: equal parts stay, and differing numbers become formulas of the sizes."""

    def __init__(self, space: Space, size: Callable[[Formula, int], Any]):
        """`size` builds the object that represents a formula. It also gets the number of the first example."""
        self.space, self.size = space, size
        self.made: dict[tuple[int, ...], Scalar] = {}
        self.held: list[Any] = []

    def box(self, boxes: Sequence[LoopNest]) -> LoopNest:
        self.made.clear()
        made: LoopNest = self.of(boxes)
        return made

    def number(self, values: Sequence[int]) -> Any:
        found = self.space.fit(values)
        return found if isinstance(found, int) else self.size(found, values[0])

    def of(self, examples: Sequence[Any]) -> Any:
        first = examples[0]
        kind = type(first)
        if any(type(x) is not kind for x in examples):
            raise StructureDiffers("a kernel is another one for other sizes")
        if kind is Scalar:
            return self.scalar(examples)
        if kind is int:
            return first if all(x == first for x in examples) else self.number(examples)
        if kind is tuple:
            if any(len(x) != len(first) for x in examples):
                raise StructureDiffers("a kernel has other parts for other sizes")
            return tuple(map(self.of, zip(*examples, strict=True)))
        if is_dataclass(first):
            return replace(first, **{f.name: self.of([getattr(x, f.name) for x in examples]) for f in fields(first)})
        if any(x != first for x in examples):
            raise StructureDiffers(f"{first} is {examples[1]} for other sizes")
        return first

    def scalar(self, examples: Sequence[Scalar]) -> Scalar:
        first = examples[0]
        key = tuple(map(id, examples))
        found = self.made.get(key)
        if found is None:
            self.held.append(examples)
            if any(x.op != first.op or x.dtype != first.dtype for x in examples):
                raise StructureDiffers("a kernel computes otherwise for other sizes")
            if first.op == "const":
                found = self.constant(examples)
            else:
                args = tuple(self.scalar(args) for args in zip(*(x.args for x in examples), strict=True))
                found = make(first.op, first.dtype, args, self.of([x.payload for x in examples]))
            self.made[key] = found
        return found

    def constant(self, examples: Sequence[Scalar]) -> Scalar:
        first = examples[0]
        if all(x is first for x in examples):
            return first
        values = [x.payload for x in examples]
        if first.dtype in FLOATS and (found := self.ratio(values)) is not None:
            return cast(found, first.dtype)
        if (
            first.dtype in FLOATS
            and all(v == int(v) for v in values if math.isfinite(v))
            and all(map(math.isfinite, values))
        ):
            values = [int(v) for v in values]
        elif first.dtype == "b8" or first.dtype in FLOATS:
            raise NoFormula(f"the number {first.payload} is another one for other sizes")
        size = self.number(values)
        assert not isinstance(size, int)
        return cast(make("size", "i64", (), size), first.dtype)

    def ratio(self, values: Sequence[float]) -> Scalar | None:
        """A number like 1/n or n/(n - 1), where n is a size."""
        for above, below, guess in RATIOS:
            try:
                counts = [round(guess(v)) for v in values]
                if all(above(n) / below(n) == v for n, v in zip(counts, values, strict=True)):
                    parts = [self.whole([part(n) for n in counts]) for part in (above, below)]
                    return parts[0] / parts[1]
            except (ArithmeticError, ValueError, NoFormula):
                continue
        return None

    def whole(self, values: Sequence[int]) -> Scalar:
        """An integer as f64."""
        found = self.number(values)
        return const(found, "f64") if isinstance(found, int) else cast(make("size", "i64", (), found), "f64")


RATIOS: tuple[tuple[Callable[[int], int], Callable[[int], int], Callable[[float], float]], ...] = (
    (lambda n: 1, lambda n: n, lambda v: 1 / v),
    (lambda n: n, lambda n: n - 1, lambda v: v / (v - 1)),
    (lambda n: n - 1, lambda n: n, lambda v: 1 / (1 - v)),
    (lambda n: 2, lambda n: n, lambda v: 2 / v),
    (lambda n: -1, lambda n: n, lambda v: -1 / v),
    (lambda n: -2, lambda n: n, lambda v: -2 / v),
)
"""For a fraction: its numerator and its denominator as functions of n, and n as a function of the value."""
