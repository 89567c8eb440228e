"""A captured graph compiled once for many sizes.

    program = compile_open(gm, space, examples, eager)      examples: what the inputs are at each point of the space
    program(x of 64 rows)
    program(x of 200 rows)                                  the same machine code

The compiler's passes know numbers only. So they run for a few sizes, and what comes out (kernels, drivers) is laid one
on top of the other: numbers that differ become formulas of the sizes, anything else that differs is a reason,
NoFormula, why this graph is made for each size by itself. Far from the sizes that were tried the graph is traced once
more before the program runs, and the trace must be what the formulas say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from .. import events
from ..codegen.llvm import compile_kernels, compile_sequence
from ..codegen.llvm.open_kernel import OpenKernel, compile_open_kernel
from ..codegen.llvm.sampler import sampler
from ..codegen.open_program import NUMBER, OpenDriverWriter, open_program
from ..codegen.program import write_driver
from ..ir.graph import Graph, Node, print_node
from ..ir.untraceable import NumberLost, Untraceable
from ..lower.pipeline import Lowered, lower
from ..lower.trace import trace
from ..runtime.apart import Apart
from ..runtime.differentiable import Aside, OpenDifferentiable
from ..runtime.frozen import FrozenProgram
from ..runtime.open_program import OpenProgram
from ..schedule.choose_open import choose_open_calls
from ..schedule.emit import Launch
from ..schedule.frozen import split_frozen
from ..schedule.open_arena import share_slots
from ..schedule.plan import Plan, make_plan, plan_of_calls
from ..tensors.sizes import Formula, NoFormula, Point, Space
from .native_compile import collection_paused, halved, reaches_of
from .numbers import has_numbers

__all__ = ["NoFormula", "compile_open"]

Examples = Callable[[Point], list[Any]]
"""The inputs of a graph at a point of a space: tensors of those sizes whose data nobody reads, and numbers."""


def compile_open(gm: GraphModule, space: Space, examples: Examples, eager: Callable[..., Any],
                 otherwise: Callable[..., Any], open_inputs: Sequence[int] = (), gradients: bool = False) -> Any:
    """`eager` runs the graph as it stands, `otherwise` for sizes that the program turns out not to be right for.
    `open_inputs` are the tensors of open sizes. With `gradients` the results are autograd's, as in `compile_graph`."""
    with collection_paused():
        floats = has_numbers(examples(space.points[0]), (float,))
        lowered = [lowered_at(gm, examples(point), gradients, floats) for point in space.points]
        first = lowered[0]
        if any(len(low.constants) != len(first.constants) or not all(
                map(is_equal, low.constants.values(), first.constants.values())) for low in lowered):
            raise NoFormula("the graph brings other constants along for other sizes")
        if any((low.gradients is None) != (first.gradients is None) for low in lowered):
            raise NoFormula("gradients flow for some sizes")
        check = Check(gm, space, examples, gradients, floats)
        count = len(examples(space.points[0]))
        written = [write.input for write in first.graph.writes]
        found = first.gradients
        made: Any
        if found is None:
            made = program_of(lowered, space, check, eager, lambda *inputs: otherwise(*inputs[:count]))
        elif found.flows or found.shown:
            made = differentiable(lowered, space, check, eager, otherwise)
        else:
            made = Aside(program_of(lowered, space, check, eager, lambda *inputs: otherwise(*inputs[:count])))
        return made if not written else Apart(
            made, eager, written, reaches_of(first.graph, examples(space.points[0])), open_inputs)


