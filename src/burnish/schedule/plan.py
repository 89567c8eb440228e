"""The plan: what runs, in which order, and where every value lies.

    plan = make_plan(graph)
    plan.steps       Launch (a kernel), Call (an operator's eager kernel) and Show (a view of something in memory)
    plan.offsets     for each intermediate value its place in the arena
    plan.lodged      or in memory that is made for an output, and is not written until the value is done with
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import events
from ..ir.graph import Graph, Node, Value, values_in
from ..ir.storage import aliased_argument, is_shown
from ..ops.prims import ASSEMBLED, CHECK_INDICES, RUN, VIEW
from ..tensors.sizes import ALIGNMENT
from ..tensors.types import TensorType
from .arena import Room, Span, with_rooms
from .classify import Classes, classify
from .compute_again import fullest
from .emit import Launch, emit, view_offset
from .fetches import fetch_in_loops
from .fuse import Fusion, Unit, fuse
from .groups import Group, is_reduction
from .homes import share_homes
from .in_place import store_in_place
from .in_place_calls import calls_in_place
from .long_rows import divide_long_rows
from .loops import print_kernel
from .machines import machine_of
from .overlays import overlay
from .scatters import scatter_in_loops
from .siblings import merged


@dataclass(frozen=True, slots=True)
class Call:
    """An operator run by its eager kernel."""

    node: Node
    in_place: Any = None
    """The overload that does the same to the first argument, where that may be overwritten."""


@dataclass(frozen=True, slots=True)
class Show:
    """`value` is a view of `source`, which lies in memory: `type`'s shape and strides, `offset` elements further on."""

    value: Value
    source: Value
    type: TensorType
    offset: int


Step = Launch | Call | Show


@dataclass(slots=True)
class Plan:
    graph: Graph
    steps: list[Step]
    offsets: dict[Value, int] = field(default_factory=dict)
    """Of the intermediate values that kernels make, in the arena, in bytes."""
    arena: int = 0
    placed: dict[Value, Value] = field(default_factory=dict)
    """Values that lie in inputs, which they are written to."""
    scratch: dict[Node, int] = field(default_factory=dict)
    """Where in the arena a call has the memory that it needs while it runs, in bytes."""
    over: dict[Value, Value] = field(default_factory=dict)
    """Values that kernels store in the memory of others, which are made in the plan and done with by then."""
    lodged: dict[Value | Node, tuple[Value, int]] = field(default_factory=dict)
    """Intermediate values, and calls' memory, that lie in values the graph makes memory for in every run, and where, in
    bytes: until those are first written nothing else lies there."""

    def __str__(self) -> str:
        parts = []
        for step in self.steps:
            match step:
                case Launch(kernel, buffers):
                    parts.append(f"{print_kernel(kernel)}\n  on {', '.join(map(str, buffers))}")
                case Call(node, in_place):
                    parts.append(f"call {node}" if in_place is None else f"call in place {node}")
                case Show(value, source, type, offset):
                    parts.append(f"show {value}: {type} = {source} from {offset}")
        parts += [f"{value} lies over {below}" for value, below in self.over.items()]
        for host in dict.fromkeys(host for host, _ in self.lodged.values()):
            inside = [f"{value if isinstance(value, Value) else f'what {value.results[0]} needs'} at {at}"
                      for value, (where, at) in self.lodged.items() if where is host]
            parts.append(f"in {host} before it is written: {', '.join(inside)}")
        return "\n".join(parts)


def plan_of_calls(graph: Graph) -> Plan:
    """Every node by itself, without kernels: for what runs once."""
    return Plan(graph, [Call(node) for node in graph.nodes])


