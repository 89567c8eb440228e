"""Dynamic dimensions: symbolic sizes of inputs that may differ in the next call.

    first call    x: f32[64, 768]                every size is guarded
    second call   x: f32[65, 768]                a size has changed: dimension 0 is symbolic from now on
                  x.shape        (s, 768)        s is a live scalar: its value is guarded only where Python looks at it
                  x.view(s, 12, 64)              an input of the graph

A segment with symbolic sizes serves all of them from 2 on: sizes of 0 and 1 have other meanings in broadcasting.
Dimensions that are equal, or that changed by the same amount, share one symbol, and that relation is guarded.

The size of a computed tensor is found by replay (``ShapeReplay``): its calls are repeated, without data, for a few
other sizes. A formula of the symbols that fits all results (``SizeSymbols``) is a live scalar again. If none fits, or a
size decides which calls are recorded, the symbols are specialized: guarded by value, and constants from there on.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from ...backends.shapes_at_other_sizes import switches_kept
from ...foundation.torch_private import InferenceMode
from ...frontend.dynamic_shapes_and_sources import NO_REQUESTS, SizeRequests
from ...runtime.eager.setting_change_nodes import is_change
from ...tensors.eager_strides import packed_order
from ...tensors.fit_size_formulas import NoFormula
from ..engine.torch_call_records import Handle
from ..guards.guards import Guard
from ..guards.object_sources import Source, is_module_state
from ..guards.predict_growing_sizes import NOTHING
from ..guards.tensor_metadata import TENSOR_TYPES, open_facts
from ..numbers import graph_numbers, live_scalars
from ..pytorch import number_arguments, torch_call_roles
from . import guard_integer_arguments
from .example_inputs import computation, evaluated, read_symbols, symbolic_example_inputs, unsettled_symbols
from .linear_sizes import LeafSize
from .meta_shape_replay import NotRepeatable, succeeds
from .size_symbols import FAR, LEAST, NUMBER, SizeSymbols, SymbolPlace, follows_from
from .unbacked_replay import ReplayBesideUnbacked
from .unbacked_sizes import size_query

if TYPE_CHECKING:
    from ...captured_graph.symbolic_example_inputs import SymbolicExampleInputs
    from .verified_size_ranges import SizeBox

OTHER = 1
"""The index of a point with sizes other than those that were seen."""

MOST_TRIES = 4
"""How many traces specialize a size before it is not made symbolic again. Two sizes may have to change together, like a
cache and the number that its mask is made of: while only one is known to change, it is specialized. One is enough where
a size of a result has no formula: it will not have one either if more sizes change."""

MOST_TRIES_OF_PROGRAM = 12
"""How many traces of a program in all may specialize a size that one before has specialized."""

MOST_ELEMENTS = 1 << 26
"""Larger inputs are not tried: some operators only compute their shapes by running."""


@dataclass(frozen=True, slots=True)
class SymbolicSizeRequest:
    """Which dimensions to make symbolic."""

    changed: Mapping[SymbolPlace, tuple[int, int]]
    """Dimensions that had another size before, with both sizes (`growing_state.NOTHING` if only expected). Also numbers
    at the continuation that had another value."""
    all: bool = False
    """Every dimension of every tensor that is neither parameter nor buffer."""
    specialized: frozenset[SymbolPlace] = frozenset()
    """Except these: their size decided something before."""
    moved: Mapping[tuple, tuple[int, int]] = field(default_factory=dict)
    """Numbers of the program that had another value before, by their paths, with both values."""
    said: SizeRequests = NO_REQUESTS
    """What the program says about sizes, besides marks on tensors."""

    is_of_numbers: bool = False
    """Whether no dimension of an input can become symbolic."""

    @property
    def is_expected(self) -> bool:
        """Whether one of the changes has not been seen yet."""
        return any(before == NOTHING for before, _ in self.changed.values())


class SymbolicSizes:
    """The symbolic sizes of one trace."""

    def __init__(self, tracer: Any, request: SymbolicSizeRequest):
        self.tracer, self.request = tracer, request
        self.symbols = SizeSymbols(tracer)
        self.given: dict[int, tuple[torch.Tensor, tuple[Any, ...], tuple[int, ...]]] = {}
        """For inputs with symbolic dimensions, by id: the shape, of numbers and live scalars, and memory order."""
        self.replay = ReplayBesideUnbacked(self.symbols, tracer.recorder, self.given)
        self.claims: dict[tuple, tuple[Handle, Any]] = {}
        """Sizes of results that the program has seen: by call, path and dimension, the result and the formula."""
        self.transforms: list[Any] = []
        """Logs of calls of function transforms (`repeat_function_transforms`)."""
        self.regions: list[Any] = []
        """Sizes that branches of the program have read (`region_sizes`)."""
        self.returned: dict[int, Any] = {}
        """The functions that those have returned, by id."""

    def begin_transform(self, start: int, is_of_torch: Callable[[Any], bool]) -> Any:
        """The log of a function transform that is about to be called."""
        from .repeat_function_transforms import TransformLog  # few programs transform functions

        self.replay.inside = TransformLog(self.tracer, start, is_of_torch)
        return self.replay.inside

    def make_symbols(self) -> bool:
        """Whether there is one more symbol, for a number without a formula."""
        from .computed_symbols import make_symbols  # few programs have symbolic sizes

        return make_symbols(self)

    def keep_claims(self, start: int, is_nested: bool) -> None:
        """The calls from this one on are about to be removed: they are a graph of their own."""
        from .region_sizes import keep_claims  # few programs have branches

        keep_claims(self, start, is_nested)

    def forget_regions(self, start: int) -> None:
        """The trace goes back to before this call: no graph is left of those that came after it."""
        self.regions = [region for region in self.regions if region.start < start]

    def forget_calls(self, start: int) -> None:
        """The calls from this one on have been removed, and others may take their places."""
        self.replay.forget_calls(start)
        for key in [key for key in self.claims if isinstance(key[0], int) and key[0] >= start]:
            del self.claims[key]

    def inputs(self) -> SymbolicExampleInputs | None:
        """For the box of all sizes. None if every size turned out to be a constant."""
        return symbolic_example_inputs(self.symbols, self.tracer.recorder, self.given, unsettled_symbols(self.symbols))

    def graph_inputs(self) -> SymbolicExampleInputs | None:
        """For the backend, which reads every symbol from an input: those that no input has are left out. None if no
        symbol is left."""
        found = self.symbols, self.tracer.recorder, self.given
        return symbolic_example_inputs(*found, sorted(read_symbols(*found)))

    def guard_box(self, inputs: SymbolicExampleInputs) -> None:
        """At the end: the segment serves sizes for which its calls are the same."""
        left = [self.symbols.leaves[k] for k in unsettled_symbols(self.symbols)]
        self.tracer.guard_outcome(live_scalars.Expression(self.box_of(inputs).holds, tuple(left)), True)

    def box_of(self, inputs: SymbolicExampleInputs) -> SizeBox:
        from ...captured_graph.symbolic_example_inputs import Like
        from .verified_size_ranges import SizeBox  # few programs have symbolic sizes

        left, symbols = unsettled_symbols(self.symbols), self.symbols
        number = computation(symbols, left)
        equal = [(number(one), number(other)) for one, other in symbols.equal]
        equal += inputs.equal(range(len(left)))
        given_to_graph = self.graph_inputs()
        if given_to_graph is not None and given_to_graph.space.names != inputs.space.names:
            names = inputs.space.names
            equal += given_to_graph.equal(list(map(names.index, given_to_graph.space.names)))
        # For shapes alone it does not matter that a tensor is lazily conjugated.
        given = [
            Like.of(x) if k in inputs.shapes and isinstance(x, torch.Tensor) else x for k, x in enumerate(inputs.given)
        ]
        return SizeBox(
            list(map(self.tracer.unbacked_sizes.repeatable, range(len(self.tracer.recorder.calls)))),
            replace(inputs, given=given),
            equal,
            [(handle, dim, number(size)) for (_, _, dim), (handle, size) in self.claims.items()],
            symbols.is_divided,
            [
                log.checked_by(number, functools.partial(follows_from, dict(symbols.of_leaf)))
                for log in (*self.transforms, *self.regions)
            ],
        )

    # ---- inputs

    def admit(self, tensor: torch.Tensor, source: Source) -> Guard | None:
        """The guard of an input with symbolic dimensions; None if it has none."""
        order = None
        has_strides = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized
        if has_strides and not is_module_state(source):
            order = packed_order(tuple(tensor.shape), tensor.stride())
        dims = () if order is None else self.wanted(tensor, source)
        if order is None or not dims:
            return None
        shape: list[Any] = list(tensor.shape)
        bounds = self.request.said.marks(tensor, source).bounds
        for dim in dims:
            leaf, place = (
                live_scalars.Expression(None, (source.attr("shape").item(dim),)),
                SymbolPlace(source.path(), dim),
            )
            shape[dim] = self.symbols.opened(leaf, place, tensor.shape[dim], self.request.changed.get(place))
            least, most = bounds.get(dim, (None, None))
            if least is not None and least > LEAST:
                self.tracer.guard_outcome(live_scalars.Expression(operator.ge, (leaf, least)), True)
            if most is not None:
                self.tracer.guard_outcome(live_scalars.Expression(operator.le, (leaf, most)), True)
        self.given[id(tensor)] = tensor, tuple(shape), order
        self.come_near_enough()
        return Guard("open tensor", source, (open_facts(tensor, dims, order), dims, order))

    def come_near_enough(self) -> None:
        """Inputs of the sizes that are tried must not be too large."""
        symbols = self.symbols
        while symbols.far < len(FAR) and self.largest() * FAR[symbols.far] ** len(symbols.hints) > MOST_ELEMENTS:
            symbols.come_nearer()

    def wanted(self, tensor: torch.Tensor, source: Source) -> tuple[int, ...]:
        path = source.path()
        marks = self.request.said.marks(tensor, source)
        return tuple(
            dim
            for dim, size in enumerate(tensor.shape)
            if size >= LEAST
            and dim not in marks.static
            and SymbolPlace(path, dim) not in self.request.specialized
            and (self.request.all or dim in marks.open or SymbolPlace(path, dim) in self.request.changed)
        )

    def largest(self) -> int:
        """The number of elements of the largest input with symbolic sizes."""
        return max((tensor.numel() for tensor, *_ in self.given.values()), default=1)

    # ---- numbers

    def offer(self, number: live_scalars.LiveInt, source: Source) -> None:
        """An integer of the program that changed between calls: it becomes a symbol if a call takes it as a size."""
        place = SymbolPlace(source.path(), NUMBER)
        self.symbols.offered[id(number.expression)] = number.expression, number.plain(), place

    def offer_slot(self, number: live_scalars.LiveInt, source: Source) -> None:
        """The same for a local variable behind a break, which is live in any case: a loop's counter, for one."""
        if self.request.all or SymbolPlace(source.path(), NUMBER) in self.request.changed:
            self.offer(number, source)

    def move_of(self, place: SymbolPlace) -> tuple[int, int] | None:
        return self.request.changed.get(place, self.request.moved.get(place.path))

    def takes(self, value: Any, name: str = "", is_sized: bool = False) -> bool:
        """Whether a call of this name, or one that `is_sized`, may take a live scalar unchanged as a size, an index, or
        a limit of a slice."""
        if type(value) is not live_scalars.LiveInt or name in number_arguments.PIECEWISE:
            return False
        symbols = self.symbols.symbols_of(value.expression)
        is_sized = is_sized or name in number_arguments.sized(self.tracer.options)
        if self.symbols.takes(value):
            return is_sized or symbols.isdisjoint(self.symbols.numbers)
        if not is_sized or self.tracer.region is not None:
            return False
        leaves = live_scalars.leaves_of(value.expression)
        if not leaves or not all(
            id(leaf) in self.symbols.offered or id(leaf) in self.symbols.of_leaf for leaf in leaves
        ):
            return False
        if not self.has_changed(value.expression, leaves):
            return False  # nothing is known of it but this value: what it is made of stays symbolic
        for leaf in leaves:
            if id(leaf) not in self.symbols.of_leaf:
                expression, hint, place = self.symbols.offered[id(leaf)]
                if hint < LEAST or place in self.request.specialized:
                    self.symbols.open_constant(expression, hint)
                    continue
                self.symbols.opened(expression, place, hint, self.move_of(place))
                self.symbols.numbers.add(self.symbols.of_leaf[id(leaf)].symbol)
        return self.symbols.takes(value) and self.symbols.varies(value.expression)

    def has_changed(self, expression: live_scalars.Expression, leaves: Sequence[live_scalars.Expression]) -> bool:
        """Whether a number differs between the values that its leaves had before and have now, or may."""
        symbols = self.symbols
        known, before, now = {}, [], []
        for at, leaf in enumerate(leaves):
            known[id(leaf)] = LeafSize(at)
            if id(leaf) in symbols.of_leaf:
                size = symbols.of_leaf[id(leaf)]
                hint, move = size.of(symbols.hints[size.symbol]), symbols.moves[size.symbol]
                move = move and (size.of(move[0]), size.of(move[1]))
            else:
                _, hint, place = symbols.offered[id(leaf)]
                move = self.move_of(place)
            if move is None or move[1] != hint:
                return True
            before.append(move[0])
            now.append(hint)
        try:
            return before == now or evaluated(expression, known, before) != evaluated(expression, known, now)
        except (ArithmeticError, TypeError, ValueError):
            return True

    # ---- shapes

    def shape_of(self, tensor: torch.Tensor) -> tuple[Any, ...] | None:
        """The shape with live scalars in it; None if it is the same for all sizes, or cannot be determined."""
        if not self.symbols.is_any:
            return None
        given = self.given.get(id(tensor))
        if given is not None and given[0] is tensor:
            return given[1]
        recorder = self.tracer.recorder
        handle = recorder.handle_of(tensor)
        if handle is None:
            return None  # an input with a guarded shape
        found = None
        while found is None:
            try:
                found = self.computed(handle, tuple(tensor.shape))
            except NoFormula as error:  # sizes that cannot be determined are not symbolic
                before = set(self.symbols.settled)
                if isinstance(error, NotRepeatable):
                    with switches_kept():
                        self.repeat_calls(handle.call + 1)  # each call with a size that it needs for itself
                    if self.symbols.settled != before:
                        continue
                is_possible = functools.partial(succeeds, self.computed, handle, tuple(tensor.shape))
                # Nearer points keep the relations between sizes, which later calls may need; a symbol has none.
                instead = self.make_symbols if not isinstance(error, NotRepeatable) else bool
                has_way = self.symbols.make_way(is_possible, f"{error}", instead)
                if not has_way:
                    self.symbols.settle_all(f"{error}")
                if not isinstance(error, NotRepeatable):
                    self.symbols.unfitted |= self.symbols.settled - before
                if not has_way:
                    return None
        return found if any(isinstance(size, live_scalars.LiveInt) for size in found) else None

    def computed(self, handle: Any, seen: tuple[int, ...]) -> tuple[Any, ...]:
        """The symbolic shape of a computed value with the observed shape ``seen``."""
        return self.symbols.at_all_points(self.computed_once, handle, seen)

    def computed_once(self, handle: Any, seen: tuple[int, ...]) -> tuple[Any, ...]:
        shapes = self.replay.shapes(handle)
        if shapes[0] != seen or len({len(shape) for shape in shapes}) > 1:
            raise NoFormula(f"a tensor of shape {list(seen)} is thought to be {list(shapes[0])}")
        columns = list(zip(*shapes, strict=True))
        try:
            sizes = tuple(map(self.symbols.size, columns))
        except NoFormula:  # perhaps a product of quotients: those are sizes of what it is computed from
            self.symbols.divided(self.replay.sizes())
            sizes = tuple(map(self.symbols.size, columns))
        if len(shapes) > 1:
            for dim, size in enumerate(sizes):
                known = size.expression if isinstance(size, live_scalars.LiveInt) else size
                claims = self.replay.inside.claims if self.replay.is_inside(handle) else self.claims
                claims[(handle.call, handle.path, dim)] = handle, known
        return sizes

    def check_calls(self) -> None:
        """At the end: every call must also work for other sizes. ``x @ w`` does not if the size is that of ``w``."""
        if not self.symbols.is_any:
            return
        if any(isinstance(x, torch.Tensor) and x.is_nested for x in self.tracer.recorder.examples):
            self.symbols.settle_all("a nested tensor has no shape")
            return
        with switches_kept():
            self.repeat_calls()
            self.make_symbols()

    def repeat_calls(self, end: int | None = None) -> None:
        recorder = self.tracer.recorder
        cannot: set[int] = set()
        for at, call in enumerate(recorder.calls[:end]):
            # Creating the object of an inference mode switches the mode on.
            if is_change(call.target) or call.target is InferenceMode:
                cannot.add(at)
                continue
            parts = self.replay.given_to(at)
            if any(part.call in cannot for part in parts):
                cannot.add(at)
                continue
            if torch_call_roles.name_of(call.target) == "squeeze" and parts:
                self.ask_whether_one(parts[0])
            try:
                self.replay.at(Handle(at), OTHER)
            except NoFormula as error:
                try:
                    self.replay.at(Handle(at), 0)
                except NoFormula:
                    cannot.add(at)  # it cannot be repeated for the observed size either: inconclusive
                else:
                    why = f"{torch_call_roles.name_of(call.target)} needs this size: {error}"
                    is_possible = functools.partial(succeeds, self.replay.at, Handle(at), OTHER)
                    symbols = self.symbols
                    if not (
                        symbols.unite_two(is_possible)
                        or symbols.take_multiples(is_possible)
                        or symbols.settle_one(is_possible, why)
                    ):
                        symbols.settle_all(why)
                        return

    def ask_whether_one(self, handle: Any) -> None:
        """A dimension of size 1 would disappear: whether the size is 1 is guarded."""
        try:
            for size in self.computed(handle, self.replay.shape_at(handle, 0)):
                size == 1  # noqa: B015  # asking is what guards
        except NoFormula as error:
            self.symbols.settle_all(f"{error}")

    # ---- decisions that depend on a size

    def asked(self, name: str, tensor: torch.Tensor, arguments: Sequence[Any]) -> Any:
        """The result of ``x.size(0)`` and similar queries, or None if the plain result is correct."""
        shape = self.shape_of(tensor)
        found = None if shape is None else size_query(name, shape, arguments)
        if found is None and shape is not None:
            self.specialize_sizes(tensor)
        return found

    def specialize_sizes(self, tensor: Any, count: int | None = None) -> None:
        """Specialize the first sizes of a tensor, or all, because code reads them out of our sight."""
        shape = self.shape_of(tensor) if type(tensor) in TENSOR_TYPES else None
        for size in (shape or ())[:count]:
            live_scalars.settled(size)

    def specialize_split(self, name: str, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """A call has returned several tensors: their number may depend on a size."""
        if name in torch_call_roles.OTHER_SIZE_DEPENDENT_SPLITS:
            for value in given:
                self.specialize_sizes(value)
        position = torch_call_roles.SIZE_DEPENDENT_SPLITS.get(name)
        if position is None or not given:
            return
        shape = self.shape_of(given[0])
        dim = keywords.get("dim", given[position] if len(given) > position else 0)
        if shape is not None and type(dim) is int and -len(shape) <= dim < len(shape):
            guard_integer_arguments.check_chunks(shape[dim], name, given, keywords)
        elif shape is not None:
            self.specialize_sizes(given[0])

    def check_slices(self, tensor: torch.Tensor, key: Any) -> None:
        """A slice bound beyond the end means the end: guard on which side of it a live bound is."""
        if tensor.is_nested:
            return
        parts = key if type(key) is tuple else (key,)
        shape = self.shape_of(tensor) or tuple(tensor.shape)
        consumed = [part for part in parts if part is not None and part is not Ellipsis]
        at = 0
        for part in parts:
            if part is None:
                continue
            if part is Ellipsis:
                at += len(shape) - len(consumed)
                continue
            if isinstance(part, (torch.Tensor, bool)):
                at += part.ndim if isinstance(part, torch.Tensor) and part.dtype is torch.bool else 1
                continue
            if at < len(shape):
                self.check_part(part, shape[at])
            at += 1

    def check_part(self, part: Any, size: Any) -> None:
        if type(part) is live_scalars.LiveInt and self.takes(part, "__getitem__") and part < size:
            self.symbols.note_end(part, size, 1)
        if type(part) is not slice or any(map(graph_numbers.is_graph_number, (part.start, part.stop, part.step, size))):
            return
        if (
            isinstance(part.step, live_scalars.Live)
            and not (self.tracer.options.shows_operators and self.takes(part.step, "__getitem__"))
            or part.step not in (None, 1)
            and not (part.start is None or type(part.start) is int and part.start >= 0)
        ):
            live_scalars.settled(part.step)
            live_scalars.settled(size)
        for bound in (part.start, part.stop):
            if bound is None or not (isinstance(bound, live_scalars.Live) or isinstance(size, live_scalars.Live)):
                continue
            self.takes(bound, "__getitem__")
            if bound < 0:
                bound = bound + size
                bound < 0  # noqa: B015  # asking is what guards
            if bound <= size:
                self.symbols.note_end(bound, size)
        if (
            part.start is not None
            and part.stop is not None
            and (isinstance(part.start, live_scalars.Live) or isinstance(part.stop, live_scalars.Live))
        ):
            part.start <= part.stop  # noqa: B015


def count_tries(tries: Counter[SymbolPlace], symbols: SizeSymbols) -> bool:
    """Counts the sizes that a trace has specialized. True if one of them was before."""
    again = False
    for number in symbols.settled:
        for place in symbols.places[number]:
            again |= place in tries
            tries[place] += MOST_TRIES if number in symbols.unfitted else 1
    return again
