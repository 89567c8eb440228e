"""Which gradients eager's autograd returns in one memory, and in which order they reach the leaves.

    y = p.view(-1) + q                 gradients: view_1, tangent        =>    gradients: tangent, tangent
    view_1 = aten.view tangent, [3]                                            shown: {0: Shown(shape, stride, offset)}

`AccumulateGrad` takes a gradient over if no other reference to that tensor exists, and copies it otherwise. A view that
was made on the way has one reference, and it holds a second one to its base. The graph therefore returns the base, and
the view is made of it for each call. Where several leaves share a gradient, the order of the leaves decides which of
them takes the tensor over, and which one a hook that writes in place changes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from ..ir.gradients import ShownGradient
from ..ir.graph import Value
from .beginnings import beginnings


def bases_of(gradients: Sequence[Any]) -> tuple[list[Any], tuple[tuple[int, ShownGradient], ...]]:
    """Each gradient that is a view in memory of another one is replaced by its base. The second result says how to make
    it, by its position."""
    bases = [x if x._base is None or x._base.dtype != x.dtype else x._base for x in gradients]
    tensors = Counter(id(base) for x, base in {id(x): (x, base) for x, base in zip(gradients, bases)}.values())
    made, shown, first = list(gradients), [], {}
    for k, (x, base) in enumerate(zip(gradients, bases, strict=True)):
        if x is not base and tensors[id(base)] > 1:
            made[k] = base
            shown.append((k, ShownGradient(first.setdefault(id(x), k), tuple(x.shape), tuple(x.stride()),
                                           offset_in(base.value, x.value))))
    return made, tuple(shown)


def offset_in(base: Value, view: Value) -> int:
    """How many elements behind the base a view of it begins."""
    chain = []
    while view is not base:
        assert view.node is not None
        chain.append(view)
        view = view.node.args[0]
    offset = 0
    for shown in reversed(chain):
        offset = beginnings(shown.node, offset)[shown.position]
    return offset


class LeafRecord:
    """How autograd reaches some leaves in a trace: in which order, and which of them find a tangent that something else
    holds at that time. A leaf copies such a gradient."""

    def __init__(self, leaves: dict[int, torch.Tensor], tangents: Sequence[torch.Tensor]):
        self.leaves, self.reached, self.held = leaves, list[int](), list[int]()
        self.tangents, self.captured = {id(x) for x in tangents}, Counter[int]()
        self.fewest = fewest_references(len(tangents) > 1)
        for k, leaf in leaves.items():
            leaf.register_hook(functools.partial(self.note, k))

    def note(self, k: int, gradient: Any) -> None:
        self.reached.append(k)
        if id(gradient) in self.tangents:
            # torch.autograd.grad holds the gradients of the leaves that were reached before.
            if gradient._use_count() - self.captured[id(gradient)] > self.fewest:
                self.held.append(k)
            self.captured[id(gradient)] += 1

    def edges(self) -> tuple[int, ...]:
        """The order of the edges of one node from which autograd reaches these leaves in the same order."""
        wanted = list(dict.fromkeys([*self.reached, *self.leaves]))
        edges = [0] * len(wanted)
        for k, place in zip(wanted, taken_from_heap(len(wanted)), strict=True):
            edges[place] = k
        return tuple(edges)


@functools.cache
def fewest_references(has_several: bool) -> int:
    """The references to a tangent that one leaf alone gets, as a hook of that leaf counts them."""
    found: list[int] = []
    with torch._C._DisableTorchDispatch(), torch.enable_grad():
        leaf, tangent = torch.zeros((), requires_grad=True), torch.zeros(())
        leaf.register_hook(lambda gradient: found.append(gradient._use_count()))
        outputs, tangents = [leaf + 0], [tangent]
        if has_several:
            other = torch.zeros((), requires_grad=True)
            outputs, tangents = [*outputs, other + 0], [*tangents, torch.zeros(())]
            torch.autograd.grad(outputs, [leaf, other], tangents)
        else:
            torch.autograd.grad(outputs, [leaf], tangents)
    return found[0]


def taken_from_heap(count: int) -> list[int]:
    """The order in which autograd's queue returns nodes of equal priority that one node has put there. It is a binary
    heap (`std::priority_queue`): the last entry replaces the first one, and sinks along the right children."""
    heap, found = list(range(count)), []
    while heap:
        found.append(heap[0])
        last = heap.pop()
        hole, size = 0, len(heap)
        while 2 * hole + 1 < size:
            child = min(2 * hole + 2, size - 1)
            heap[hole], hole = heap[child], child
        if heap:
            heap[hole] = last
    return found
