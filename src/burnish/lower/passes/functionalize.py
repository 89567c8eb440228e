"""Functionalization: replaces mutation and aliasing by new values.

    aten.relu_.default x                     r = aten.relu.default x
    v = aten.select.int x, 0, 1         =>   a = aten.add.Tensor (view r slice[0: 1, 1, 1] ...), 1
    aten.add_.Tensor v, 1                    x1 = put r, a, slice[0: 1, 1, 1] ...
    return x                                 write x <- x1

Each tensor of the trace is a chain of view maps on a root: an input, or the fresh result of a node. A root has a
current value. An in-place operator becomes its functional form, which gives the root a new current value. Views that
are read later are taken from that one. Inputs that were written get their last value at the end.

A copy in another order of elements, such as `flip`, is treated as a view too, and gets its own root.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...ir.alias_analysis import aliased_argument
from ...ir.frozen_values import is_random
from ...ir.graph import Alias, Graph, Node, Value, Write, map_values, values_in
from ...ir.graph_builder import Builder
from ...ir.untraceable_graph import Untraceable
from ...ops.burnish_primitives import VIEW
from ...ops.functional_overloads import factory_form, functional_form, is_factory
from ...ops.layouts_eager_accepts import accepts_any_strides
from ...ops.operator_record import NoRule, Op, Pointwise, View, lookup
from ...ops.random_numbers import is_philox
from ...tensors.eager_strides import is_dense, overlaps_itself
from ...tensors.tensor_types import TensorType, has_stride
from ...tensors.views.as_strided_views import Strided, line_of
from ...tensors.views.simplify_views import simplified
from ...tensors.views.view_maps import Map, Maps, inverse, view_offset
from ..trace.detect_overlapping_writes import share_elements


@dataclass(eq=False, slots=True)
class Root:
    current: Value
    type: TensorType
    """As in eager. The layout of `current` may differ."""
    input: int | None = None
    is_written: bool = False
    is_announced: bool = False
    """Whether autograd is informed of the write."""
    shows: Root | None = None
    """The root that this is a view of without maps, such as `view.dtype`. It may be read, but not written through."""
    again: Callable[[], Value] | None = None
    """Makes that view again, of the root's present value."""
    version: int = 0
    """How often its value has changed."""
    shown_version: int = 0
    """The version of `shows` that it was made of."""
    is_whole: bool = False
    """Whether it fills its memory from the beginning. One of several results may share memory with others before it."""
    is_reordered: bool = False
    """A copy of another root in another order, represented as a view of it."""
    views: dict[Maps, Value] = field(default_factory=dict)
    """Views taken of the current value."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


@dataclass(frozen=True, slots=True)
class RootView:
    """The location of a tensor of the trace: `maps` of a root."""

    root: Root
    maps: Maps
    has_own_version: bool = False


SILENT = ("aten._native_batch_norm_legit.", "aten._batch_norm_with_update.")
"""Batch norms as `lower.trace.schema_facts` records them. Eager's kernels do not inform autograd that they write
running statistics."""


def functionalize(graph: Graph) -> Graph:
    return Functionalizer(graph).run()


class Functionalizer:
    def __init__(self, graph: Graph):
        self.old, self.new = graph, Graph()
        self.build = Builder(self.new)
        self.places: dict[Value, RootView] = {}

    def run(self) -> Graph:
        for k, value in enumerate(self.old.inputs):
            made = self.new.copy_input(value)
            self.places[value] = RootView(Root(made, value.type, input=k), ())
        for node in self.old.nodes:
            self.build.line = node.line
            written = written_arguments(node)
            if written is not None:
                self.write_in_place(node, *written)
                continue
            if self.take_strides(node):
                continue
            chains = view_chains(node)
            if chains is None:
                self.keep(node)
            else:
                self.take_views(node, chains)
        returned = Counter(id(self.places[value].root) for value in self.old.outputs if isinstance(value, Value))
        for value in self.old.outputs:
            if isinstance(value, Value):
                root = self.places[value].root
                if root.input is None:
                    self.lay_out(root)
                if root.is_reordered and returned[id(root)] > 1:
                    self.make_once(root)
        self.new.outputs = [self.output(value) for value in self.old.outputs]
        written = {
            (place.root.input, place.root.current, not place.root.is_announced): None
            for place in self.places.values()
            if place.root.input is not None and place.root.is_written and not place.maps
        }
        self.new.writes = [Write(*write) for write in written]
        return self.new

    def keep(self, node: Node) -> None:
        """Adds an operator with a fresh result unchanged."""
        source = aliased_argument(node)
        if source is not None:
            self.show_kept(node, source)
            return
        if draws_in_order(node.op, node):
            for value in values_in((node.args, tuple(node.kwargs.values()))):
                self.lay_out(self.places[value].root)
        results = self.build.apply_typed(
            node.op,
            map_values(node.args, self.read),
            {k: map_values(v, self.read) for k, v in node.kwargs.items()},
            tuple(None if value is None else value.type for value in node.results),
        )
        self.note_layouts(node)
        for old, made in zip(node.results, results, strict=True):
            if old is not None:
                self.places[old] = RootView(Root(made, old.type, is_whole=len(results) == 1), ())

    def note_layouts(self, node: Node) -> None:
        """Records eager's strides on the added node, where its kernel takes no other layouts."""
        if not accepts_any_strides(node.op):
            self.new.nodes[-1].eager_strides = tuple([value.type.stride for value in node.operands])

    def show_kept(self, node: Node, source: Value) -> None:
        """Adds a view that no maps express."""
        root = self.places[source].root

        def again(position: int) -> Value:
            self.lay_out(root)
            if root.current.node is not None and node.op.name.startswith("aten.as_strided."):
                raise Untraceable("as_strided() of an intermediate, whose layout may differ from eager's")
            made = self.build.apply_typed(
                node.op,
                map_values(node.args, self.read),
                {k: map_values(v, self.read) for k, v in node.kwargs.items()},
                tuple(None if value is None else value.type for value in node.results),
            )[position]
            self.note_layouts(node)
            assert made is not None
            return made

        for position, old in enumerate(node.results):
            if old is not None:
                self.show_without_maps(old, root, functools.partial(again, position))

    def show_without_maps(self, value: Value, root: Root, again: Callable[[], Value]) -> None:
        made = again()
        self.places[value] = RootView(Root(made, value.type, shows=root, again=again, shown_version=root.version), ())

    def refresh(self, root: Root) -> None:
        """Makes a view without maps again, after a write to its source."""
        if root.shows is not None and root.again is not None:
            self.refresh(root.shows)
            if root.shown_version != root.shows.version:
                root.shown_version = root.shows.version
                self.become(root, root.again())

    def become(self, root: Root, value: Value) -> None:
        root.current = value
        root.version += 1
        root.views.clear()

    def take_strides(self, node: Node) -> bool:
        """`as_strided` of a fresh tensor, expressed as maps of its elements in eager's layout. An input may start
        anywhere in its memory: there, only offsets relative to the start of a view of it are known.
        """
        if not node.op.name.startswith(("aten.as_strided.", "aten.as_strided_copy.")):
            return False
        x, size, stride, *offset = (*node.args, *node.kwargs.values())
        (place, (result,)), numbers = (self.places[x], node.results), (*size, *stride, *offset)
        root = place.root
        is_placed = root.is_whole or root.input is not None and offset in ([], [None])
        if not is_placed or not is_dense(root.type) or any(isinstance(n, Value) for n in numbers):
            return False
        begins = view_offset(place.maps, root.type) if offset in ([], [None]) else offset[0]
        shown, line = Strided(tuple(size), tuple(stride), begins), line_of(root.type)
        if not shown.fits(root.type.numel):
            return False
        maps = shown.maps(root.type.numel)
        if maps is not None:
            self.show(node, result, RootView(root, simplified((*line, *maps), root.shape)))
            return True
        cut, windows, order = shown.windows()

        def again() -> Value:
            self.lay_out(root)
            made = self.read_place(RootView(root, simplified((*line, cut), root.shape)))
            for length, step in windows:
                made = self.build("unfold", made, made.ndim - 1, length, step)
            (made,) = self.build.apply_typed(VIEW, (made, simplified(order, made.shape)), {}, (result.type,))
            return made

        if aliased_argument(node) is not None:
            self.show_without_maps(result, root, again)
        else:
            self.places[result] = RootView(Root(self.build.copy(again()), result.type, is_whole=True), ())
        return True

    def take_views(self, node: Node, chains: Sequence[Sequence[Map]]) -> None:
        place = self.places[node.args[0]]
        for result, maps in zip(node.results, chains, strict=True):
            has_own_version = place.has_own_version or result is not None and result.has_own_version
            view = RootView(place.root, simplified((*place.maps, *maps), place.root.shape), has_own_version)
            self.show(node, result, view)

    def show(self, node: Node, result: Value | None, shown: RootView) -> None:
        assert result is not None
        self.places[result] = (
            shown
            if aliased_argument(node) is not None
            else RootView(
                Root(self.read_place(shown), result.type, is_reordered=True, is_whole=len(node.results) == 1), ()
            )
        )

    def lay_out(self, root: Root) -> None:
        """Before strides are observed: gives the current value the strides that it has in eager."""
        self.refresh(root)
        if root.current.type.stride != root.type.stride:
            root.current = self.build.restride(root.current, root.type.stride)
            root.views.clear()

    def make_once(self, root: Root) -> None:
        """Several outputs share its memory: makes one copy, and views of it."""
        root.current, root.is_reordered = self.build.copy(root.current), False
        root.views.clear()

    def read(self, value: Value) -> Value:
        """The tensor's current value."""
        return self.read_place(self.places[value])

    def read_place(self, place: RootView) -> Value:
        root = place.root
        self.refresh(root)
        if not place.maps:
            return root.current
        found = root.views.get(place.maps)
        if found is None:
            found = root.views[place.maps] = self.build.apply(VIEW, (root.current, place.maps))
        return found

    def write_in_place(self, node: Node, targets: list[Value], functional: Op | None) -> None:
        for target in targets:
            place = self.places[target]
            if place.root.shows is not None:
                raise Untraceable(f"{node.op} writes to a tensor that is also seen through strides of its own")
            if any(overlaps_itself(x.shape, x.stride) for x in (target.type, place.root.type)):
                raise Untraceable(f"{node.op} writes to a tensor whose elements share memory")
            if draws_in_order(functional, node) and not target.type.is_contiguous:
                raise Untraceable(f"{node.op} draws numbers in the order of a tensor that is not contiguous")
            if any(self.is_read_while_written(value, target, node, functional) for value in read_arguments(node)):
                raise Untraceable(f"{node.op} reads what it writes, and what it reads depends on its order of elements")
        if len(targets) == 1 and not node.results:
            values: tuple[Value, ...] = (self.new_value(node, targets[0], functional),)
        else:
            values = self.new_values(node, functional)
        made, values = values[: len(values) - len(targets)], values[len(values) - len(targets) :]
        for old, value in zip(node.results, made, strict=True):
            if old is not None:
                self.places[old] = RootView(Root(value, old.type), ())
        for target, value in zip(targets, values, strict=True):
            why = why_not_stored(value.type, target.type, node)
            if why is not None:
                raise Untraceable(f"{node.op}: {why}")
            if value.shape != target.shape:
                value = self.build.expand(value, target.shape)
            root = self.places[target].root
            root.is_announced |= not (node.op.name.startswith(SILENT) or self.places[target].has_own_version)
            self.store(self.places[target], self.build.convert(value, target.dtype))

    def is_read_while_written(self, value: Value, target: Value, node: Node, functional: Op | None) -> bool:
        """Whether an operand shares elements with the target that may be written before they are read."""
        place, written = self.places[value], self.places[target]
        root = place.root
        while root.shows is not None and root is not written.root:
            root = root.shows
        if root is not written.root:
            return False
        if place.root is not root:
            return True
        is_elementwise = node.op.name == "aten.copy_.default" or isinstance(functional and functional.rule, Pointwise)
        if is_elementwise and place.maps == written.maps and value.type == target.type:
            return False
        offsets = (view_offset(each.maps, root.type) for each in (place, written))
        return share_elements(value.type, next(offsets), target.type, next(offsets))

    def new_values(self, node: Node, functional: Op | None) -> tuple[Value, ...]:
        """For an operator that writes to several tensors: fresh results first, then the written values."""
        if functional is None:
            raise Untraceable(f"{node.op} has no form that leaves its arguments alone")
        outs = {a.name for a in node.op.target._schema.arguments if a.is_out}
        kwargs = {k: map_values(v, self.read) for k, v in node.kwargs.items() if k not in outs}
        return self.build.apply(functional, map_values(node.args, self.read), kwargs)

    def new_value(self, node: Node, target: Value, functional: Op | None) -> Value:
        args = map_values(node.args, self.read)
        kwargs = {k: map_values(v, self.read) for k, v in node.kwargs.items()}
        match node.op.name:
            case "aten.copy_.default" if isinstance(args[1], Value):
                return args[1]
            case "aten.copy_.default":
                # Converted as a tensor: full() would reject a number that does not fit the dtype.
                number = torch.tensor(args[1])
                return self.build.full((), args[1], target.type, number.dtype)
            case "aten.zero_.default":
                return self.build.full(target.shape, 0, target.type)
            case "aten.fill_.Scalar":
                return self.build.full(target.shape, args[1], target.type)
            case "aten.fill_.Tensor":
                return args[1]
            case "aten.polygamma_.default":
                return self.build("polygamma", args[1], args[0])
        if functional is None:
            raise Untraceable(f"{node.op} has no form that leaves its argument alone")
        required = {a.name for a in functional.target._schema.arguments if not a.has_default_value()}
        for position, argument in enumerate(node.op.target._schema.arguments):
            if argument.is_out:
                kwargs.pop(argument.name, None)
            elif position >= len(args) and argument.name in required - set(kwargs):
                kwargs[argument.name] = argument.default_value  # bernoulli_ has a default that bernoulli lacks
        if is_factory(functional.target):
            kwargs |= {"dtype": target.dtype, "device": target.type.device}
        return self.build.apply(functional, args, kwargs)

    def store(self, place: RootView, value: Value) -> None:
        root = place.root
        if place.maps:
            back = inverse(place.maps, root.shape)
            value = (
                self.build.view(value, *back) if back is not None else self.build.put(root.current, value, place.maps)
            )
        self.become(root, value)
        root.is_written = True

    def output(self, value: Any) -> Any:
        if not isinstance(value, Value):
            return value
        place = self.places[value]
        if place.root.input is not None:
            is_itself = value is self.old.inputs[place.root.input]
            return Alias(place.root.input, None if is_itself else value.type, place.maps, is_detached(value))
        root = place.root
        while root.shows is not None:
            root = root.shows
        if root.input is not None and root.is_written:
            raise Untraceable("an output shows an input that was written to, through strides of its own")
        made = self.read(value)
        if made.type.stride != value.type.stride and has_stride(made.type, value.type.stride):
            # Strides of dimensions that do not affect addressing, but that programs can read.
            made = self.build.apply_typed(VIEW, (place.root.current, place.maps), {}, (value.type,))[0]
            assert made is not None
        return made


