"""Compiles a captured graph to a recipe: the compiler's stages, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from .. import events
from ..captured_graph.compile_request import request_of
from ..codegen.driver.generate_driver import write_driver
from ..codegen.llvm.compile_to_machine_code import OBJECT_CODE, toolchain_key
from ..codegen.llvm.functions.frozen_weights_compare import memory_comparer
from ..codegen.llvm.kernel_sequence import runner
from ..concurrency.first_value_cache import once
from ..errors import InternalError
from ..ir.graph import Graph, Value
from ..ir.joint_graph_signature import Gradients
from ..lower.pipeline import Lowered, lower
from ..ops.burnish_primitives import ASSEMBLED, RUN
from ..ops.library.collective_calls import is_collective
from ..ops.target_record import target_of
from ..runtime.disk.compiler_identity import compiler_identity
from ..runtime.linking.cuda_module_loader import CudaKernel
from ..runtime.program.native_kernels import NativeKernel
from ..runtime.program.unbound_driver import UnboundDriver
from ..schedule.library.choose_calls import choose_calls
from ..schedule.loops.build_kernel import Launch
from ..schedule.partition.rematerialize_whole_step import rematerialize
from ..schedule.pipeline import make_plan
from ..schedule.plan_steps import Call, Plan, plan_of_calls
from ..schedule.rewrites.fold_constants import fold_constants
from ..settings import current
from ..targets.cpu import MEASURED, compile_kernels, host
from ..targets.cuda import cubins_here
from ..targets.kernel_compilers import compile_launches
from ..tensors.device_facts import DEVICES, gpus_of
from .describe_for_autograd import divided, donated_inputs, split_forward_and_backward
from .program_recipe import Divided, Frozen, Halved, NativeTools, Plain, Recipe
from .program_serialization import KIND
from .provide_guard_watch import KIND as WATCHER_KIND
from .provide_guard_watch import watch_at_hand


def compile_graph(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool = False, live_scalar_types: tuple[type, ...] = ()
) -> Recipe:
    """Raises Untraceable if the graph contains calls that must run eagerly. With `gradients` the results are autograd's
    if an input requires gradients. Inputs that are numbers of the types `live_scalar_types` stay live scalars."""
    for device in gpus_of(example_inputs):
        target_of(device)  # it gets ready while the graph is lowered
    lowered = lower(gm, example_inputs, gradients, live_scalar_types)
    written = written_inputs(lowered)
    reaches = reaches_of(lowered.graph, example_inputs) if written else {}
    made = [lowered.traced, lowered.graph]
    if lowered.gradients is not None and (lowered.gradients.flows or lowered.gradients.input_aliases):
        recipe = Recipe(differentiable(lowered, lowered.gradients, made), False, written, reaches)
    else:
        is_training_step = any(node.target is torch.autograd.grad for node in gm.graph.nodes)
        recipe = Recipe(parts_of(lowered, is_training_step, made), lowered.gradients is not None, written, reaches)
    if request_of(gm).is_local:
        check_order(lowered.traced, made[-parts_in(recipe) :])
    if not (events.is_watched("lower") or events.is_watched("loops") or events.is_asked_for("plan")):
        for graph in made:
            graph.break_reference_cycles()
    return recipe


def parts_in(recipe: Recipe) -> int:
    """How many graphs a recipe runs, but for a prologue."""
    match recipe.parts:
        case Halved():
            return 2
        case Divided(_, backwards):
            return 1 + len(backwards)
    return 1


def check_order(traced: Graph, parts: Sequence[Graph]) -> None:
    """All processes run the same collectives in the order of the trace, those as well that run eagerly. Otherwise they
    would wait for each other."""
    found = [each for graph in parts for each in collectives_of(graph)]
    expected = collectives_of(traced)
    if found != expected and (len(parts) < 3 or sorted(found) != sorted(expected)):  # pieces of backward have no order
        raise InternalError("collectives", f"{', '.join(found)} in place of {', '.join(expected)}")


def collectives_of(graph: Graph) -> list[str]:
    return [
        f"{node.op.name} {[arg for arg in node.args if not isinstance(arg, Value)]}"
        for node in graph.nodes
        if is_collective(node.op.name)
    ]


def written_inputs(lowered: Lowered) -> tuple[int, ...]:
    """The positions of inputs that forward writes to."""
    count = len(lowered.graph.inputs) if lowered.gradients is None else lowered.gradients.tangents
    return tuple(write.input for write in lowered.graph.writes if write.input < count)


@once
def tools() -> NativeTools:
    return NativeTools(runner(), memory_comparer(), watch_at_hand)


def reaches_of(graph: Graph, example_inputs: Sequence[Any]) -> dict[int, int]:
    """How many bytes each tensor input spans. A number also has a value of tensor type in the graph."""
    found = {}
    for k, (value, example) in enumerate(zip(graph.inputs, example_inputs, strict=False)):
        if isinstance(example, torch.Tensor) and value.type.device.type in DEVICES and value.type.numel:
            far = sum((size - 1) * stride for size, stride in zip(value.shape, value.type.stride, strict=True))
            found[k] = (far + 1) * value.dtype.itemsize
    return found


def parts_of(lowered: Lowered, is_training_step: bool, made: list[Graph]) -> Plain | Frozen:
    """All graphs on the way are added to `made`."""
    graph, constants = choose_calls(lowered.graph), lowered.constants
    made.append(graph)
    if is_training_step:
        graph = rematerialize(graph, len(constants), current().memory_budget)
        made.append(graph)
    # A changed weight is detected by reading it, which on a GPU would mean to wait for it.
    is_here = all(value.type.is_on_host for value in graph.inputs)
    parts = fold_constants(graph) if is_here else None
    if parts is None:
        return Plain(compiled(graph, constants, made, is_training_step=is_training_step))
    prologue, main = parts
    made += parts
    once = write_driver(plan_of_calls(prologue), [], constants)
    read = {value for node in prologue.nodes for value in node.operands}
    state = tuple(k for k, value in enumerate(prologue.inputs) if value in read and value.is_state)
    bound = range(len(prologue.inputs), len(main.inputs))
    return Frozen(compiled(main, constants, made, bound, is_training_step), once, state)


def differentiable(lowered: Lowered, gradients: Gradients, made: list[Graph]) -> Halved | Divided:
    """Compiles forward and backward. All graphs on the way are added to `made`."""
    graph, values = choose_calls(lowered.graph), list(lowered.constants.values())
    made.append(graph)
    if gradients.pieces:
        graphs, pieces, outputs = divided(graph, gradients, len(values))
        plans = [make_plan(part, frees_arena=True) for part in graphs]
        made += [*graphs, *(plan.graph for plan in plans)]
        forward, *backwards = drivers_of(plans, values)
        return Divided(forward, tuple(backwards), pieces, outputs)
    halves, layout = split_forward_and_backward(graph, gradients, len(values))
    plans = [make_plan(halves.forward, frees_arena=True)]
    # A part of a concatenation may be in the memory of the whole.
    is_whole = all(node.op is not ASSEMBLED for node in plans[0].graph.nodes)
    donated = donated_inputs(halves, len(values)) if is_whole else {}
    plans.append(make_plan(halves.backward, frees_arena=True, donated=list(donated)))
    places = {value: k for k, value in enumerate(plans[1].graph.inputs)}
    used = sorted(donated[places[below]] for below in plans[1].in_place.values() if below in places)
    made += [halves.forward, halves.backward, *(plan.graph for plan in plans)]
    return Halved(*drivers_of(plans, values), replace(layout, overwritten=tuple(used)))


def drivers_of(plans: Sequence[Plan], constants: Sequence[torch.Tensor]) -> list[UnboundDriver]:
    """The drivers of forward and of its backwards."""
    kernels = iter(
        kernels_for(
            [launch for plan in plans for launch in launches_of(plan)],
            [call for plan in plans for call in own_calls_of(plan)],
        )
    )
    return [
        write_driver(
            plan,
            [next(kernels) for _ in launches_of(plan)],
            dict(enumerate(constants, len(plan.graph.inputs) - len(constants))),
            takes_list=number > 0,
        )
        for number, plan in enumerate(plans)
    ]


def compiled(
    graph: Graph,
    constants: Mapping[int, torch.Tensor],
    made: list[Graph],
    bound: Sequence[int] = (),
    is_training_step: bool = False,
) -> UnboundDriver:
    plan = make_plan(graph, is_training_step=is_training_step)
    made.append(plan.graph)
    return write_driver(plan, kernels_for(launches_of(plan), own_calls_of(plan)), constants, bound=bound)


def launches_of(plan: Plan) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


def kernels_for(launches: list[Launch], others: list[Callable[[], object]]) -> list[NativeKernel | CudaKernel]:
    """`others` are compiled in parallel with the kernels of the CPU."""
    return compile_launches(launches, lambda some: compile_kernels([launch.kernel for launch in some], others))


def entry_versions() -> dict[str, str]:
    """For each kind of entry on disk, the versions and the target that this process compiles with."""
    here = {
        KIND: compiler_identity(),
        WATCHER_KIND: compiler_identity(),
        OBJECT_CODE: toolchain_key(host()),
        MEASURED: compiler_identity(),
    }
    return here | cubins_here()


def own_calls_of(plan: Plan) -> list[Callable[[], object]]:
    """The compilation jobs of library calls that are our own native functions."""
    candidates = [step.node.args[0] for step in plan.steps if isinstance(step, Call) and step.node.op is RUN]
    return [candidate.steps for candidate in candidates if candidate.steps is not None]
