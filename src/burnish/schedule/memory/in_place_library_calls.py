"""In-place library calls: an operator that would copy a tensor and write into the copy writes into the tensor itself.

Stores into a part of a tensor that are not loops are handled the same way.

    r = aten.index_copy.default cache, 2, position, k        aten.index_copy_ of the input `cache`
    write cache <- r                                    =>   r is that input

    z = aten.zeros …                                         aten.index_add_ of z
    r = aten.index_add.default z, 0, index, x           =>   r is z

A KV cache is written at one place in each decoding step; copying it twice takes a thousand times as long. A value made
from an input by a chain of such operators must be the input's final value. All reads of the old contents come first:
the steps are already in order here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...concurrency.first_value_cache import once
from ...ir import fuel
from ...ir.alias_analysis import storage_of
from ...ir.graph import Graph, Node, Value, values_in
from ...ops.burnish_primitives import ASSEMBLED, PUT
from ...tensors.views.view_maps import Diagonal, Map, Maps, Permute, Slice

WRITERS = frozenset(
    """
    index_copy index_put _unsafe_index_put index_add index_fill scatter scatter_add scatter_reduce masked_scatter
""".split()
)


def writing_form(node: Node) -> Callable[..., Any] | None:
    """A function that writes into the first argument and returns it."""
    if node.op is PUT:
        return put_into if all(map(is_plain, node.args[2])) else None
    return overload_that_writes(node.op.name) if node.op.target is not None else None


def is_plain(step: Map) -> bool:
    """Whether torch always makes a view for it."""
    return isinstance(step, Slice) and step.step > 0 or isinstance(step, (Permute, Diagonal))


def put_into(x: torch.Tensor, value: torch.Tensor, maps: Maps) -> torch.Tensor:
    shown = x
    for step in maps:
        match step:
            case Slice(dim, start, stride, size):
                stop = max(start + stride * (size - 1) + 1, start)
                shown = shown[(slice(None),) * dim + (slice(start, stop, stride),)]
            case Permute(dims):
                shown = shown.permute(dims)
            case Diagonal(a, b, shift, size):
                shown = shown.diagonal(shift, a, b).narrow(-1, 0, size)
    shown.copy_(value)
    return x


@once
def overload_that_writes(name: str) -> Any:
    """The overload that writes into its first argument, for an operator named like "aten.index_copy.default"."""
    _, packet, overload = name.split(".")
    if packet not in WRITERS:
        return None
    written = getattr(torch.ops.aten, packet.removeprefix("_unsafe_") + "_", None)
    return getattr(written, overload, None)


def run_library_calls_in_place(
    graph: Graph, calls: Sequence[Node | None], used: Sequence[Sequence[Value]], checked: int = -1
) -> tuple[dict[Node, Any], dict[Value, Value]]:
    """The calls that may write into their first argument, each with its in-place operator, and the values that are
    then stored in inputs. `calls` has the node of each step that is a call, `used` the values that each step reads or
    writes. No step after `checked` raises: inputs are written only after it."""
    last = {storage_of(value): number for number, values in enumerate(used) for value in values}
    leaving = {storage_of(value) for value in values_in(tuple(graph.outputs))}
    targets = [write.value for write in graph.writes]
    forms: dict[Value, tuple[int, Node, Any]] = {}
    for number, node in enumerate(calls):
        form = writing_form(node) if node is not None else None
        if form is not None and node is not None and why_not_over(node, number, last, leaving) is None:
            forms[node.results[0]] = number, node, form  # type: ignore[index]
    chosen: dict[Node, Any] = {}
    placed: dict[Value, Value] = {}
    for write in graph.writes:
        input, value = graph.inputs[write.input], write.value
        chain: list[Value] = []
        while value in forms and forms[value][0] > checked:
            chain.append(value)
            value = forms[value][1].args[0]
        if (
            value is input
            and chain
            and targets.count(chain[0]) == 1
            and input not in targets
            and storage_of(chain[0]) not in leaving
            and not any(link in targets for link in chain[1:])
            and fuel.allows("run_library_calls_in_place", [forms[link][1] for link in chain], "they write into", input)
        ):
            placed.update(dict.fromkeys(chain, input))
            chosen.update((forms[link][1], forms[link][2]) for link in chain)
    shared = {value for node in graph.nodes if node.op is ASSEMBLED for value in (*node.operands, *node.results)}
    for _, node, form in forms.values():
        x = node.args[0]
        if (
            x not in shared
            and x not in targets
            and is_own(x)
            and node not in chosen
            and fuel.allows("run_library_calls_in_place", node, "it writes into", x)
        ):
            chosen[node] = form
    return chosen, placed


def why_not_over(node: Node, number: int, last: dict[Value, int], leaving: set[Value]) -> str | None:
    """Why the result cannot be written into the first argument's memory, regardless of its owner."""
    x, result = node.args[0], node.results[0]
    if result is None or x.type != result.type:
        return "the result has another type or layout"
    if storage_of(x) is not x:
        return "it is a view of something else"
    if x in leaving:
        return "the caller gets it as it was"
    if last.get(x, -1) > number:
        return "it is read afterwards"
    if any(storage_of(other) is x for other in values_in((node.args[1:], tuple(node.kwargs.values())))):
        return "another argument is in the same memory"
    return None


def is_own(x: Value) -> bool:
    """Whether the graph itself makes it, in its own memory."""
    return x.node is not None and (
        x.node.op.target is None or not any(argument.alias_info for argument in x.node.op.target._schema.arguments)
    )
