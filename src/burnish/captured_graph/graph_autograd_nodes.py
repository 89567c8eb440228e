"""Finds the pieces of an autograd graph that eager treats separately, so that compiled code can do the same.

    h = (x @ w).tanh()         pieces: 0: from the tangent of `total` to the gradient of h
    total = h.square().sum()           1: from the tangent of `h` to the gradients of x and w

A compiled graph is one node of autograd unless

- an output is computed from another one (a *cut*): the gradient of the latter includes what comes through the former;
- two outputs share no node that saves tensors: eager frees those nodes separately, so backward may run from each.

The compiler looks for pieces in its trace. `runtime.program.several_autograd_nodes` looks for the same ones in a graph
that eager has made. A *port* is a tensor between pieces: an output, an intermediate result whose gradient alone is
passed on (`inner`), or an output that is a view of an input or of another output (`alias`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Edge = tuple[Any, int]
"""A node of autograd, and the number of one of its outputs in forward."""

NOWHERE = -1
"""The position of a leaf that is not an input."""

MOST_SEPARATE = 64
"""More pieces than this are not made only because backward may run from each output."""


@dataclass(frozen=True, slots=True)
class GradientTarget:
    """Where a gradient leaves a piece: at a port, or at an input of the whole graph. None where it ends."""

    port: int | None
    input: int | None = None


@dataclass(eq=False, slots=True)
class AutogradPiece:
    nodes: list[Any]
    """From outputs to inputs."""
    makes: list[int]
    """The ports whose gradients it takes."""
    saves: bool
    """Whether one of its nodes saves tensors: then backward can run through it only once."""
    leaving: dict[Any, dict[int, GradientTarget]] = field(default_factory=dict)
    """By node and number of its edge."""

    def targets(self) -> list[GradientTarget]:
        return list(dict.fromkeys(target for edges in self.leaving.values() for target in edges.values()))


@dataclass(slots=True)
class Pieces:
    flows: list[Any]
    """Outputs that are computed; the first ports."""
    inner: list[Edge]
    """The ports after those."""
    aliases: list[Any]
    """The last ports."""
    pieces: list[AutogradPiece]
    """From outputs to inputs."""

    def edges(self) -> list[Edge]:
        """The edges of all ports but the aliases."""
        return [edge_of(x) for x in self.flows] + self.inner


class NoBackwardPath(Exception):
    """Backward cannot run from all outputs."""


def edge_of(x: torch.Tensor) -> Edge:
    return x.grad_fn, x.output_nr


class InputEdges:
    """Where an autograd graph ends: at the inputs that it is computed from."""

    def __init__(self, inputs: Sequence[Any]):
        known = [(k, x) for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
        self.leaves = {id(x): k for k, x in known if x.grad_fn is None}
        self.edges = {edge_of(x): k for k, x in known if x.grad_fn is not None}

    def at(self, edge: Edge) -> int | None:
        """The position of the input at an edge: NOWHERE for another leaf, None if the graph goes on."""
        leaf = leaf_of(edge[0])
        return self.edges.get(edge) if leaf is None else self.leaves.get(id(leaf), NOWHERE)


def leaf_of(node: Any) -> torch.Tensor | None:
    """The leaf whose gradient a node accumulates. An autograd function may have set ``ctx.variable``, on its node."""
    return node.variable if is_leaf(node) else None


def is_leaf(node: Any) -> bool:
    return hasattr(type(node), "variable")


def name_of_node(node: Any) -> str:
    """An autograd function may have set ``ctx.name``."""
    return type(node).name(node)


@functools.cache
def names_of_saved(kind: type) -> list[str]:
    return [name for name in dir(kind) if name.startswith("_raw_saved")]


def saves_tensors(node: Any) -> bool:
    """Whether a node has saved tensors. Runs none of their hooks. Raises NoBackwardPath if it cannot run backward."""
    if name_of_node(node).endswith("NotImplemented"):
        raise NoBackwardPath("a derivative is not implemented")
    try:
        for name in names_of_saved(type(node)):
            raw = getattr(node, name)
            if isinstance(raw, tuple):
                if raw:
                    return True
            elif raw is not None and (raw.data is not None or getattr(node, name.removeprefix("_raw")) is not None):
                return True
    except RuntimeError as error:
        raise NoBackwardPath(str(error)) from error
    return False


def saves_anything(outputs: Sequence[Any]) -> bool:
    """Whether backward from these outputs frees something, so that it can run only once. Stops at the first node that
    saves tensors."""
    stack, seen = [x.grad_fn for x in outputs], {None}
    try:
        while stack:
            node = stack.pop()
            if node not in seen and not is_leaf(node):
                seen.add(node)
                if saves_tensors(node):
                    return True
                stack += [before for before, _ in node.next_functions]
    except NoBackwardPath:
        return True
    return False


def find_pieces(
    inputs: Sequence[Any], flows: Sequence[Any], aliases: Sequence[tuple[Any, int | None]] = ()
) -> Pieces | None:
    """None if the graph is one piece. `flows` are the outputs that it computes. `aliases` are those that are views,
    each with the position among `flows` of the tensor that it is a view of; None for an input."""
    edges = list(map(edge_of, flows))
    if len(set(edges)) < len(edges) or not edges:
        return None
    try:
        return PieceFinder(InputEdges(inputs), list(flows), edges, list(aliases)).pieces()
    except NoBackwardPath:
        return None


class PieceFinder:
    def __init__(self, ends: InputEdges, flows: list[Any], edges: list[Edge], aliases: list[tuple[Any, int | None]]):
        self.ends, self.flows, self.edges = ends, flows, edges
        self.port_at = {edge: k for k, edge in enumerate(edges)}
        self.aliases = [x for x, _ in aliases]
        self.alias_at = {edge_of(x): k for k, x in enumerate(self.aliases)}
        self.bases = [base for _, base in aliases]
        self.uses_alias = False
        self.order = self.from_outputs_to_inputs()
        self.reach = self.reached()
        self.saving: set[int] = set()
        """The classes with a node that saves tensors. A class is the nodes that the same outputs reach, as a bit mask
        of these."""

    def next_of(self, node: Any) -> Iterator[tuple[int, Edge, int | None]]:
        """The edges of a node: number, edge, and the alias there, if any: then the edge is that of the alias's base.
        The edge of an input has no node, but the input's position."""
        for number, (before, place) in enumerate(node.next_functions):
            if before is None:
                continue
            alias = self.alias_at.get((before, place))
            end = self.ends.at((before, place))
            if end is not None:
                yield number, (None, end), None
            elif alias is None:
                yield number, (before, place), None
            else:
                base = self.bases[alias]
                yield number, (None, NOWHERE) if base is None else self.edges[base], alias

    def from_outputs_to_inputs(self) -> list[Any]:
        found: list[Any] = []
        state: dict[Any, bool] = {}
        stack = [(node, False) for node, _ in self.edges]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                found.append(node)
            elif node is not None and node not in state:
                state[node] = True
                stack.append((node, True))
                stack += [(before, False) for _, (before, _), _ in self.next_of(node)]
        return found[::-1]

    def reached(self) -> dict[Any, int]:
        found = dict.fromkeys(self.order, 0)
        for k, (node, _) in enumerate(self.edges):
            found[node] |= 1 << k
        for node in self.order:
            for _, (before, _), alias in self.next_of(node):
                self.uses_alias = self.uses_alias or alias is not None
                if before in found:
                    found[before] |= found[node]
        return found

    # ---- classes

    def pieces(self) -> Pieces | None:
        has_cut = self.uses_alias or any(
            edge in self.port_at for node in self.order for _, edge, _ in self.next_of(node)
        )
        if not has_cut and len(self.flows) == 1:
            return None
        for node in self.order:
            if saves_tensors(node):
                self.saving.add(self.reach[node])
        if not has_cut and not self.are_separate():
            return None
        groups = self.groups()
        if len(groups) == 1 and not self.uses_alias:
            return None
        return self.split(groups)

    def shared(self) -> list[int]:
        """For each output, the outputs with which it shares a node that saves tensors."""
        return [
            functools.reduce(int.__or__, (mask for mask in self.saving if mask >> k & 1), 0)
            for k in range(len(self.flows))
        ]

    def are_separate(self) -> bool:
        """Whether eager frees less than one node for all outputs would."""
        everything = (1 << len(self.flows)) - 1
        return bool(self.saving) and any(mask != everything for mask in self.shared())

    def groups(self) -> list[set[int]]:
        """The classes of each piece, from outputs to inputs."""
        before = self.classes_before()
        order = sorted(before, key=lambda mask: (mask.bit_count(), mask))
        level: dict[int, int] = {}
        for mask in order:
            level[mask] = max((level[other] + is_cut for other, is_cut in before[mask].items()), default=0)
        shared = self.shared()

        def may_join(mask: int) -> bool:
            if not any(mask & one == one for one in self.saving):
                return True
            return all(shared[k] & mask == mask for k in range(len(self.flows)) if mask >> k & 1)

        groups: list[set[int]] = []
        place: dict[int, int] = {}

        def ahead(group: int, more: int | None = None) -> set[int]:
            """The groups that must run before this one."""
            found: set[int] = set()
            stack = list(groups[group]) + ([] if more is None else [more])
            while stack:
                for other in before[stack.pop()]:
                    at = place.get(other)
                    if at is not None and at != group and at not in found:
                        found.add(at)
                        stack += groups[at]
            return found

        for mask in order:
            of_level = [k for k, group in enumerate(groups) if level[next(iter(group))] == level[mask]]
            is_full = len(of_level) >= MOST_SEPARATE
            for k in of_level:
                union = functools.reduce(int.__or__, groups[k], mask)
                if (is_full or may_join(union)) and not any(k in ahead(other) for other in ahead(k, mask)):
                    groups[k].add(mask)
                    place[mask] = k
                    break
            else:
                place[mask] = len(groups)
                groups.append({mask})
        # Whatever runs before a group has fewer groups ahead of it.
        return [groups[k] for k in sorted(range(len(groups)), key=lambda k: len(ahead(k)))]

    def classes_before(self) -> dict[int, dict[int, bool]]:
        """For each class the classes that pass gradients to it, and whether one of these edges is a cut."""
        found: dict[int, dict[int, bool]] = {mask: {} for mask in self.reach.values()}
        for node in self.order:
            mask = self.reach[node]
            for _, edge, _ in self.next_of(node):
                other = self.reach.get(edge[0])
                if other is not None and other != mask:
                    found[other][mask] = found[other].get(mask, False) or edge in self.port_at
        return found

    # ---- the pieces

    def split(self, groups: list[set[int]]) -> Pieces:
        place = {mask: k for k, group in enumerate(groups) for mask in group}
        pieces = [AutogradPiece([], [], not group.isdisjoint(self.saving)) for group in groups]
        ports, inner = dict(self.port_at), list[Edge]()
        for k, (node, _) in enumerate(self.edges):
            pieces[place[self.reach[node]]].makes.append(k)
        leaving: list[tuple[AutogradPiece, Any, int, Edge, int | None]] = []
        for node in self.order:
            here = place[self.reach[node]]
            pieces[here].nodes.append(node)
            for number, edge, alias in self.next_of(node):
                there = place.get(self.reach.get(edge[0], -1))
                if alias is None and there == here:
                    continue
                if alias is None and there is not None and edge not in ports:
                    ports[edge] = len(ports)
                    inner.append(edge)
                    pieces[there].makes.append(ports[edge])
                leaving.append((pieces[here], node, number, edge, alias))
        for piece, node, number, edge, alias in leaving:
            if alias is not None:
                target = GradientTarget(len(ports) + alias)
            elif edge in ports:
                target = GradientTarget(ports[edge])
            else:
                target = GradientTarget(None, None if edge[1] == NOWHERE else edge[1])
            piece.leaving.setdefault(node, {})[number] = target
        return Pieces(self.flows, inner, self.aliases, pieces)


def ports_reaching(piece: AutogradPiece, edges: Sequence[Edge]) -> dict[GradientTarget, int]:
    """For each target of a piece, a bit mask of the ports it makes that reach it. `edges` are those of the ports."""
    found = dict.fromkeys(piece.nodes, 0)
    targets: dict[GradientTarget, int] = {}
    for bit, port in enumerate(piece.makes):
        found[edges[port][0]] |= 1 << bit
    for node in piece.nodes:
        leaving = piece.leaving.get(node, {})
        mask = 0 if gives_no_gradient(node) else found[node]
        for number, (before, _) in enumerate(node.next_functions):
            if number in leaving:
                targets[leaving[number]] = targets.get(leaving[number], 0) | mask
            elif before in found:
                found[before] |= mask
    return targets


def gives_no_gradient(node: Any) -> bool:
    """Whether autograd goes on without a gradient behind the node, as behind ``x.norm(0)``, which counts elements."""
    name = name_of_node(node)
    if name.startswith("LinalgVectorNormBackward"):
        return bool(node._saved_ord == 0)
    return name.startswith("NormBackward") and bool(node._saved_p == 0)
