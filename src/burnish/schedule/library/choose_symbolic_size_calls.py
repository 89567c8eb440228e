"""Library calls for products and convolutions with symbolic sizes.

    y = linear x, w, b, None, None        =>    p = prepare 'onednn packed', w, b
                                                y = run 'onednn packed', x, p

Like `choose_calls`, with three differences. Nothing is measured: the fastest call for one size says little about
another. Only calls described as data are used, because their numbers must be visible. Where these are the same for all
sizes, as for a single token, equivalent native functions replace the call. The choice for the first example is used for
all.

A product of few rows that is the same for all sizes is measured as in `choose_calls`: eager's call against our kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...ir import fuel
from ...ir.graph import Graph, Node, Value
from ...ir.verify_and_publish_graph import announce
from ...ops.burnish_primitives import LINEAR, QUANTIZED_LINEAR, RUN
from ..rewrites.merge_recurrent_directions import Layer
from .autotune_library_calls import Choice, candidates, choose, is_read_once
from .call_candidates.convolution import in_channels_last
from .call_specs import ConvSpec, IntegerSpec, LinearSpec, QuantizedSpec, Spec
from .candidate import Candidate
from .choose_calls import ATTENTION, INTEGER_PRODUCT, SECONDS, Chooser, activation_of
from .own_kernels.quantized_product import INTEGERS as OWN_INTEGERS
from .own_kernels.quantized_product import NAME as OWN_QUANTIZED
from .own_kernels.skinny_gemm import NAME as OWN_SKINNY_GEMM
from .own_kernels.token_attention import NAME as OWN_TOKEN
from .own_kernels.token_attention import own_token_attention

LIKELY = ("onednn packed", "pointwise onednn packed")
"""The first that is available is chosen, else eager's own. Candidates with unpacked weights win at some sizes only."""

SMALL = 50_000_000
"""Fewest operations of a product for `LIKELY`: below, the overhead of such a call is more than it saves."""


def choose_symbolic_size_calls(graphs: Sequence[Graph]) -> list[Graph]:
    """For the same graph at several sizes. The choices for the first are used for all."""
    offers: dict[Spec, list[Candidate]] = {}
    fixed = fixed_calls(graphs)
    first = SymbolicChooser(graphs[0], offers, fixed)
    chosen = [first.run(), *(SymbolicChooser(graph, offers, fixed, first.names).run() for graph in graphs[1:])]
    leave_steps(chosen)
    for before, graph in zip(graphs, chosen, strict=True):
        announce("choose_symbolic_size_calls", graph, before)
    return chosen


def fixed_calls(graphs: Sequence[Graph]) -> set[Node]:
    """The products of each graph whose operands are the same for all sizes, and attention of one query, whose kernel
    serves all lengths."""
    if len({len(graph.nodes) for graph in graphs}) > 1:
        return set()
    found: set[Node] = set()
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        kinds = {(node.op.name, types_of(node)) for node in nodes}
        first = nodes[0]
        is_product = first.op in (LINEAR, QUANTIZED_LINEAR) or first.op.name == INTEGER_PRODUCT
        if len(kinds) == 1 and (is_product or first.op.name == ATTENTION and first.args[0].shape[2] == 1):
            found.update(nodes)
    return found


def types_of(node: Node) -> tuple[object, ...]:
    """The operands' types; of attention, the query's."""
    values = node.args[:1] if node.op.name == ATTENTION else node.operands
    return tuple(value.type for value in values)


def leave_steps(graphs: Sequence[Graph]) -> None:
    """Native functions are compiled for one size: only calls that are the same for all sizes keep theirs."""
    calls = [[node for node in graph.nodes if node.op is RUN] for graph in graphs]
    for number, node in enumerate(calls[0]):
        same = [nodes[number] for nodes in calls if number < len(nodes)]
        candidate = node.args[0]
        if (
            len(same) < len(calls)
            or candidate.scratch
            or candidate.further
            or any(other.args[0] is not candidate for other in same)
            and not all(other.args[0].sizes_in_table and other.args[0].name == candidate.name for other in same)
        ):
            for other in same:
                other.args = (replace(other.args[0], steps=None), *other.args[1:])


