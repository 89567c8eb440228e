"""Liveness: the live range of each value of a plan, and which buffer holds it.

place_in_arena(plan, frees_arena)
plan.offsets     the arena offset of each intermediate value
plan.in_output_buffer
                 intermediate values that share another value's buffer, which is written only after their last use
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ...ir import fuel
from ...ir.alias_analysis import aliased_argument
from ...ir.graph import Graph, Node, Value
from ...ops.burnish_primitives import ASSEMBLED, RUN
from ...ops.target_record import target_of
from ...tensors.fit_size_formulas import ALIGNMENT
from ...tensors.tensor_types import span
from ..loops.build_kernel import Launch
from ..plan_steps import Call, MakeView, Plan, Step
from .output_buffer_reuse import reuse_output_buffers
from .plan_arena import Span, UnwrittenOutput, with_rooms


@dataclass(slots=True)
class LiveRange:
    """The live range of a value with its own place in the arena."""

    value: Value
    first: int
    last: int
    inside: dict[Value, int]
    """Other values in the same memory, and their byte offset in it."""
    may_use_output_buffer: bool
    """Whether it may share an output's buffer, which is allocated per run. A value that Python calls receive as a
    tensor may only if it is large: the tensor has to be allocated in every run."""


@dataclass(slots=True)
class Liveness:
    """Times are half steps: an operand that a step reads only before it writes ends in the first half."""

    ranges: list[LiveRange]
    """Values that need their own place, in the order in which they are made."""
    in_place: dict[Value, Value]
    """Values that calls and kernels write over others."""
    fresh: dict[Value, int]
    """Outputs that the driver allocates in every run: the time of their first write."""
    beside: list[Span]
    """Memory that calls allocate themselves, and when."""


LARGE = 1 << 16
"""In bytes."""

GIVEN_BACK = 1 << 19
"""In bytes. Smaller memory is kept between runs. When everything from 64 KB on was freed, a small Llama trained at 1.17
instead of 1.45 times eager's speed, because the system maps memory page by page. When sizes up to twice this were kept
as well, an MLP of 28 MB needed 4 % more memory than eager."""


def liveness_of(plan: Plan) -> Liveness:
    outside = {id(value) for value in plan.graph.leaving_values()}
    concat_buffers = concat_buffers_in(plan.graph)
    roots: dict[Value, Value] = {value: host for host, values in concat_buffers.items() for value in values}
    last: dict[Value, int] = {}
    first: dict[Value, int] = {}
    overwritten = dict(plan.in_place)
    """Values that are written over others, which come before them here."""
    seen: set[Value] = set()
    made: dict[Value, int] = {}

    def share(value: Value, source: Value) -> None:
        """A value in the memory of another one. A value that the caller receives keeps that memory."""
        roots[value] = roots.get(source, source)
        if id(value) in outside:
            outside.add(id(roots[value]))

    for number, step in enumerate(plan.steps):
        now, end = 2 * number, 2 * number + 1
        match step:
            case MakeView(value, source, _, _):
                share(value, source)
            case Launch(kernel, buffers):
                for at, value in enumerate(buffers):
                    if value in plan.in_place:
                        share(value, plan.in_place[value])
                    elif at in kernel.stored:
                        first.setdefault(roots.get(value, value), now)
                    last[roots.get(value, value)] = end
            case Call(node, in_place):
                if in_place is not None:
                    overwritten[node.results[0]] = node.args[0]  # type: ignore[index]
                    share(node.results[0], node.args[0])  # type: ignore[arg-type]
                copied = copied_first(node)
                if writes_into(node):
                    first.update((value, end if copied else now) for value in node.results if value is not None)
                else:
                    made.update((value, now) for value in node.results if value is not None)
                source = aliased_argument(node)
                for value in node.results if source is not None else ():
                    share(value, source)  # type: ignore[arg-type]  # a view keeps the memory of its source alive
                for value in (*node.operands, *(v for v in node.results if v is not None)):
                    root = roots.get(value, value)
                    last[root] = max(last.get(root, 0), now if value in copied else end)
                    if not is_native(node):
                        seen.add(root)
    ranges = [
        LiveRange(
            value,
            at,
            last.get(value, at),
            concat_buffers.get(value, {}),
            value not in seen or value.type.bytes >= LARGE,
        )
        for value, at in sorted(first.items(), key=lambda entry: entry[1])
        if id(value) not in outside
    ]
    fresh = {value: at for value, at in first.items() if id(value) in outside and value not in plan.placed}
    freed = freed_after(plan.steps)
    beside = [
        Span(at, 2 * (len(plan.steps) if id(value) in outside else freed[last[value] // 2]) + 1, value.type.bytes)
        for value, at in made.items()
        if value not in roots
    ]
    return Liveness(ranges, {value: roots[value] for value in overwritten}, fresh, beside)


def freed_after(steps: Sequence[Step]) -> list[int]:
    """For each step, the last step of the native function sequence it belongs to, which the driver calls at once. An
    operand of the sequence is freed only after all of it, while the results of all its steps are allocated."""
    found: list[int] = []
    for number in range(len(steps) - 1, -1, -1):
        is_joined = found and is_joined_call(steps[number]) and is_joined_call(steps[number + 1])
        found.append(found[-1] if is_joined else number)
    return found[::-1]


def is_joined_call(step: Step) -> bool:
    return not isinstance(step, Call) or is_native(step.node)


def place_in_arena(plan: Plan, frees_arena: bool) -> None:
    """Gives each intermediate value a byte range that is its own from the step that makes it to its last reader."""
    liveness = liveness_of(plan)
    ranges = [shared_or_own(live, plan) for live in liveness.ranges if is_placed(live.value)]
    least = GIVEN_BACK if frees_arena else None
    is_per_run = [is_allocated_per_run(live.value, least) and not live.inside for live in ranges]
    per_run = list(itertools.compress(ranges, is_per_run))
    ranges = [live for live, is_own in zip(ranges, is_per_run, strict=True) if lies_in_arena(live.value) and not is_own]
    share_buffers_of_calls(plan, liveness, per_run, least)
    # Where the arena is freed, other memory between two runs is unknown here: an output that is allocated early might
    # raise the peak.
    hosts = [value for value in liveness.fresh if lies_in_arena(value) and not frees_arena]
    scratch = [
        (number, step.node, room)
        for number, step in enumerate(plan.steps)
        if isinstance(step, Call) and (room := scratch_of(step)) > 0
    ]
    spans = [Span(live.first, live.last, aligned_size_of(live.value)) for live in ranges]
    spans += [Span(2 * number, 2 * number + 1, room) for number, _, room in scratch]
    movable = [live.may_use_output_buffer for live in ranges] + [True] * len(scratch)
    rooms = [UnwrittenOutput(liveness.fresh[host] - 1, reach_of(host)) for host in hosts]
    starts, plan.arena, guests = with_rooms(spans, rooms, movable, liveness.beside)
    for k, start in enumerate(starts):
        inside = {ranges[k].value: 0, **ranges[k].inside} if k < len(ranges) else {scratch[k - len(ranges)][1]: 0}
        for what, offset in inside.items():
            if k in guests:
                plan.in_output_buffer[what] = hosts[guests[k]], start + offset
            elif isinstance(what, Node):
                plan.scratch[what] = start
            else:
                plan.offsets[what] = start + offset
    for places in (plan.offsets, plan.in_output_buffer):
        places.update((value, places[root]) for value, root in liveness.in_place.items() if root in places)


def shared_or_own(live: LiveRange, plan: Plan) -> LiveRange:
    """Sharing memory with others costs fuel. Without it the value has its place from beginning to end."""
    steps = live.first // 2, "to", live.last // 2
    if fuel.allows("place_in_arena", live.value.node, "it has memory in the steps", *steps):
        return live
    return replace(live, first=0, last=2 * len(plan.steps), may_use_output_buffer=False)


def share_buffers_of_calls(plan: Plan, liveness: Liveness, ranges: Sequence[LiveRange], least: int | None) -> None:
    """Lets values that are allocated per run share buffers within one native call, instead of allocating each: the
    buffers of a call are allocated before its first function, and freed after the last."""
    ends, at_end = freed_after(plan.steps), 2 * len(plan.steps)
    calls: dict[tuple[int, torch.device], dict[Value, Span]] = {}
    outputs: dict[tuple[int, torch.device], dict[Value, Span]] = {}
    for live in ranges:
        value, end = live.value, ends[live.first // 2]
        is_within = end == ends[live.last // 2]
        if is_within and live.may_use_output_buffer:
            span = Span(live.first, live.last, value.type.bytes)
            calls.setdefault((end, value.type.device), {})[value] = span
        elif not is_within and not lies_in_arena(value):
            outputs.setdefault((end, value.type.device), {})[value] = Span(live.first, at_end, reach_of(value))
    for value, first in liveness.fresh.items():
        if is_allocated_per_run(value, least):
            span = Span(first, at_end, reach_of(value))
            outputs.setdefault((ends[first // 2], value.type.device), {})[value] = span
    within = list(calls)
    plan.in_output_buffer.update(
        reuse_output_buffers([calls[call] for call in within], [outputs.get(call, {}) for call in within])
    )


def is_placed(value: Value) -> bool:
    return target_of(value.type.device) is not None


def is_allocated_per_run(value: Value, least: int | None) -> bool:
    """Whether a program does not keep the memory of a value between runs. `least`: on targets with an arena, so many
    bytes are not kept; None if all are."""
    return is_placed(value) and (not lies_in_arena(value) or least is not None and value.type.bytes >= least)


def lies_in_arena(value: Value) -> bool:
    target = target_of(value.type.device)
    return target is not None and target.has_arena


def aligned_size_of(value: Value) -> int:
    return -(-value.type.bytes // ALIGNMENT) * ALIGNMENT


def reach_of(value: Value) -> int:
    """The number of bytes allocated for a value."""
    return value.dtype.itemsize * span(value.type.shape, value.type.stride) if value.type.numel else 0


def concat_buffers_in(graph: Graph) -> dict[Value, dict[Value, int]]:
    """For each buffer's largest value, the values in its buffer (itself included), and their byte offsets."""
    inside: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op is ASSEMBLED:
            inside.setdefault(node.args[2], []).append(node)
    found: dict[Value, dict[Value, int]] = {}
    for nodes in inside.values():
        host = max(
            (value for node in nodes for value in node.results if value is not None), key=lambda value: value.type.numel
        )
        places = found[host] = {}
        for node in nodes:
            members, offsets, _ = node.args
            places.update(zip((*members, *node.results), (*offsets, offsets[0]), strict=True))
        found[host] = {value: at * host.dtype.itemsize for value, at in places.items()}
    return found