def make_plan(graph: Graph, is_open: bool = False, gives_back: bool = False, turns: bool = False) -> Plan:
    """`is_open`: it is one of several plans for sizes that are told at run time, and they are given memory together.
    `gives_back`: much else needs memory between two runs, and so its own is made in every run where that is large.
    `turns`: it goes forward and then backward, as a whole step of training does."""
    graph = share_homes(graph)
    graph = scatter_in_loops(fetch_in_loops(graph if is_open else divide_long_rows(graph)))
    classes = classify(graph, is_open)
    fusion = fuse(graph, classes, fullest(graph) if turns else 0)
    steps, apart = merged(steps_of(graph, classes, fusion), lambda step: isinstance(step, Show))
    steps, placed = store_in_place(graph, steps, [touched(step) for step in steps])
    written, within = calls_in_place(
        graph, [step.node if isinstance(step, Call) else None for step in steps], [touched(step) for step in steps])
    steps = [Call(step.node, written.get(step.node)) if isinstance(step, Call) else step for step in steps]
    over: dict[Value, Value] = {}
    if not is_open:
        steps, over = overlay(graph, steps, [touched(step) for step in steps], {*placed, *within})
    plan = Plan(graph, steps, placed=placed | within, over=over)
    if not is_open:
        place_in_arena(plan, gives_back)
    if events.is_watched():
        why = "\n".join([explain(classes, fusion), *apart])
        events.emit("loops", text=f"{plan}\n{why}", plan=plan)
    return plan


def touched(step: Step) -> list[Value]:
    """The values that a step reads or makes."""
    match step:
        case Launch(_, buffers):
            return list(buffers)
        case Show(value, source, _, _):
            return [value, source]
        case Call(node):
            return [*node.operands, *(value for value in node.results if value is not None)]


def explain(classes: Classes, fusion: Fusion) -> str:
    """Why things were not fused, in words."""
    lines = [f"library call: {node.results[0] if node.results else node}: {why}"
             for node, why in classes.why_library.items() if node.op is not ASSEMBLED and node.op is not CHECK_INDICES]
    for unit in fusion.units:
        if isinstance(unit.what, Group):
            lines += [f"not fused with {', '.join(map(str, unit.what.roots))}: {why}" for why in unit.what.refusals]
    return "\n".join(lines)


def steps_of(graph: Graph, classes: Classes, fusion: Fusion) -> list[Step]:
    needed = needed_in_memory(graph, classes, fusion)
    steps: list[Step] = []
    shown: set[Value] = set()

    def show(value: Value) -> None:
        """Make a value that something outside of the loops reads available: views are made when first read."""
        node = value.node
        if node is None or node.op is not VIEW or value in shown or value in fusion.unit_of:
            return
        show(node.args[0])
        shown.add(value)
        assert is_shown(value), node
        steps.append(Show(value, node.args[0], value.type, view_offset(node.args[1], node.args[0].type)))

    for unit in in_order(fusion.units):
        if isinstance(unit.what, Group):
            wanted = {root for root in unit.what.roots if root in needed}
            if wanted:
                steps.append(emit(unit.what, wanted, classes))
        else:
            for value in unit.what.operands:
                show(value)
            if unit.what.op is not ASSEMBLED:
                steps.append(Call(unit.what))
    for value in (*values_in(tuple(graph.outputs)), *(write.value for write in graph.writes)):
        show(value)
    return steps


def needed_in_memory(graph: Graph, classes: Classes, fusion: Fusion) -> set[Value]:
    """The roots that somebody outside their own group reads."""
    needed: set[Value] = set()

    def need(value: Value) -> None:
        while value not in fusion.unit_of and value.node is not None and value.node.op is VIEW:
            value = value.node.args[0]
        needed.add(value)

    for value in (*values_in(tuple(graph.outputs)), *(write.value for write in graph.writes)):
        need(value)
    for unit in fusion.units:
        if isinstance(unit.what, Node):
            for value in unit.what.operands:
                need(value)
    for value, reads in fusion.reads.items():
        for read, _ in reads:
            if fusion.unit_of.get(read) is not fusion.unit_of[value]:
                needed.add(read)
    return needed


