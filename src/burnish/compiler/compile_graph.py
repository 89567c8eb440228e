"""Compiles a captured graph to a recipe: the compiler's stages, one after the other."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from ..codegen.driver.generate_driver import write_driver
from ..codegen.llvm.compile_to_machine_code import OBJECT_CODE, toolchain_key
from ..codegen.llvm.functions.memory_compare import memory_comparer
from ..codegen.llvm.kernel_sequence import runner
from ..concurrency.compute_once import once
from ..ir.alias_analysis import is_memory_view
from ..ir.frozen_values import is_random
from ..ir.gradient_signature import Gradients
from ..ir.graph import Alias, Graph, Value
from ..ir.untraceable_graph import Untraceable
from ..lower.pipeline import Lowered, lower
from ..ops.burnish_primitives import RUN
from ..runtime.devices import gpus_of
from ..runtime.disk.disk_cache import disk_cache
from ..runtime.linking.cuda_module_loader import CudaKernel
from ..runtime.program.autograd_function import GradientLayout
from ..runtime.program.native_kernels import NativeKernel
from ..runtime.program.shared_gradients import PassedOn, Shown
from ..runtime.program.unbound_driver import UnboundDriver
from ..schedule.library.autotune_candidates import memory
from ..schedule.library.choose_calls import choose_calls
from ..schedule.loops.build_kernel import Launch
from ..schedule.partition.fold_constants import fold_constants
from ..schedule.partition.partition_joint_graph import Halves, partition_joint_graph
from ..schedule.partition.rematerialize import rematerialize
from ..schedule.pipeline import make_plan
from ..schedule.plan_steps import Call, Plan, plan_of_calls
from ..settings import current
from ..targets.cpu import compile_kernels, host
from ..targets.cuda import cubins_here, register_gpus
from ..targets.kernel_compilers import compile_launches
from ..tensors.view_maps import view_offset
from .graph_cache_key import compiler_identity
from .guard_watch_function import KIND as WATCHER_KIND
from .guard_watch_function import watch_at_hand
from .program_cache import KIND
from .program_recipe import Frozen, Halved, Plain, Recipe, Tools

__all__ = ["compile_graph", "tools"]


def compile_graph(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool = False, live_scalar_types: tuple[type, ...] = ()
) -> Recipe:
    """Raises Untraceable if the graph contains calls that must run eagerly. With `gradients` the results are autograd's
    if an input requires gradients. Inputs that are numbers of the types `live_scalar_types` stay live scalars."""
    if gpus_of(example_inputs):
        register_gpus()
    lowered = lower(gm, example_inputs, gradients, live_scalar_types)
    written = written_inputs(lowered)
    reaches = reaches_of(lowered.graph, example_inputs) if written else {}
    if lowered.gradients is not None and (lowered.gradients.flows or lowered.gradients.input_aliases):
        return Recipe(differentiable(lowered, lowered.gradients), False, written, reaches)
    is_training_step = any(node.target is torch.autograd.grad for node in gm.graph.nodes)
    return Recipe(parts_of(lowered, is_training_step), lowered.gradients is not None, written, reaches)


def written_inputs(lowered: Lowered) -> tuple[int, ...]:
    """The positions of inputs that forward writes to."""
    count = len(lowered.graph.inputs) if lowered.gradients is None else lowered.gradients.tangents
    return tuple(write.input for write in lowered.graph.writes if write.input < count)


@once
def tools() -> Tools:
    return Tools(runner(), memory_comparer(), watch_at_hand)


def reaches_of(graph: Graph, example_inputs: Sequence[Any]) -> dict[int, int]:
    """How many bytes each tensor input spans. A number also has a value of tensor type in the graph."""
    found = {}
    for k, (value, example) in enumerate(zip(graph.inputs, example_inputs, strict=False)):
        if isinstance(example, torch.Tensor) and value.type.device.type in ("cpu", "cuda") and value.type.numel:
            far = sum((size - 1) * stride for size, stride in zip(value.shape, value.type.stride, strict=True))
            found[k] = (far + 1) * value.dtype.itemsize
    return found


def parts_of(lowered: Lowered, is_training_step: bool = False) -> Plain | Frozen:
    graph, constants = choose_calls(lowered.graph), lowered.constants
    if is_training_step:
        graph = rematerialize(graph, len(constants), current().memory_budget)
    # A changed weight is detected by reading it, which on a GPU would mean to wait for it.
    is_here = all(value.type.device.type == "cpu" for value in graph.inputs)
    parts = fold_constants(graph) if is_here else None
    if parts is None:
        return Plain(compiled(graph, constants, is_training_step=is_training_step))
    prologue, main = parts
    once = write_driver(plan_of_calls(prologue), [], constants)
    read = {value for node in prologue.nodes for value in node.operands}
    state = tuple(k for k, value in enumerate(prologue.inputs) if value in read and value.is_state)
    made = range(len(prologue.inputs), len(main.inputs))
    return Frozen(compiled(main, constants, made, is_training_step), once, state)


def differentiable(lowered: Lowered, gradients: Gradients) -> Halved:
    """Compiles forward and backward."""
    halves, layout = halved(choose_calls(lowered.graph), gradients, len(lowered.constants))
    values = list(lowered.constants.values())
    plans = [make_plan(half, frees_arena=True) for half in (halves.forward, halves.backward)]
    kernels = kernels_for(
        [launch for plan in plans for launch in launches_of(plan)],
        [call for plan in plans for call in own_calls_of(plan)],
    )
    count = len(launches_of(plans[0]))
    forward, backward = (
        write_driver(plan, own, dict(enumerate(values, len(plan.graph.inputs) - len(values))), takes_list)
        for plan, own, takes_list in zip(plans, (kernels[:count], kernels[count:]), (False, True), strict=True)
    )
    return Halved(forward, backward, layout)


def halved(graph: Graph, gradients: Gradients, constants: int) -> tuple[Halves, GradientLayout]:
    """The two graphs, and what autograd needs to know about them. The last `constants` inputs of the graph are
    constants."""
    if not all(isinstance(graph.outputs[k], Alias) for k in gradients.input_aliases):
        raise Untraceable("an output shows an input in a way that has no form here")
    if any(isinstance(graph.outputs[k], Alias) for k in gradients.flows):
        raise Untraceable("an output shares memory with an input, and autograd is not told")
    views = {k: (base, shown_value(graph.outputs[k], graph.outputs[base])) for k, base in gradients.views}
    graph.outputs = [None if k in views else out for k, out in enumerate(graph.outputs)]
    halves = partition_joint_graph(graph, gradients, constants, current().memory_budget)
    outputs = halves.forward.outputs
    shown = {
        k: shown_input(out, halves.forward)
        for k, out in enumerate(outputs[: gradients.outputs])
        if isinstance(out, Alias)
    }
    halves.forward.outputs = [out for k, out in enumerate(outputs) if not isinstance(out, Alias) and k not in views]
    place = {k: at for at, k in enumerate(k for k in range(gradients.outputs) if k not in shown and k not in views)}
    tangents = graph.inputs[gradients.tangents : gradients.tangents + len(gradients.flows)]
    multiplied = multiplied_tangents(graph, tangents)
    layout = GradientLayout(
        outputs=gradients.outputs,
        shown=shown,
        flows=tuple(place[k] for k in gradients.flows),
        closed=tuple((place[k], words) for k, words in gradients.no_backward),
        tangents=tuple((value.shape, value.type.stride, value.dtype) for value in tangents),
        saved_inputs=halves.saved_inputs,
        saved_outputs=tuple(place[k] for k in halves.saved_outputs),
        watched=halves.watched,
        gradients=gradients.inputs,
        inputs=gradients.tangents,
        why_not_twice=why_not_twice(halves.forward),
        views={k: replace(view, input=place[base]) for k, (base, view) in views.items()},
        hidden=gradients.hidden,
        again=gradients.current_inputs,
        reached=gradients.reached,
        gradient_views=tuple(
            (k, Shown(view.first, view.shape, view.stride, view.offset)) for k, view in gradients.gradient_views
        ),
        of_tangents=tuple(PassedOn(view.at, view.flow, view.steps) for view in gradients.tangent_views),
        held=held_gradients(gradients, graph.outputs[gradients.outputs :]),
        order=order_of_inputs(gradients, graph.outputs[gradients.outputs :]),
        multiplied=multiplied,
    )
    return halves, layout


def multiplied_tangents(graph: Graph, tangents: Sequence[Value]) -> tuple[int, ...]:
    """Bit masks of the tangents in each operation that combines some with other values. Where those tangents are zeros,
    the result may still be NaN: 0 * inf."""
    flowing = {value: 1 << k for k, value in enumerate(tangents)}
    found = set()
    for node in graph.nodes:
        masks = [flowing.get(value, 0) for value in node.operands]
        mask = functools.reduce(operator.or_, masks, 0)
        if mask:
            flowing.update((value, mask) for value in node.results if value is not None)
            if 0 in masks:
                found.add(mask)
    return tuple(sorted(found)) if len(tangents) > 1 else ()


def held_gradients(gradients: Gradients, made: Sequence[Any]) -> tuple[tuple[int, bool], ...]:
    """The gradients whose memory is also visible elsewhere, so that a leaf copies them; and which are tangents."""
    tangents = {view.at for view in gradients.tangent_views if not view.steps}
    seen = {view.at for view in gradients.tangent_views}
    bases = {made[k] for k, _ in gradients.gradient_views if isinstance(made[k], Value)}
    seen |= {k for k, out in enumerate(made) if isinstance(out, Value) and out in bases}
    return tuple((k, k in tangents) for k in sorted(seen) if gradients.inputs[k] in gradients.shared_in_eager)


def order_of_inputs(gradients: Gradients, made: Sequence[Any]) -> tuple[int, ...]:
    """The order in which autograd's node lists the inputs. It matters if a gradient is shared, else it is empty."""
    identities = [out.input if isinstance(out, Alias) else out for out in made if isinstance(out, (Alias, Value))]
    if len(set(identities)) == len(identities):
        return ()
    rest = [k for k in range(gradients.tangents) if k not in gradients.edges]
    order = (*gradients.edges, *rest)
    return () if list(order) == sorted(order) else order