def draws_in_order(functional: Op | None, node: Node) -> bool:
    """Whether numbers are drawn from eager's generator, in the memory order of the elements."""
    if node.op.target is None or not is_random(node):
        return False
    dtype = next((value.dtype for value in values_in((node.args, node.results))), torch.float32)
    return functional is None or not is_philox(functional, dtype, node.kwargs.get("generator"))


def is_detached(value: Value) -> bool:
    """Whether a view of an input goes through `detach`."""
    while value.node is not None:
        if value.node.op.name == "aten.detach.default":
            return True
        value = value.node.args[0]
    return False


def view_chains(node: Node) -> Sequence[Sequence[Map]] | None:
    """The maps to each result's elements; None where no maps express them."""
    rule = node.op.rule
    is_view = isinstance(rule, View) or "maps" in node.op.notes
    if is_view and any(True for _ in values_in((node.args[1:], tuple(node.kwargs.values())))):
        raise Untraceable(f"{node.op.name}: the offset of the view is a number that is only known while the graph runs")
    try:
        if isinstance(rule, View):
            return (rule.maps(node.args[0].type, *node.args[1:], **node.kwargs),)
        if "maps" in node.op.notes:
            return node.op.notes["maps"](node.args[0].type, *node.args[1:], **node.kwargs)
    except NoRule:
        pass
    return None