def in_order(units: list[Unit]) -> list[Unit]:
    """In the order in which they were made, each after those it needs. What is needed later comes right before that:
    what reads inputs alone could come at the beginning, and what it makes would lie there until somebody reads it.
    What only sums up what others have made does not wait for a library call: its input lies in the cache still, and
    may be gone when the call needs memory."""
    numbered = {unit.number: unit for unit in units}
    sums = [unit for unit in units if unit.needs and only_sums(unit)]
    done, order = 0, []

    def put(unit: Unit) -> None:
        nonlocal done, sums
        if isinstance(unit.what, Node):
            ready = [each for each in sums if not each.needs & ~done]
            sums = [each for each in sums if each not in ready]
            for each in ready:
                if not done >> each.number & 1:
                    order.append(each)
                    done |= 1 << each.number
        order.append(unit)
        done |= 1 << unit.number

    for unit in units:
        stack = [] if done >> unit.number & 1 else [unit]
        while stack:
            assert len(stack) <= len(units), "the units need one another"
            left = stack[-1].needs & ~done
            if left:
                stack.append(numbered[(left & -left).bit_length() - 1])
            else:
                put(stack.pop())
    return order


def only_sums(unit: Unit) -> bool:
    return isinstance(unit.what, Group) and all(map(is_reduction, unit.what.roots))


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
    stays = [Stay(value, at, last.get(value, at), homes.get(value, {}), value not in seen or value.type.bytes >= LARGE)
             for value, at in sorted(first.items(), key=lambda entry: entry[1]) if id(value) not in outside]
    fresh = {value: at for value, at in first.items() if id(value) in outside and value not in plan.placed}
    let_go = let_go_at(plan.steps)
    beside = [Span(at, 2 * (len(plan.steps) if id(value) in outside else let_go[last[value] // 2]) + 1,
                   value.type.bytes) for value, at in made.items() if value not in roots]
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
    stays = [stay for stay in lives.stays if lies_in_arena(stay.value)
             and not (gives_back and stay.value.type.bytes >= GIVEN_BACK and not stay.inside)]
    # What else is there between two runs is not known here: an output that is made early might be one too many.
    hosts = [value for value in lives.fresh if lies_in_arena(value) and not gives_back]
    scratch = [(number, step.node, room) for number, step in enumerate(plan.steps)
               if isinstance(step, Call) and (room := scratch_of(step)) > 0]
    spans = [Span(stay.first, stay.last, room_of(stay.value)) for stay in stays]
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


def lies_in_arena(value: Value) -> bool:
    machine = machine_of(value.type.device)
    return machine is not None and machine.has_arena


def room_of(value: Value) -> int:
    return -(-value.type.bytes // ALIGNMENT) * ALIGNMENT


def reach_of(value: Value) -> int:
    """How many bytes the memory has that is made for it."""
    if not value.type.numel:
        return 0
    return value.dtype.itemsize * (1 + sum((size - 1) * step for size, step in
                                           zip(value.type.shape, value.type.stride, strict=True)))


def homes_in(graph: Graph) -> dict[Value, dict[Value, int]]:
    """For the largest value of each home, what lives there: it and others, and where they begin, in bytes."""
    inside: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op is ASSEMBLED:
            inside.setdefault(node.args[2], []).append(node)
    found: dict[Value, dict[Value, int]] = {}
    for nodes in inside.values():
        host = max((value for node in nodes for value in node.results if value is not None),
                   key=lambda value: value.type.numel)
        places = found[host] = {}
        for node in nodes:
            members, offsets, _ = node.args
            places.update(zip((*members, *node.results), (*offsets, offsets[0]), strict=True))
        found[host] = {value: at * host.dtype.itemsize for value, at in places.items()}
    return found


INTO = {"aten.cat.default": torch.ops.aten.cat.out}
"""Operators with an overload that writes the result where it is told to, in the same time."""


def writes_into(node: Node) -> bool:
    """Whether it is a call that writes its result where it is told to."""
    return node.op.name in INTO or node.op is RUN and node.args[0].run_into is not None


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


__all__ = ["Call", "Launch", "Plan", "Show", "make_plan"]
