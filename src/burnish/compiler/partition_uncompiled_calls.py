"""Partitions a graph at calls that are not compiled: they run eagerly, and the subgraphs between them are compiled.

    gt = x.sum() > 0                     the subgraph before, compiled
    cond = cond(gt, x)                   a step of its own, whose two branches are compiled
    add = cond[0] + 1                    the subgraph after, compiled

``uncompiled_calls`` lists them. A subgraph is compiled when it first runs, because its inputs are known
then; a branch of a ``cond`` that never runs is not compiled. Autograd connects the subgraphs as it connects any two
compiled functions. A call of ``torch.autograd.grad`` is part of a subgraph that contains the whole path back, and runs
eagerly otherwise. Some calls that stand alone may return other shapes, depending on data: what follows is compiled for
each of the first few types, and runs eagerly on others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .. import events
from ..captured_graph.compile_request import INPUT, REQUEST, UNBACKED, CompileRequest, facts_of_input, request_of
from ..captured_graph.lazy_graph_module import graph_module
from ..captured_graph.mutable_node_arguments import arguments_of
from ..concurrency import thread_locks
from ..lower.trace.traceability import COMPUTES
from ..ops.elementwise.python_number_operators import name_of
from ..runtime.eager.cond import Branches
from ..runtime.eager.drawing_calls import may_draw
from ..runtime.eager.tensor_object_change_nodes import WATCHING, fill
from . import CompiledFn
from .adapters.eager_with_compiled_rng import draws_as_eager, run_eagerly_with_compiled_rng, with_compiled_rng
from .adapters.specialize_numbers import LIMIT, own_copy
from .sink_collective_waits import delay_waits
from .uncompiled_calls import ALONE, stands_alone

Compile = Callable[[GraphModule, list[Any]], CompiledFn]
NUMBERS = (torch.Tensor, int, float, complex)
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def has_steps(gm: GraphModule) -> bool:
    return any(stands_alone(node) or UNBACKED in node.meta for node in gm.graph.nodes)


def watched_by(node: Node) -> list[Any]:
    """The nodes whose whole gradient a node sees: a compiled part must not contain one and its uses."""
    if node.target in WATCHING:
        return [node.args[0]]
    if node.target is not torch.autograd.grad:
        return []
    return [x for x in differentiated_by(node) if x.op != "placeholder"]


def differentiated_by(node: Node) -> list[Node]:
    """The tensors that a call of ``torch.autograd.grad`` differentiates by."""
    inputs: Any = node.args[1] if len(node.args) > 1 else node.kwargs["inputs"]
    return list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]


def gradients_in_subgraphs(gm: GraphModule) -> set[Node]:
    """The calls of ``torch.autograd.grad`` whose whole path back has no call in it that stands alone."""
    if any(node.target in WATCHING or UNBACKED in node.meta for node in gm.graph.nodes):
        return set()  # more cuts, whose places depend on these calls
    whole = {node for node in gm.graph.nodes if node.target is torch.autograd.grad}
    while True:
        number, subgraph_of_node = 0, {}
        watched = {each for node in gm.graph.nodes if node not in whole for each in watched_by(node)}
        for node in gm.graph.nodes:
            is_cut = stands_alone(node) or node.target is torch.autograd.grad and node not in whole
            number += is_cut
            subgraph_of_node[node] = number
            number += is_cut or node in watched
        cut = {
            node
            for node in whole
            if any(
                subgraph_of_node[each] != subgraph_of_node[node]
                for each in nodes_between(differentiated_by(node), node)
            )
        }
        if not cut:
            return whole
        whole -= cut  # they are cuts themselves


def nodes_between(sources: list[Node], end: Node) -> set[Node]:
    """All nodes on a way from one of the sources to the end, but for these. A call that writes to its argument is on
    the way to every later use of it."""
    found = set(sources)
    node = next(each for each in end.graph.nodes if each in found)
    while node is not end:
        if any(given in found for given in node.all_input_nodes) and node.target != "requires_grad_":
            found.add(node)
            found.update(written_by(node))
        node = node.next
    return found - set(sources)


def written_by(node: Node) -> list[Node]:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.all_input_nodes[:1] if name.endswith("_") or name == "setitem" else []


AUGMENTED = frozenset("iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor".split())


def may_write(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (
        bool(written_by(node))
        or name in AUGMENTED
        or name.partition(".")[0].endswith("_")
        or "out" in node.kwargs
        or any(flag is True for flag in (*node.args, *node.kwargs.values()))  # `inplace`, for example
    )


def of_uncertain_type(gm: GraphModule, whole: set[Node]) -> set[Node]:
    """The nodes whose results may be of other types in later calls: those that are not known to have the type that
    follows from their arguments, and what is computed from them. Where one of these is written to a tensor, that tensor
    and its views may require gradients."""
    found: set[Node] = set()
    is_any = False
    for node in gm.graph.nodes:
        depends = any(given in found for given in node.all_input_nodes)
        is_any = is_any or depends and may_write(node)
        if depends or not is_typed(node) and node not in whole:
            found.add(node)
    return set(gm.graph.nodes) if is_any else found


def is_typed(node: Node) -> bool:
    """Whether the type of a node's result is known to follow from those of its arguments. Shapes may depend on data,
    and a part of the graph may turn out to hold a call that cannot be traced."""
    target: Any = node.target
    if ALONE in node.meta and target != "requires_grad_":
        return False
    if isinstance(target, Branches):
        graphs = [getattr(side, "graph", None) for side in (target.on_true, target.on_false)]
        return all(graph is not None and all(map(is_typed, graph.nodes)) for graph in graphs)
    if node.op in ("placeholder", "output") or target in (*WATCHING, fill, torch.nn.Parameter):
        return True
    if target is operator.getitem:
        return not any(isinstance(given, Node) for given in node.all_input_nodes[1:])
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    module = "torch" if isinstance(target, str) else str(getattr(target, "__module__", None) or "torch")
    return name.rstrip("_") in TYPED and module.partition(".")[0] in ("torch", "_operator")


TYPED = COMPUTES | frozenset(
    """
    detach requires_grad view reshape flatten transpose permute t squeeze unsqueeze softmax log_softmax gelu silu cumsum
    layer_norm conv1d conv2d var std reciprocal rsqrt square cat stack iadd isub imul truediv zeros ones
