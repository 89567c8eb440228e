"""Scheduling: builds the plan of one graph, that is its steps in order and the memory of each value.

plan = make_plan(graph)
plan.steps       Launch (a kernel), Call (an operator's eager kernel) and MakeView (a view of a value in memory)
plan.offsets     the arena offset of each intermediate value
plan.in_output_buffer
                 intermediate values that share the buffer of an output, which is written only after their last use
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence

from .. import events
from ..ir.alias_analysis import is_memory_view
from ..ir.graph import Graph, Node, Value
from ..ir.verify_and_publish_graph import announce
from ..ops.burnish_primitives import ASSEMBLED, CHECK, VIEW
from ..tensors.views.index_range_conditions import noting
from ..tensors.views.view_maps import view_offset
from .fusion.fuse_gathers import fuse_gathers
from .fusion.fuse_loops import Fusion, Unit, fuse_loops
from .fusion.fuse_scatters import fuse_scatters
from .fusion.fusion_groups import Group, is_reduction
from .fusion.horizontal_fusion import fuse_horizontally
from .fusion.split_reductions import split_reductions
from .layouts.verify_plan_layouts import verify_layouts
from .loops.build_kernel import Launch, build_kernel
from .memory.concat_in_place import concat_in_place
from .memory.elementwise_buffer_reuse import reuse_elementwise_buffers
from .memory.in_place_library_calls import run_library_calls_in_place
from .memory.liveness import place_in_arena
from .memory.order_products import order_products
from .memory.store_inputs_in_place import store_in_place
from .memory.write_elements_together import write_elements_together
from .partition.loop_or_library_call import Classes, classify_nodes
from .partition.rematerialize_whole_step import memory_peak
from .plan_steps import Call, MakeView, Plan, Step
from .rewrites.hoist_error_checks import hoist_error_checks, last_that_may_fail

STEPS = (
    hoist_error_checks,  # a run that raises must not have written its inputs
    concat_in_place,
    split_reductions,
    fuse_gathers,
    fuse_scatters,
)
"""Graph rewrites that run before the graph is turned into loops, in this order."""


@events.stage("schedule")
def make_plan(
    graph: Graph,
    is_symbolic: bool = False,
    frees_arena: bool = False,
    is_training_step: bool = False,
    donated: Sequence[int] = (),
    merged: list[bool] | None = None,
) -> Plan:
    """`is_symbolic`: the graph has symbolic sizes; the plan is one of several, and their memory is planned together.
    `merged`: what the first of them decides about pairs of kernels by their sizes, for the others.
    `frees_arena`: much other memory is needed between two runs, so a large arena is allocated per run.
    `is_training_step`: the graph is a whole training step, forward and then backward. `donated`: positions of
    inputs whose memory kernels may use for results, as nothing else refers to it."""
    for step in STEPS:
        if is_symbolic and step is split_reductions:
            continue  # with symbolic sizes, `split_symbolic_reductions` has already split them
        before, graph = graph, step(graph)
        announce(step.__name__, graph, before)
    classes = classify_nodes(graph, is_symbolic)
    fusion = fuse_loops(graph, classes, memory_peak(graph) if is_training_step else 0)
    with noting() if is_symbolic else contextlib.nullcontext([]) as noted:
        steps = steps_of(graph, classes, fusion, donated)
    steps, apart = fuse_horizontally(steps, lambda step: isinstance(step, MakeView), merged)
    calls = [step.node if isinstance(step, Call) else None for step in steps]
    checked = last_that_may_fail(calls)
    steps, placed = store_in_place(graph, steps, [values_touched(step) for step in steps], checked)
    graph, steps, placed = write_elements_together(graph, steps, placed)
    calls = [step.node if isinstance(step, Call) else None for step in steps]
    written, within = run_library_calls_in_place(graph, calls, [values_touched(step) for step in steps], checked)
    steps = [Call(step.node, written.get(step.node)) if isinstance(step, Call) else step for step in steps]
    in_place: dict[Value, Value] = {}
    if not is_symbolic:
        steps, in_place = reuse_elementwise_buffers(
            graph,
            steps,
            [values_touched(step) for step in steps],
            {*placed, *within},
            {graph.inputs[k] for k in donated},
        )
    plan = Plan(graph, steps, placed=placed | within, in_place=in_place, noted=noted)
    if not is_symbolic:
        place_in_arena(plan, frees_arena)
    verify_layouts(plan)
    if events.is_watched("loops"):
        why = "\n".join([explain(classes, fusion), *apart])
        events.emit("loops", text=f"{plan}\n{why}", plan=plan)
    if events.is_asked_for("plan"):  # what fails in a listener does not end the compilation
        from .plan_costs_for_reports import costs_of_plan

        events.emit("plan", describe=functools.partial(costs_of_plan, plan))
    return plan


def values_touched(step: Step) -> list[Value]:
    """The values that a step reads or writes."""
    match step:
        case Launch(_, buffers):
            return list(buffers)
        case MakeView(value, source, _, _):
            return [value, source]
        case Call(node):
            return [*node.operands, *(value for value in node.results if value is not None)]


def explain(classes: Classes, fusion: Fusion) -> str:
    """Says why nodes were not fused or became library calls."""
    lines = [
        f"library call: {node.results[0] if node.results else node}: {why}"
        for node, why in classes.why_library.items()
        if node.op is not ASSEMBLED and node.op is not CHECK
    ]
    for unit in fusion.units:
        if isinstance(unit.what, Group):
            lines += [f"not fused with {', '.join(map(str, unit.what.roots))}: {why}" for why in unit.what.refusals]
    return "\n".join(lines)


def steps_of(graph: Graph, classes: Classes, fusion: Fusion, donated: Sequence[int] = ()) -> list[Step]:
    needed = needed_in_memory(graph, fusion)
    steps: list[Step] = []
    shown: set[Value] = set()

    def show(value: Value) -> None:
        """Emits the view of a value that a step outside loops reads. Views are emitted at their first reader."""
        chain: list[Value] = []
        while (node := value.node) is not None and node.op is VIEW and value not in shown:
            if value in fusion.unit_of:
                break
            chain.append(value)
            value = node.args[0]
        for value in reversed(chain):
            assert is_memory_view(value), value.node
            source, maps = value.node.args  # type: ignore[union-attr]
            shown.add(value)
            steps.append(MakeView(value, source, value.type, view_offset(maps, source.type)))

    kept = (*graph.outputs, *(write.value for write in graph.writes))
    for unit in order_products(in_order(fusion.units), fusion, kept, {graph.inputs[k] for k in donated}):
        if isinstance(unit.what, Group):
            wanted = {root for root in unit.what.roots if root in needed}
            if wanted:
                steps.append(build_kernel(unit.what, wanted, classes))
        else:
            for value in unit.what.operands:
                show(value)
            if unit.what.op is not ASSEMBLED:
                steps.append(Call(unit.what))
    for value in graph.leaving_values():
        show(value)
    return steps


def needed_in_memory(graph: Graph, fusion: Fusion) -> set[Value]:
    """The values that are read outside their own fusion group."""
    needed: set[Value] = set()

    def need(value: Value) -> None:
        while value not in fusion.unit_of and value.node is not None and value.node.op is VIEW:
            value = value.node.args[0]
        needed.add(value)

    for value in graph.leaving_values():
        need(value)
    for unit in fusion.units:
        if isinstance(unit.what, Node):
            for value in unit.what.operands:
                need(value)
    for value, reads in fusion.reads.items():
        for read, _ in reads:
            if fusion.unit_of.get(read) is not fusion.unit_of[value]:
                needed.add(read)
    return needed


def in_order(units: list[Unit]) -> list[Unit]:
    """Topological order that keeps the original order where it can, and schedules producers right before their reader.
    A unit that reads only inputs could run first, but its result would then occupy memory until it is read.
    A unit that only reduces runs before the next library call: its input is still in the cache, which the call may
    evict."""
    numbered = {unit.number: unit for unit in units}
    sums = [unit for unit in units if unit.needs and only_sums(unit)]
    done, order = 0, []

    def put(unit: Unit) -> None:
        nonlocal done, sums
        if isinstance(unit.what, Node):
            ready = [each for each in sums if not each.needs & ~done]
            sums = [each for each in sums if each not in ready]
            for each in ready:
                if not done >> each.number & 1:
                    order.append(each)
                    done |= 1 << each.number
        order.append(unit)
        done |= 1 << unit.number

    for unit in units:
        stack = [] if done >> unit.number & 1 else [unit]
        while stack:
            assert len(stack) <= len(units), "the units need one another"
            left = stack[-1].needs & ~done
            if left:
                stack.append(numbered[(left & -left).bit_length() - 1])
            else:
                put(stack.pop())
    return order


def only_sums(unit: Unit) -> bool:
    return isinstance(unit.what, Group) and all(map(is_reduction, unit.what.roots))
