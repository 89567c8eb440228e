"""In-place element-wise kernels: a result reuses the buffer of an operand with no later reader.

    kernel gelu(b0: f32, b1: f32 out)                    kernel gelu(b0: f32 out)
      loop i0 < 64                                =>       loop i0 < 64
        stage                                                stage
          b1[i0] = gelu(b0[i0])                                b0[i0] = gelu(b0[i0])
      on run, gelu                                         on gelu, which lies over run

It takes half the memory, and what is written lies in the caches already. What lies below was made in this program:
inputs stay as they are (`in_place` is about those that are written to). Only on CPUs: what a GPU has from its allocator
goes back as soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import fuel
from ...ir.alias_analysis import storage_of
from ...ir.graph import Graph, Value, values_in
from ...ops.burnish_primitives import ASSEMBLED, RUN
from ..loops.build_kernel import Launch
from .store_inputs_in_place import with_one_buffer_each

WORTH = 1 << 12
"""Bytes. What is smaller stays where it is."""


def reuse_elementwise_buffers(
    graph: Graph, steps: Sequence[Any], used: Sequence[Sequence[Value]], placed: set[Value]
) -> tuple[list[Any], dict[Value, Value]]:
    """The steps with such kernels changed, and what lies over what. `used` are the values that each step touches;
    `placed` are those that lie in inputs."""
    steps = list(steps)
    last = {storage_of(value): number for number, values in enumerate(used) for value in values}
    leaving = {storage_of(value) for value in (*values_in(tuple(graph.outputs)), *(w.value for w in graph.writes))}
    joined = {
        value
        for node in graph.nodes
        if node.op is ASSEMBLED
        for value in (*node.operands, *node.results)
        if value is not None
    }
    apart = placed | joined
    made = {value for node in graph.nodes if node.op is RUN for value in node.results if value is not None}
    over: dict[Value, Value] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, Launch):
            continue
        stored = [step.buffers[at] for at in sorted(step.kernel.stored)]
        below = [
            value
            for value in step.buffers
            if value in made
            and value not in stored
            and value not in leaving
            and value not in apart
            and last[value] == number
            and value.type.bytes >= WORTH
            and value.type.device.type == "cpu"
        ]
        for value in stored if below else ():
            if value in apart or storage_of(value) is not value:
                continue
            if value in leaving and value not in graph.outputs:
                continue  # of which a view leaves the graph: its memory is made in the shape of that
            for other in below:
                if other.type != value.type and (value in leaving or not lies_alike(other, value)):
                    continue
                if not fuel.allows("reuse_elementwise_buffers", value.node, "it is stored over", other):
                    continue
                steps[number], done = with_one_buffer_each(steps[number], [(other, value)])
                if done:
                    over[value] = other
                    below.remove(other)
                    break
        made.update(value for value in stored if storage_of(value) is value)
    return steps, over


def lies_alike(a: Value, b: Value) -> bool:
    """Whether the elements of one lie where the other's do, one after the other."""
    return a.dtype is b.dtype and a.type.numel == b.type.numel and a.type.is_contiguous and b.type.is_contiguous


__all__ = ["reuse_elementwise_buffers"]