class SymbolicChooser(Chooser):
    def __init__(
        self, graph: Graph, offers: dict[Spec, list[Candidate]], fixed: set[Node], names: Sequence[str] | None = None
    ):
        super().__init__(graph)
        self.fixed = fixed
        self.offers = offers
        """The candidates of each spec. Equal layers share specs, and so do many nodes at other sizes."""
        self.names: list[str] = []
        """The names of the chosen candidates, in order of request."""
        self.given = None if names is None else iter(names)

    def chosen(self, spec: Spec) -> Choice:
        every = self.offers.get(spec)
        if every is None:
            every = self.offers[spec] = candidates(spec)
        offered = [c for c in every if c.call is not None]
        if self.given is not None:
            name = next(self.given, "")
        else:
            is_small = not isinstance(spec, ConvSpec) and (spec.flops < SMALL or is_read_once(spec))
            likely = (name for name in LIKELY if not is_small and any(c.name == name for c in offered))
            name, plain = next(likely, ""), offered[0].name if offered else ""
            if not name or name != plain and not fuel.allows("choose_calls", spec, name):
                name = plain
        self.names.append(name)
        found = next((c for c in offered if c.name == name), every[0])
        return Choice(found, None, {})

    def own(self, spec: LinearSpec | QuantizedSpec | IntegerSpec, ours: str) -> Candidate | None:
        """Our kernel for a product of few rows, where it is the fastest."""
        every = self.offers.get(spec)
        if every is None:
            every = self.offers[spec] = candidates(spec)
        found = next((c for c in every if c.name == ours), None)
        if found is None:
            return None
        return found if self.decided(lambda: self.faster(spec, ours)) == ours else None

    def own_integers(self, spec: IntegerSpec, node: Node) -> Candidate | None:
        return self.own(spec, OWN_INTEGERS) if node in self.fixed else None

    def own_quantized(self, spec: QuantizedSpec, node: Node) -> Candidate | None:
        return self.own(spec, OWN_QUANTIZED) if node in self.fixed else None

    def batched(self, a: Value, b: Value) -> Value | None:
        return None

    def attention(self, node: Node) -> tuple[Value, None] | None:
        """Only the kernel for one query serves all sizes."""
        found = self.attention_spec(node) if node in self.fixed else None
        if found is None:
            return None
        spec, values = found
        if self.decided(lambda: self.faster(spec, OWN_TOKEN)) != OWN_TOKEN:
            return None
        return self.own_attention(own_token_attention, spec, values, node)

    def decided(self, decide: Callable[[], str]) -> str:
        """What was decided for the first graph."""
        name = decide() if self.given is None else next(self.given, "")
        self.names.append(name)
        return name

    def faster(self, spec: Spec, ours: str) -> str:
        """Our kernel's name, or eager's where that is faster for these sizes."""
        eager = candidates(spec)[0].name
        name = choose(spec, seconds=SECONDS, accept=lambda c: c.name in (eager, ours)).candidate.name
        return name if name == ours and fuel.allows("choose_calls", spec, name) else eager

    def layers_of(self, graph: Graph) -> dict[Node, Layer]:
        return {}

    def call(self, node: Node) -> Value:
        x: Value = self.env[node.args[0]]
        spec = self.spec_of(node, x.type)
        if isinstance(spec, ConvSpec) and spec.is_frozen and in_channels_last(spec) != spec:
            spec = in_channels_last(spec)
            x = self.build.restride(x, spec.x.stride)
        if node in self.fixed and isinstance(spec, LinearSpec) and (own := self.own(spec, OWN_SKINNY_GEMM)) is not None:
            return self.add_run(node, x, own)
        follower = self.activation_after(node)
        fused = None if follower is None else self.with_activation(spec, follower)
        if fused is None or follower is None:
            return self.add_run(node, x, self.chosen(spec).candidate)
        made = self.fused_into[follower] = self.add_run(node, x, fused)
        return made

    def with_activation(self, spec: LinearSpec | ConvSpec, follower: Node) -> Candidate | None:
        found = self.chosen(replace(spec, activation=activation_of(follower))).candidate
        return found if found.name in LIKELY else None
