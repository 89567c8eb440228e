"""Builds the kernel of a fusion group: orders its variables, builds its expressions and its stages.

Where concatenated values are read, the group is split into boxes, and each becomes a loop.

A root's level is the number of reductions of the group that precede it in sequence. A stage holds the reductions of one
level, and the stores of values that need no later one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...ir.graph import Value
from ...ops.burnish_primitives import ADD_AT, REDUCTION_OF, VIEW
from ...ops.scalar_ir import Access, Scalar, load, reduced
from ...tensors.dtypes import NAMES
from ...tensors.tensor_types import NumberType, TensorType
from ...tensors.views.affine_indices import Affine, Index, constant
from ...tensors.views.index_range_conditions import dropped_on_error, note
from ...tensors.views.view_maps import view_offset, view_type
from ..fusion.fusion_groups import Group, is_reduction, is_running
from ..fusion.split_concat_loops import IndexBox, boxes_of
from ..partition.loop_or_library_call import Classes
from .build_expressions import ExpressionWriter
from .loop_ir import Kernel, Loop, Reduction, Stage, Store


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and the values that are its buffers, in order."""

    kernel: Kernel
    buffers: tuple[Value, ...]

    @property
    def device(self) -> torch.device:
        return self.buffers[min(self.kernel.stored)].type.device

    @property
    def numbers(self) -> frozenset[int]:
        """The buffers that are numbers passed by value."""
        return frozenset(at for at, value in enumerate(self.buffers) if isinstance(value.type, NumberType))


def build_kernel(group: Group, needed: set[Value], classes: Classes) -> Launch:
    """The kernel of a group. `needed` are the roots that must be in memory afterwards."""
    return KernelBuilder(ordered(group, needed), needed, classes).run()


def ordered(group: Group, needed: set[Value]) -> Group:
    """The same group with its row variables first, sorted by their stride in the first stored root. Where only
    reductions are stored, the strides are those of the reduced operand."""
    inner = group.inner or frozenset()
    steps = [0] * len(group.extents)
    laid = next((root for root in group.roots if root in needed and not is_reduction(root)), None)
    if laid is None and group.roots:
        laid = next(iter(group.roots))
    if laid is not None:
        seen = laid.node.args[0] if is_reduction(laid) else laid  # type: ignore[union-attr]
        for x, stride in zip(group.roots[laid], seen.type.stride, strict=True):
            for k, c in enumerate(x.coefficients):
                steps[k] = max(steps[k], abs(c * stride))

    # Inner variables keep their order: the positions of argmax are counted in it.
    order = sorted(range(len(group.extents)), key=lambda k: (k in inner, 0 if k in inner else -steps[k], k))

    def move(x: Affine) -> Affine:
        return Affine(x.offset, tuple(x.coefficients[k] for k in order))

    return Group(
        tuple(group.extents[k] for k in order),
        None if group.inner is None else frozenset(range(len(order) - len(inner), len(order))),
        {root: tuple(map(move, index)) for root, index in group.roots.items()},
    )


