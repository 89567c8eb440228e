"""In-place element-wise kernels: a result reuses the buffer of an operand that has no later reader.

    kernel gelu(b0: f32, b1: f32 out)                    kernel gelu(b0: f32 out)
      loop i0 < 64                                =>       loop i0 < 64
        stage                                                stage
          b1[i0] = gelu(b0[i0])                                b0[i0] = gelu(b0[i0])
      on run, gelu                                         on gelu, which reuses the buffer of run

Buffer reuse halves the memory, and the written lines are already in the cache. Only buffers of intermediate values are
reused: inputs are left unchanged (`store_inputs_in_place` handles those that are written), except for those that
backward is given by forward and that nothing else refers to.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from ...ir import fuel
from ...ir.alias_analysis import storage_of
from ...ir.graph import Graph, Value
from ...ops.burnish_primitives import ASSEMBLED, RUN
from ...ops.target_record import target_of
from ...tensors.eager_strides import is_dense
from ..loops.build_kernel import Launch
from .store_inputs_in_place import with_one_buffer_each

WORTH = 1 << 12
"""In bytes. Smaller values keep their own buffer."""


PRODUCTS = frozenset(f"aten.{name}.default" for name in ("mm", "addmm", "bmm", "baddbmm", "convolution"))
"""Operators whose results have memory of their own, without gaps. On a target with an arena, torch allocates them as
before: their memory is not in the arena."""


def reuse_elementwise_buffers(
    graph: Graph, steps: Sequence[Any], used: Sequence[Sequence[Value]], placed: set[Value], donated: Container[Value]
) -> tuple[list[Any], dict[Value, Value]]:
    """The changed steps, and the value whose buffer each value reuses. `used` are the values that each step reads or
    writes; `placed` are those that are stored in inputs, and `donated` inputs that may be overwritten."""
    steps = list(steps)
    last = {storage_of(value): number for number, values in enumerate(used) for value in values}
    leaving = {storage_of(value) for value in graph.leaving_values()}
    joined = {
        value
        for node in graph.nodes
        if node.op is ASSEMBLED
        for value in (*node.operands, *node.results)
        if value is not None
    }
    apart = placed | joined
    made = {
        value
        for node in graph.nodes
        for value in node.results
        if value is not None and (node.op is RUN or node.op.name in PRODUCTS and not has_arena(value))
    }
    made.update(value for value in graph.inputs if value in donated)
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
        ]
        for value in stored if below else ():
            if value in apart or storage_of(value) is not value:
                continue
            if value in leaving and value not in graph.outputs:
                continue  # a view of it is an output: its buffer is allocated in the shape of that view
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
    """Whether both take the same memory, without gaps."""
    return a.dtype is b.dtype and a.type.numel == b.type.numel and is_dense(a.type) and is_dense(b.type)


def has_arena(value: Value) -> bool:
    target = target_of(value.type.device)
    return target is None or target.has_arena
