"""Layout propagation: decides for all convolutions of a network together which compute in channels-last.

    a ─ relu ─ b ─ pool ─ c         b alone would not be worth two copies; between a and c it needs none

A convolution's result has the layout it computes in, and element-wise results keep it. So each convolution has two
times, one for each layout, and a link between two of them costs a copy only where they differ. The least total is
searched from three starting points: all contiguous, all channels-last, and each as is best by itself.

    decided([Both(3.0, 2.9), Both(4.0, 2.0)], [Link(0, 1, 0.5)], [Link(…)])      [True, True]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...ir.graph import Graph, Node, Value
from ...tensors.tensor_types import TensorType
from .channels_last_strides import is_channels_last

BACKWARD = "aten.convolution_backward.default"

SWEEPS = 16
"""Limit on passes over all convolutions while the total still falls."""


class SecondsByLayout(NamedTuple):
    """Seconds of one convolution in each layout."""

    contiguous: float
    last: float


class Link(NamedTuple):
    """One convolution reads the result of another; a copy costs `seconds` if their layouts differ. The layout of a
    source outside the convolutions is fixed."""

    source: int
    reader: int
    seconds: float


CONTIGUOUS, LAST = -1, -2
"""Sources outside, by their layout."""


def choose_layouts(times: Sequence[SecondsByLayout], links: Sequence[Link]) -> list[bool]:
    """Whether each convolution computes in channels-last."""
    if not times:
        return []
    beginnings = [[False] * len(times), [True] * len(times), [both.last < both.contiguous for both in times]]
    found = [improve_locally(times, links, labels) for labels in beginnings]
    return min(found, key=lambda labels: total(times, links, labels))


def total(times: Sequence[SecondsByLayout], links: Sequence[Link], labels: Sequence[bool]) -> float:
    return sum(both[label] for both, label in zip(times, labels, strict=True)) + sum(
        link.seconds for link in links if layouts_differ(link, labels)
    )


def layouts_differ(link: Link, labels: Sequence[bool]) -> bool:
    return labels[link.reader] != (labels[link.source] if link.source >= 0 else link.source == LAST)


def improve_locally(times: Sequence[SecondsByLayout], links: Sequence[Link], labels: list[bool]) -> list[bool]:
    """Local search: flips one convolution at a time as long as the total falls."""
    around: list[list[Link]] = [[] for _ in times]
    for link in links:
        around[link.reader].append(link)
        if link.source >= 0:
            around[link.source].append(link)

    def cost(k: int) -> float:
        return times[k][labels[k]] + sum(link.seconds for link in around[k] if layouts_differ(link, labels))

    for _ in range(SWEEPS):
        has_turned = False
        for k in range(len(times)):
            before = cost(k)
            labels[k] = not labels[k]
            if cost(k) < before:
                has_turned = True
            else:
                labels[k] = not labels[k]
        if not has_turned:
            break
    return labels


def links_of(graph: Graph, convolutions: Sequence[Node], copy_seconds: Callable[[TensorType], float]) -> Iterator[Link]:
    """The links between these convolutions. A tensor that is copied to another layout costs a second copy in backward,
    that of its gradient. Outside sources have no gradient, and a graph without backward has none."""
    number = {node: k for k, node in enumerate(convolutions)}
    is_forward = not any(node.op.name == BACKWARD for node in graph.nodes)
    made_of: dict[Value, frozenset[int]] = {}
    for node in graph.nodes:
        results = [value for value in node.results if value is not None]
        if node in number:
            x = node.args[0]
            sources = made_of.get(x) or frozenset((LAST if is_channels_last(x.type) else CONTIGUOUS,))
            for source in sources:
                ways = 1 if source < 0 or is_forward else 2
                yield Link(source, number[node], ways * copy_seconds(x.type) / len(sources))
            made_of.update(dict.fromkeys(results, frozenset((number[node],))))
            continue
        for value in results:
            # A view with another number of dimensions does not keep the layout.
            alike = [made_of[x] for x in node.operands if x in made_of and x.ndim == value.ndim]
            if alike:
                made_of[value] = frozenset().union(*alike)