class KernelBuilder:
    def __init__(self, group: Group, needed: set[Value], classes: Classes):
        self.group, self.needed, self.classes = group, needed, classes
        self.count = len(group.extents)
        self.buffers: dict[Value, int] = {}
        numbered = self.by_level()
        self.needed = needed | self.kept_for_later()
        self.numbers = {
            root: number for number, root in enumerate(r for r in numbered if is_reduction(r) or is_running(r))
        }

    def by_level(self) -> list[Value]:
        self.levels: dict[Value, int] = {}
        for root in self.group.roots:
            before = self.roots_before(root)
            self.levels[root] = max((self.levels[b] + is_reduction(b) for b in before), default=0)
        return sorted(self.group.roots, key=self.levels.__getitem__)

    def kept_for_later(self) -> set[Value]:
        """Values that exist only while a scan runs, and are read in a later stage: they must be stored."""
        fleeting: set[Value] = set()
        found: set[Value] = set()
        for root in sorted(self.group.roots, key=self.levels.__getitem__):
            before = self.roots_before(root)
            found |= {b for b in before & fleeting if self.levels[b] < self.levels[root]}
            if (
                is_running(root)
                or not is_reduction(root)
                and any(self.levels[b] == self.levels[root] for b in before & fleeting)
            ):
                fleeting.add(root)
        return found

    def roots_before(self, root: Value) -> set[Value]:
        """The group's roots that this one is computed from directly."""
        found: set[Value] = set()
        seen: set[Value] = set()
        stack = list(root.node.operands)  # type: ignore[union-attr]
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.group.roots:
                found.add(value)
            elif self.classes.is_loop(value) and value not in self.classes.stored:
                stack.extend(value.node.operands)  # type: ignore[union-attr]
        return found

    def run(self) -> Launch:
        last = max(self.levels[r] if not is_reduction(r) or self.levels[r] else 0 for r in self.group.roots)
        last = max(last, max((self.levels[r] for r in self.group.roots), default=0))
        rows = len(self.group.extents) - len(self.group.inner or ())
        loops = []
        for box, stages in boxes_of(self.group.extents, lambda box: self.stages(box, last + 1), self.group.inner):
            some = tuple(stage for stage in stages if stage.reductions or stage.stores or stage.row_stores)
            loops.append(Loop(box.extents, rows, some))
        buffers = tuple(self.buffers)
        stored = frozenset(self.buffers[stored_in(root)] for root in self.group.roots if root in self.needed)
        lines = dict.fromkeys(root.node.line for root in self.group.roots if root.node and root.node.line)
        names = "_".join(
            dict.fromkeys(
                root.name.rsplit("_", 1)[0] if root.name[-1].isdigit() else root.name for root in self.group.roots
            )
        )
        kernel = Kernel(names[:60], tuple(NAMES[v.dtype] for v in buffers), stored, tuple(loops), tuple(lines))
        return Launch(kernel, buffers)

    def stages(self, box: IndexBox, count: int) -> list[Stage]:
        """The stages for one box of the group: the same in all boxes, with other indices."""
        self.extents = box.extents
        with dropped_on_error():
            note(*((n, 1) for n in box.extents))
            return self.stages_here(box, count)

    def stages_here(self, box: IndexBox, count: int) -> list[Stage]:
        self.indices = {root: box.inside(index) for root, index in self.group.roots.items()}
        return [self.stage(level) for level in range(count)]

    def stage(self, level: int) -> Stage:
        self.level = level
        writer = ExpressionWriter(self.extents, self.answer, self.fetch)
        reductions, stores, row_stores = [], [], []
        for root, index in self.indices.items():
            if is_reduction(root):
                if self.levels[root] == level:
                    value = writer.at(root.node.args[0], index)  # type: ignore[union-attr]
                    reductions.append((self.numbers[root], Reduction(REDUCTION_OF[root.node.op.name], value)))  # type: ignore[union-attr]
                    if root in self.needed:
                        row_stores.append(
                            Store(
                                self.access(root, self.result_index(root)),
                                reduced(self.numbers[root], NAMES[root.dtype]),
                            )
                        )
            elif is_running(root):
                if self.levels[root] == level:
                    value = writer.at(root.node.args[0], index)  # type: ignore[union-attr]
                    reductions.append((self.numbers[root], Reduction(root.node.op.name, value)))  # type: ignore
                    if root in self.needed:
                        stores.append(Store(self.access(root, index), reduced(self.numbers[root], NAMES[root.dtype])))
            elif root in self.needed and self.store_level(root) == level:
                made = self.store(writer, root, index)
                (row_stores if self.is_row(index) else stores).append(made)
        reductions.sort(key=lambda pair: pair[0])
        return Stage(tuple(r for _, r in reductions), tuple(stores), tuple(row_stores))

    def store(self, writer: ExpressionWriter, root: Value, index: Index) -> Store:
        node = root.node
        if node is None or node.op is not ADD_AT:
            return Store(self.access(root, index), self.made(writer, root, index))
        access, args = self.pointed(node.args[0], writer.places(node.args[2], index))
        return Store(access, self.made(writer, root, index), args, adds=True)

    def result_index(self, root: Value) -> Index:
        none = constant(0, self.count)
        return tuple(none if k in root.node.args[1] else x for k, x in enumerate(self.indices[root]))  # type: ignore

    def store_level(self, root: Value) -> int:
        """A row's value is stored at the end of the pass that finishes the reductions it needs."""
        level = self.levels[root]
        return level - 1 if self.is_row(self.group.roots[root]) and level else level

    def is_row(self, index: Index) -> bool:
        inner = self.group.inner or frozenset()
        return bool(inner) and not any(x.coefficients[k] for x in index for k in inner)

    def made(self, writer: ExpressionWriter, root: Value, index: Index) -> Scalar:
        key = (root, index)
        if key not in writer.written:
            writer.written[key] = writer.computed(root, index)
        return writer.written[key]

    def answer(self, value: Value, index: Index) -> Scalar | None:
        """The expression of a value that is in memory, or was made by an earlier part of this loop."""
        if value in self.group.roots:
            if is_reduction(value):
                return reduced(self.numbers[value], NAMES[value.dtype])
            if is_running(value) and self.levels[value] == self.level:
                return reduced(self.numbers[value], NAMES[value.dtype])
            if value in self.needed and self.store_level(value) < self.level and not self.is_row(index):
                return load(NAMES[value.dtype], self.access(value, index))
            return None
        if not self.classes.is_loop(value) or value in self.classes.stored or is_reduction(value) or is_running(value):
            return load(NAMES[value.dtype], self.access(value, index))
        node = value.node
        if node is not None and node.op is VIEW:
            source = node.args[0]
            if source not in self.group.roots and (
                not self.classes.is_loop(source)
                or source in self.classes.stored
                or is_reduction(source)
                or is_running(source)
            ):
                shown = view_type(node.args[1], source.type)
                if shown is not None:
                    return load(NAMES[value.dtype], self.strided(source, shown, node.args[1], index))
        return None

    def fetch(self, value: Value, index: tuple[Affine | Scalar, ...]) -> Scalar:
        access, args = self.pointed(value, index)
        return load(NAMES[value.dtype], access, *args)

    def pointed(self, value: Value, index: tuple[Affine | Scalar, ...]) -> tuple[Access, tuple[Scalar, ...]]:
        """The access at a computed index."""
        total, type, steps = constant(0, self.count), value.type, []
        source, node = value, value.node
        if node is not None and node.op is VIEW and value not in self.classes.stored:
            source = node.args[0]
            total += view_offset(node.args[1], source.type)
        for x, stride in zip(index, type.stride, strict=True):
            if isinstance(x, Scalar):
                steps.append((stride, x))
            else:
                total = total + x * stride
        access = Access(self.buffer(source), total.offset, total.coefficients, tuple(stride for stride, _ in steps))
        return access, tuple(x for _, x in steps)

    def access(self, value: Value, index: Index) -> Access:
        total = constant(0, self.count)
        for x, stride in zip(index, value.type.stride, strict=True):
            total = total + x * stride
        return Access(self.buffer(value), total.offset, total.coefficients)

    def strided(self, source: Value, shown: TensorType, maps: tuple, index: Index) -> Access:
        """The access of an element of a view of a value in memory, by the view's own strides."""
        total = constant(view_offset(maps, source.type), self.count)
        for x, stride in zip(index, shown.stride, strict=True):
            total = total + x * stride
        return Access(self.buffer(source), total.offset, total.coefficients)

    def buffer(self, value: Value) -> int:
        return self.buffers.setdefault(value, len(self.buffers))


def stored_in(root: Value) -> Value:
    """The value whose buffer a root is stored in: a root that adds to another value has no buffer."""
    node = root.node
    return node.args[0] if node is not None and node.op is ADD_AT else root
