"""Makes outputs share memory exactly where eager's do, by copying the others.

    s = sum x, (), for x without dimensions, is x itself         s = restride x
    return s                                               =>    return s

    a = exp x;  return a, a                                =>    b = restride a;  return a, b

Values never change inside the graph, so passes may replace one value by another. Outside the graph, tensors are written
to. So outputs must share memory with each other, and with inputs, exactly where they do in eager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from ...ir.alias_analysis import alias_base, aliased_argument, storage_of
from ...ir.graph import Alias, Graph, Value, Write, map_values
from ...ir.rewriter import Rewriter
from ...tensors.tensor_types import TensorType


def unalias_outputs(graph: Graph, traced: Graph, constants: int, first_gradient: int | None = None) -> Graph:
    """`traced` shows what shares memory. The last `constants` inputs are constants of the graph: eager makes new ones
    in each call. Outputs from `first_gradient` on are gradients."""
    return Separator(graph, traced, constants, first_gradient).run()


def owners(traced: Graph) -> list[Value | None]:
    """For each output the value of the trace that owns its memory; None where it is not a tensor."""
    root: dict[Value, Value] = {value: value for value in traced.inputs}
    for node in traced.nodes:
        source = aliased_argument(node)
        for value in node.results:
            if value is not None:
                root[value] = value if source is None else root[source]
    outputs = traced.outputs
    return [root[out] if isinstance(out, Value) and isinstance(out.type, TensorType) else None for out in outputs]


def why_not_unaliased(graph: Graph, traced: Graph) -> str | None:
    """Names outputs that share memory but do not in eager.

    One eager tensor may become one value, or two values in separate memory. Two values must not share memory: autograd
    takes over a gradient that has no other references, without a copy.
    """
    first: dict[Value, tuple[Value, Value, Value | None]] = {}
    for out, eager, owner in zip(graph.outputs, traced.outputs, owners(traced), strict=True):
        if not isinstance(out, Value) or not isinstance(eager, Value):
            continue
        other, others, its_owner = first.setdefault(storage_of(out), (out, eager, owner))
        if owner is not its_owner:
            return f"{out} and {other} share memory, which {eager} and {others} do not in eager"
        if eager is others and out is not other:
            return f"{out} and {other} are two tensors in one memory, and in eager one: {eager}"
    return None


class Separator(Rewriter):
    def __init__(self, graph: Graph, traced: Graph, constants: int, first_gradient: int | None):
        super().__init__(graph)
        self.traced, self.first_constant = traced, len(graph.inputs) - constants
        self.traced_gradients = first_gradient

    def run(self) -> Graph:
        """Keeps all nodes, and only adds copies after them."""
        self.new.inputs, self.new.nodes, self.new.names = self.old.inputs, list(self.old.nodes), dict(self.old.names)
        self.env = {value: value for value in self.old.inputs}
        self.env.update((value, value) for node in self.old.nodes for value in node.results if value is not None)
        self.finish()
        return self.new

    def finish(self) -> None:
        super().finish()
        self.new.outputs = list(map(self.without_constant, self.new.outputs))
        self.separate_outputs()
        self.separate_views()
        written = {self.new.inputs[write.input] for write in self.new.writes}
        self.new.writes = [
            self.separated(write, written) for write in self.new.writes if write.input < self.first_constant
        ]

    def without_constant(self, out: object) -> object:
        """Replaces an output that is a view of a constant by a copy of the constant's final value."""
        if isinstance(out, Alias) and out.input >= self.first_constant:
            input = self.new.inputs[out.input]
            held = next((write.value for write in self.new.writes if write.input == out.input), input)
            return self.build.view(self.build.restride(held, input.type.stride), *out.maps)
        return out

    def separate_outputs(self) -> None:
        taken: dict[Value, Value | None] = dict(zip(self.new.inputs, self.traced.inputs, strict=True))
        taken.update((value, None) for value in self.new.inputs[self.first_constant :])
        wrong: list[tuple[int, Value, Value | None]] = []
        for k, (out, owner) in enumerate(zip(self.new.outputs, owners(self.traced), strict=True)):
            if isinstance(out, Value) and taken.setdefault(base := storage_of(out), owner) is not owner:
                wrong.append((k, base, owner))
        shared = Counter((base, owner) for _, base, owner in wrong)
        copies: dict[tuple[Value, Value | None], dict[Value, Value]] = {}
        for k, base, owner in wrong:
            out = self.new.outputs[k]
            if shared[base, owner] == 1:
                self.new.outputs[k] = self.build.copy(out)
                continue
            # Several outputs share this storage: copy it once, so that they still do.
            again = copies.get((base, owner))
            if again is None:
                again = copies[base, owner] = {base: self.build.copy(base)}
            self.new.outputs[k] = self.shown_again(out, again)

    def separate_views(self) -> None:
        """Copies a gradient that is a view of another one: eager's autograd copies the other, which the view holds."""
        if self.traced_gradients is None:
            return
        found = list(zip(self.traced.outputs, owners(self.traced), strict=True))
        whole = {owner for out, owner in found[self.traced_gradients :] if owner is not None and out is owner}
        for k, (eager, owner) in enumerate(found):
            out = self.new.outputs[k]
            if k >= self.traced_gradients and isinstance(out, Value) and owner in whole and eager is not owner:
                self.new.outputs[k] = self.build.copy(out)

    def shown_again(self, value: Value, again: dict[Value, Value]) -> Value:
        """The same view of the copy, one for each value: gradients that are one tensor stay one. `again` has the views
        made so far, starting with the copy."""
        if value not in again:
            source, node = alias_base(value), value.node
            assert source is not None and node is not None
            copy = self.shown_again(source, again)
            args = map_values(node.args, lambda v: copy if v is source else v)
            made = self.build.apply_typed(node.op, args, node.kwargs, tuple(v and v.type for v in node.results))
            found = made[value.position]
            assert found is not None
            again[value] = found
        return again[value]

    def separated(self, write: Write, written: Container[Value]) -> Write:
        """Inputs are written in order: none may be read after it was written."""
        if storage_of(write.value) in written and write.value is not self.new.inputs[write.input]:
            return write.of(self.build.copy(write.value))
        return write
