"""The loop IR: kernels as loop nests, independent of the target.

    Kernel   buffers, and loops that may run in any order or in parallel
    Loop     an iteration space, and the computation over it, in stages
    Stage    one pass over the inner variables: reductions and stores; then stores once for each row

The first `rows` variables of a loop walk its rows, which are independent of each other. The others are inner: each
stage walks all of them for one row, in any order, or in row-major order where it has a scan. A stage reads the
finished reductions of the stages before it, and what they stored in this row. A softmax over the last dimension of
f32[64, 512]:

    kernel softmax(b0: f32, b1: f32 out)
      loop i0 < 64 rows, i1 < 512
        stage
          r0 = max.f32 b0[512*i0 + i1]
        stage
          r1 = sum.f32 exp(sub(b0[512*i0 + i1], r0))
        stage
          b1[512*i0 + i1] = div(exp(sub(b0[512*i0 + i1], r0)), r1)

Invariants of every loop: a stored buffer is loaded only at exactly the access that stores it, in a later stage, or in
the same element before the store (an in-place update). No two elements store to one address, except stores that add,
`b1[32*@0](b2[i0]) += …`. A buffer with such stores has no other stores and no loads.
A loop without inner variables and with stores only is a plain element-wise kernel. Tiling and vectorization are the
printer's task.

A subexpression that a stage uses twice is printed once, under its own name, `t0 = exp(b0[i0])`. Such a name is only
notation, not a step. `tests/schedule/parse_loops.py` parses kernels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...ops.scalar_ir import Access, Scalar, own_text, text, walk
from ...tensors.dtypes import BITS, FLOATS, UNSIGNED

RUNNING = frozenset(f"running_{op}" for op in "sum prod max min argmax argmin".split())
"""Scans: the reduction of all elements up to this one, inclusive, in row-major order over the inner variables.
`reduced(n)` is its value in the stage's own stores, and in reductions after it. Later stages cannot read it. Among
equals running_argmax and running_argmin give the last."""

REDUCTIONS = frozenset("sum prod max min argmax argmin any all".split()) | RUNNING
"""max and min propagate NaN. argmax and argmin give the first best position, counted in row-major order over the inner
variables, as i64 (NaN is best); `value` is the compared number. any and all take and give b8. sum and prod of
integers wrap around. A reduction over no elements gives its identity (max: the least value, argmax: 0)."""


@dataclass(frozen=True, slots=True)
class Reduction:
    op: str
    value: Scalar

    @property
    def dtype(self) -> str:
        return "i64" if self.op.endswith(("argmax", "argmin")) else self.value.dtype

    @property
    def is_running(self) -> bool:
        return self.op in RUNNING

    @property
    def operation(self) -> str:
        """The operation applied to each value, whether the reduction is running or not."""
        return self.op.removeprefix("running_")

    @property
    def is_positional(self) -> bool:
        return self.operation in ("argmax", "argmin")

    @property
    def identity(self) -> int | float:
        """The value that it starts from."""
        least, most = range_of(self.value.dtype)
        return {"sum": 0, "prod": 1, "any": 0, "all": 1, "max": least, "argmax": least}.get(self.operation, most)


def range_of(dtype: str) -> tuple[int | float, int | float]:
    """The least and the greatest value."""
    if dtype in FLOATS:
        return -math.inf, math.inf
    if dtype == "b8":
        return 0, 1
    if dtype in UNSIGNED:
        return 0, (1 << BITS[dtype]) - 1
    return -(1 << (BITS[dtype] - 1)), (1 << (BITS[dtype] - 1)) - 1


@dataclass(frozen=True, slots=True)
class Store:
    """Stores `value` at `access`. `args` are the access's indirect indices, then its mask. With `adds`, it adds to the
    element atomically."""

    access: Access
    value: Scalar
    args: tuple[Scalar, ...] = ()
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    reductions: tuple[Reduction, ...] = ()
    stores: tuple[Store, ...] = ()
    """Run for every element of the row."""
    row_stores: tuple[Store, ...] = ()
    """Run once, after the pass: their expressions use no inner variable and may use this stage's own reductions."""


