"""Functions of ``torch.jit.script`` and ``torch.jit.trace``: one node each, which a compiler traces.

    gelu(x)        scripted_gelu = scripted_gelu(x)        the node; its target runs TorchScript's program

TorchScript's program is what runs in eager, and it is not always what Python would compute: it converts numbers to the
declared types, copies lists, and holds globals as they were. So its own graph decides. If the graph consists of torch
operators on tensors, and nothing in it depends on data, the same operators can be recorded without data. Data of known
tensors becomes constants of TorchScript's graph first:

    gate(x, torch.IntTensor([4]))        scripted_gate = scripted_gate(x)       x[:, :4] in place of x[:, :int(n[0])]

Any other function is a break.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ...foundation.torch_private import (
    ScriptGraph,
    TensorType,
    TupleType,
    create_function_from_graph,
    jit_pass_constant_propagation,
)
from .. import breaks
from ..numbers.constant_tensors import is_known
from ..numbers.live_scalars import settled
from .opaque_nodes import OpaqueCall, call_in_graph
from .torch_call_roles import DATA_SHAPED

STRUCTURE = frozenset(
    """
    Constant ListConstruct ListUnpack TupleConstruct TupleUnpack TupleIndex If Loop device dtype RaiseException
    Uninitialized unchecked_cast
""".split()
)
"""Instructions of TorchScript that are not operators, and read no data."""

METADATA = frozenset("size dim len numel is_floating_point is_complex stride sym_size storage_offset".split())
"""Operators that return Python values of a tensor's metadata."""


def call(m: Any, function: torch.jit.ScriptFunction, args: tuple, kwargs: dict) -> Any:
    name, given = function.name, function
    why = why_not_in_graph(function.inlined_graph)
    if why is not None and not kwargs:
        given, args = with_constants(m, function, args)
        why = why_not_in_graph(given.inlined_graph)
    if why is not None or not m.capabilities.may_run_opaquely:
        m.stop(breaks.FOREIGN_COMPILED, f"a call of the scripted {name}" + (f", which has {why}" if why else ""))
    origin = m.heap.origin_of(function)
    if origin is not None:
        m.heap.guard("is", origin.source, function)
    named = {key: settled(value) for key, value in kwargs.items()}
    return call_in_graph(m, ScriptedCall(given, f"scripted_{name}"), args, named, reads=False)


def with_constants(m: Any, function: torch.jit.ScriptFunction, args: tuple) -> tuple[torch.jit.ScriptFunction, tuple]:
    """The function for the tensors among its arguments that are known, and the other arguments."""
    if jit_pass_constant_propagation is None or create_function_from_graph is None:
        return function, args
    graph = function.inlined_graph.copy()
    inputs = list(graph.inputs())
    if len(inputs) != len(args):  # a default would be lost
        return function, args
    if any(not why.endswith(READS_DATA) for why in map(why_not_traced, nodes_of(graph)) if why is not None):
        return function, args  # whatever else is computed from constants would only happen here
    known = [k for k, x in enumerate(inputs) if isinstance(x.type(), TensorType) and can_be_constant(m, args[k])]
    if not known:
        return function, args
    graph.setInsertPoint(next(iter(graph.nodes())))
    for k in reversed(known):
        inputs[k].replaceAllUsesWith(graph.insertConstant(args[k].detach().clone()))
        graph.eraseInput(k)
    jit_pass_constant_propagation(graph)
    others = tuple([arg for k, arg in enumerate(args) if k not in known])
    return create_function_from_graph(function.name, graph), others


def can_be_constant(m: Any, arg: Any) -> bool:
    """Whether an argument is a tensor of known data whose copy has the same layout."""
    return is_known(m, arg) and not arg.storage_offset() and arg.detach().clone().stride() == arg.stride()


class ScriptedCall(OpaqueCall):
    """The target of a node. Its results are of the same kind for arguments of the same kind."""

    stands_alone = False
    why_not_traceable = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(arg, torch.Tensor) and arg.is_meta for arg in (*args, *kwargs.values())):
            with torch.jit.optimized_execution(False):  # a query is not a profile of the user's data
                return self.function(*args, **kwargs)
        return self.function(*args, **kwargs)

    def is_compared(self) -> bool:
        return False

    def expect(self, m: Any, made: Any, given: Any) -> None:
        pass

    @functools.cached_property
    def text(self) -> str:
        """What the function computes, for cache keys."""
        return f"scripted {self.function.schema} {self.function.inlined_graph}"


def why_not_in_graph(graph: ScriptGraph) -> str | None:
    """What TorchScript's graph has that a compiler cannot trace."""
    for result in graph.outputs():
        if not holds_only_tensors(result.type()):
            return f"a result of the type {result.type()}"
    return next((why for node in nodes_of(graph) if (why := why_not_traced(node)) is not None), None)


def holds_only_tensors(kind: Any) -> bool:
    if isinstance(kind, TupleType):
        return all(map(holds_only_tensors, kind.elements()))
    return isinstance(kind, TensorType)


def nodes_of(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)


def why_not_traced(node: Any) -> str | None:
    namespace, _, name = node.kind().partition("::")
    results = [result.type() for result in node.outputs()]
    has_tensors = any(isinstance(kind, TensorType) for kind in results)
    if namespace == "prim":
        is_tensor = name == "Constant" and has_tensors
        return None if name in STRUCTURE and not is_tensor else "a tensor constant" if is_tensor else node.kind()
    if namespace != "aten" or name in DATA_SHAPED or name in ("index", "where") and len(list(node.inputs())) < 3:
        return node.kind()
    overload = overload_of(node.schema())
    if overload is not None and (overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags):
        return f"{node.kind()}, which has an effect"
    takes_tensors = any(isinstance(given.type(), TensorType) for given in node.inputs())
    if takes_tensors and results and not has_tensors and name not in METADATA | LISTS_OF_TENSORS:
        return node.kind() + READS_DATA
    return None


READS_DATA = ", which reads data"


LISTS_OF_TENSORS = frozenset("split chunk unbind tensor_split meshgrid broadcast_tensors".split())


def overload_of(schema: str) -> Any:
    """The operator of a schema such as ``aten::add.Tensor(Tensor self, …) -> Tensor``; None for one that is only
    TorchScript's, such as additions of numbers."""
    name, _, overload = schema.partition("(")[0].partition("::")[2].partition(".")
    return getattr(getattr(torch.ops.aten, name, None), overload or "default", None)
