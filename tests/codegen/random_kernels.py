"""Random kernels for hypothesis: any strides, masks, indirections, dtypes, stages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from burnish.ops.scalar_ir import (
    Access,
    Scalar,
    binary,
    bitcast,
    cast,
    compare,
    const,
    fma,
    index,
    is_inf,
    is_nan,
    load,
    reduced,
    select,
    unary,
)
from burnish.schedule.loops.loop_ir import Kernel, Loop, Reduction, Stage, Store
from burnish.tensors.dtypes import FLOATS, INTEGERS

from .run_kernel import random_buffer

DTYPES = ("f32", "f32", "f32", "bf16", "f16", "f64", "i64", "i32", "u8", "i8", "i16", "b8")
EXTENTS = (0, 1, 2, 3, 5, 8, 16, 17, 33, 40, 64, 70)
MOST = 6000
"""Elements of a box."""


def without_nan(x: Scalar) -> Scalar:
    """For what reads single bits. Those of a computed NaN, its sign too, are left open: x * -1 may become -x."""
    return select(is_nan(x), const(1.5, x.dtype), x)


@dataclass
class Draft:
    """A kernel under construction: its buffers grow as accesses to them are generated."""

    draw: st.DrawFn
    seed: int
    extents: tuple[int, ...]
    rows: int
    dtypes: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ranges: dict[int, int] = field(default_factory=dict)
    """Buffers of indices, and the upper bound of each."""

    def buffer(self, dtype: str, size: int) -> int:
        self.dtypes.append(dtype)
        self.sizes.append(size)
        return len(self.dtypes) - 1

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def reached(self, strides: tuple[int, ...]) -> tuple[int, int]:
        """The offset that keeps an access at or above 0, and the elements that it spans."""
        steps = [s * (n - 1) for s, n in zip(strides, self.extents, strict=True) if n]
        return -sum(s for s in steps if s < 0), sum(abs(s) for s in steps) + 1

    def strides(self, variables: range) -> tuple[int, ...]:
        """Contiguous over the variables in some order, or anything."""
        count = len(self.extents)
        if self.pick(0, 0, 0, 1):
            return tuple(self.pick(0, 1, 2, 3, -1, -2, 7) if k in variables else 0 for k in range(count))
        order = list(variables) if self.pick(0, 0, 1) == 0 else self.draw(st.permutations(list(variables)))
        strides, step = [0] * count, 1
        for k in reversed(order):
            if not self.pick(0, 0, 0, 0, 1):
                strides[k], step = step, step * max(self.extents[k], 1)
        return tuple(strides)

    def load(self, dtype: str, variables: range, depth: int) -> Scalar:
        strides = self.strides(variables)
        offset, span = self.reached(strides)
        offset += (extra := self.pick(0, 0, 3))
        args, indirect = [], ()
        if depth > 0 and self.pick(0, 0, 0, 0, 1):
            below, step = 5, self.pick(1, 2, span)
            own = self.strides(variables)
            start, size = self.reached(own)
            number = self.buffer("i64", size)
            self.ranges[number] = below
            args.append(load("i64", Access(number, start, own)))
            indirect, span = (step,), span + step * below
        masked = depth > 0 and self.pick(0, 0, 0, 0, 1) == 1
        if masked:
            args.append(self.truth(variables, depth - 1))
        return load(dtype, Access(self.buffer(dtype, span + extra), offset, strides, indirect, masked), *args)

    def truth(self, variables: range, depth: int) -> Scalar:
        if variables and self.pick(0, 0, 1) == 0:
            k = self.pick(*variables)
            return compare(self.pick("lt", "ge", "eq"), index(k), self.pick(0, 1, self.extents[k] // 2, 16))
        if depth <= 0:
            return self.load("b8", variables, 0)
        dtype = self.pick("f32", "i32", "i64", "u8", "bf16")
        op = self.pick("eq", "ne", "lt", "le", "gt", "ge")
        return compare(op, self.value(dtype, variables, depth - 1), self.value(dtype, variables, depth - 1))

    def constant(self, dtype: str) -> Scalar:
        return const(self.pick(0, 1, 2, 3, 7) if dtype in ("u8", "b8") else self.pick(0, 1, -1, 2, 3, -7, 0.5), dtype)

    def value(self, dtype: str, variables: range, depth: int) -> Scalar:
        if depth <= 0:
            return self.load(dtype, variables, 0) if self.pick(0, 0, 1) == 0 else self.constant(dtype)
        choice = self.pick("load", "binary", "binary", "unary", "select", "cast", "other")
        inner = depth - 1
        if choice == "load":
            return self.load(dtype, variables, depth)
        if choice == "select":
            x, y = self.value(dtype, variables, inner), self.value(dtype, variables, inner)
            return select(self.truth(variables, inner), x, y)
        if choice == "cast":
            source = self.pick(*DTYPES)
            value = self.value(source, variables, inner)
            if value.op == "cast" and source in FLOATS and dtype not in FLOATS:
                # C++ leaves open what does not fit, and LLVM forgets the float between two integers.
                value = self.load(source, variables, 0)
            return cast(value, dtype)
        x = self.value(dtype, variables, inner)
        if choice == "unary":
            if dtype == "b8":
                return ~x
            if dtype in FLOATS:
                return unary(self.pick("neg", "abs", "sqrt", "floor", "ceil", "trunc", "round"), x)
            return unary(self.pick("neg", "abs", "not") if dtype != "u8" else "not", x)
        y = self.value(dtype, variables, inner)
        if dtype == "b8":
            return binary(self.pick("and", "or", "xor"), x, y)
        if choice == "other":
            if dtype in FLOATS:
                return self.pick(
                    lambda: select(is_nan(x), y, x), lambda: select(is_inf(x), x, y), lambda: fma(x, const(2, dtype), y)
                )()
            if dtype == "i64" and variables:
                return index(self.pick(*variables)) + x
            if dtype != "i32":
                return x
            number = self.value("f32", variables, inner)
            return binary("add", bitcast(without_nan(number), "i32"), x)
        if dtype in FLOATS:
            op = self.pick("add", "sub", "mul", "div", "min", "max", "copysign", "fmod")
            if op in ("min", "max"):
                # Which of 0.0 and -0.0 is the lesser is left open: both become 0.0.
                x, y = x + 0.0, y + 0.0
            return binary(op, x, without_nan(y) if op == "copysign" else y)
        assert dtype in INTEGERS
        return binary(
            self.pick(
                "add",
                "sub",
                "mul",
                "div",
                "floor_div",
                "remainder",
                "fmod",
                "min",
                "max",
                "and",
                "or",
                "xor",
                "shl",
                "shr",
            ),
            x,
            y,
        )

    def output(self, dtype: str, variables: range, permute: bool = True) -> Access:
        """Somewhere new, one place for each element."""
        order = self.draw(st.permutations(list(variables))) if permute and self.pick(0, 0, 1) else list(variables)
        strides, step = [0] * len(self.extents), self.pick(1, 1, 1, 2)
        for k in reversed(order):
            strides[k], step = step, step * max(self.extents[k], 1)
        if self.pick(0, 0, 0, 0, 1):
            strides = [-s for s in strides]
        offset, span = self.reached(tuple(strides))
        return Access(self.buffer(dtype, span), offset, tuple(strides))

    def store(self, dtype: str, variables: range, value: Scalar, depth: int) -> Store:
        access = self.output(dtype, variables)
        if depth > 0 and self.pick(0, 0, 0, 1):
            masked = Access(access.buffer, access.offset, access.strides, (), True)
            return Store(masked, value, (self.truth(variables, depth - 1),))
        return Store(access, value)

    def kernel(self, stages: list[Stage], stored: set[int]) -> Kernel:
        return Kernel("drawn", tuple(self.dtypes), frozenset(stored), (Loop(self.extents, self.rows, tuple(stages)),))

    def buffers(self) -> list[np.ndarray]:
        random = np.random.default_rng(self.seed)
        return [
            random.integers(0, self.ranges[number], size)
            if number in self.ranges
            else random_buffer(dtype, size, random)
            for number, (dtype, size) in enumerate(zip(self.dtypes, self.sizes, strict=True))
        ]


def _extents(draw: st.DrawFn) -> tuple[int, ...]:
    extents: list[int] = []
    for _ in range(draw(st.integers(0, 4))):
        extents.append(draw(st.sampled_from([n for n in EXTENTS if n * math.prod(extents) <= MOST])))
    return tuple(extents)


@st.composite
def elementwise(draw: st.DrawFn) -> tuple[Kernel, list[np.ndarray]]:
    extents = _extents(draw)
    draft = Draft(draw, draw(st.integers(0, 2**32 - 1)), extents, len(extents))
    variables, stores = range(len(extents)), []
    for _ in range(draft.pick(1, 1, 2)):
        dtype = draft.pick(*DTYPES)
        stores.append(draft.store(dtype, variables, draft.value(dtype, variables, draft.pick(0, 1, 2, 3)), 1))
    return draft.kernel([Stage(stores=tuple(stores))], {s.access.buffer for s in stores}), draft.buffers()


REDUCED = {
    "max": DTYPES,
    "min": DTYPES,
    "argmax": tuple(d for d in DTYPES if d != "b8"),
    "argmin": tuple(d for d in DTYPES if d != "b8"),
    "any": ("b8",),
    "all": ("b8",),
    "sum": ("i64", "i32", "u8"),
    "prod": ("i64", "i32"),
}
"""Reductions whose result does not depend on the order, so that it is compared to the last bit."""


@st.composite
def reducing(draw: st.DrawFn) -> tuple[Kernel, list[np.ndarray]]:
    extents = _extents(draw)
    rows = draw(st.integers(0, len(extents)))
    draft = Draft(draw, draw(st.integers(0, 2**32 - 1)), extents, rows)
    everything, outer = range(len(extents)), range(rows)
    stages, stored, results = [], set(), []
    for _ in range(draft.pick(1, 1, 2)):
        before = list(results)
        reductions = []
        for _ in range(draft.pick(1, 1, 2)):
            op = draft.pick(*REDUCED)
            dtype = draft.pick(*REDUCED[op])
            value = draft.value(dtype, everything, draft.pick(0, 1, 2))
            same = [r for r in before if r.dtype == dtype]
            if same and dtype not in ("b8",):
                value = binary("max", value, draft.pick(*same))
            reductions.append(Reduction(op, value))
            results.append(reduced(len(results), reductions[-1].dtype))
        stores, row_stores = [], []
        if before and draft.pick(0, 1):
            x = draft.pick(*before)
            value = draft.load(x.dtype, everything, 1)
            value = select(draft.truth(everything, 1), value, x)
            stores.append(draft.store(x.dtype, everything, value, 1))
        for x in results[len(before) :]:
            row_stores.append(draft.store(x.dtype, outer, x, 1))
        stages.append(Stage(tuple(reductions), tuple(stores), tuple(row_stores)))
        stored |= {s.access.buffer for s in stores + row_stores}
    return draft.kernel(stages, stored), draft.buffers()
