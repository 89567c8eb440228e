"""Compiles a captured graph once for many sizes: symbolic shapes.

    recipe = compile_symbolic(gm, space, examples)              examples: what the inputs are at each point of the space
    program = recipe.assembled(tools, eager, OtherSizes(check, otherwise, count))
    program(x of 64 rows)
    program(x of 200 rows)                                  the same machine code

The compiler's passes only know numbers. So they run for a few sizes, and their results (kernels, drivers) are compared.
Numbers that differ become formulas of the sizes. Any other difference raises NoFormula, and the graph is compiled for
each size separately. `check_symbolic_sizes` decides whether the program is right far from the sizes that were tried.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from ..codegen.driver.generate_driver import write_driver
from ..codegen.driver.symbolic_size_driver import SymbolicDriverWriter, symbolic_draft
from ..codegen.llvm.symbolic_size_kernel import SymbolicLlvmKernel, compile_symbolic_kernel
from ..concurrency.first_value_cache import once
from ..ir import fuel
from ..ir.graph import Graph, Node, Value, print_argument
from ..ir.untraceable_graph import NumberLost, Untraceable
from ..lower.pipeline import Lowered, lower
from ..ops.target_record import target_of
from ..runtime.program.unbound_symbolic_driver import UnboundSymbolicDriver
from ..schedule.fusion.split_reductions import split_symbolic_reductions
from ..schedule.library.choose_symbolic_size_calls import choose_symbolic_size_calls
from ..schedule.memory.plan_symbolic_arena import share_slots
from ..schedule.pipeline import make_plan
from ..schedule.plan_steps import Plan, plan_of_calls
from ..schedule.rewrites.fold_constants import fold_constants
from ..targets.cpu import compile_kernels
from ..targets.kernel_compilers import compile_launches, symbolic_compiler_for
from ..tensors.device_facts import gpus_of
from ..tensors.fit_size_formulas import SCALES, FollowedSize, GivenSize, NoFormula, NoNumber, Space, StructureDiffers
from ..tensors.views.index_range_conditions import conditions_of
from ..tensors.views.view_maps import Map
from .adapters.specialize_numbers import live_scalars_beside_sizes
from .check_symbolic_sizes import INVALID_SIZE_ERRORS, Check, Examples, Reach, sizes_in
from .compile_graph import launches_of, reaches_of, written_inputs
from .describe_for_autograd import divided, split_forward_and_backward
from .program_recipe import Divided, Frozen, Halved, Plain, Recipe

Callback = Callable[[], object]
Numbers = Mapping[int, Sequence[int]]
"""Inputs that are sizes themselves and follow a formula, by position, with their values at the points."""


def compile_symbolic(
    gm: GraphModule, space: Space, examples: Examples, open_inputs: Sequence[int] = (), gradients: bool = False
) -> Recipe:
    """`open_inputs` are the tensors with symbolic sizes. With `gradients` the results are autograd's, as in
    `compile_graph`."""
    try:
        return compiled_near(gm, space, examples, open_inputs, gradients)
    except StructureDiffers as why:
        for scale in SCALES:
            with contextlib.suppress(NoFormula):
                return compiled_near(gm, space.coprime_points(scale), examples, open_inputs, gradients)
        raise NoFormula(str(why)) from why


def compiled_near(
    gm: GraphModule, space: Space, examples: Examples, open_inputs: Sequence[int], gradients: bool
) -> Recipe:
    """Compiles from as few points as possible."""
    few = space.fewest_points()
    try:
        if few is not space:
            with contextlib.suppress(NoNumber):
                return compiled_at(gm, few, examples, open_inputs, gradients)
        return compiled_at(gm, space, examples, open_inputs, gradients)
    except SizesDivided:
        return compiled_at(gm, space.more_points(), examples, open_inputs, gradients)


class SizesDivided(NoFormula):
    """The points are too few."""


def compiled_at(
    gm: GraphModule, space: Space, examples: Examples, open_inputs: Sequence[int], gradients: bool
) -> Recipe:
    """Compiles from the points of the space."""
    for device in gpus_of(examples(space.points[0])):
        target_of(device)  # it gets ready while the graphs are lowered
    live_scalar_types = live_scalars_beside_sizes(examples(space.points[0]))
    given = [examples(point) for point in space.points]
    numbers = {k: [each[k] for each in given] for k, number in enumerate(given[0]) if isinstance(number, GivenSize)}
    if any(len(set(values)) == 1 for values in numbers.values()):
        raise StructureDiffers("a size that varies is the same for all sizes that are tried")
    numbers = {k: values for k, values in numbers.items() if isinstance(given[0][k], FollowedSize)}
    lowered = [lowered_at(gm, inputs, gradients, live_scalar_types) for inputs in fuel.same_for_each(given)]
    first = lowered[0]
    check = Check(gm, space, examples, gradients, live_scalar_types)
    check.traced.update(zip(space.points, [low.traced for low in lowered], strict=True))
    divided = space.divided(sizes_in([low.traced for low in lowered]))
    if any(divisor > 1 for _, _, divisor in divided.quotients):
        if space.further:
            raise SizesDivided("sizes are divided, which takes more points")
        divided = tell_quotients(check)
    check.space = space = divided
    if any(
        len(low.constants) != len(first.constants)
        or not all(map(is_equal, low.constants.values(), first.constants.values()))
        for low in lowered
    ):
        raise NoFormula("the graph brings other constants along for other sizes")
    if any((low.gradients is None) != (first.gradients is None) for low in lowered):
        raise NoFormula("gradients flow for some sizes")
    written = written_inputs(first)
    reaches = reaches_of(first.graph, examples(space.points[0])) if written else {}
    parts: Plain | Frozen | Halved | Divided

    @once
    def reach() -> Reach | None:
        return check.reach()

    if first.gradients is not None and (first.gradients.flows or first.gradients.input_aliases):
        parts = differentiable(lowered, space, numbers, reach)
    else:
        parts = parts_of(lowered, space, numbers, reach)
    if space.quotients and reach() is None:
        raise NoFormula("sizes are divided in a way that cannot be checked")
    return Recipe(
        parts,
        isinstance(parts, Plain | Frozen) and first.gradients is not None,
        written,
        reaches,
        tuple(open_inputs),
        reach(),
    )


def tell_quotients(check: Check) -> Space:
    try:
        return check.divided()
    except (Untraceable, *INVALID_SIZE_ERRORS) as error:
        raise NoFormula(f"sizes are divided, and others than these are invalid: {error}") from error


def is_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two constants of a graph are the same tensor, or have equal contents and layouts."""
    return (
        a is b
        or a.numel() <= FEW
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and torch.equal(a, b)
    )


