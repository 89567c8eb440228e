"""Library calls for products and convolutions whose sizes are told at run time.

    y = linear x, w, b, None, None        =>    p = prepare 'onednn packed', w, b
                                                y = run 'onednn packed', x, p

As `choose_calls`, with three differences. Nothing is measured: what is fast for one size says little of another. Only
calls that are data are taken, for their numbers must be seen. And the choice made for the first example holds for all.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node, Value
from .choose_calls import Chooser, activation_of
from .library import Candidate, Choice, ConvSpec, LinearSpec, Spec, candidates, in_channels_last
from .library.candidate import Call

LIKELY = ("onednn packed", "pointwise onednn packed")
"""The first of these that there is; else eager's own. What takes weights as they are wins here and loses there."""


def choose_open_calls(graph: Graph) -> Graph:
    return OpenChooser(graph).run()


class OpenChooser(Chooser):
    def chosen(self, spec: Spec) -> Choice:
        offered = [c for c in candidates(spec) if type(c.call) is Call and c.overwrites is None]
        if not offered:
            return Choice(candidates(spec)[0], None, {})
        return Choice(next((c for name in LIKELY for c in offered if c.name == name), offered[0]), None, {})

    def batched(self, a: Value, b: Value) -> Value | None:
        return None

    def attention(self, node: Node) -> None:
        return None

    def call(self, node: Node) -> Value:
        x: Value = self.env[node.args[0]]
        spec = self.spec_of(node, x.type)
        if isinstance(spec, ConvSpec) and spec.is_frozen and in_channels_last(spec) != spec:
            spec = in_channels_last(spec)
            x = self.build.restride(x, spec.x.stride)
        follower = self.activation_after(node)
        fused = None if follower is None else self.with_activation(spec, follower)
        if fused is None or follower is None:
            return self.add_run(node, x, self.chosen(spec).candidate)
        made = self.fused_into[follower] = self.add_run(node, x, fused)
        return made

    def with_activation(self, spec: LinearSpec | ConvSpec, follower: Node) -> Candidate | None:
        found = self.chosen(replace(spec, activation=activation_of(follower))).candidate
        return found if found.name in LIKELY else None
