"""The loop language: what a kernel is, before anyone decides for which machine.

    Kernel   buffers and loops that may run in any order, or side by side
    Loop     a box of indices, and what happens over it, in stages
    Stage    one pass over the inner variables: reductions, stores; then stores once a row

The first `rows` variables of a loop walk the rows, which know nothing of one another. The others are inner: each stage
walks all of them for one row, in any order, or in row-major order where a reduction is a running one. A stage sees the
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

What holds of every loop: a buffer that is stored to is loaded from only at exactly the access that stores it, in a
later stage or in the same element before the store (an update in place), and no two elements store to one place, but
for stores that add, `b1[32*@0](b2[i0]) += …`: to such a buffer nothing else is stored, and nobody loads from it.
A loop without inner variables and with stores alone is a plain element-wise kernel; how to cut and to vectorize the
box is the printer's business.

A part of an expression that a stage uses twice is printed once, under a name of its own, `t0 = exp(b0[i0])`. Such a
name is notation and no step of its own. `schedule.loops.parse_loops` reads kernels back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ...ops.scalar_ir import Access, Scalar, own_text, text, walk

RUNNING = frozenset(f"running_{op}" for op in "sum prod max min argmax argmin".split())
"""What there is of a reduction up to an element, that one included, counted in row-major order over the inner
variables: `reduced(n)` is that in the stage's own stores, and in reductions that come after it. No later stage sees it.
Of equals running_argmax and running_argmin give the last."""

REDUCTIONS = frozenset("sum prod max min argmax argmin any all".split()) | RUNNING
"""max and min propagate NaN. argmax and argmin give the first best position, counted in row-major order over the inner
variables, as i64 (NaN is best); their `value` is what is compared. any and all take and give b8. sum and prod of
integers wrap around. A reduction over nothing gives its identity (max: the least value, argmax: 0)."""


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


@dataclass(frozen=True, slots=True)
class Store:
    """`value` goes to `access`. `args` are those of the access: indirect indices, then the mask. One that `adds` adds
    to what is there, whoever else adds there at the same time."""

    access: Access
    value: Scalar
    args: tuple[Scalar, ...] = ()
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    reductions: tuple[Reduction, ...] = ()
    stores: tuple[Store, ...] = ()
    """For every element of the row."""
    row_stores: tuple[Store, ...] = ()
    """Once, after the pass: their expressions use no inner variable and may use this stage's own reductions."""


@dataclass(frozen=True, slots=True)
class Loop:
    extents: tuple[int, ...]
    rows: int
    stages: tuple[Stage, ...]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """All of them: `reduced(n)` is the nth."""
        return tuple(r for stage in self.stages for r in stage.reductions)


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    dtypes: tuple[str, ...]
    """Of the buffers, in order."""
    stored: frozenset[int]
    """The buffers that are written to. Distinct buffers never overlap, unless both are only read."""
    loops: tuple[Loop, ...]
    origin: tuple[str, ...] = ()
    """Where it comes from, for people: the user's lines and operators. No part of the kernel's identity."""

    @property
    def identity(self) -> tuple:
        """Equal for kernels that compute the same: everything but name and origin."""
        return self.dtypes, self.stored, self.loops

    @property
    def key(self) -> str:
        """The same as text, which stays what it is in other processes."""
        return print_kernel(Kernel("", self.dtypes, self.stored, self.loops))


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
            for x in walk(*args, value):
                if x in shared and x not in names:
                    yield f"      t{parts} = {own_text(x, [text(arg, names) for arg in x.args])}"
                    names[x] = f"t{parts}"
                    parts += 1
            inside = f"({', '.join(text(arg, names) for arg in args)})" if args else ""
            yield f"      {left}{inside} {sign} {op}{text(value, names)}"
        reductions += len(stage.reductions)


def _statements(stage: Stage, number: int) -> Iterator[tuple[str, tuple[Scalar, ...], str, Scalar, str]]:
    """Where something goes, the arguments of that access, what is done with the value, the value, and the sign that
    stands between them."""
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
