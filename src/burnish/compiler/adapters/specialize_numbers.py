"""Specialization: one compilation for each combination of Python numbers that must be constants.

AOTAutograd, and so "inductor" and most third-party backends, traces the graph with the example inputs. A Python int or
float among them becomes a constant in the traced code. A later call with another number would get the first one's
result. So each combination of numbers is compiled separately:

    compiled = compile_per_number(compile_graph, gm, [x, 2])
    compiled(x, 2)    # compiled at once, with 2
    compiled(x, 3)    # compiles again, with 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Graph, GraphModule

from ...captured_graph.compile_request import copy_request
from ...captured_graph.lazy_graph_module import graph_module
from ...concurrency import thread_locks

LIMIT = 8
"""How many combinations are compiled. For any other the graph runs eagerly: a number that keeps changing is not
constant."""


NUMBERS = (int, float, complex)


def live_scalars_beside_sizes(inputs: Sequence[Any]) -> tuple[type, ...]:
    """The types of numbers that stay live in a graph with symbolic sizes, given an example."""
    return tuple(kind for kind in (int, float) if any(type(value) is kind for value in inputs))


def has_numbers(inputs: Sequence[Any], kinds: tuple[type, ...] = NUMBERS) -> bool:
    return any(isinstance(value, kinds) for value in inputs)


def compile_per_number(
    compile_graph: Callable[[GraphModule, list[Any]], Callable[..., Any]],
    gm: GraphModule,
    example_inputs: list[Any],
    eager: Callable[..., Any] | None = None,
    kinds: tuple[type, ...] = NUMBERS,
    among: Sequence[int] | None = None,
) -> Callable[..., Any]:
    """Compiles for the example inputs now and for other numbers as they come, up to LIMIT. `eager` runs the graph
    eagerly, if `gm.forward` is not enough. Numbers of types other than `kinds`, or not `among` these positions, only
    count by their type.
    """
    positions = [i for i, value in enumerate(example_inputs) if isinstance(value, NUMBERS)]
    decide = positions if among is None else among
    compiled: dict[tuple[object, ...], Callable[..., Any]] = {}
    lock = thread_locks.rlock()

    def compile_for(inputs: list[Any]) -> Callable[..., Any]:
        key = tuple(
            exactly(inputs[i]) if i in decide and isinstance(inputs[i], kinds) else type(inputs[i]) for i in positions
        )
        found = compiled.get(key)
        if found is None:
            with lock:
                found = compiled.get(key)
                if found is None:
                    if len(compiled) >= LIMIT:
                        return eager or gm.forward
                    found = compiled[key] = compile_graph(own_copy(gm), inputs)
        return found

    def run(*inputs: Any) -> Any:
        return compile_for(list(inputs))(*inputs)

    compile_for(example_inputs)
    return run


def exactly(value: object) -> tuple[type, str]:
    """A key that distinguishes 1, 1.0 and True, and 0.0 and -0.0, and is equal for two nans."""
    return type(value), repr(value)


def own_copy(gm: GraphModule, first: Sequence[str] = ()) -> GraphModule:
    """A copy of the graph over the same tensors and submodules: a backend may rewrite the graph it is given. ``first``:
    names of further inputs, before the others."""
    graph = Graph()
    for name in first:
        graph.placeholder(name)
    graph.output(graph.graph_copy(gm.graph, {}))
    copied = graph_module(gm, graph)
    copied.meta.update(gm.meta)
    copy_request(gm, copied)
    return copied
