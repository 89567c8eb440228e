"""The sizes that a segment serves: those for which its calls, repeated without data, are the ones that were recorded.

    box = SizeBox(calls, inputs, equal, claims)     as the trace ends; `inputs` makes examples for any sizes
    box.holds(64, 2)                                a guard of the segment, on all its symbols

What a trace knows of sizes comes from a few points: formulas for the shapes of results, and that each call is
possible. Far from the points a formula may be another one (``min(n, 100)``), and eager may refuse a call (a window
that is larger than its tensor). So sizes are accepted only after the calls were repeated for them, with eager's kernels
asked about each: every result has the recorded number of dimensions and dtype, and its sizes follow the formulas.

Such conditions hold on one side of a limit, so they hold between two sizes where they hold. What was repeated at all
corners of a *box* is therefore not repeated inside, but where a result has no or one element in a dimension, or two
sizes are equal that differ elsewhere. If sizes are refused, the guard fails: the next trace sees them, and eager's
errors.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Container, Sequence
from typing import Any

import torch

from ... import events
from ...backends.shapes_at_other_sizes import Shapes, switches_kept
from ...captured_graph.symbolic_example_inputs import SymbolicExampleInputs
from ...concurrency import pause_garbage_collection, thread_locks
from ...foundation.torch_private import InferenceMode
from ...ir.untraceable_graph import Untraceable
from ...runtime.argument_trees import tensors_in
from ...runtime.eager.setting_change_nodes import is_change
from ...tensors.fit_size_formulas import Formula, GivenSize, NoFormula, Point, SpecialSizes
from ..engine.torch_call_records import Handle, handles_in
from .meta_shape_replay import NotRepeatable, is_alike, part_of, repeated, substitute_handles

MOST_SYMBOLS = 3
"""With more symbols, a box has too many corners: each point is tried by itself."""

MOST_KNOWN = 10_000

MOST_POINTS = 64
"""After as many, what was repeated is forgotten."""

UNKNOWN = object()
"""The value of a call that cannot be repeated for the observed sizes either."""

NO_SUCH_SIZES = (NoFormula, RuntimeError, ValueError, ArithmeticError, TypeError, IndexError)
"""The errors where there are no such tensors, or no such numbers."""

Facts = tuple[tuple, tuple[int, ...]]
"""What must be the same for all sizes, and numbers."""


class SizeBox:
    """`equal` are pairs of functions of a point that the trace took for one. `claims` are sizes of
    results, as functions of a point: what the program did with them follows those."""

    def __init__(
        self,
        calls: Sequence[Any],
        inputs: SymbolicExampleInputs,
        equal: Sequence[tuple[Callable[[Point], Any], Callable[[Point], Any]]],
        claims: Sequence[tuple[Handle, int, Callable[[Point], Any]]],
        is_divided: bool = False,
        transforms: Sequence[Callable[[Any, Point, Any], None]] = (),
    ):
        """`is_divided`: claims divide sizes, and are compared at every size, because they may differ in between.
        `transforms` repeat calls whose operators are among the `calls`, and raise NotRepeatable if those are others."""
        self.is_divided, self.transforms = is_divided, transforms
        self.calls, self.inputs, self.equal, self.claims = calls, inputs, equal, claims
        self.compares_layouts = True
        """Whether results have to be contiguous for the same sizes: the program, or guards, may ask for it."""
        self.known: dict[Point, bool] = {inputs.space.points[0]: True}
        self.bounds: tuple[Point, Point] | None = None
        self.corners: set[Point] = set()
        """The corners of the bounds. A size that is valid there follows the formulas."""
        self.facts: list[Facts | None] | None = None
        """For each call, those at the observed sizes; None if it cannot be repeated."""
        self.probe, self.tried = Shapes(), 0
        self.observed: CallValues | None = None
        """Those for the observed sizes."""
        self.unconfirmed: set[int] = set()
        """Calls that eager's kernels refuse without the data."""
        self.formulas: list[list[int | Formula | None]] = []
        self.special = SpecialSizes((), (), ())
        self.grows = False
        """Whether sizes of results without a formula grow with the symbols."""
        self.lock = thread_locks.rlock()

    def holds(self, *point: int) -> bool:
        found = self.known.get(point)
        if found is None and sys.is_finalizing():
            return False  # nothing may be repeated that late
        if found is None:
            # Finalizers may call compiled functions, whose check would wait for this one to end.
            with self.lock, pause_garbage_collection.paused():
                found = self.found(point)
                if len(self.known) > MOST_KNOWN:
                    self.known.clear()
                self.known[point] = found
            if not found:
                sizes = ", ".join(map("{} = {}".format, self.inputs.space.names, point))
                events.emit("guards.sizes", text=f"the program has other calls for {sizes}, or they are refused")
        return found

    def found(self, point: Point) -> bool:
        try:
            if any(first(point) != second(point) for first, second in self.equal):
                return False
        except NO_SUCH_SIZES:
            return False
        if self.facts is None and not self.learn():
            return False
        if self.bounds is None or self.is_special(point):
            return self.is_valid_at(point)
        least, most = self.bounds
        if all(low <= size <= high for low, size, high in zip(least, point, most, strict=True)):
            return True
        # Twice as far: sizes that grow by one with every call should not be tried in every call.
        for factor in (2, 1):
            low = tuple(map(min, least, point))
            high = tuple([factor * size if size > end else end for size, end in zip(point, most, strict=True)])
            corners = set(itertools.product(*zip(low, high, strict=True)))
            if all(corner in self.corners or self.is_valid_at(corner, True) for corner in corners):
                self.bounds, self.corners = (low, high), corners
                return True
        return self.is_valid_at(point)

    def is_special(self, point: Point) -> bool:
        """Whether these sizes say nothing about those around them, and the other way round."""
        return len(set(point)) < len(point) or self.special.contain(point)

    # ---- what must be the same

    def learn(self) -> bool:
        """Repeats the calls at the points near the observed sizes, and fits formulas. False if that is impossible."""
        space = self.inputs.space
        self.facts = self.facts_at(space.points[0])
        if self.facts is None:
            return False
        near = [self.facts_at(point) for point in space.points[1:]]
        is_known_around, self.grows = True, all(map(self.is_fitted, self.inputs.numbers.values()))
        for at, own in enumerate(self.facts):
            formulas: list[int | Formula | None] = []
            if own is not None:
                others = [facts[at] if facts is not None else None for facts in near]
                is_alike = all(other is not None and other[0] == own[0] for other in others)
                is_known_around = is_known_around and is_alike
                for k, number in enumerate(own[1]):
                    formula = None
                    if is_alike:
                        try:
                            formula = space.fit([number, *(other[1][k] for other in others)])  # type: ignore[index]
                        except NoFormula:
                            is_known_around = (
                                is_known_around
                                and all(
                                    self.follows(None, other[1][k], number, point)  # type: ignore[index]
                                    for other, point in zip(others, space.points[1:], strict=True)
                                )
                            )
                    formulas.append(formula)
            self.formulas.append(formulas)
        self.special = SpecialSizes.among([itertools.chain.from_iterable(self.formulas)], space.points[0])
        if is_known_around and not self.is_divided and len(space.names) <= MOST_SYMBOLS:
            near_points = space.points if len(space.names) == 1 else space.points[:1]
            self.bounds = min(near_points), max(near_points)
            self.corners = {*self.bounds}
        return True

    def is_fitted(self, number: Callable[[Point], Any]) -> bool:
        """Whether a number that the graph is given is a formula of the sizes, and no remainder of one."""
        try:
            self.inputs.space.fit([operator.index(number(point)) for point in self.inputs.space.points])
        except NO_SUCH_SIZES:
            return False
        return True

    def follows(self, formula: int | Formula | None, number: int, own: int, point: Point) -> bool:
        """Whether a size is the expected one at `point`. `own` is that for the observed sizes. It follows its formula,
        or grows with the sizes, as that of a strided convolution: from 2 on, it has no other meaning in between."""
        if formula is not None and number == (formula if isinstance(formula, int) else formula.at(point)):
            return True
        observed = self.inputs.space.points[0]
        return (
            self.grows
            and min(number, own) > 1
            and (number >= own or not all(map(operator.ge, point, observed)))
            and (number <= own or not all(map(operator.le, point, observed)))
        )

    def is_valid_at(self, point: Point, follows_formulas: bool = False) -> bool:
        """Whether the calls have the same kinds of results there. Sizes that the program has not seen may follow other
        formulas, which says nothing about the sizes around."""
        found = self.facts_at(point)
        return found is not None and all(
            own is None
            or now is not None
            and own[0] == now[0]
            and (
                not follows_formulas
                or all(
                    self.follows(formula, number, seen, point)
                    for number, seen, formula in zip(now[1], own[1], formulas, strict=True)
                )
            )
            for own, now, formulas in zip(self.facts, found, self.formulas, strict=True)  # type: ignore[arg-type]
        )

    # ---- repetition

    def facts_at(self, point: Point) -> list[Facts | None] | None:
        """None if a call is refused there that is possible for the observed sizes."""
        try:
            if self.tried % MOST_POINTS == 0:  # the probe remembers every call
                self.probe, self.observed = Shapes(), None
                self.observed = self.values_at(self.inputs.space.points[0])
            self.tried += 1
            values = self.values_at(point)
        except NO_SUCH_SIZES:
            return None
        return [None if value is UNKNOWN else facts_of(value, self.compares_layouts) for value in values.calls]

    def values_at(self, point: Point) -> CallValues:
        varying = {*self.inputs.shapes, *self.inputs.numbers}
        values = CallValues(self.probe, self.inputs.examples(point), self.observed, varying)
        with switches_kept():
            for at, call in enumerate(self.calls):
                values.calls.append(self.value_at(at, call, values))
            if any(values.of(handle).shape[dim] != size(point) for handle, dim, size in self.claims):
                raise NotRepeatable("a size follows another formula")
            for check in self.transforms:
                check(values.of, point, self.probe)
        values.inputs = ()  # their memory is not needed any more
        return values

    def value_at(self, at: int, call: Any, values: CallValues) -> Any:
        """The result of a call. The observed sizes show whether it is possible; for others it must be too."""
        handles = list(handles_in((call.args, call.kwargs)))
        if self.observed is None:
            return self.observed_at(at, call, values, handles)
        observed = self.observed.calls[at]
        if observed is UNKNOWN or all(is_one(values.of(one), self.observed.of(one)) for one in handles):
            return observed
        found = self.repeated(call, values, at not in self.unconfirmed)
        return observed if is_alike(found, observed) else found

    def observed_at(self, at: int, call: Any, values: CallValues, handles: Sequence[Handle]) -> Any:
        if is_change(call.target) or call.target is InferenceMode:
            return UNKNOWN
        try:
            if any(values.of(handle) is UNKNOWN for handle in handles):
                return UNKNOWN
            try:
                return self.repeated(call, values, at not in self.unconfirmed)
            except NotRepeatable:
                self.unconfirmed.add(at)
                return self.repeated(call, values, False)
        except NotRepeatable:
            return UNKNOWN

    def repeated(self, call: Any, values: CallValues, confirms: bool) -> Any:
        self.probe.tracer.confirms = confirms
        args, kwargs = substitute_handles(call.args, values.of), substitute_handles(call.kwargs, values.of)
        if "out" in kwargs and any(handle.call is None for handle in handles_in(call.kwargs["out"])):
            made = repeated(self.probe, call.target, args, {k: v for k, v in kwargs.items() if k != "out"})
            if [x.shape for x in tensors_in(made)] != [x.shape for x in tensors_in(kwargs["out"])]:
                raise NotRepeatable("a tensor of the caller would be resized")
        return repeated(self.probe, call.target, args, kwargs)


