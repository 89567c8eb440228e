"""What a plan costs, as plain data for reports: operations and bytes of each step, and the memory of each buffer.

    costs_of_plan(plan)           called by who listens to the event "plan"

    steps       kind, name, lines of the user's program, operations, bytes read and written, text
    peak        bytes of inputs (weights among them), outputs and intermediate values together
    buffers     name, offset in the arena, bytes, the first and the last step that need it

An operation is one addition, multiplication, comparison or function of one element; a fused multiply-add of a product
counts as two. It is None for library calls that torch's own counter does not know. Bytes are counted once for each
tensor that a step reads or writes, as if caches were large enough.
"""

from __future__ import annotations

import logging
from math import prod
from typing import Any

from ..concurrency.first_value_cache import once
from ..ir.alias_analysis import aliased_argument
from ..ir.graph import Node, Value, map_values, values_in
from ..ops.burnish_primitives import CHECK, RUN
from ..ops.scalar_ir import walk
from .loops.build_kernel import Launch
from .loops.loop_ir import Kernel, Loop, print_kernel
from .memory.liveness import liveness_of
from .plan_steps import Call, MakeView, Plan, Step, line_of, name_of

FREE = frozenset("const size load index reduced cast bitcast".split())
"""Of the operations of scalar expressions, those that compute nothing."""


PICKING = frozenset("aten.embedding.default aten.gather.default aten.index.Tensor aten.index_select.default".split())
"""Calls that read no more of their first operand than they return."""


def costs_of_plan(plan: Plan) -> dict[str, Any]:
    graph = plan.graph
    found = {
        "arena": plan.arena,
        "inputs": sum(value.type.bytes for value in graph.inputs),
        "outputs": sum(value.type.bytes for value in dict.fromkeys(values_in(tuple(graph.outputs)))),
    }
    found["peak"] = sum(found.values()) + largest_beside(plan)
    return {**found, "steps": [costs_of(step) for step in plan.steps], "buffers": buffers_of(plan)}


def largest_beside(plan: Plan) -> int:
    """The most bytes at one time that calls have allocated themselves, without the graph's outputs."""
    spans = [span for span in liveness_of(plan).beside if span.last < 2 * len(plan.steps)]
    return max((sum(s.size for s in spans if s.first <= at.first <= s.last) for at in spans), default=0)


def costs_of(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name_of(step), "lines": [line_of(step)], "operations": 0, "read": 0, "written": 0}
    match step:
        case MakeView():
            return found | {"kind": "view", "text": ""}
        case Launch(kernel, buffers):
            read, written = kernel_bytes(kernel, buffers)
            found |= {"kind": "kernel", "lines": list(kernel.origin), "text": print_kernel(kernel)}
            return found | {"operations": kernel_operations(kernel), "read": read, "written": written}
        case Call(node):
            found |= {"kind": "call", "text": str(node), "operations": call_operations(node)}
            if aliased_argument(node) is None:
                found["read"] = bytes_read(node)
                found["written"] = sum(value.type.bytes for value in node.results if value is not None)
            return found


def kernel_operations(kernel: Kernel) -> int:
    return sum(map(loop_operations, kernel.loops))


def loop_operations(loop: Loop) -> int:
    elements, rows, count = prod(loop.extents), prod(loop.extents[: loop.rows]), 0
    for stage in loop.stages:
        roots = [r.value for r in stage.reductions] + [s.value for s in stage.stores]
        each = sum(x.op not in FREE for x in walk(*roots)) + len(stage.reductions) + sum(s.adds for s in stage.stores)
        count += elements * each + rows * sum(x.op not in FREE for x in walk(*(s.value for s in stage.row_stores)))
    return count


def kernel_bytes(kernel: Kernel, buffers: tuple[Value, ...]) -> tuple[int, int]:
    """Read and written. Of a buffer that is read at indices from data, no more than the loops reach."""
    touched: dict[int, int] = dict.fromkeys(range(len(buffers)), 0)
    loaded = set()
    for loop in kernel.loops:
        stores = [s for stage in loop.stages for s in (*stage.stores, *stage.row_stores)]
        roots = [r.value for r in loop.reductions] + [x for s in stores for x in (s.value, *s.args)]
        accesses = {x.payload for x in walk(*roots) if x.op == "load"}
        loaded |= {access.buffer for access in accesses}
        for access in [*accesses, *(s.access for s in stores)]:
            touched[access.buffer] += prod(loop.extents)
    sizes = [
        min(value.type.bytes, touched[k] * max(value.type.bytes // max(value.type.numel, 1), 1))
        for k, value in enumerate(buffers)
    ]
    return sum(sizes[k] for k in loaded), sum(sizes[k] for k in kernel.stored)


def bytes_read(node: Node) -> int:
    if node.op is RUN:  # the type of a packed weight does not say how large it is
        return sum(type.bytes for type in node.args[0].spec.inputs.values())
    sizes = {value: value.type.bytes for value in node.operands}
    if node.op is CHECK:  # the others are for the message
        return sizes[node.operands[0]]
    if node.op.name in PICKING:
        table = node.operands[0]
        sizes[table] = min(sizes[table], sum(value.type.bytes for value in node.results if value is not None))
    return sum(sizes.values())


def call_operations(node: Node) -> int | None:
    if node.op is RUN:
        found: int | None = getattr(node.args[0].spec, "flops", None)
        return found
    if aliased_argument(node) is not None:
        return 0
    count = flop_counts().get(getattr(node.op.target, "overloadpacket", None))
    if count is None:
        return None
    args, kwargs = (map_values(given, lambda value: value.shape) for given in (node.args, tuple(node.kwargs.items())))
    made = [None if value is None else value.shape for value in node.results]
    return int(count(*args, **dict(kwargs), out_val=made[0] if len(made) == 1 else made))


@once
def flop_counts() -> dict[Any, Any]:
    """Torch's counter imports triton, and logs where there is none. A program without a report pays for neither."""
    logger = logging.getLogger("torch.utils.flop_counter")
    before, logger.disabled = logger.disabled, True
    try:
        from torch.utils.flop_counter import flop_registry
    finally:
        logger.disabled = before
    return flop_registry


def buffers_of(plan: Plan) -> list[dict[str, Any]]:
    """Those in the arena. With symbolic sizes there are none yet."""
    if not plan.offsets:
        return []
    return [
        {
            "name": str(live.value),
            "offset": plan.offsets[live.value],
            "bytes": live.value.type.bytes,
            "first": live.first // 2,
            "last": live.last // 2,
        }
        for live in liveness_of(plan).ranges
        if live.value in plan.offsets
    ]
