"""In-place updates of inputs: the kernel that makes an input's final value stores it directly in the input.

    kernel sub(b0: f32, b1: f32, b2: f32 out)            kernel sub(b0: f32 out, b1: f32)
      loop i0 < 64                                =>       loop i0 < 64
        stage                                                stage
          b2[i0] = sub(b0[i0], b1[i0])                         b0[i0] = sub(b0[i0], b1[i0])
      on w, g, new                                         on w, g
    write w <- new

In a kernel with several boxes, stores that would only copy the input to itself are removed:

    b0[64*i0 + i1] = b1[64*i0 + i1]           =>    nothing
    b0[64*i0 + i1 + 320] = mul(b2[i1], 2.0)         b0[64*i0 + i1 + 320] = mul(b1[i1], 2.0)

So an optimizer step makes one pass over its parameters, and needs no extra memory. Inputs do not overlap: the program
does not run where they do (`runtime.program.input_alias_check`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir import fuel
from ...ir.alias_analysis import storage_of
from ...ir.graph import Graph, Value, values_in
from ...ops.scalar_ir import Access, Scalar, walk
from ..fusion.horizontal_fusion import renumbered
from ..loops.build_kernel import Launch
from ..loops.loop_ir import Kernel, Loop, Stage, Store


def store_in_place(
    graph: Graph, steps: Sequence[Any], used: Sequence[Sequence[Value]], checked: int = -1
) -> tuple[list[Any], dict[Value, Value]]:
    """The changed steps, and the values that need no memory, each with the input that it is stored in. `used` are the
    values that each step reads or writes. No step after `checked` raises: inputs are written only after it."""
    steps = list(steps)
    last = {storage_of(value): number for number, values in enumerate(used) for value in values}
    makers = {
        step.buffers[at]: number
        for number, step in enumerate(steps)
        if isinstance(step, Launch)
        for at in step.kernel.stored
    }
    leaving = {storage_of(value) for value in values_in(tuple(graph.outputs))}
    targets = Counter(write.value for write in graph.writes)
    found: dict[int, list[tuple[Value, Value]]] = {}
    placed: dict[Value, Value] = {}
    for write in graph.writes:
        value, input = write.value, graph.inputs[write.input]
        number = makers.get(value)
        if number is None or number <= checked or value in leaving or targets[value] > 1 or value.type != input.type:
            continue
        if last.get(input, -1) > number or input in leaving or input in targets:
            continue
        if not fuel.allows("store_in_place", value.node, "it is stored in", input):
            continue
        found.setdefault(number, []).append((input, value))
    for number, pairs in found.items():
        steps[number], stored = with_one_buffer_each(steps[number], pairs)
        placed.update((value, input) for input, value in stored)
    return steps, placed


def with_one_buffer_each(launch: Launch, pairs: list[tuple[Value, Value]]) -> tuple[Launch, list[tuple[Value, Value]]]:
    """The kernel with each input and its new value in one buffer, and the pairs for which that is possible. A kernel of
    an optimizer step has many pairs: it is rewritten once, for all of them."""
    places = {value: at for at, value in enumerate(launch.buffers)}
    reads = [
        {
            x.payload.buffer
            for stage in loop.stages
            for roots in read_expressions(stage)
            for x in walk(*roots)
            if x.op == "load"
        }
        for loop in launch.kernel.loops
    ]
    shown: dict[Value, list[Value]] = {}
    for buffer in launch.buffers:
        shown.setdefault(storage_of(buffer), []).append(buffer)
    kept = [pair for pair in pairs if can_share(launch, places, reads, shown, *pair)]
    while kept:
        shared = {input: value for input, value in kept if input in places}
        changed = sharing(launch, places, shared) if shared else launch
        if changed is not None:
            return changed, kept
        kept.pop()
    return launch, []


def can_share(
    launch: Launch,
    places: Mapping[Value, int],
    reads: Sequence[Container[int]],
    shown: Mapping[Value, Sequence[Value]],
    input: Value,
    value: Value,
) -> bool:
    """Whether no element of an input is read after its new value has overwritten it. `shown`: the kernel's buffers by
    the value that owns their memory."""
    if any(other is not input and other is not value for other in shown.get(input, ())):
        return False  # the same memory under another name, such as a value saved for backward
    at, out = places.get(input), places[value]
    if at is None:
        return True
    # Each loop reads what it stores itself, and no two loops store to one address: they do not interfere.
    return at not in launch.kernel.stored and all(
        reads_before(loop, at, out) for loop, read in zip(launch.kernel.loops, reads, strict=True) if at in read
    )


def sharing(launch: Launch, places: Mapping[Value, int], shared: Mapping[Value, Value]) -> Launch | None:
    """The kernel with each input in the buffer of its value. None where nothing would remain to do."""
    left = [other for other in launch.buffers if other not in shared]
    moved = {other: k for k, other in enumerate(left)}
    numbers = [moved[shared.get(other, other)] for other in launch.buffers]
    kernel = launch.kernel
    dtypes = tuple(kernel.dtypes[places[other]] for other in left)
    loops = [without_own_copies(renumbered(loop, numbers)) for loop in kernel.loops]
    kept = tuple(loop for loop in loops if loop.stages)
    if not kept:
        return None
    return Launch(
        Kernel(kernel.name, dtypes, frozenset(numbers[k] for k in kernel.stored), kept, kernel.origin), tuple(left)
    )


def without_own_copies(loop: Loop) -> Loop:
    """Removes stores of what was loaded from the same address: the part of an input that is not changed. A loop without
    work loses all its stages."""

    def is_own(store: Store) -> bool:
        return (
            store.value.op == "load"
            and store.value.payload == store.access
            and not store.access.indirect
            and not store.access.masked
        )

    stages = tuple(
        replace(
            stage,
            stores=tuple(s for s in stage.stores if not is_own(s)),
            row_stores=tuple(s for s in stage.row_stores if not is_own(s)),
        )
        for stage in loop.stages
    )
    has_work = any(stage.reductions or stage.stores or stage.row_stores for stage in stages)
    return replace(loop, stages=stages if has_work else ())


def reads_before(loop: Loop, at: int, out: int) -> bool:
    """Whether every read of buffer `at` is of the element that is stored to `out` at that point or later.

    In a stage, all elements come before the stores once a row. All values of one kind of store are computed before the
    first of them is stored.
    """
    places = [
        (2 * number + is_row, store.access)
        for number, stage in enumerate(loop.stages)
        for is_row, stores in enumerate((stage.stores, stage.row_stores))
        for store in stores
        if store.access.buffer == out
    ]
    for number, stage in enumerate(loop.stages):
        for is_row, roots in enumerate(read_expressions(stage)):
            for x in walk(*roots):
                if (
                    x.op == "load"
                    and x.payload.buffer == at
                    and not (
                        len(places) == 1 and 2 * number + is_row <= places[0][0] and same_place(x.payload, places[0][1])
                    )
                ):
                    return False
    return True


def same_place(a: Access, b: Access) -> bool:
    return replace(a, buffer=0) == replace(b, buffer=0) and not a.indirect


def read_expressions(stage: Stage) -> tuple[list[Scalar], list[Scalar]]:
    """The expressions that are computed for every element, and those computed once for each row."""
    first = [reduction.value for reduction in stage.reductions]
    found = (first, list[Scalar]())
    for roots, stores in zip(found, (stage.stores, stage.row_stores), strict=True):
        for store in stores:
            roots += [store.value, *store.args]
    return found