class CallValues:
    """The inputs and results of the calls for some sizes."""

    def __init__(self, probe: Shapes, inputs: Sequence[Any], observed: CallValues | None, varying: Container[int]):
        self.probe, self.inputs, self.observed, self.varying = probe, inputs, observed, varying
        self.given: dict[int, Any] = {}
        self.calls: list[Any] = []

    def of(self, handle: Handle) -> Any:
        if handle.call is not None:
            return part_of(self.calls[handle.call], handle.path)
        at = handle.key
        if self.observed is not None and at not in self.varying:
            return self.observed.of(handle)
        if at not in self.given:
            self.given[at] = input_of(self.probe, self.inputs[at])
        return self.given[at]


def is_one(value: Any, other: Any) -> bool:
    return value is other or type(value) is int and value == other


def input_of(probe: Shapes, example: Any) -> Any:
    if not isinstance(example, torch.Tensor):
        return int(example) if isinstance(example, GivenSize) else example
    try:
        return probe.input(example)
    except Untraceable:  # a sparse or quantized tensor
        return UNKNOWN


def facts_of(value: Any, with_layout: bool) -> Facts:
    if isinstance(value, torch.Tensor):
        return (
            ("tensor", value.dtype, value.ndim, value.is_conj(), value.is_neg(), with_layout and value.is_contiguous()),
            (*value.shape,),
        )
    if isinstance(value, (tuple, list)):
        parts = [facts_of(part, with_layout) for part in value]
        return (type(value), *(part[0] for part in parts)), tuple([number for part in parts for number in part[1]])
    return ((int,), (value,)) if type(value) is int else ((type(value),), ())
