"""Guard checks: compiles the guards of a segment into one function.

A few guards become a statement each (``guards.CheckWriter``). A model has thousands, of a few kinds. Compiling a line
for each would take longer than everything else about a segment. So they are checked layer by layer: all sources at the
same distance from the slots are read at once, then all guards of one kind on them are tested at once, by C code that
goes through tables:

    def check(S):
        V = [k0, S[0]]                                      # roots; every value read joins the list
        if type(V[1]) is not k1: return None
        V.append(V[1].__dict__)
        ...
        V += map(k8, k9(V), k10)                            # k8 is getitem, k9 picks the containers, k10 are the keys
        p = k11(V)                                          # k11 picks the values to test
        if not all(map(k12, map(type, p), k13)): return None
        ...
        return k30(V), k31(V)

Every layer is tested before the next one is read, so a read can rely on the type of the object it reads from.
"""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from ...errors import InternalError
from ..numbers.live_scalars import Expression
from .guards import HOOK_TABLES, READERS, CheckWriter, Guard
from .object_sources import Source
from .tensor_metadata import SameManyTensors, is_comparable

FEW = 100  # up to this number, guards get a statement each
Wanted = Source | Expression


def write_check(guards: list[Guard], inputs: list[Wanted], values: list[Source], few: int = FEW) -> Callable:
    """``check(S)``: the graph's inputs and the values that ``finish`` needs, or None when a guard does not hold."""
    if len(guards) <= few:
        return write_by_statement(guards, inputs, values)
    return LayerWriter(guards, inputs, values).write()


def write_by_statement(guards: list[Guard], inputs: list[Wanted], values: list[Source]) -> Callable:
    writer = CheckWriter()
    writer.kept.update(map(id, (*inputs, *values)))
    for guard in guards:
        writer.guard(guard)
    shown = [s.render(writer) if isinstance(s, Expression) else writer.load(s) for s in inputs]
    return writer.function("check", "S", f"({_listed(shown)}), ({_listed(map(writer.load, values))})")


def check_twice(guards: list[Guard], inputs: list[Wanted], values: list[Source]) -> Callable:
    """Both forms, for BURNISH_CHECK: two checks that must agree on every call."""
    plain, layered = write_by_statement(guards, inputs, values), write_check(guards, inputs, values, few=0)

    def check(slots: list) -> Any:
        found, again = plain(slots), layered(slots)
        if (found is None) != (again is None) or found is not None and list(map(len, found)) != list(map(len, again)):
            raise InternalError(
                "checking guards",
                f"statement by statement they answer {found is not None}, layer by layer {again is not None}",
            )
        return found

    check.__source__ = plain.__source__  # type: ignore[attr-defined]
    return check


def _listed(names: Iterable[str]) -> str:
    return "".join(f"{name}, " for name in names)


# Compared with == once their type is known. NaN and zero are excluded: == gives the wrong result for them.
SCALARS = frozenset((int, float, str))
_hooks_of = operator.itemgetter(*HOOK_TABLES)


