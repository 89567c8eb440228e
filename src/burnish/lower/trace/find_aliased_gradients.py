"""Gradients that share memory in eager's autograd, and the order in which they reach the leaves.

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

from ...captured_graph.aliased_gradients import InputView, TangentGradient
from ...foundation.torch_private import DisableTorchDispatch, OpOverload
from ...ir.graph import Value
from ...ir.untraceable_graph import Untraceable
from .storage_offsets import result_offsets


def bases_of(gradients: Sequence[Any]) -> tuple[list[Any], tuple[tuple[int, InputView], ...]]:
    """Replaces each gradient that shares its base with another gradient by that base. The second result describes how
    to make these views, by position."""
    bases = [x if x._base is None or x._base.dtype != x.dtype else x._base for x in gradients]
    base_of = {id(x): id(base) for x, base in zip(gradients, bases, strict=True)}
    tensors = Counter(base_of.values())
    made, shown, first = list(gradients), [], {}
    for k, (x, base) in enumerate(zip(gradients, bases, strict=True)):
        if x is not base and tensors[id(base)] > 1:
            made[k] = base
            offset = offset_in(base.value, x.value)
            shown.append((k, InputView(first.setdefault(id(x), k), tuple(x.shape), tuple(x.stride()), offset)))
    return made, tuple(shown)


def offset_in(base: Value, view: Value) -> int:
    """The element offset of a view in its base."""
    offset = 0
    for shown in chain_of(base, view):
        assert shown.node is not None
        offset = result_offsets(shown.node, offset)[shown.position]
    return offset


def chain_of(base: Value, view: Value) -> list[Value]:
    """The views that lead from the base to this one."""
    chain = []
    while view is not base:
        if view.node is None or not isinstance(view.node.args[0], Value):
            raise Untraceable("the shape of a tensor was changed in place, and a gradient is a view of it")
        chain.append(view)
        view = view.node.args[0]
    return chain[::-1]


def views_up_to(view: Any) -> dict[Value, set[Value]]:
    """A view and those on the way to it, each with everything it was made of."""
    if view._base is None:
        return {}
    chain = [view._base.value, *chain_of(view._base.value, view.value)]
    return {shown: set(chain[:k]) for k, shown in enumerate(chain) if k}


def views_of_tangents(gradients: Sequence[Any], tangents: Sequence[Any]) -> tuple[TangentGradient, ...]:
    """How to make the gradients that are views of tangents. Tangents may have any layout, and their views follow it."""
    places = {id(x): k for k, x in enumerate(tangents)}
    found = []
    for k, x in enumerate(gradients):
        flow = places.get(id(x if x._base is None else x._base))
        if flow is None:
            continue
        chain = chain_of(tangents[flow].value, x.value)
        steps = tuple((str(v.node.op.target), plain(v.node.args[1:]), v.position) for v in chain)
        if all(isinstance(v.node.op.target, OpOverload) and not v.node.kwargs for v in chain):
            found.append(TangentGradient(k, flow, steps))
    return tuple(found)


def plain(tree: Any) -> Any:
    return tuple(map(plain, tree)) if isinstance(tree, (list, tuple)) else tree


class LeafRecord:
    """How autograd reaches some leaves in a trace: in which order, and which of them receive a gradient with another
    reference at that time. A leaf copies such a gradient."""

    def __init__(self, leaves: dict[int, torch.Tensor], tangents: Sequence[torch.Tensor]):
        self.leaves, self.reached = leaves, list[int]()
        self.tangents, self.captured = {id(x) for x in tangents}, dict[int, list[int]]()
        self.is_held: dict[int, bool] = {}
        self.views: dict[Value, set[Value]] = {}
        self.fewest = fewest_references(len(tangents) > 1)
        for k, leaf in leaves.items():
            leaf.register_hook(functools.partial(self.note, k))

    def note(self, k: int, gradient: Any) -> None:
        self.reached.append(k)
        if not hasattr(gradient, "value"):  # a custom backward returned None, or a tensor from outside
            return
        before = self.captured.setdefault(id(gradient), [])  # torch.autograd.grad references the gradients of these
        references = gradient._use_count() - len(before) - self.references_of_views(gradient)
        self.is_held[k] = references > self.fewest[id(gradient) in self.tangents]
        before.append(k)
        self.views.update(views_up_to(gradient))

    def references_of_views(self, gradient: Any) -> int:
        """References from views that leaves received before: in eager these views no longer exist. In a trace each
        refers to everything it was made of, and once more to its base."""
        found = sum(gradient.value in sources for sources in self.views.values())
        return found if gradient._base is not None else 2 * found

    def held(self) -> tuple[int, ...]:
        """The leaves that copy their gradient. Of several that share one, all but the last copy it in any case."""
        return tuple(k for group in self.captured.values() if self.is_held[group[-1]] for k in group)

    def edges(self) -> tuple[int, ...]:
        """The order of one node's edges for which autograd reaches these leaves in the same order."""
        wanted = list(dict.fromkeys([*self.reached, *self.leaves]))
        edges = [0] * len(wanted)
        for k, place in zip(wanted, taken_from_heap(len(wanted)), strict=True):
            edges[place] = k
        return tuple(edges)


@functools.cache
def fewest_references(has_several: bool) -> tuple[int, int]:
    """The number of references to a gradient that only one leaf receives, as counted in a hook of that leaf: for an
    intermediate gradient, and for a tangent."""
    found: list[int] = []
    with DisableTorchDispatch(), torch.enable_grad():
        for through in (lambda x: x * 2, lambda x: x + 0):
            leaves = [torch.zeros((), requires_grad=True) for _ in range(1 + has_several)]
            leaves[0].register_hook(lambda gradient: found.append(gradient._use_count()))
            tangents = [torch.zeros(()) for _ in leaves]
            torch.autograd.grad(list(map(through, leaves)), leaves, tangents)
    return found[0], found[1]


def taken_from_heap(count: int) -> list[int]:
    """The order in which autograd's queue returns nodes of equal priority that one node has added. It is a binary heap
    (`std::priority_queue`): the last entry replaces the first one, and sinks along the right children."""
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
