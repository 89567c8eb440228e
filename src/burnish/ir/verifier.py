"""Graph verifier: checks the IR's invariants between passes, so that an error is found in the pass that made it.

    verify(graph, "decompose")                the graph by itself
    verify(graph, "decompose", before)        also that the pass did not change the graph's signature

    InternalError: ... stage 'decompose': exp has the type f32[2, 4], but its operator's rule says f32[2, 3]
            max = max x, (1,)                            : f32[2, 1]
            sub = aten.sub.Tensor x, max                 : f32[2, 3]
          > exp = aten.exp.default sub                   : f32[2, 4]
            sum = sum exp, (1,)                          : f32[2, 1]

Shape, dtype and device of each result must equal those of the operator's shape rule. Strides are compared only after
passes that promise them, such as the trace. Later passes may change the strides of values that are not outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ..concurrency.outside_errors import reraise_from_outside
from ..errors import InternalError
from ..foundation.torch_private import OpOverload, get_mkldnn_enabled
from ..ops.burnish_primitives import PREPARE, RUN
from ..ops.operator_record import NoRule
from ..tensors.tensor_types import NumberType, TensorType, same_layout
from ..tensors.views.view_maps import Map, view_type
from .graph import RESERVED, Alias, Graph, Node, Value, print_node, types_of, values_in

CONSTANTS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Generator,
    Map,
)
NEIGHBOURS = 3


def verify(graph: Graph, stage: str, before: Graph | None = None, strides: bool = False) -> None:
    """Raise InternalError, in the name of `stage`, if the graph is not valid."""
    for node, why in faults(graph, before, strides):
        raise InternalError(stage, why if node is None else f"{why}\n{surroundings(graph, node)}")


Fault = tuple[Node | None, str]
"""The faulty node (None for inputs, outputs and writes) and a description."""


def faults(graph: Graph, before: Graph | None = None, strides: bool = False) -> Iterator[Fault]:
    """All violations, in graph order."""
    made: set[Value] = set()
    names: set[str] = set(RESERVED)
    for value in graph.inputs:
        yield from new_name(value, None, names)
        if value.node is not None:
            yield None, f"the input {value} claims to be the result of a node"
        made.add(value)
    for node in graph.nodes:
        for value in node.operands:
            if value not in made:
                yield node, f"{value} is used before it is made, or belongs to another graph"
        if (key := key_of(node, strides)) not in sound:
            wrong = [*wrong_arguments(node)]
            try:
                wrong += wrong_types(node, strides)
            except NoRule:  # which may depend on more than the key has
                key = None
            yield from ((node, why) for why in wrong)
            if key is not None and not wrong:
                sound.add(key)
        for position, value in enumerate(node.results):
            if value is None:
                continue
            yield from new_name(value, node, names)
            if value.node is not node or value.position != position:
                yield node, f"{value} does not know that it is result {position} of this node"
            made.add(value)
    yield from ((None, why) for why in wrong_writes(graph, made))
    yield from ((None, why) for why in wrong_outputs(graph, made))
    if before is not None:
        yield from ((None, why) for why in changed_signature(before, graph))


def new_name(value: Value, node: Node | None, names: set[str]) -> Iterator[Fault]:
    if value.name in names:
        yield node, f"the name {value} is given to two values, or is none"
    names.add(value.name)


# -- nodes -------------------------------------------------------------------------------------------------------------


MOST = 1 << 14
sound: set[tuple] = set()
"""Nodes with right arguments and types, by all that these depend on: most passes leave most nodes as they are."""


def key_of(node: Node, strides: bool) -> tuple | None:
    if node.op in (RUN, PREPARE):
        return None
    if len(sound) >= MOST:
        sound.clear()
    results = tuple([value and exactly(value) for value in node.results])
    key = (
        node.op,
        node.op.shape,
        exactly(node.args),
        exactly(node.kwargs),
        results,
        strides,
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        get_mkldnn_enabled(),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def exactly(tree: Any) -> Any:
    """A part of a key: of a value its type, and of constants their classes too, for True equals 1."""
    kind = type(tree)
    if kind is Value:
        return (tree.type, tree.type.example) if isinstance(tree.type, NumberType) else tree.type
    if kind in (tuple, list):
        return (kind, *[exactly(part) for part in tree])
    if kind is dict:
        return tuple([(name, exactly(part)) for name, part in tree.items()])
    return kind if kind is torch.Generator else (kind, tree)  # which no type depends on, and which is not kept


def wrong_arguments(node: Node) -> Iterator[str]:
    # The first argument of a chosen library call is its candidate object.
    args = node.args[1:] if node.op in (RUN, PREPARE) else node.args
    for arg in (*args, *node.kwargs.values()):
        yield from (
            f"{part!r} is not a constant that a graph may hold"
            for part in leaves(arg)
            if not isinstance(part, (Value, *CONSTANTS))
        )
    if node.op.target is None:
        return
    positional, required, known = parameters(node.op.target)
    if len(node.args) > len(positional):
        yield f"{node.op} takes at most {len(positional)} arguments by position, not {len(node.args)}"
    yield from (f"{node.op} has no argument called {name}" for name in node.kwargs if name not in known)
    missing = required.difference(positional[: len(node.args)], node.kwargs)
    if missing:
        yield f"{node.op} lacks {', '.join(sorted(missing))}"


@functools.cache
def parameters(target: OpOverload) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """The names of an operator's parameters: the positional ones, those without a default, and all."""
    arguments = target._schema.arguments
    return (
        tuple(argument.name for argument in arguments if not argument.kwarg_only),
        frozenset(argument.name for argument in arguments if not argument.has_default_value()),
        frozenset(argument.name for argument in arguments),
    )


def leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def wrong_types(node: Node, strides: bool) -> Iterator[str]:
    if not node.results or not (expected := ruled_types(node)):
        return
    if isinstance(expected, str):
        yield expected
        return
    if len(expected) != len(node.results):
        yield f"it has {len(node.results)} results, but its operator's rule makes {len(expected)}"
        return
    for value, type in zip(node.results, expected, strict=True):
        if value is None or type is None:
            # A node may leave out a result that is not used.
            if value is not None:
                yield f"{value} is made, but its operator's rule leaves it out"
        elif (
            (value.shape, value.dtype, value.type.device) != (type.shape, type.dtype, type.device)
            or strides
            and not same_layout(value.type, type)
        ):
            yield f"{value} has the type {value.type}, but its operator's rule says {type}"


def ruled_types(node: Node) -> tuple | str | None:
    """The result types by the shape rule; None if there is none, text if it fails."""
    if node.op is RUN:
        return (node.args[0].output, *(type for _, type in node.args[0].further))
    if node.op.shape is None:
        return None
    args = types_of(node.args)
    kwargs = {name: types_of(arg) for name, arg in node.kwargs.items()}
    try:
        found = node.op.shape(*args, **kwargs)
    except NoRule:
        raise
    except Exception as error:
        reraise_from_outside(error)
        return f"the shape rule of {node.op} does not take its arguments: {type(error).__name__}: {error}"
    return (found,) if isinstance(found, (TensorType, NumberType)) else tuple(found)


# -- writes, outputs and signature -------------------------------------------------------------------------------------


def wrong_writes(graph: Graph, made: set[Value]) -> Iterator[str]:
    written: set[int] = set()
    for write in graph.writes:
        if not 0 <= write.input < len(graph.inputs):
            yield f"{write.value} is written to the input number {write.input}, which does not exist"
            continue
        input = graph.inputs[write.input]
        if write.input in written:
            yield f"the input {input} is written twice"
        written.add(write.input)
        if write.value not in made:
            yield f"{write.value}, which is written to {input}, was never made"
        elif (write.value.shape, write.value.dtype) != (input.shape, input.dtype):
            yield f"{write.value}: {write.value.type} is written to {input}: {input.type}"


def wrong_outputs(graph: Graph, made: set[Value]) -> Iterator[str]:
    for out in graph.outputs:
        if isinstance(out, Alias):
            if not 0 <= out.input < len(graph.inputs):
                yield f"an output is an alias of the input number {out.input}, which does not exist"
                continue
            input = graph.inputs[out.input]
            shown = view_type(out.maps, input.type)
            if shown is None or not same_layout(shown, out.type or input.type):
                yield f"an output is an alias of {input} and has the type {out.type}, but its maps say {shown}"
        else:
            yield from (f"the output {value} was never made" for value in values_in(out) if value not in made)
            yield from (
                f"the output {part!r} is not a constant"
                for part in leaves(out)
                if not isinstance(part, (Value, *CONSTANTS))
            )


def changed_signature(before: Graph, after: Graph) -> Iterator[str]:
    """Changes that a caller would notice: other inputs, or outputs of other types."""
    old = [(value.name, value.type, value.is_state) for value in before.inputs]
    new = [(value.name, value.type, value.is_state) for value in after.inputs]
    if old != new:
        a, b = next(((a, b) for a, b in zip(old, new, strict=False) if a != b), (len(old), len(new)))
        yield f"the inputs were changed: {a} became {b}"
    if len(before.outputs) != len(after.outputs):
        yield f"there were {len(before.outputs)} outputs, now there are {len(after.outputs)}"
        return
    for number, (a, b) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        a, b = output_type(before, a), output_type(after, b)
        is_same = same_layout(a, b) if isinstance(a, TensorType) and isinstance(b, TensorType) else repr(a) == repr(b)
        if not is_same:
            yield f"the output number {number} was {a} and is {b} now"


def output_type(graph: Graph, out: Any) -> Any:
    if isinstance(out, Alias):
        return out.type or graph.inputs[out.input].type
    return out.type if isinstance(out, Value) else out


def surroundings(graph: Graph, node: Node) -> str:
    """The node with its neighbours, marked with an arrow."""
    at = next(k for k, other in enumerate(graph.nodes) if other is node)
    first = max(at - NEIGHBOURS, 0)
    return "\n".join(
        f"    {'> ' if other is node else '  '}{print_node(other)}"
        for other in graph.nodes[first : at + NEIGHBOURS + 1]
    )