@dataclass(frozen=True, slots=True)
class Loop:
    extents: tuple[int, ...]
    rows: int
    stages: tuple[Stage, ...]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """The reductions of all stages: `reduced(n)` is the nth."""
        return tuple(r for stage in self.stages for r in stage.reductions)


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    dtypes: tuple[str, ...]
    """Of each buffer, in order."""
    stored: frozenset[int]
    """The buffers that are written to. Distinct buffers never overlap, unless both are only read."""
    loops: tuple[Loop, ...]
    origin: tuple[str, ...] = ()
    """For people: the user's lines and operators it comes from. Not part of the kernel's identity."""

    @property
    def identity(self) -> tuple:
        """Equal for kernels that compute the same: everything but name and origin."""
        return self.dtypes, self.stored, self.loops

    @property
    def key(self) -> str:
        """The identity as text, which is the same in every process."""
        return print_kernel(Kernel("", self.dtypes, self.stored, self.loops))


def mapped_stages(
    stages: tuple[Stage, ...],
    rewritten: Callable[[Scalar, tuple[Scalar, ...]], Scalar],
    access: Callable[[Access], Access],
) -> tuple[Stage, ...]:
    """The stages with every expression rebuilt from the leaves up, and the access of every store replaced."""
    made: dict[Scalar, Scalar] = {}

    def expression(root: Scalar) -> Scalar:
        for x in walk(root, known=made):
            made[x] = rewritten(x, tuple([made[arg] for arg in x.args]))
        return made[root]

    def store(s: Store) -> Store:
        return Store(access(s.access), expression(s.value), tuple(map(expression, s.args)), s.adds)

    return tuple(
        Stage(
            tuple(Reduction(r.op, expression(r.value)) for r in stage.reductions),
            tuple(map(store, stage.stores)),
            tuple(map(store, stage.row_stores)),
        )
        for stage in stages
    )


def print_kernel(kernel: Kernel) -> str:
    buffers = ", ".join(f"b{n}: {dtype}{' out' if n in kernel.stored else ''}" for n, dtype in enumerate(kernel.dtypes))
    lines = [f"# {part}" for line in kernel.origin for part in line.splitlines()]
    lines.append(f"kernel {kernel.name}({buffers})")
    for loop in kernel.loops:
        lines += _print_loop(loop)
    return "\n".join(lines)


def _print_loop(loop: Loop) -> Iterator[str]:
    box = ", ".join(f"i{k} < {n}{' rows' if k + 1 == loop.rows else ''}" for k, n in enumerate(loop.extents))
    yield f"  loop {box or 'once'}"
    reductions, parts = 0, 0
    for stage in loop.stages:
        yield "    stage"
        shared = _used_twice(stage)
        names: dict[Scalar, str] = {}
        for left, args, op, value, sign in _statements(stage, reductions):
            for x in walk(*args, value, known=names):
                if x in shared:
                    yield f"      t{parts} = {own_text(x, [text(arg, names) for arg in x.args])}"
                    names[x] = f"t{parts}"
                    parts += 1
            inside = f"({', '.join(text(arg, names) for arg in args)})" if args else ""
            yield f"      {left}{inside} {sign} {op}{text(value, names)}"
        reductions += len(stage.reductions)


def _statements(stage: Stage, number: int) -> Iterator[tuple[str, tuple[Scalar, ...], str, Scalar, str]]:
    """Target, arguments of the access, printed operator, value, and the assignment sign of each statement."""
    for k, reduction in enumerate(stage.reductions, number):
        yield f"r{k}", (), f"{reduction.op}.{reduction.dtype} ", reduction.value, "="
    for row, stores in (("", stage.stores), ("row ", stage.row_stores)):
        for store in stores:
            yield f"{row}{store.access}", store.args, "", store.value, "+=" if store.adds else "="


def _used_twice(stage: Stage) -> set[Scalar]:
    """The expressions of a stage that have operands and several users."""
    roots = [root for _, args, _, value, _ in _statements(stage, 0) for root in (*args, value)]
    uses = Counter([*roots, *(arg for x in walk(*roots) for arg in x.args)])
    return {x for x, count in uses.items() if count > 1 and x.args}
