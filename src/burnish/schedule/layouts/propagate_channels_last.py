"""Layout propagation: which convolutions of a net compute channels-last, decided for all of them together.

    a ─ relu ─ b ─ pool ─ c         b alone would not be worth two copies; after a, and before c, there are none

What a convolution makes lies as it computes, and what is computed of that element by element lies the same. So each
convolution has two times, one for each way to lie, and between two of them there is a copy only where they differ. The
least sum is looked for from three beginnings: all one way, all the other way, and each as is best by itself.

    decided([Both(3.0, 2.9), Both(4.0, 2.0)], [Link(0, 1, 0.5)], [Link(…)])      [True, True]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...ir.graph import Graph, Node, Value
from ...tensors.tensor_types import TensorType
from .channels_last import is_channels_last

BACKWARD = "aten.convolution_backward.default"

SWEEPS = 16
"""A sum that still falls after so many looks at each convolution is good enough."""


class Both(NamedTuple):
    """Seconds of one convolution."""

    contiguous: float
    last: float


class Link(NamedTuple):
    """Where one convolution reads what another one makes, and what it costs if they differ. What comes from outside
    lies as it does, whatever happens."""

    source: int
    reader: int
    seconds: float


CONTIGUOUS, LAST = -1, -2
"""Sources outside."""


def decided(times: Sequence[Both], links: Sequence[Link]) -> list[bool]:
    """For each convolution whether it computes channels-last."""
    if not times:
        return []
    beginnings = [[False] * len(times), [True] * len(times), [both.last < both.contiguous for both in times]]
    found = [settled(times, links, labels) for labels in beginnings]
    return min(found, key=lambda labels: total(times, links, labels))


def total(times: Sequence[Both], links: Sequence[Link], labels: Sequence[bool]) -> float:
    return sum(both[label] for both, label in zip(times, labels, strict=True)) + sum(
        link.seconds for link in links if differ(link, labels)
    )


def differ(link: Link, labels: Sequence[bool]) -> bool:
    return labels[link.reader] != (labels[link.source] if link.source >= 0 else link.source == LAST)


def settled(times: Sequence[Both], links: Sequence[Link], labels: list[bool]) -> list[bool]:
    """Turned one by one, as long as the sum falls."""
    around: list[list[Link]] = [[] for _ in times]
    for link in links:
        around[link.reader].append(link)
        if link.source >= 0:
            around[link.source].append(link)

    def cost(k: int) -> float:
        return times[k][labels[k]] + sum(link.seconds for link in around[k] if differ(link, labels))

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
    """Between these convolutions of a graph. A tensor that is laid out anew is so backward as well, as its gradient;
    what comes from outside has none, and where there is no backward nothing has."""
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
            # What is seen with other dimensions lies as that needs.
            alike = [made_of[x] for x in node.operands if x in made_of and x.ndim == value.ndim]
            if alike:
                made_of[value] = frozenset().union(*alike)
