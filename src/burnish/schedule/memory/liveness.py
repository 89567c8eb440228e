"""Liveness: how long each value of a plan is needed, and which buffer holds it.

place_in_arena(plan, gives_back)
plan.offsets     for each intermediate value its place in the arena
plan.lodged      or in memory that is made for another value, which is not written until this one is done with
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ... import fuel
from ...ir.alias_analysis import aliased_argument
from ...ir.graph import Graph, Node, Value, values_in
from ...ops.burnish_primitives import ASSEMBLED, RUN
from ...tensors.symbolic_sizes import ALIGNMENT
from ..loops.build_kernel import Launch
from ..plan_steps import Call, Plan, Show, Step
from ..target_machines import machine_of
from .output_buffer_reuse import lodge
from .plan_arena import Room, Span, with_rooms


@dataclass(slots=True)
class Stay:
    """A value in the arena: from which time on, and to which."""

    value: Value
    first: int
    last: int
    inside: dict[Value, int]
    """What else lies in its memory, and where, in bytes."""
    may_lodge: bool
    """In memory that is made in every run. Where Python is handed a tensor, which is made anew then, only if large."""


@dataclass(slots=True)
class Lives:
    """Times are half steps: what a step is done with before it writes is gone by its second half."""

    stays: list[Stay]
    """What needs a place of its own, in the order in which it is made."""
    over: dict[Value, Value]
    """What calls and kernels write over other values."""
    fresh: dict[Value, int]
    """What leaves the graph in memory that the driver makes for it in every run: the time of its first writing."""
    beside: list[Span]
    """What calls make themselves: memory that is there besides, from time to time."""


LARGE = 1 << 16
"""Bytes."""

GIVEN_BACK = 1 << 19
"""Bytes. Less is kept from run to run: with all from 64 KB on given back, a small Llama trained at 1.17 times eager's
speed in place of 1.45, for the system hands out memory page by page. With what is twice as large kept as well, an MLP
of 28 MB needed 4 % more than eager."""


def lives_of(plan: Plan) -> Lives:
    outside = {id(v) for v in (*values_in(tuple(plan.graph.outputs)), *(w.value for w in plan.graph.writes))}
    homes = homes_in(plan.graph)
    roots: dict[Value, Value] = {value: host for host, values in homes.items() for value in values}
    last: dict[Value, int] = {}
    first: dict[Value, int] = {}
    over = dict(plan.over)
    """Values that are written over others, which come before them here."""
    seen: set[Value] = set()
    made: dict[Value, int] = {}
    for number, step in enumerate(plan.steps):
        now, end = 2 * number, 2 * number + 1
        match step:
            case Show(value, source, _, _):
                roots[value] = roots.get(source, source)
                if id(value) in outside:
                    outside.add(id(roots[value]))
            case Launch(kernel, buffers):
                for at, value in enumerate(buffers):
                    if value in plan.over:
                        roots[value] = roots.get(plan.over[value], plan.over[value])
                        if id(value) in outside:
                            outside.add(id(roots[value]))
                    elif at in kernel.stored:
                        first.setdefault(roots.get(value, value), now)
                    last[roots.get(value, value)] = end
            case Call(node, in_place):
                if in_place is not None:
                    over[node.results[0]] = node.args[0]  # type: ignore[index]
                    roots[node.results[0]] = roots.get(node.args[0], node.args[0])  # type: ignore[index]
                    if id(node.results[0]) in outside:
                        outside.add(id(roots[node.results[0]]))  # type: ignore[index]
                copied = copied_first(node)
                if writes_into(node):
                    first.update((value, end if copied else now) for value in node.results if value is not None)
                else:
                    made.update((value, now) for value in node.results if value is not None)
                source = aliased_argument(node)
                for value in node.results if source is not None else ():
                    # A view that is made by a call keeps the memory of what it shows.
                    roots[value] = roots.get(source, source)  # type: ignore[index, arg-type]
                    if id(value) in outside:
                        outside.add(id(roots[value]))  # type: ignore[index]
                for value in (*node.operands, *(v for v in node.results if v is not None)):
                    root = roots.get(value, value)
                    last[root] = max(last.get(root, 0), now if value in copied else end)
                    if not is_native(node):
                        seen.add(root)
    stays = [
        Stay(value, at, last.get(value, at), homes.get(value, {}), value not in seen or value.type.bytes >= LARGE)
        for value, at in sorted(first.items(), key=lambda entry: entry[1])
        if id(value) not in outside
    ]
    fresh = {value: at for value, at in first.items() if id(value) in outside and value not in plan.placed}
    let_go = let_go_at(plan.steps)
    beside = [
        Span(at, 2 * (len(plan.steps) if id(value) in outside else let_go[last[value] // 2]) + 1, value.type.bytes)
        for value, at in made.items()
        if value not in roots
    ]
    return Lives(stays, {value: roots[value] for value in over}, fresh, beside)


def let_go_at(steps: Sequence[Step]) -> list[int]:
    """For each step, the one with which ends what the driver calls at once: native functions that follow one another.
    What one of them reads last is let go after all of them, when the memory is there that the others write to."""
    found: list[int] = []
    for number in range(len(steps) - 1, -1, -1):
        is_joined = found and is_joined_call(steps[number]) and is_joined_call(steps[number + 1])
        found.append(found[-1] if is_joined else number)
    return found[::-1]


def is_joined_call(step: Step) -> bool:
    return not isinstance(step, Call) or is_native(step.node)


def place_in_arena(plan: Plan, gives_back: bool) -> None:
    """Give each intermediate a range of bytes that is its own from the step that makes it to the last that reads it."""
    lives = lives_of(plan)
    stays = [shared_or_own(stay, plan) for stay in lives.stays if lies_in_arena(stay.value)]
    if gives_back:
        large = [stay for stay in stays if stay.value.type.bytes >= GIVEN_BACK and not stay.inside]
        stays = [stay for stay in stays if stay not in large]
        take_turns(plan, lives, large)
    # What else is there between two runs is not known here: an output that is made early might be one too many.
    hosts = [value for value in lives.fresh if lies_in_arena(value) and not gives_back]
    scratch = [
        (number, step.node, room)
        for number, step in enumerate(plan.steps)
        if isinstance(step, Call) and (room := scratch_of(step)) > 0
    ]
    spans = [Span(stay.first, stay.last, aligned_size_of(stay.value)) for stay in stays]
    spans += [Span(2 * number, 2 * number + 1, room) for number, _, room in scratch]
    movable = [stay.may_lodge for stay in stays] + [True] * len(scratch)
    rooms = [Room(lives.fresh[host] - 1, reach_of(host)) for host in hosts]
    starts, plan.arena, guests = with_rooms(spans, rooms, movable, lives.beside)
    for k, start in enumerate(starts):
        inside = {stays[k].value: 0, **stays[k].inside} if k < len(stays) else {scratch[k - len(stays)][1]: 0}
        for what, offset in inside.items():
            if k in guests:
                plan.lodged[what] = hosts[guests[k]], start + offset
            elif isinstance(what, Node):
                plan.scratch[what] = start
            else:
                plan.offsets[what] = start + offset
    for places in (plan.offsets, plan.lodged):
        places.update((value, places[root]) for value, root in lives.over.items() if root in places)


def shared_or_own(stay: Stay, plan: Plan) -> Stay:
    """Sharing memory with others costs fuel. Without it the value has its place from beginning to end."""
    steps = stay.first // 2, "to", stay.last // 2
    if fuel.allows("place_in_arena", stay.value.node, "it has memory in the steps", *steps):
        return stay
    return replace(stay, first=0, last=2 * len(plan.steps), may_lodge=False)


def take_turns(plan: Plan, lives: Lives, stays: Sequence[Stay]) -> None:
    """What is made for one call of native functions need not be made for each value."""
    ends = let_go_at(plan.steps)
    calls: dict[int, dict[Value, Span]] = {end: {} for end in ends}
    outputs: dict[int, dict[Value, Span]] = {end: {} for end in ends}
    for stay in stays:
        if stay.may_lodge and ends[stay.first // 2] == ends[stay.last // 2]:
            calls[ends[stay.first // 2]][stay.value] = Span(stay.first, stay.last, aligned_size_of(stay.value))
    for value, first in lives.fresh.items():
        if lies_in_arena(value) and value.type.bytes >= GIVEN_BACK:
            outputs[ends[first // 2]][value] = Span(first, 2 * len(plan.steps), reach_of(value))
    plan.lodged.update(lodge(list(calls.values()), list(outputs.values())))


def lies_in_arena(value: Value) -> bool:
    machine = machine_of(value.type.device)
    return machine is not None and machine.has_arena


def aligned_size_of(value: Value) -> int:
    return -(-value.type.bytes // ALIGNMENT) * ALIGNMENT


def reach_of(value: Value) -> int:
    """How many bytes the memory has that is made for it."""
    if not value.type.numel:
        return 0
    return value.dtype.itemsize * (
        1 + sum((size - 1) * step for size, step in zip(value.type.shape, value.type.stride, strict=True))
    )


def homes_in(graph: Graph) -> dict[Value, dict[Value, int]]:
    """For the largest value of each home, what lives there: it and others, and where they begin, in bytes."""
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
"""Operators with an overload that writes the result where it is told to, in the same time."""


def writes_into(node: Node) -> bool:
    """Whether it is a call that writes its result where it is told to. Where there is no arena, torch makes memory for
    it just as well."""
    if node.op is not RUN:
        return node.op.name in INTO
    candidate = node.args[0]
    return candidate.run_into is not None and (candidate.steps is not None or lies_in_arena(node.results[0]))


def is_native(node: Node) -> bool:
    """Whether it is native functions that write where they are told to."""
    return node.op is RUN and node.args[0].steps is not None and writes_into(node)


def copied_first(node: Node) -> set[Value]:
    """What a call is done with before it writes its result."""
    if not is_native(node) or not node.args[0].copies:
        return set()
    candidate, operands = node.args
    named = list(zip(candidate.operands, operands, strict=True))
    read = {value for name, value in named if name not in candidate.copies}
    return {value for name, value in named if name in candidate.copies} - read


def scratch_of(step: Step) -> int:
    """How many bytes a step needs besides what it reads and makes."""
    if not isinstance(step, Call) or step.node.op is not RUN or step.node.args[0].steps is None:
        return 0
    return -(-step.node.args[0].scratch // ALIGNMENT) * ALIGNMENT


__all__ = ["INTO", "is_native", "lies_in_arena", "lives_of", "place_in_arena", "writes_into"]