def shown_input(out: Alias, graph: Graph) -> Shown:
    if out.type is None:
        return Shown(out.input)
    offset = view_offset(out.maps, graph.inputs[out.input].type)
    return Shown(out.input, out.type.shape, out.type.stride, offset, out.is_detached)


def shown_value(out: Any, base: Any) -> Shown:
    """The view of the base's memory that a value is."""
    (source, offset), (storage, begin) = map(place_of, (out, base))
    if source is not storage or not isinstance(source, Value):
        raise Untraceable("two of its outputs share memory, and gradients flow into both")
    return Shown(0, out.shape, out.type.stride, offset - begin)


def place_of(value: Any) -> tuple[Any, int]:
    """The value that owns the memory of a value, and its first element there."""
    if isinstance(value, Value) and is_memory_view(value):
        source, maps = value.node.args  # type: ignore[union-attr]
        return source, view_offset(maps, source.type)
    return value, 0


def why_not_twice(forward: Graph) -> str | None:
    if forward.writes:
        return "writes to its inputs"
    return "draws random numbers" if any(is_random(node) for node in forward.nodes) else None


def compiled(
    graph: Graph, constants: Mapping[int, torch.Tensor], bound: Sequence[int] = (), is_training_step: bool = False
) -> UnboundDriver:
    plan = make_plan(graph, is_training_step=is_training_step)
    return write_driver(plan, kernels_for(launches_of(plan), own_calls_of(plan)), constants, bound=bound)