""".split()
)
"""Functions of torch and operators whose results are of types that follow from those of their arguments."""


def has_unknown_size(node: Node) -> bool:
    """Whether the result of a node, or one of its arguments, has a size that depends on data."""
    return UNBACKED in node.meta or any(UNBACKED in given.meta for given in node.all_input_nodes)


def in_subgraphs(gm: GraphModule, compile_graph: Compile, is_for_all_sizes: bool = False) -> CompiledFn:
    """The graph as steps: each call that stands alone, and each stretch of nodes between two of them. What
    `compile_graph` returns serves one size, or `is_for_all_sizes`."""
    delay_waits(gm.graph)
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    outputs = next(node for node in gm.graph.nodes if node.op == "output").args[0]
    steps: list[PartitionStep] = []
    stretch: list[Node] = []
    taken: set[Node] = set()
    whole = gradients_in_subgraphs(gm)
    watched = {each for node in gm.graph.nodes if node not in whole for each in watched_by(node)}
    uncertain, sizes = of_uncertain_type(gm, whole), numbers_from_sizes(gm)
    type_of_part = type_for_all_sizes if is_for_all_sizes else type_of

    def end_stretch() -> None:
        if stretch:
            is_eager = has_unknown_size(stretch[0])
            compiles, others = (run_by_eager, set()) if is_eager else (compile_graph, uncertain)
            steps.append(subgraph_of(gm, list(stretch), compiles, others, sizes, type_of_part))
            stretch.clear()

    if any(UNBACKED in node.meta for node in gm.graph.nodes):
        events.emit("lower.unbacked", text="eager kernels compute with sizes that depend on data", graph_module=gm)
    ends_here = False
    for node in gm.graph.nodes:
        if stands_alone(node) or node.target is torch.autograd.grad and node not in whole:
            end_stretch()
            for each in with_parts(node):
                taken.add(each)
                steps.append(step_of(gm, each, compile_graph, uncertain, sizes))
        elif node.op not in ("placeholder", "output") and node not in taken:
            if stretch and has_unknown_size(stretch[0]) != has_unknown_size(node):
                end_stretch()
            stretch.append(node)
            ends_here = ends_here or node in watched
            if ends_here and not is_item_of_same(node, node.next):
                ends_here = False
                end_stretch()
    end_stretch()
    return SubgraphSequence(inputs, steps, outputs)


def run_by_eager(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """A subgraph that computes with sizes that depend on data."""
    return run_eagerly_with_compiled_rng(gm)


def is_item_of_same(node: Node, other: Node) -> bool:
    """Whether both take a tensor out of one list. No cut is between them: a subgraph returns tensors, not lists."""
    return node.target is other.target is operator.getitem and node.args[0] is other.args[0]


def with_parts(node: Node) -> Iterator[Node]:
    """A call, and all calls that take parts out of its result, wherever they are."""
    yield node
    for user in node.users:
        if user.target is operator.getitem and user.args[0] is node:
            yield from with_parts(user)


@dataclass(slots=True, eq=False)
class PartitionStep:
    function: Callable[..., Any]
    reads: list[Node]
    makes: list[Node]
    """The results of a subgraph, which is a tuple. A call that stands alone has its own result."""
    is_subgraph: bool


def step_of(
    gm: GraphModule, node: Node, compile_graph: Compile, uncertain: set[Node], sizes: set[Node]
) -> PartitionStep:
    target: Any = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
    if may_draw(node) and not draws_as_eager(gm):
        target = with_compiled_rng(target)
    if hasattr(target, "in_subgraphs"):
        are_uncertain = not uncertain.isdisjoint(node.all_input_nodes)
        is_cond = isinstance(target, Branches)  # whose operands behind the predicate its graphs take
        numbers = tuple([k for k, given in enumerate(node.args[1:]) if is_cond and given in sizes])
        target = target.in_subgraphs(lambda graph: graph_inside(graph, compile_graph, are_uncertain, numbers))
    reads = node.all_input_nodes
    if tuple(node.args) == tuple(reads) and not node.kwargs:
        return PartitionStep(target, reads, [node], False)

    def call(*values: Any) -> Any:
        known = dict(zip(reads, values, strict=True))
        args, kwargs = arguments_of(node, known.__getitem__)
        return target(*args, **kwargs)

    return PartitionStep(call, reads, [node], False)


def graph_inside(
    gm: GraphModule, compile_graph: Compile, are_uncertain: bool, numbers: tuple[int, ...]
) -> Subgraph | SubgraphPerType:
    """A graph that a call holds. What guards the call's numbers guards those that it hands on: at the positions
    `numbers`, those that are computed from sizes."""
    request_of(gm).guards_number_types, request_of(gm).size_numbers = True, numbers
    if not are_uncertain:
        return Subgraph(gm, compile_graph)
    return SubgraphPerType(gm, compile_graph, range(sum(node.op == "placeholder" for node in gm.graph.nodes)))


def numbers_from_sizes(gm: GraphModule) -> set[Node]:
    """The numbers that are computed from sizes: inputs, and what Python's arithmetic makes of them."""
    positions = request_of(gm).size_numbers
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    found = {inputs[k] for k in positions}
    for node in gm.graph.nodes:
        if found.issuperset(node.all_input_nodes) and node.op == "call_function" and name_of(node.target) is not None:
            found.add(node)
    return found