def is_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors that a graph brought along are the same, or made alike."""
    return a is b or a.numel() <= FEW and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() \
        and torch.equal(a, b)


FEW = 1 << 16
"""Elements that are worth comparing."""

NONE_FOR_IT = (ValueError, RuntimeError, IndexError)
"""What is raised for a size that the program cannot have."""


def lowered_at(gm: GraphModule, inputs: list[Any], gradients: bool, open_floats: bool) -> Lowered:
    try:
        return lower(gm, inputs, gradients, open_floats)
    except NumberLost as why:
        raise NoFormula(str(why)) from why
    except NONE_FOR_IT as error:
        raise NoFormula(f"it cannot be compiled for other sizes: {error}") from error


def program_of(lowered: Sequence[Lowered], space: Space, check: Check, eager: Callable[..., Any],
               otherwise: Callable[..., Any]) -> OpenProgram | FrozenProgram:
    constants = lowered[0].constants
    graphs = chosen([low.graph for low in lowered])
    same = equal_nodes(graphs)
    parts = [split_frozen(graph, same.__contains__) for graph in graphs]
    if any((part is None) != (parts[0] is None) for part in parts):
        raise NoFormula("other parts of the graph are made once for other sizes")
    if parts[0] is None:
        return built(graphs, constants, space, check, otherwise)
    prologue = parts[0][0]
    program = built([part[1] for part in parts if part is not None], constants, space, check, otherwise)
    once = write_driver(plan_of_calls(prologue), [], constants).program(compile_sequence)
    read = {value for node in prologue.nodes for value in node.operands}
    state = [k for k, value in enumerate(prologue.inputs) if value in read and value.is_state]
    return FrozenProgram(program, once, state, sampler(), eager)  # type: ignore[arg-type]


def chosen(graphs: Sequence[Graph]) -> list[Graph]:
    try:
        return choose_open_calls(graphs)
    except NONE_FOR_IT as error:
        raise NoFormula(f"a library is not to be called with other sizes: {error}") from error


def differentiable(lowered: Sequence[Lowered], space: Space, check: Check, eager: Callable[..., Any],
                   otherwise: Callable[..., Any]) -> OpenDifferentiable:
    """Forward and backward, both for all sizes."""
    values = list(lowered[0].constants.values())
    graphs = chosen([low.graph for low in lowered])
    halves, layouts = zip(*(halved(graph, low.gradients, len(values))  # type: ignore[arg-type]
                            for graph, low in zip(graphs, lowered, strict=True)), strict=True)
    forward, backward = (
        built(graphs, dict(enumerate(values, len(graphs[0].inputs) - len(values))), space, check, otherwise, takes_list)
        for graphs, takes_list in (([half.forward for half in halves], False),
                                   ([half.backward for half in halves], True)))
    return OpenDifferentiable(forward, backward, at_any(layouts, space), eager, otherwise)


def at_any(examples: Sequence[Any], space: Space) -> Callable[[Point], Any]:
    """What is the same at all points but for numbers, as a function of the point."""
    first = examples[0]
    if any(type(x) is not type(first) for x in examples):
        raise NoFormula("autograd is told something else for other sizes")
    if type(first) is int:
        number = space.fit(examples)
        return (lambda point: number) if isinstance(number, int) else number.at
    if type(first) in (tuple, dict):
        if any(len(x) != len(first) or type(x) is dict and x.keys() != first.keys() for x in examples):
            raise NoFormula("autograd is told something else for other sizes")
        if type(first) is dict:
            entries = {key: at_any([x[key] for x in examples], space) for key in first}
            return lambda point: {key: part(point) for key, part in entries.items()}
        parts = [at_any(part, space) for part in zip(*examples, strict=True)]
        return lambda point: tuple([part(point) for part in parts])
    if is_dataclass(first):
        names = {f.name: at_any([getattr(x, f.name) for x in examples], space) for f in fields(first)}
        return lambda point: type(first)(**{name: part(point) for name, part in names.items()})
    if any(x != first for x in examples):
        raise NoFormula("autograd is told something else for other sizes")
    return lambda point: first


def equal_nodes(graphs: Sequence[Graph]) -> set[Node]:
    """The nodes that are the same for all sizes, in all graphs."""
    if len({len(graph.nodes) for graph in graphs}) > 1:
        raise NoFormula("the graph has other operators for other sizes")
    found: set[Node] = set()
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        if any(node.op is not nodes[0].op for node in nodes):
            raise NoFormula(f"the graph has other operators for other sizes: {nodes[0]}")
        if len(set(map(print_node, nodes))) == 1:
            found.update(nodes)
    return found


def built(graphs: Sequence[Graph], constants: Mapping[int, torch.Tensor], space: Space,
          check: Check, otherwise: Callable[..., Any], takes_list: bool = False) -> OpenProgram:
    plans = [make_plan(graph, is_open=True) for graph in graphs]
    if len({tuple(map(type, plan.steps)) for plan in plans}) > 1:
        raise NoFormula("the plan has other steps for other sizes")
    slots = share_slots(plans, space)
    kernels = open_kernels(plans, space)
    examples = [OpenDriverWriter(plan, kernels, constants, compile_sequence, point, takes_list).example()
              for plan, point in zip(plans, space.points, strict=True)]
    # A driver that takes a list is told the sizes by whoever calls it.
    given = [] if takes_list else [[value for k, value in enumerate(graph.inputs) if k not in constants]
                                   for graph in graphs]
    program = open_program(examples, slots, space, given, check, otherwise)
    events.emit("guards.sizes", text=f"compiled for all {', '.join(space.names)}", program=program)
    return program


def open_kernels(plans: Sequence[Plan], space: Space) -> list[OpenKernel]:
    launches = [[step.kernel for step in plan.steps if isinstance(step, Launch)] for plan in plans]
    found: dict[tuple[str, ...], OpenKernel] = {}
    made = []
    for kernels in zip(*launches, strict=True):
        key = tuple(kernel.key for kernel in kernels)
        if key not in found:
            found[key] = OpenKernel(compile_kernels(kernels[:1])[0], ()) if len(set(key)) == 1 \
                else compile_open_kernel(kernels, space)
        made.append(found[key])
    return made


class Check:
    """Whether the trace of a graph for other sizes is what formulas, found at the points of the space, say."""

    def __init__(self, gm: GraphModule, space: Space, examples: Examples, gradients: bool, open_floats: bool):
        self.gm, self.space, self.examples = gm, space, examples
        self.gradients, self.open_floats = gradients, open_floats
        self.pattern: list[str] | None = None
        self.formulas: set[Formula] = set()
        self.numbers: list[int | Formula] = []

    def is_special(self, point: Point) -> bool:
        """Whether something in the trace has a size of 0 or 1 there. Such sizes mean other things than those around."""
        if self.pattern is None:
            try:
                self.learn()
            except (Untraceable, NoFormula):
                return True
        return any(formula.at(point) <= 1 for formula in self.formulas)

    def learn(self) -> None:
        texts = [self.text(point) for point in self.space.points]
        pieces = [NUMBER.split(text) for text in texts]
        if any(piece != pieces[0] for piece in pieces):
            raise NoFormula("the trace is another one for other sizes")
        self.pattern = pieces[0]
        self.numbers = [self.space.fit(list(map(int, values)))
                        for values in zip(*map(NUMBER.findall, texts), strict=True)]
        self.formulas = {number for number in self.numbers if isinstance(number, Formula)}

    def text(self, point: Point) -> str:
        # Columns are as wide as the numbers in them.
        return re.sub(" +", " ", str(
            trace(self.gm, self.examples(point), self.gradients, self.open_floats).graph))

    def __call__(self, point: Point) -> bool:
        try:
            if self.pattern is None:
                self.learn()
            text = self.text(point)
        except (Untraceable, NoFormula):
            return False
        expected = [n if isinstance(n, int) else n.at(point) for n in self.numbers]
        is_right = NUMBER.split(text) == self.pattern and list(map(int, NUMBER.findall(text))) == expected
        events.emit("guards.sizes", text=f"{'holds' if is_right else 'does not hold'} for "
                                 f"{', '.join(map('{} = {}'.format, self.space.names, point))}")
        return is_right
