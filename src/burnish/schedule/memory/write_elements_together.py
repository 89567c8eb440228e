"""Writes of single elements to inputs, by kernels at the end of the plan.

    kernel add(b0: f32 out, b1: f32, ...)              kernel add(b0: f32 out, b1: f32, ...)
    call item add, …                           =>      call item add, …
    write step <- add                                  kernel write(b0: f32 out, b1: f32, ...)
    write step_1 <- add_1                                b0[0] = b1[0]; b2[0] = b3[0]
                                                       write step <- clone
                                                       write step_1 <- clone_1

The step counts of an optimizer cannot be stored in place: Python computes with the new ones, and may raise, which must
leave the old ones. As calls of torch, each copy and each allocation of a new count takes longer than the other work
for a small parameter. As operands of a kernel the new counts are intermediate values, and stay in the arena.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...ir import fuel
from ...ir.alias_analysis import storage_of
from ...ir.graph import Graph, Node, Value, Write, values_in
from ...ops.operator_record import lookup
from ...ops.scalar_ir import Access, load
from ...tensors.device_facts import is_host
from ...tensors.dtypes import NAMES
from ..loops.build_kernel import Launch
from ..loops.loop_ir import Kernel, Loop, Stage, Store

FEWEST = 2
"""Writes that are worth a kernel."""

MOST = 8
"""Writes of one kernel. Kernels of as many are equal, and compiled once."""


def write_elements_together(
    graph: Graph, steps: Sequence[Any], placed: Mapping[Value, Value]
) -> tuple[Graph, list[Any], dict[Value, Value]]:
    """The graph that writes the results of the last kernels, the steps with those kernels, and the values that need no
    memory, each with the input that it is stored in."""
    chosen = chosen_writes(graph, steps, placed)
    if len(chosen) < FEWEST or not fuel.allows("write_elements_together", chosen[0].value.node, "it is written later"):
        return graph, [*steps], {**placed}
    made = Graph()
    made.inputs, made.outputs, made.names = graph.inputs, graph.outputs, {**graph.names}
    made.nodes = [*graph.nodes]
    copies = {
        id(write): made.add(lookup(torch.ops.aten.clone.default), (write.value,), {}, write.value.type)
        for write in chosen
    }
    made.writes = [write.of(copies.get(id(write), write.value)) for write in graph.writes]
    targets = {copies[id(write)]: graph.inputs[write.input] for write in chosen}
    values = list(targets)
    launches = [launch_of_copies(values[at : at + MOST]) for at in range(0, len(values), MOST)]
    return made, [*steps, *launches], {**placed, **targets}


def chosen_writes(graph: Graph, steps: Sequence[Any], placed: Mapping[Value, Value]) -> list[Write]:
    """Writes of values that kernels make. Nothing else may see the input change: each kernel runs before the driver
    copies what is left, and before it makes views of inputs."""
    if not all(value.type.is_on_host for value in graph.inputs):
        return []  # a recording of launches on a GPU must see each call that works on the host
    stored = {step.buffers[at] for step in steps if isinstance(step, Launch) for at in step.kernel.stored}
    read = {storage_of(value) for value in (*values_in(tuple(graph.outputs)), *(w.value for w in graph.writes))}
    often = Counter(write.input for write in graph.writes)
    return [
        write
        for write in graph.writes
        if write.value in stored
        and write.value not in placed
        and is_element(write.value, graph.inputs[write.input])
        and graph.inputs[write.input] not in read
        and often[write.input] == 1
    ]


def is_element(value: Value, input: Value) -> bool:
    return value.type == input.type and value.type.numel == 1 and value.dtype in NAMES and is_host(value.type.device)


def launch_of_copies(copies: Sequence[Value]) -> Launch:
    buffers: dict[Value, int] = {}
    stores = []
    for copy in copies:
        node: Node = copy.node  # type: ignore[assignment]
        target, source = (buffers.setdefault(value, len(buffers)) for value in (copy, node.args[0]))
        name = NAMES[copy.dtype]
        stores.append(Store(Access(target, 0, ()), load(name, Access(source, 0, ()))))
    kernel = Kernel(
        "write",
        tuple(NAMES[value.dtype] for value in buffers),
        frozenset(buffers[copy] for copy in copies),
        (Loop((), 0, (Stage(stores=tuple(stores)),)),),
    )
    return Launch(kernel, tuple(buffers))