def why_not_stored(value: TensorType, target: TensorType, node: Node) -> str | None:
    """Why eager would raise or resize the target."""
    is_copy = node.op.name.startswith(("aten.copy_.", "aten.fill_."))
    if not is_copy and not torch.can_cast(value.dtype, target.dtype):
        return f"{value.dtype} does not go into {target.dtype}"
    sizes = zip(reversed(value.shape), reversed(target.shape), strict=False)
    if value.ndim > target.ndim or any(n not in (1, m) for n, m in sizes):
        return f"a tensor of {list(target.shape)} does not take a result of {list(value.shape)}"
    if node.op.target._schema.arguments[-1].is_out and value.shape != target.shape:
        return f"out= of {list(target.shape)} is made larger, to {list(value.shape)}"
    return None


def written_arguments(node: Node) -> tuple[list[Value], Op | None] | None:
    """The tensors that an operator writes to, and the functional operator that computes the written values."""
    if node.op.target is None:
        return None
    places, functional = _in_place(node.op.target)
    if not places:
        return None
    targets = [node.args[at] if isinstance(at, int) else node.kwargs[at] for at in places]
    return targets, None if functional is None else lookup(functional)


def read_arguments(node: Node) -> list[Value]:
    """The tensor operands that it does not write to."""
    places, _ = _in_place(node.op.target)
    rest = [arg for k, arg in enumerate(node.args) if k not in places]
    return values_in((rest, [arg for name, arg in node.kwargs.items() if name not in places]))


@functools.cache
def _in_place(func: Any) -> tuple[list[int | str], Any]:
    places = [
        argument.name if argument.kwarg_only else k
        for k, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return places, (functional_form(func) or factory_form(func)) if places else None