def subgraph_of(
    gm: GraphModule,
    stretch: list[Node],
    compile_graph: Compile,
    uncertain: set[Node],
    sizes: set[Node],
    type_of_input: Callable[[Any], Any],
) -> PartitionStep:
    inside = set(stretch)
    graph, copies = Graph(), {}
    reads = list(dict.fromkeys(node for each in stretch for node in each.all_input_nodes if node not in inside))
    makes = [node for node in stretch if any(user not in inside for user in node.users)]
    for node in reads:
        placeholder = copies[node] = graph.placeholder(node.name)
        placeholder.meta[INPUT] = facts_of_input(node)
    for node in stretch:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in makes))
    subgraph = graph_module(gm, graph)
    request = request_of(gm)
    subgraph.meta[REQUEST] = CompileRequest(
        request.calls_before_compiling,
        guards_number_types=True,
        draws_as_eager=draws_as_eager(gm),
        calls_alone=request.calls_alone,
        size_numbers=tuple(k for k, node in enumerate(reads) if node in sizes),
    )
    varying = [k for k, node in enumerate(reads) if node in uncertain]
    if varying:
        function: Any = SubgraphPerType(subgraph, compile_graph, varying, type_of_input)
    else:
        function = Subgraph(subgraph, compile_graph)
    return PartitionStep(function, reads, makes, True)


