"""Loop fusion: chooses which values are computed in one loop nest.

Roots (stored values and reductions) are placed in execution order. Each root tries the groups of the roots it reads,
then groups that read the same values. `why_not_join` says why a group cannot take it. Otherwise it starts a new group.

    h = x + a           group 1
    s = sum h, (1,)     joins group 1: it reads h where h is made
    y = h / s           joins group 1: it reads s in the row that made it
    z = y @ w           a library call
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...ir import fuel
from ...ir.frozen_values import is_random
from ...ir.graph import Graph, Node, Value
from ...ops.burnish_primitives import VIEW
from ...ops.target_record import target_of
from ...tensors.views.affine_indices import Index
from ...tensors.views.view_maps import view_type
from ..loops.build_expressions import NotAffine, sources
from ..partition.loop_or_library_call import Classes, expression_cost, is_computed
from .fusion_groups import (
    Group,
    align,
    goes_along,
    group_of,
    is_contiguous_scan,
    is_reduction,
    is_running,
    is_transpose,
    reduced_variables,
    space_of,
)
from .split_concat_loops import IndexBox, Uncuttable, boxes_of
from .split_long_chains import MOST, operators_of

LARGE = 1 << 15

SIMPLE = 8
"""Highest cost of an expression that is computed element by element where a separate kernel would be vectorized."""

Read = tuple[Value, Index | None]
"""A value in memory or of another root, and the index at which it is read; None where strides alone address it."""


@dataclass(slots=True)
class Unit:
    """A group or a library call, in dependency order. `needs` has a bit for each unit it depends on, transitively."""

    number: int
    what: Group | Node
    needs: int = 0


@dataclass(slots=True)
class Fusion:
    units: list[Unit]
    unit_of: dict[Value, Unit]
    reads: dict[Value, list[Read]] = field(default_factory=dict)


def fuse_loops(graph: Graph, classes: Classes, turn: int = 0) -> Fusion:
    """`turn`: before this node, nothing is computed that only later nodes read. It would occupy memory until then."""
    while True:
        known = len(classes.stored)
        fuser = Fuser(graph, classes, turn)
        found = fuser.run()
        # Roots placed before a value came to be stored still compute it themselves: place everything again.
        if not fuser.stored_late or len(classes.stored) == known:
            return found


class Fuser:
    def __init__(self, graph: Graph, classes: Classes, turn: int):
        self.graph, self.classes = graph, classes
        self.early = set(graph.nodes[:turn])
        self.fusion = Fusion([], {})
        self.readers: dict[Value, list[Unit]] = {}
        self.needed = 0
        """Bits of the units that any other depends on."""
        self.last_draw: Unit | None = None
        self.stored_late = False

    def run(self) -> Fusion:
        for node in self.graph.nodes:
            value = node.results[0] if node.results else None
            if node in self.classes.loops:
                if value is not None and (value in self.classes.stored or is_reduction(value) or is_running(value)):
                    self.place(value)
            elif node in self.classes.why_library:
                self.add_library(node)
        return self.fusion

    def add_library(self, node: Node) -> None:
        unit = self.new_unit(node)
        for value in node.operands:
            self.depend(unit, self.in_memory(value))
        if is_random(node):
            # Random calls keep their order: the first one draws the first numbers.
            self.depend_on(unit, self.last_draw)
            self.last_draw = unit
        for value in node.results:
            if value is not None:
                self.fusion.unit_of[value] = unit

    def in_memory(self, value: Value) -> Value:
        """The value that a view refers to, through views that need no copy."""
        while (
            value.node is not None
            and value.node.op is VIEW
            and value not in self.fusion.unit_of
            and value not in self.classes.stored
        ):
            value = value.node.args[0]
        return value

    def new_unit(self, what: Group | Node) -> Unit:
        unit = Unit(len(self.fusion.units), what)
        self.fusion.units.append(unit)
        return unit

    def depend(self, unit: Unit, value: Value) -> None:
        self.depend_on(unit, self.fusion.unit_of.get(value))

    def depend_on(self, unit: Unit, on: Unit | None) -> None:
        if on is None or on is unit:
            return
        added = (1 << on.number) | on.needs
        if not added & ~unit.needs:
            return  # units that depend on this one have these dependencies already
        unit.needs |= added
        self.needed |= added
        if not self.needed >> unit.number & 1:
            return
        for other in self.fusion.units:
            if other.needs >> unit.number & 1:
                other.needs |= added

    # ---- placing a root

    def place(self, value: Value) -> None:
        while True:
            try:
                alone = group_of(value)
                reads = self.read_with_cuts(alone, value)
                break
            except (NotAffine, Uncuttable) as trouble:
                self.store_instead(value, trouble.value, str(trouble))
                if value in self.fusion.unit_of:
                    return
        for unit in self.candidates(value, reads):
            group = unit.what
            assert isinstance(group, Group)
            joined = self.why_not_join(unit, group, value, reads)
            if joined is None:
                self.settle(unit, value)
                return
            group.refusals.append(f"{value} stays out: {joined}")
        self.fusion.reads[value] = reads
        alone.operators = operators_of(value, lambda operand: is_computed(operand, self.classes))
        self.settle(self.new_unit(alone), value)

    def settle(self, unit: Unit, value: Value) -> None:
        self.fusion.unit_of[value] = unit
        for read, _ in self.fusion.reads[value]:
            self.depend(unit, read)
            readers = self.readers.setdefault(read, [])
            if unit not in readers:
                readers.append(unit)

    def store_instead(self, root: Value, value: Value, why: str) -> None:
        """For a view whose index is not affine: stores its source or, if that does not help, copies the view. Likewise
        a concatenation is stored, by loops of its own or by the library."""
        node = value.node
        assert node is not None
        kept = [value] if node.op is not VIEW and value is not root else list(node.operands)
        kept = [v for v in kept if self.classes.is_loop(v) and v not in self.fusion.unit_of]
        self.stored_late = self.stored_late or bool(self.fusion.units)
        if value is root or not kept:
            self.classes.loops.discard(node)
            self.classes.stored.add(value)
            self.classes.why_library[node] = why
        for source in kept:
            self.classes.stored.add(source)
            self.place(source)
        if node in self.classes.why_library:
            self.add_library(node)

    def candidates(self, value: Value, reads: list[Read]) -> Iterator[Unit]:
        """Groups to try: those that made the operands, latest first; then those that read the same values. A small
        reduction also tries groups that read roots computed together with its operand."""
        makers = {unit.number: unit for read, _ in reads if (unit := self.fusion.unit_of.get(read)) is not None}
        seen = set(makers)
        for number in sorted(makers, reverse=True):
            if isinstance(makers[number].what, Group):
                yield makers[number]
        read_alike = [read for read, _ in reads if read.type.numel >= 64]
        if is_reduction(value) and value.node.args[0].type.numel <= 4 * LARGE:  # type: ignore[union-attr]
            # The partial results of two sums that one kernel made are also summed in one kernel.
            read_alike += [root for maker in makers.values() for root in getattr(maker.what, "roots", ())]
        for read in read_alike:
            for unit in self.readers.get(read, ())[-2:]:
                if unit.number not in seen and isinstance(unit.what, Group):
                    seen.add(unit.number)
                    yield unit

    def why_not_join(self, unit: Unit, group: Group, value: Value, reads: list[Read]) -> str | None:
        """Puts the value into the group, or returns why that is impossible."""
        first = next(iter(group.roots))
        if first.type.device != value.type.device:
            return "it is on another device"
        if first.node in self.early and value.node not in self.early:
            return "it is read much later, and would be kept until then"
        for read, _ in reads:
            maker = self.fusion.unit_of.get(read)
            if maker is not None and maker is not unit and maker.needs >> unit.number & 1:
                return f"{read}, which it reads, is made after the group and from it"
        why = self.why_not_singly(group, value, reads)
        if why is not None:
            return why
        trial = group.copy()
        index = align(trial, space_of(value), range(len(trial.extents)))
        if index is None and trial.inner is not None and not is_reduction(value) and not is_running(value):
            trial = group.copy()
            index = align(trial, space_of(value), [k for k in range(len(trial.extents)) if k not in trial.inner])
        if index is None:
            return f"its sizes {list(space_of(value))} do not match the group's {list(group.extents)}"
        trial.operators += operators_of(value, lambda operand: is_computed(operand, self.classes))
        if trial.operators > MOST:
            return f"the group would compute {trial.operators} operators, and {MOST} are as many as a kernel takes"
        trial.roots[value] = index
        if is_reduction(value) or is_running(value):
            over = reduced_variables(value, index)
            if trial.inner is not None and trial.inner != over:
                return "it reduces over other dimensions"
            trial.inner = over
        try:
            own_reads = self.read_with_cuts(trial, value)
        except (NotAffine, Uncuttable) as trouble:
            return str(trouble)
        for read, at in own_reads:
            if read in trial.roots and at != trial.result_index(read):
                return f"it reads {read} in another order than that is made"
        if trial.inner and any(is_transpose(root) for root in trial.roots):
            return "it changes the layout of a value tile by tile, and sums do not run in tiles"
        if not trial.is_whole:
            try:
                self.boxes(trial, list(trial.roots))
            except (NotAffine, Uncuttable) as trouble:
                return str(trouble)
        # Consumers of a scan join its loop: storing the scan's result takes longer.
        follows = any(read in group.roots and is_running(read) for read, _ in own_reads)
        if trial.inner and len(trial.roots) > 1 and not follows:
            total = math.prod(trial.extents)
            if (
                total > LARGE
                and not has_enough_parallelism(trial, total)
                and not all(is_reduction(root) or _is_row(trial, root) for root in trial.roots)
            ):
                return f"{trial.row_count} rows are too few to be shared among threads"
        if not fuel.allows("fuse_loops", value.node, "in the loops of", *group.roots):
            return "there is no fuel for it"
        group.become(trial)
        self.fusion.reads[value] = own_reads
        return None

    def why_not_singly(self, group: Group, value: Value, reads: list[Read]) -> str | None:
        """Keeps scans that are not vectorized out of other loops: vectorization saves more than one kernel fewer."""
        if is_contiguous_scan(value) and not all(map(is_running, group.roots)):
            return "it goes along rows, one element at a time"
        if is_running(value) or not any(map(is_contiguous_scan, group.roots)):
            return None
        if not any(read in group.roots and is_running(read) for read, _ in reads):
            return "the group goes along rows, one element at a time"
        computed = value.node.args[0] if is_reduction(value) else value  # type: ignore[union-attr]
        is_simple = expression_cost(computed, self.classes) <= SIMPLE
        return None if is_simple else "it would be computed one element at a time"

    # ---- what a root reads

    def read_with_cuts(self, group: Group, value: Value) -> list[Read]:
        """The values that the root reads, after splitting the group's variables where an index needs it."""
        while True:
            try:
                return self.reads_of(group, value)
            except NotAffine as trouble:
                if trouble.cut is None or group.extents[trouble.cut[0]] % trouble.cut[1]:
                    raise  # only a part of the loop could be split that way
                group.cut(*trouble.cut)
                if is_reduction(value) or is_running(value):
                    group.inner = reduced_variables(value, group.roots[value])

    def boxes(self, group: Group, roots: list[Value]) -> list[tuple[IndexBox, list[list[Read]]]]:
        """The boxes into which reads of concatenated values split the group, and what each root reads in each."""
        return boxes_of(group.extents, lambda box: [self.reads_in(group, root, box) for root in roots], group.inner)

    def reads_of(self, group: Group, root: Value) -> list[Read]:
        found: dict[Read, None] = {}
        boxes = self.boxes(group, [root])
        group.is_whole = group.is_whole and len(boxes) == 1
        for box, ((*reads,),) in boxes:
            found.update(dict.fromkeys((read, None if at is None else box.outside(at)) for read, at in reads))
        return list(found)

    def reads_in(self, group: Group, root: Value, box: IndexBox) -> list[Read]:
        """The values read in one box, with their indices over the box's variables."""
        found: dict[Read, None] = {}
        seen: set[Read] = set()
        index = box.inside(group.roots[root])
        is_own = is_reduction(root) or is_running(root)
        stack = [(root.node.args[0], index)] if is_own else sources(root, index, box.extents)  # type: ignore
        while stack:
            value, index = stack.pop()
            if (value, index) in seen:
                continue
            seen.add((value, index))
            if index is None:
                value = self.in_memory(value)
            if self.is_leaf(value):
                found[value, index] = None
                continue
            node = value.node
            assert node is not None
            if (
                node.op is VIEW
                and self.is_leaf(node.args[0])
                and node.args[0] not in group.roots
                and view_type(node.args[1], node.args[0].type) is not None
            ):
                found[node.args[0], None] = None
                continue
            stack.extend(sources(value, index, box.extents))
        return list(found)

    def is_leaf(self, value: Value) -> bool:
        return (
            not self.classes.is_loop(value) or value in self.classes.stored or is_reduction(value) or is_running(value)
        )


def has_enough_parallelism(group: Group, total: int) -> bool:
    reduced = next((root for root in group.roots if is_reduction(root)), None)
    target = target_of(next(iter(group.roots)).type.device)
    assert target is not None
    rows = group.row_count
    return target.has_enough_parallelism(rows, total // max(rows, 1), reduced is None or goes_along(reduced))


def _is_row(group: Group, root: Value) -> bool:
    return all(not x.coefficients[k] for x in group.roots[root] for k in group.inner or ())
