"""View elision: the views of a plan that need no tensor of their own in its driver."""

from __future__ import annotations

from collections import Counter

from ...ir.graph import Value, values_in
from ...ops.burnish_primitives import RUN
from ...schedule.loops.build_kernel import Launch
from ...schedule.memory.liveness import is_native
from ...schedule.plan_steps import Call, MakeView, Plan
from ...tensors.tensor_types import span


def handed_on(plan: Plan) -> set[Value]:
    """Tensors whose receiver may read their base: callers, and operators in general. A product or a convolution only
    reads the memory."""
    found = set(plan.graph.leaving_values())
    found |= {
        value
        for step in plan.steps
        if isinstance(step, Call) and step.node.op is not RUN
        for value in step.node.operands
    }
    for step in reversed(plan.steps):
        if isinstance(step, MakeView) and step.value in found:
            found.add(step.source)
    return found


def made_as_shown(plan: Plan) -> dict[Value, MakeView]:
    """Values of native functions that are only used through one view of the whole, which is returned. Their memory is
    allocated with the view's shape: it saves the view, and the returned tensor is not a view of another one.

        sum = empty_cpu((1, 32), (32, 1))               bias_grad = empty_cpu((32,), (1,))
        …                                        =>     …
        bias_grad = as_strided(sum, (32,), (1,), …)
    """
    returned = {*values_in(tuple(plan.graph.outputs))}
    seen = {*returned, *(write.value for write in plan.graph.writes)}
    seen |= {value for step in plan.steps if isinstance(step, Call) for value in step.node.operands}
    made = {step.buffers[at] for step in plan.steps if isinstance(step, Launch) for at in step.kernel.stored}
    made |= {
        value
        for step in plan.steps
        if isinstance(step, Call) and is_native(step.node)
        for value in step.node.results
        if value is not None
    }
    made -= {*seen, *plan.offsets, *plan.placed, *plan.in_place}
    shows = [step for step in plan.steps if isinstance(step, MakeView)]
    often = Counter(step.source for step in shows)
    return {
        step.source: step
        for step in shows
        if step.source in made
        and often[step.source] == 1
        and step.value in returned
        and step.offset == 0
        and all(type.numel == span(type.shape, type.stride) for type in (step.type, step.source.type))
        and step.type.numel == step.source.type.numel
        and step.type.dtype == step.source.type.dtype
    }


def bases_of_unseen(plan: Plan) -> dict[Value, Value]:
    """Views without an offset that only native functions read, with their bases: the address of the base is enough."""
    seen = {*plan.graph.leaving_values(), *plan.offsets}
    bases: dict[Value, Value] = {}
    for step in plan.steps:
        if isinstance(step, Call) and not is_native(step.node):
            seen |= {*step.node.operands, *step.node.results}
    for step in reversed(plan.steps):
        if isinstance(step, MakeView):
            if step.value in seen or step.offset:
                seen.add(step.source)
            else:
                bases[step.value] = step.source
    for value, base in reversed(bases.items()):
        bases[value] = bases.get(base, base)
    return bases
