"""Horizontal fusion: adjacent kernels that do not depend on each other become one kernel.

    kernel exp(b0: f32 out, b1: f32)             kernel exp_relu(b0: f32 out, b1: f32, b2: f32 out, b3: f32)
      loop i0 < 4096 …                     =>      loop i0 < 4096 …
    kernel relu(b0: f32 out, b1: f32)              loop i0 < 512 …
      loop i0 < 512 …

Loop fusion merges loops of the same shape. Loops of different shapes over the results of one layer remain: here they
share one launch. Loops of one kernel must be independent of each other, which is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...ir import fuel
from ...ir.graph import Value
from ...ops.burnish_primitives import ASSEMBLED
from ...ops.scalar_ir import Access, Scalar, make
from ...ops.target_record import target_of
from ..loops.build_kernel import Launch
from ..loops.loop_ir import Kernel, Loop, mapped_stages, print_kernel

MOST_LOOPS = 8
"""Loops of one kernel. Each adds code, and a kernel with many loops rarely equals another one in the kernel cache."""


FEW_ELEMENTS = 16
"""A kernel of so few elements, such as a step counter, costs only its launch and is merged with any other."""


def is_little_work(first: Launch, second: Launch) -> bool:
    """Whether a launch matters beside the work of the two kernels."""
    sizes = [sum(math.prod(loop.extents) for loop in launch.kernel.loops) for launch in (first, second)]
    target = target_of(first.device)
    return target is None or sum(sizes) <= target.most_together or min(sizes) <= FEW_ELEMENTS


def why_not_together(first: Launch, second: Launch, is_little: bool) -> str | None:
    """Why two independent kernels are not merged."""
    if first.device != second.device:
        return "they are on different devices"
    if len(first.kernel.loops) + len(second.kernel.loops) > MOST_LOOPS:
        return f"there would be more than {MOST_LOOPS} loops"
    if not is_little:
        return "a start is nothing beside their work"
    if not fuel.allows(
        "fuse_horizontally",
        lambda: f"{print_kernel(first.kernel)}\n{print_kernel(second.kernel)}",
        lambda: print_kernel(together(first, second).kernel),
    ):
        return "there is no fuel for it"
    return None


def together(first: Launch, second: Launch) -> Launch:
    """One kernel that runs the loops of both."""
    buffers = dict.fromkeys((*first.buffers, *second.buffers))
    numbers = {value: number for number, value in enumerate(buffers)}
    moved = [numbers[value] for value in second.buffers]
    loops = (*first.kernel.loops, *(renumbered(loop, moved) for loop in second.kernel.loops))
    dtypes = dict(zip(first.buffers, first.kernel.dtypes, strict=True))
    dtypes.update(zip(second.buffers, second.kernel.dtypes, strict=True))
    names = dict.fromkeys(f"{first.kernel.name}_{second.kernel.name}".split("_"))
    kernel = Kernel(
        "_".join(names)[:60],
        tuple(dtypes[value] for value in buffers),
        first.kernel.stored | {moved[at] for at in second.kernel.stored},
        loops,
        tuple(dict.fromkeys(first.kernel.origin + second.kernel.origin)),
    )
    return Launch(kernel, tuple(buffers))


def renumbered(loop: Loop, numbers: list[int]) -> Loop:
    """The loop with its buffers renumbered."""

    def access(a: Access) -> Access:
        return replace(a, buffer=numbers[a.buffer])

    def rebuilt(x: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        return make(x.op, x.dtype, args, access(x.payload) if x.op == "load" else x.payload)

    return replace(loop, stages=mapped_stages(loop.stages, rebuilt, access))


def fuse_horizontally(
    steps: Sequence[Any], waits: Callable[[Any], bool], decided: list[bool] | None = None
) -> tuple[list[Any], list[str]]:
    """The steps with neighbouring kernels merged where allowed, and the reasons where not.

    A library call between two kernels keeps its place. A step that `waits` may also run later: it only names memory.
    `decided` is for plans of one graph at several sizes. The first plan appends for each pair whether it is little
    work, and the others do the same: with their own sizes, some would have other steps.
    """
    known = iter([*(decided or ())])
    found: list[Any] = []
    refusals: list[str] = []
    last: int | None = None
    for step in steps:
        if isinstance(step, Launch):
            before = None if last is None else found[last]
            if before is not None and not needs(before, step):
                is_little = next(known, None)
                if is_little is None:
                    is_little = is_little_work(before, step)
                    if decided is not None:
                        decided.append(is_little)
                why = why_not_together(before, step, is_little)
                if why is None:
                    found[last] = together(before, step)  # type: ignore[index]
                    continue
                refusals.append(f"not started with {before.kernel.name}: {step.kernel.name}: {why}")
            last = len(found)
        elif not waits(step):
            last = None
        found.append(step)
    return found, refusals


def needs(first: Launch, second: Launch) -> bool:
    """Whether either writes what the other reads or writes."""
    return not made_by(first).isdisjoint(used_by(second)) or not made_by(second).isdisjoint(used_by(first))


def made_by(launch: Launch) -> set[Value]:
    return {launch.buffers[at] for at in launch.kernel.stored}


def used_by(launch: Launch) -> set[Value]:
    """The values in its buffers, with the parts of those that were assembled."""
    found: set[Value] = set()
    for value in launch.buffers:
        found.add(value)
        if value.node is not None and value.node.op is ASSEMBLED:
            found.update(value.node.args[0])
    return found