FEW = 1 << 16
"""The most elements that are worth comparing."""


def lowered_at(gm: GraphModule, inputs: list[Any], gradients: bool, live_scalar_types: tuple[type, ...]) -> Lowered:
    try:
        return lower(gm, inputs, gradients, live_scalar_types)
    except NumberLost as why:
        raise NoFormula(str(why)) from why
    except INVALID_SIZE_ERRORS as error:
        raise NoFormula(f"it cannot be compiled for other sizes: {error}") from error


def parts_of(lowered: Sequence[Lowered], space: Space, numbers: Numbers, while_waiting: Callback) -> Plain | Frozen:
    """`while_waiting` is called while machine code is generated."""
    constants = lowered[0].constants
    graphs = chosen([low.graph for low in lowered])
    same = equal_nodes(graphs)
    is_here = all(value.type.is_on_host for value in graphs[0].inputs)  # as for static sizes
    parts = [fold_constants(graph, same.__contains__) if is_here else None for graph in fuel.same_for_each(graphs)]
    if any((part is None) != (parts[0] is None) for part in parts):
        raise StructureDiffers("other parts of the graph are made once for other sizes")
    if parts[0] is None:
        return Plain(build_driver(plans_of(graphs, space), constants, space, numbers, while_waiting))
    prologue = parts[0][0]
    plans = plans_of([part[1] for part in parts if part is not None], space)
    main = build_driver(plans, constants, space, numbers, while_waiting)
    once = write_driver(plan_of_calls(prologue), [], constants)
    read = {value for node in prologue.nodes for value in node.operands}
    return Frozen(main, once, tuple(k for k, value in enumerate(prologue.inputs) if value in read and value.is_state))


def chosen(graphs: Sequence[Graph]) -> list[Graph]:
    try:
        return choose_symbolic_size_calls(graphs)
    except INVALID_SIZE_ERRORS as error:
        raise NoFormula(f"a library is not to be called with other sizes: {error}") from error


def differentiable(
    lowered: Sequence[Lowered], space: Space, numbers: Numbers, while_waiting: Callback
) -> Halved | Divided:
    """Compiles forward and backward, both for all sizes."""
    values = list(lowered[0].constants.values())
    graphs = chosen([low.graph for low in lowered])
    if len({low.gradients and len(low.gradients.pieces) for low in lowered}) > 1:
        raise NoFormula("autograd gets other nodes for other sizes")
    has_pieces = lowered[0].gradients is not None and lowered[0].gradients.pieces
    described = [
        (divided if has_pieces else split_forward_and_backward)(graph, low.gradients, len(values))  # type: ignore[arg-type]
        for graph, low in fuel.same_for_each(zip(graphs, lowered, strict=True))
    ]
    parts = [graphs if has_pieces else [graphs.forward, graphs.backward] for graphs, *_ in described]
    planned = [plans_of(graphs, space) for graphs in zip(*parts, strict=True)]  # all, before any kernel is compiled
    forward, *backwards = (
        build_driver(
            plans,
            dict(enumerate(values, len(plans[0].graph.inputs) - len(values))),
            space,
            numbers,
            while_waiting,
            number > 0,
        )
        for number, plans in enumerate(planned)
    )
    layouts = merge_examples([tuple(layouts) for _, *layouts in described], space)
    return Divided(forward, tuple(backwards), *layouts) if has_pieces else Halved(forward, *backwards, *layouts)