def launches_of(plan: Plan) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


def kernels_for(launches: list[Launch], others: list[Callable[[], object]]) -> list[NativeKernel | CudaKernel]:
    """`others` are compiled in parallel with the kernels of the CPU."""
    return compile_launches(launches, lambda some: compile_kernels([launch.kernel for launch in some], others))


class MeasurementShelf:
    """The disk cache of library call measurements, for this machine and this torch."""

    def get(self, key: str) -> str | None:
        shelf = disk_cache()
        found = shelf and shelf.get("measured", self.key(key))
        return found and found.decode()

    def put(self, key: str, text: str) -> None:
        shelf = disk_cache()
        if shelf is not None:
            shelf.put("measured", self.key(key), text.encode())

    def key(self, key: str) -> str:
        return f"{torch.__version__} {os.cpu_count()} {host()}\n{key}"


memory.shelf = MeasurementShelf()


def entry_versions() -> dict[str, str]:
    """For each kind of entry on disk, the versions and the target that this process compiles with."""
    here = {
        KIND: compiler_identity(),
        WATCHER_KIND: compiler_identity(),
        OBJECT_CODE: toolchain_key(host()),
        "measured": memory.shelf.key("").partition("\n")[0],
    }
    return here | cubins_here()


def own_calls_of(plan: Plan) -> list[Callable[[], object]]:
    """The compilation jobs of library calls that are our own native functions."""
    candidates = [step.node.args[0] for step in plan.steps if isinstance(step, Call) and step.node.op is RUN]
    return [candidate.steps for candidate in candidates if candidate.steps is not None]
