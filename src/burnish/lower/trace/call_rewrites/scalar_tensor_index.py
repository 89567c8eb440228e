"""Indexing by integer tensors without dimensions: ``x[t]``, ``x[:, t]``, ``x[rows, t]`` and ``x[:, t] = y``.

    y = x[t]        =>      i = aten.index.Tensor x, [t]
    x[:, t] = y     =>      aten.index_put_.default x, [None, t], y

Eager reads ``t`` in C++ and makes a view, which is impossible in a trace without data. A copy is equivalent as long as
nothing is written through it or to ``x`` after it, and it does not leave the graph.
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
READS = ("__getitem__", operator.getitem)
WRITES = ("__setitem__", torch.Tensor.__setitem__, operator.setitem)
PLAIN = (int, slice, type(None), type(...))
Indices = list[torch.Tensor | None]


def has_scalar_index(target: Any, args: tuple) -> bool:
    """Whether a call indexes by a tensor without dimensions, and else by plain values and tensors of positions only."""
    if not any(target == one for one in READS + WRITES) or not isinstance(args[0], torch.Tensor):
        return False
    tensors = [part for part in index_of(args) if isinstance(part, torch.Tensor)]
    return (
        any(not part.dim() for part in tensors)
        and all(part.dtype in (NUMBERS[2:] if part.dim() else NUMBERS) for part in tensors)
        and all(type(part) in PLAIN or isinstance(part, torch.Tensor) for part in index_of(args))
    )


def index_of(args: tuple) -> tuple:
    return args[1] if isinstance(args[1], tuple) else (args[1],)


def at_first_places(args: tuple) -> tuple:
    """The arguments with 0 for each tensor without dimensions: the result is of the same shape and strides."""
    parts = [0 if isinstance(part, torch.Tensor) and not part.dim() else part for part in index_of(args)]
    return args[0], tuple(parts) if isinstance(args[1], tuple) else parts[0], *args[2:]


def apply_plain_parts(x: torch.Tensor, parts: tuple) -> tuple[torch.Tensor, Indices]:
    """The view by the parts of an index that are no tensors, and the tensors at the dimensions of the view."""
    rest = tuple([slice(None) if isinstance(part, torch.Tensor) else part for part in parts])
    shown = x if len(parts) == 1 else x[rest]
    left = [part for part in parts if type(part) is not int]
    gap = next((k for k, part in enumerate(left) if part is ...), len(left))
    indices: Indices = [None] * shown.dim()
    for k, part in enumerate(left):
        if isinstance(part, torch.Tensor):
            indices[k if k < gap else k - len(left)] = part if part.dim() else part.long()
    while indices[-1] is None:
        indices.pop()
    return shown, indices


def is_placed_alike(indices: Indices) -> bool:
    """Whether the dimensions of the positions are where eager puts them, for whom an index without dimensions does not
    stand between others: it replaces adjacent indices where they are, and puts the dimensions of others first."""
    arrays = [k for k, index in enumerate(indices) if index is not None and index.dim()]
    return (
        not arrays
        or None not in indices[: arrays[0]]
        or None in indices[arrays[0] : arrays[-1]]
        or None not in indices[next(k for k, index in enumerate(indices) if index is not None) :]
    )


def read(args: tuple) -> tuple[torch.Tensor | None, bool]:
    """The indexed part, and whether it is a copy where eager makes a view. None where the copy's strides would be in
    another order than the view's: values computed from it would have another layout than in eager."""
    shown, indices = apply_plain_parts(args[0], index_of(args))
    if not is_placed_alike(indices):
        return None, False
    is_view = all(index is None or not index.dim() for index in indices)
    if is_view:
        left = [k for k in range(shown.dim()) if k >= len(indices) or indices[k] is None]
        shape, stride = ([of[k] for k in left] for of in (shown.shape, shown.stride()))
        view = TensorType(tuple(shape), tuple(stride), shown.dtype, shown.device)
        if preserved_stride(view) != TensorType.contiguous(view.shape, view.dtype).stride:
            return None, False
    return torch.ops.aten.index.Tensor(shown, indices), is_view


def write(args: tuple) -> bool:
    """Assigns to the indexed part. False where the value would have to be converted in other ways than to the dtype."""
    shown, indices = apply_plain_parts(args[0], index_of(args))
    value = args[2]
    if type(value) in (bool, int, float):
        value = shown.new_full((), value)
    dims = [index.dim() for index in indices if index is not None]
    rest = shown.dim() - len(dims) + max(dims)
    if not isinstance(value, torch.Tensor) or value.dim() > rest or not is_placed_alike(indices):
        return False
    if value.device != shown.device or value.is_complex() and not shown.is_complex():
        return False
    torch.ops.aten.index_put_.default(shown, indices, value.to(shown.dtype))
    return True


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