class LayerWriter(CheckWriter):
    """Writes a check layer by layer. Guards without others of their kind are written as in the base class."""

    def __init__(self, guards: list[Guard], inputs: list[Wanted], values: list[Source]):
        super().__init__()
        self.guards, self.inputs, self.values = guards, inputs, values
        self.places: dict[int, int] = {}  # of a source: the index of its value in V
        self.roots: list[str] = []
        self.layers: list[list[Source]] = [[]]
        self.depths: dict[int, int] = {}

    # ---- order

    def write(self) -> Callable:
        by_layer, last = self.arrange()
        for source in self.layers[0]:
            self.place(source)
            self.roots.append(self.expression(source) if source.kind == "slot" else self.constant(source.key))
        for guard in last:
            if guard.kind == "state":
                self.condition(self.test(guard))
        self.lines.append(f"V = [{', '.join(self.roots)}]")
        for depth, layer in enumerate(self.layers):
            if depth:
                self.read(layer)
            self.test_layer(by_layer.get(depth, ()))
        self.test_relations(last)
        inputs = (
            f"({_listed(s.render(self) if isinstance(s, Expression) else self.load(s) for s in self.inputs)})"
            if any(isinstance(s, Expression) for s in self.inputs)
            else self.pick(self.inputs)
        )
        return self.function("check", "S", f"{inputs}, {self.pick(self.values)}")

    def arrange(self) -> tuple[dict[int, list[Guard]], list[Guard]]:
        """Guards by the layer of their source, and guards on no source or several."""
        by_layer: dict[int, list[Guard]] = {}
        last = []
        for guard in self.guards:
            kind, source, expected = guard
            if source is None or kind in ("same", "unlike"):
                last.append(guard)
                if source is not None:
                    self.reach(source)
                    self.reach(expected)
                elif kind == "distinct":
                    for one in expected:
                        self.reach(one)
                elif kind == "outcome":
                    for one in expected[0].sources():
                        self.reach(one)
            else:
                depth = self.reach(source)
                at = by_layer.get(depth)
                if at is None:
                    at = by_layer[depth] = []
                at.append(guard)
        for wanted in (*self.inputs, *self.values):
            for source in wanted.sources() if isinstance(wanted, Expression) else (wanted,):
                self.reach(source)
        return by_layer, last

    def reach(self, source: Source) -> int:
        """Enter ``source``, and the sources it is read from, in its layer."""
        depth = self.depths.get(id(source))
        if depth is None:
            others = source.key.sources() if source.kind == "at" else ()
            depth = 0 if source.base is None else max(map(self.reach, (source.base, *others))) + 1
            self.depths[id(source)] = depth
            if depth == len(self.layers):
                self.layers.append([])
            self.layers[depth].append(source)
        return depth

    # ---- reading

    def place(self, source: Source) -> None:
        self.places[id(source)] = len(self.places)

    def load(self, source: Source) -> str:
        return f"V[{self.places[id(source)]}]"

    value = load

    def pick(self, sources: list) -> str:
        """The values of ``sources`` as a tuple."""
        places = [self.places[id(s)] for s in sources]
        if len(places) < 4:
            return f"({_listed(f'V[{at}]' for at in places)})"
        return f"{self.constant(operator.itemgetter(*places))}(V)"

    def read(self, layer: list[Source]) -> None:
        groups: dict[str, list[Source]] = collections.defaultdict(list)
        for source in layer:
            groups[source.kind].append(source)
        for kind, group in groups.items():
            if len(group) > 1 and kind in READERS:
                function, takes_key = READERS[kind]
                keys = f", {self.constant(tuple(s.key for s in group))}" if takes_key else ""
                self.lines.append(f"V += map({self.constant(function)}, {self.pick([s.base for s in group])}{keys})")
            else:
                self.lines += [f"V.append({self.expression(source)})" for source in group]
            for source in group:
                self.place(source)

    # ---- testing

    def condition(self, failed: str) -> None:
        self.lines.append(f"if {failed}: return None")

    def test_layer(self, guards: Iterable[Guard]) -> None:
        groups: dict[str, list[Guard]] = {kind: [] for kind in GROUPED}
        single = []
        for guard in guards:
            group = groups.get(kind_of(guard))
            (single if group is None else group).append(guard)
        for kind, group in groups.items():
            if len(group) > 1:
                GROUPED[kind](self, self.pick([g.source for g in group]), [g.expected for g in group])
            else:
                single += group
        for guard in sorted(single, key=lambda g: g.kind != "type"):
            self.condition(self.test(guard))

    def test_relations(self, guards: list[Guard]) -> None:
        for kind, holds in (("same", operator.is_), ("unlike", operator.is_not)):
            group = [guard for guard in guards if guard.kind == kind]
            if group:
                pairs = f"{self.pick([g.source for g in group])}, {self.pick([g.expected for g in group])}"
                self.condition(f"not all(map({self.constant(holds)}, {pairs}))")
        for guard in guards:
            if guard.kind in ("outcome", "distinct"):
                self.condition(self.test(guard))

    def _is(self, picked: str, expected: list) -> None:
        self.condition(f"not all(map({self.constant(operator.is_)}, {picked}, {self.constant(tuple(expected))}))")

    def _type(self, picked: str, expected: list) -> None:
        self._is(f"map(type, {picked})", expected)

    def _scalar(self, picked: str, expected: list) -> None:
        self.lines.append(f"p = {picked}")
        self._type("p", list(map(type, expected)))
        self.condition(f"p != {self.constant(tuple(expected))}")

    def _tensor(self, picked: str, expected: list) -> None:
        self.condition(f"not {self.constant(SameManyTensors(expected))}({picked})")

    def _length(self, picked: str, expected: list) -> None:
        self.condition(f"[*map(len, {picked})] != {self.constant(expected)}")

    def _absent(self, picked: str, expected: list) -> None:
        self.condition(f"True in map({self.constant(operator.contains)}, {picked}, {self.constant(tuple(expected))})")

    def _no_hooks(self, picked: str, expected: list) -> None:
        self.lines.append(f"p = {picked}")
        hooks = f"{self.constant(chain.from_iterable)}(map({self.constant(_hooks_of)}, p))"
        names = self.constant(("_compiled_call_impl",) * len(expected))
        self.condition(f"any({hooks}) or True in map({self.constant(operator.contains)}, p, {names})")


# By kind, in the order of the tests: types first, because the others rely on them.
GROUPED: dict[str, Callable[[LayerWriter, str, list], None]] = {
    "type": LayerWriter._type,
    "is": LayerWriter._is,
    "scalar": LayerWriter._scalar,
    "tensor": LayerWriter._tensor,
    "length": LayerWriter._length,
    "absent": LayerWriter._absent,
    "no hooks": LayerWriter._no_hooks,
}


def kind_of(guard: Guard) -> str:
    """The group of a guard; another name for guards that are tested one by one."""
    kind, expected = guard.kind, guard.expected
    if kind == "equal":
        is_plain = type(expected) in SCALARS and not (
            type(expected) is float and (math.isnan(expected) or expected == 0.0)
        )
        return "scalar" if is_plain else kind
    if kind == "tensor":
        return kind if is_comparable(expected) else "any tensor"
    return kind
