"""Delta debugging: makes a failing graph smaller, as long as it fails in the same way.

    smallest(graph, fails)        `fails(graph)` says whether one still does

One result remains, then the statements in front of the failing one become inputs, then statements are left out one by
one, sizes become small, and inputs become numbers that a script can make. Each step is tried, and taken back if the
graph does not fail any more; so nothing here has to know what a statement computes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from .straight_line import StraightLine, assigned_names, copy_of, rename

Fails = Callable[[StraightLine], bool]

SMALL = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64)
"""Sizes that are tried in place of a larger one, the smallest first."""


def smallest(graph: StraightLine, fails: Fails) -> StraightLine:
    before = None
    while before != (len(graph.statements), len(graph.inputs), len(graph.results)):
        before = len(graph.statements), len(graph.inputs), len(graph.results)
        for step in (with_one_result, starting_late, with_fewer_statements, with_equal_merged, with_fewer_gradients):
            graph = step(graph, fails)
    graph = if_it_fails(replace(graph, state=frozenset()), fails, graph)
    return with_small_sizes(graph, fails).renamed()


def first_failing(candidates: Iterator[StraightLine], fails: Fails, otherwise: StraightLine) -> StraightLine:
    return next((candidate for candidate in candidates if fails(candidate)), otherwise)


def if_it_fails(smaller: StraightLine, fails: Fails, otherwise: StraightLine) -> StraightLine:
    return smaller if fails(smaller) else otherwise


def with_one_result(graph: StraightLine, fails: Fails) -> StraightLine:
    """The first value that fails by itself, of those that the graph returns; then of those that it computes, found by
    halving: from some statement on, results are wrong."""
    if len(graph.results) > 1:
        singles = (replace(graph, results=(name,)).without_dead_code() for name in graph.results)
        graph = first_failing(singles, fails, graph)
    right, wrong = 0, len(graph.statements)
    found = graph
    while wrong - right > 1:
        middle = (right + wrong) // 2
        kept = graph.statements[:middle]
        names = assigned_names(kept[-1])
        shorter = replace(graph, statements=kept, results=tuple(sorted(names))).without_dead_code()
        if names and fails(shorter):
            found, wrong = shorter, middle
        else:
            right = middle
    return found


def starting_late(graph: StraightLine, fails: Fails) -> StraightLine:
    """As many statements from the top as possible become inputs: what they compute in eager is given."""
    values = graph.values()
    right, wrong = len(graph.statements), 0
    found = graph
    while right - wrong > 1:
        middle = (right + wrong) // 2
        later = beginning_at(graph, middle, values)
        if fails(later):
            found, wrong = later, middle
        else:
            right = middle
    return found


def beginning_at(graph: StraightLine, first: int, values: dict[str, Any]) -> StraightLine:
    gone = set().union(*map(assigned_names, graph.statements[:first]))
    inputs = {**graph.inputs, **{name: copy_of(values[name]) for name in gone}}
    return replace(graph, statements=graph.statements[first:], inputs=inputs).without_dead_inputs()


def with_fewer_statements(graph: StraightLine, fails: Fails) -> StraightLine:
    """Each statement, the last first, becomes an input or is left out."""
    for statement in reversed(graph.statements):
        kept = tuple(other for other in graph.statements if other is not statement)
        values = graph.values()
        inputs = {**graph.inputs, **{name: copy_of(values[name]) for name in assigned_names(statement)}}
        shorter = replace(graph, statements=kept, inputs=inputs).without_dead_inputs()
        if kept and fails(shorter):
            graph = shorter
    return if_it_fails(graph.without_dead_code(), fails, graph)


def with_equal_merged(graph: StraightLine, fails: Fails) -> StraightLine:
    """Of two statements that compute the same, one."""
    first: dict[str, str] = {}
    for statement in graph.statements:
        name, equals, expression = statement.partition(" = ")
        before = first.setdefault(expression, name)
        if equals and before != name:
            kept = tuple(rename(other, {name: before}) for other in graph.statements if other is not statement)
            results = tuple(before if result == name else result for result in graph.results)
            graph = if_it_fails(replace(graph, statements=kept, results=results), fails, graph)
    return graph


def with_fewer_gradients(graph: StraightLine, fails: Fails) -> StraightLine:
    for name, value in graph.inputs.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            plain = replace(graph, inputs={**graph.inputs, name: value.detach()})
            graph = if_it_fails(plain, fails, graph)
    return graph


def with_small_sizes(graph: StraightLine, fails: Fails) -> StraightLine:
    sizes = {size for value in graph.inputs.values() if isinstance(value, torch.Tensor) for size in value.shape}
    for size in sorted(sizes, reverse=True):
        candidates = (with_size(graph, size, small) for small in SMALL if small < size)
        graph = first_failing(candidates, fails, graph)
    return graph


def with_size(graph: StraightLine, size: int, small: int) -> StraightLine:
    """All dimensions of this size, and all integers that are equal to it, become smaller."""

    def shrink(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return small if type(value) is int and value == size else value
        less = value.detach()
        for dim, found in enumerate(value.shape):
            if found == size:
                less = less.narrow(dim, 0, small)
        less = less.contiguous() if value.is_contiguous() else copy_of(less)
        return less.requires_grad_(value.requires_grad)

    def rewrite(statement: str) -> str:
        tree = ast.parse(statement)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value == size:
                node.value = small
        return ast.unparse(tree)

    return replace(
        graph,
        statements=tuple(map(rewrite, graph.statements)),
        inputs={name: shrink(value) for name, value in graph.inputs.items()},
    )
