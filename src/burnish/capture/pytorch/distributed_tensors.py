"""`DTensor`s in the graph: calls that make them, move them between placements or return their local tensors.

    y = DTensor.from_local(x, mesh, [Shard(0)])         one node: from_local(x), with the mesh and the placements in it
    return y.redistribute(mesh, [Replicate()])          one node, which communicates

A compiler replaces them by calls on local tensors (`captured_graph.distributed_tensor_nodes`). Where none does, they
run as they are. A mesh is guarded by identity. Placements are guarded by value, those of tensors from outside as well.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .. import breaks
from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Live
from ..python.operators import guard_before_native_read
from .opaque_nodes import OpaqueCall, call_in_graph

NODES = frozenset(("from_local", "to_local", "redistribute", "full_tensor", "distribute_tensor"))
"""Functions whose first argument is the tensor. The rest is the same in each run."""
LOCAL = frozenset(("device_mesh", "placements", "__new__", "__init__"))
"""Members of a DTensor that are available without communication."""
GIVEN_MESH = frozenset(("from_local", "distribute_tensor"))
"""They look for a mesh in the program's contexts where they are given none."""


class DistributedCall(OpaqueCall):
    """The target of a node. Its results follow from its argument, whose placements are guarded."""

    of_distributed_tensors = True
    stands_alone = False

    def __init__(self, function: Callable, rest: tuple, named: dict[str, Any]):
        super().__init__(lambda tensor: function(tensor, *rest, **named), function.__name__)

    def is_compared(self) -> bool:
        return False

    def expect(self, m: Any, made: Any, given: Any) -> None:
        pass


def call(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A call of a function in the module of `DTensor`."""
    name = function.__name__
    if name in LOCAL or function.__qualname__.startswith("distribute_module.<locals>"):
        return MISSING
    if name == "to_local" and not torch.is_grad_enabled() and m.heap.origin_of(args[0]) is not None:
        return MISSING  # it returns the very tensor
    if name not in NODES or not args or why_not_node(m, function, args, kwargs):
        return m.stop(breaks.COLLECTIVE_CALL, f"{function.__qualname__}()")
    rest, named = args[1:], kwargs
    for value in (*rest, *named.values()):
        guard_before_native_read.settle_all(m, value)
        guard_layout(m, value)
    rest, named = guard_before_native_read.settled(rest), guard_before_native_read.settled(named)
    made = DistributedCall(function, as_given(rest), as_given(named))
    # Rank 0 has the data, unless the caller says that all have it.
    made.stands_alone = name == "distribute_tensor" and named.get("src_data_rank", 0) is not None
    return call_in_graph(m, made, args[:1], {}, reads=False)


def why_not_node(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> bool:
    has_mesh = len(args) > 1 or kwargs.get("device_mesh") is not None
    return (
        function.__name__ in GIVEN_MESH
        and not has_mesh
        or bool(kwargs.get("run_check"))
        or not isinstance(args[0], torch.Tensor)
        or not all(map(is_layout, (*args[1:], *kwargs.values())))
    )


def is_layout(value: Any) -> bool:
    """Whether an argument says where a tensor is, or is another constant."""
    if isinstance(value, (tuple, list)):
        return all(map(is_layout, value))
    return isinstance(value, (int, type(None), torch.dtype, Live)) or is_mesh(value) or is_placement(value)


def is_mesh(value: Any) -> bool:
    return type(value).__module__ == "torch.distributed.device_mesh"


def is_placement(value: Any) -> bool:
    return type(value).__module__ in ("torch.distributed.tensor.placement_types", "torch._C._distributed")


def guard_layout(m: Any, value: Any) -> None:
    origin = m.heap.origin_of(value)
    if isinstance(value, (tuple, list)):
        if origin is not None:
            m.heap.guard_answer(operator.eq, origin.source, as_given(value))
        m.heap.expose(value)
        for part in value:
            guard_layout(m, part)
    elif origin is not None and is_mesh(value):
        m.heap.guard("is", origin.source, value)


def as_given(tree: Any) -> Any:
    """The arguments, which later changes of the program's containers do not reach."""
    if isinstance(tree, dict):
        return {name: as_given(part) for name, part in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(map(as_given, tree))
    return tree