class Subgraph:
    """A part of a graph, compiled when it first runs. ``eager`` runs it as it stands."""

    def __init__(self, gm: GraphModule, compile_graph: Compile):
        self.gm, self.compile_graph = gm, compile_graph
        self.eager = run_eagerly_with_compiled_rng(gm)
        self.compiled: CompiledFn | None = None
        self.lock = thread_locks.rlock()

    def __call__(self, *inputs: Any) -> Any:
        if self.compiled is None:
            with self.lock:
                if self.compiled is None:
                    # The compiler does not accept some inputs, for example an open autocast context.
                    self.compiled = (
                        self.compile_graph(self.gm, list(inputs))
                        if all(isinstance(value, NUMBERS) for value in inputs)
                        else self.eager
                    )
        return self.compiled(*inputs)


class SubgraphPerType:
    """A part of a graph that is compiled for each of the first few types of its inputs at the positions `uncertain`,
    and runs eagerly on any others. Types that come once, as sizes that depend on data do, are not worth compiling for:
    all but the first are compiled when they come again."""

    def __init__(
        self,
        gm: GraphModule,
        compile_graph: Compile,
        uncertain: Sequence[int],
        type_of_input: Callable[[Any], Any] | None = None,
    ):
        self.gm, self.compile_graph, self.uncertain = gm, compile_graph, uncertain
        self.type_of = type_of_input or type_of
        self.eager = run_eagerly_with_compiled_rng(gm)
        self.made: dict[Any, Subgraph] = {}
        self.seen: set[Any] = set()
        self.lock = thread_locks.rlock()

    def __call__(self, *inputs: Any) -> Any:
        types: tuple[Any, ...] = tuple([self.type_of(inputs[k]) for k in self.uncertain])
        found = self.made.get(types)
        if found is None:
            with self.lock:
                found = self.made.get(types)
                if found is None and len(self.made) < LIMIT:
                    if not self.made or types in self.seen:
                        found = self.made[types] = Subgraph(own_copy(self.gm), self.compile_graph)
                    elif len(self.seen) < 2 * LIMIT:
                        self.seen.add(types)
        return (found or self.eager)(*inputs)


def type_of(value: Any) -> Any:
    """What compiled code relies on. Tensors of other classes run eagerly, and answer through code of the program."""
    if type(value) not in PLAIN or value.layout is not torch.strided or value.is_nested:
        return type(value)
    return (
        type(value),
        value.dtype,
        value.device,
        value.shape,
        value.stride(),
        value.requires_grad,
        value.is_conj(),
        value.is_neg(),
        value.is_inference(),
        value._is_zerotensor(),
    )


def type_for_all_sizes(value: Any) -> Any:
    """The same without the sizes of 2 and more, and without strides: what compiles it looks at those."""
    found = type_of(value)
    if type(found) is not tuple:
        return found
    kind, dtype, device, shape, _, *rest = found
    return kind, dtype, device, tuple([min(size, 2) for size in shape]), *rest


class SubgraphSequence:
    """The steps as the source of a function, which drops each value after the step that last reads it."""

    def __init__(self, inputs: list[Node], steps: list[PartitionStep], outputs: Sequence[Node]):
        last = {node: step for step in steps for node in (*step.reads, *step.makes)}
        names = {node: f"v{k}" for k, node in enumerate(dict.fromkeys((*inputs, *last)))}
        lines = [f"def run({', '.join(names[node] for node in inputs)}):"]
        for k, step in enumerate(steps):
            makes = "".join(f"{names[node]}, " for node in step.makes) if step.is_subgraph else names[step.makes[0]]
            call = f"step{k}({', '.join(names[node] for node in step.reads)})"
            lines.append(f"{makes.rstrip()} = {call}" if makes else call)
            spent = [names[node] for node, one in last.items() if one is step and node not in outputs]
            if spent:
                lines.append(f"del {', '.join(spent)}")
        lines.append(f"return ({''.join(f'{names[node]}, ' for node in outputs)})")
        self.source = "\n    ".join(lines)
        self.steps = steps
        namespace: dict[str, Any] = {f"step{k}": step.function for k, step in enumerate(steps)}
        exec(compile(self.source, "<burnish subgraphs>", "exec"), namespace)
        self.run: Callable[..., tuple[Any, ...]] = namespace["run"]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.run(*inputs)
