"""Indexing by an integer tensor without dimensions: ``x[t]`` and ``x[:, t]``.

    y = x[t]        =>      i = aten.index.Tensor x, [t]

Eager reads ``t`` in C++ and returns a view, which is impossible in a trace without data. A copy is equivalent as long
as nothing is written through it or to ``x`` after it, and it does not leave the graph.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from ....ir.alias_analysis import aliased_argument
from ....ir.graph import Graph, Node, Value
from ....tensors.eager_strides import preserved_stride
from ....tensors.tensor_types import TensorType
from ...passes.functionalize import written_arguments

NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64)
TARGETS = ("__getitem__", operator.getitem)
PLAIN = (int, slice, type(None), type(...))


def picking_tensor(target: Any, args: tuple) -> int | None:
    """The position of the tensor in the index; None for any other kind of call."""
    if target not in TARGETS or not isinstance(args[0], torch.Tensor):
        return None
    parts = index_of(args)
    found = [k for k, part in enumerate(parts) if isinstance(part, torch.Tensor)]
    if len(found) != 1 or parts[found[0]].dim() or parts[found[0]].dtype not in NUMBERS:
        return None
    plain = all(type(part) in PLAIN for k, part in enumerate(parts) if k != found[0])
    return found[0] if plain else None


def index_of(args: tuple) -> tuple:
    return args[1] if isinstance(args[1], tuple) else (args[1],)


def pick(args: tuple, at: int) -> torch.Tensor | None:
    """Applies the rest of the index, which gives a view, and copies the part. None where the copy's strides would be in
    another order than the view's: values computed from it would have another layout than in eager."""
    x, parts = args[0], index_of(args)
    rest = (*parts[:at], slice(None), *parts[at + 1 :])
    shown = x if len(parts) == 1 else x[rest]
    if any(part is ... for part in parts[:at]):
        dim = shown.dim() - 1 - sum(not isinstance(part, int) for part in parts[at + 1 :])
    else:
        dim = sum(not isinstance(part, int) for part in parts[:at])
    shape, stride = ([n for k, n in enumerate(of) if k != dim] for of in (shown.shape, shown.stride()))
    view = TensorType(tuple(shape), tuple(stride), shown.dtype, shown.device)
    if preserved_stride(view) != TensorType.contiguous(view.shape, view.dtype).stride:
        return None
    return torch.ops.aten.index.Tensor(shown, [*[None] * dim, parts[at].long()])


def why_not_copied(graph: Graph, picked: list[tuple[Node, Value]]) -> str | None:
    """Why the copies could be observed. `picked` has the node of each copy, and the tensor it is a part of."""
    copies = {node.results[0]: root_of(base) for node, base in picked}
    if any(isinstance(out, Value) and root_of(out) in copies for out in graph.outputs):
        return "a view is returned whose position is a tensor's value"
    made: set[Value] = set()
    for node in graph.nodes:
        made.update(value for value in node.results if value in copies)
        written = written_arguments(node)
        for target in written[0] if written is not None else ():
            root = root_of(target)
            if root in copies or any(copies[copy] is root for copy in made):
                return "it writes to a tensor with a view whose position is another tensor's value"
    return None


def root_of(value: Value) -> Value:
    source = None if value.node is None else aliased_argument(value.node)
    while source is not None:
        value, source = source, None if source.node is None else aliased_argument(source.node)
    return value