def merge_examples(examples: Sequence[Any], space: Space) -> Any:
    """Merges examples that only differ in numbers; those that differ become formulas."""
    first = examples[0]
    if any(type(x) is not type(first) for x in examples):
        raise StructureDiffers("the gradient signature differs for other sizes")
    if type(first) is int:
        return space.fit(examples)
    if type(first) in (tuple, dict):
        if any(len(x) != len(first) or type(x) is dict and x.keys() != first.keys() for x in examples):
            raise StructureDiffers("the gradient signature differs for other sizes")
        if type(first) is dict:
            return {key: merge_examples([x[key] for x in examples], space) for key in first}
        return tuple([merge_examples(part, space) for part in zip(*examples, strict=True)])
    if is_dataclass(first):
        return type(first)(
            *[merge_examples([getattr(x, field.name) for x in examples], space) for field in fields(first)]
        )
    if any(x != first for x in examples):
        raise StructureDiffers("the gradient signature differs for other sizes")
    return first


def equal_nodes(graphs: Sequence[Graph]) -> set[Node]:
    """The nodes that are the same for all sizes, in all graphs."""
    if len({len(graph.nodes) for graph in graphs}) > 1:
        raise StructureDiffers("the graph has other operators for other sizes")
    found: set[Node] = set()
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        if any(node.op is not nodes[0].op for node in nodes):
            raise StructureDiffers(f"the graph has other operators for other sizes: {nodes[0]}")
        if all(is_same_use(nodes[0], node) for node in nodes[1:]):
            found.update(nodes)
    return found


def is_same_use(a: Node, b: Node) -> bool:
    """Whether two nodes have the same arguments, results and types."""
    return (
        is_same_argument(a.args, b.args)
        and is_same_argument(tuple(a.kwargs.items()), tuple(b.kwargs.items()))
        and is_same_argument(a.results, b.results)
        and all(x is y or x is None or y is None or x.type == y.type for x, y in zip(a.results, b.results, strict=True))
    )


def is_same_argument(a: Any, b: Any) -> bool:
    kind = type(a)
    if type(b) is not kind:
        return False
    if kind is Value:
        return a.name == b.name
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(is_same_argument, a, b))
    if isinstance(a, Map):
        return a == b  # a map alone is not printed in full
    return print_argument(a) == print_argument(b)


def plans_of(graphs: Sequence[Graph], space: Space) -> list[Plan]:
    """The plan at each point. All have the same steps, or the first one that differs ends the attempt."""
    plans: list[Plan] = []
    merged: list[bool] = []
    for graph in fuel.same_for_each(split_symbolic_reductions(graphs, space)):
        plans.append(make_plan(graph, is_symbolic=True, merged=merged))
        if list(map(type, plans[-1].steps)) != list(map(type, plans[0].steps)):
            raise StructureDiffers("the plan has other steps for other sizes")
    return plans


def build_driver(
    plans: Sequence[Plan],
    constants: Mapping[int, torch.Tensor],
    space: Space,
    numbers: Numbers,
    while_waiting: Callback,
    takes_list: bool = False,
) -> UnboundSymbolicDriver:
    slots = share_slots(plans, space)
    kernels = symbolic_kernels(plans, space, while_waiting)
    examples = [
        SymbolicDriverWriter(plan, kernels, constants, point, takes_list).draft()
        for plan, point in zip(plans, space.points, strict=True)
    ]
    # A driver that takes a list gets the sizes from its caller.
    given = (
        []
        if takes_list
        else [[value for k, value in enumerate(plan.graph.inputs) if k not in constants] for plan in plans]
    )
    draft = symbolic_draft(examples, slots, space, given, numbers)
    return replace(draft, conditions=conditions_of([plan.noted for plan in plans], space))


def symbolic_kernels(plans: Sequence[Plan], space: Space, while_waiting: Callback) -> list[SymbolicLlvmKernel]:
    alike = list(zip(*map(launches_of, plans), strict=True))
    keys = [
        (launches[0].device, launches[0].numbers, *[launch.kernel.identity for launch in launches])
        for launches in alike
    ]
    different = dict(zip(keys, alike, strict=True))
    same = {key: launches[0] for key, launches in different.items() if len(set(key[2:])) == 1}
    others = {key: launches for key, launches in different.items() if key not in same}
    made: dict[tuple, SymbolicLlvmKernel] = {}

    def make(key: tuple) -> None:
        made[key] = compile_symbolic_kernel([launch.kernel for launch in others[key]], space)

    jobs: list[Callback] = []
    for device in dict.fromkeys(key[0] for key in others):
        compiler, there = symbolic_compiler_for(device), [key for key in others if key[0] == device]
        if compiler is None:
            jobs += [functools.partial(make, key) for key in there]
        else:
            kernels = compiler([others[key] for key in there], space)
            made.update((key, SymbolicLlvmKernel(kernel, ())) for key, kernel in zip(there, kernels, strict=True))
    natives = compile_launches(
        list(same.values()), lambda some: compile_kernels([launch.kernel for launch in some], jobs, while_waiting)
    )
    made.update((key, SymbolicLlvmKernel(native, ())) for key, native in zip(same, natives, strict=True))
    return [made[key] for key in keys]
