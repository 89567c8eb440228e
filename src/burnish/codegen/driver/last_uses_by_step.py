"""Liveness across the steps of a plan: the last step that reads each value, and the first that writes to an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.graph import Alias, Value, values_in
from ...schedule.loops.build_kernel import Launch
from ...schedule.plan_steps import Call, MakeView, Plan


def last_uses(plan: Plan, inputs: Sequence[Value], bases: Mapping[Value, Value]) -> dict[int, list[Value]]:
    """For each step the local values, and the given inputs, that it reads last."""
    graph = plan.graph
    last: dict[Value, int] = {}
    for number, step in enumerate(plan.steps):
        match step:
            case Launch(_, buffers):
                used: list[Value] = list(buffers)
            case Call(node):
                used = [*node.operands, *(v for v in node.results if v is not None)]
            case MakeView(value, source, _, _):
                used = [value, source]
        for value in used:
            last[bases.get(value, value)] = number
    lies_over = {below: value for value, below in plan.in_place.items()}
    for value, (host, _) in plan.in_output_buffer.items():
        below: Value | None = host
        while below is not None:
            last[below] = max(last.get(below, 0), last.get(value, 0))  # type: ignore[arg-type]
            below = lies_over.get(below)
    shown = {graph.inputs[out.input] for out in graph.outputs if isinstance(out, Alias)}
    kept = {
        *plan.placed,
        *plan.in_place.values(),
        *shown,
        *(set(graph.inputs) - set(inputs)),
        *values_in(tuple(graph.outputs)),
        *(value for write in graph.writes for value in (write.value, graph.inputs[write.input])),
    }
    found: dict[int, list[Value]] = {}
    for value, number in last.items():
        if value not in kept:
            found.setdefault(number, []).append(value)
    return found


def first_write(plan: Plan) -> int | None:
    """The first step that writes to an input, if a later step calls an operator, which may raise. An error from there
    on says that inputs were written (`runtime.program.restore_inputs_on_error`)."""
    stored = [number for number, step in enumerate(plan.steps) if not plan.placed.keys().isdisjoint(stored_by(step))]
    called = [number for number, step in enumerate(plan.steps) if isinstance(step, Call)]
    return stored[0] if stored and called and called[-1] >= stored[0] else None


def stored_by(step: Any) -> list[Value]:
    match step:
        case Launch(kernel, buffers):
            return [buffers[at] for at in kernel.stored]
        case Call(node):
            return [value for value in node.results if value is not None]
    return []