INTO = {"aten.cat.default": torch.ops.aten.cat.out}
"""Operators with an overload that writes the result into a given tensor, in the same time."""


def writes_into(node: Node) -> bool:
    """Whether a call writes its result into a given tensor. Without an arena, torch may as well allocate the result."""
    if node.op is not RUN:
        return node.op.name in INTO
    candidate = node.args[0]
    return candidate.run_into is not None and (candidate.steps is not None or lies_in_arena(node.results[0]))


def is_native(node: Node) -> bool:
    """Whether it consists of native functions that write into given memory."""
    return node.op is RUN and node.args[0].steps is not None and writes_into(node)


def copied_first(node: Node) -> set[Value]:
    """The operands that a call reads completely before it writes its result."""
    if not is_native(node) or not node.args[0].copies:
        return set()
    candidate, operands = node.args
    named = list(zip(candidate.operands, operands, strict=True))
    read = {value for name, value in named if name not in candidate.copies}
    return {value for name, value in named if name in candidate.copies} - read


def scratch_of(step: Step) -> int:
    """The size of a step's workspace in bytes."""
    if not isinstance(step, Call) or step.node.op is not RUN or step.node.args[0].steps is None:
        return 0
    return -(-step.node.args[0].scratch // ALIGNMENT) * ALIGNMENT
