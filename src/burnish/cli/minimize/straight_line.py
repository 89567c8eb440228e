"""A graph as a straight line of Python statements, which reductions make shorter.

StraightLine(imports=("import torch",), statements=("a = x @ w", "b = torch.relu(a)"), results=("b",),
             inputs={"x": ..., "w": ...}, state={"w"}).source():

import torch

def f(x):
    w, = state.w,              # a buffer of a module: compiled code may compute with it ahead
    a = x @ w
    b = torch.relu(a)
    return (b,)
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class StraightLine:
    imports: tuple[str, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    inputs: Mapping[str, Any]
    state: frozenset[str]
    """The names of inputs that are a module's parameters and buffers."""
    grad: bool = True
    """Whether it runs with gradients on."""

    def source(self) -> str:
        state = [name for name in self.inputs if name in self.state]
        body = [*self.statements, f"return ({', '.join(self.results)}{',' * bool(self.results)})"]
        if state:
            body.insert(0, f"{', '.join(state)}, = {', '.join(f'state.{name}' for name in state)},")
        given = ", ".join(self.arguments())
        return "\n".join([*self.imports, "", f"def f({given}):", *(f"    {line}" for line in body)])

    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.inputs.items() if name not in self.state}

    def module(self) -> torch.nn.Module:
        """What the source calls `state`."""
        module = torch.nn.Module()
        for name, value in self.inputs.items():
            if name in self.state:
                module.register_buffer(name, copy_of(value))
        return module

    def values(self) -> dict[str, Any]:
        """What each name holds in eager, as it is when it is assigned."""
        scope: dict[str, Any] = {}
        exec("\n".join(self.imports), scope)
        torch.manual_seed(0)
        scope.update(copied(self.inputs))
        found = {}
        with torch.set_grad_enabled(self.grad):
            for statement in self.statements:
                exec(statement, scope)
                found.update({name: copy_of(scope[name]) for name in assigned_names(statement)})
        return found

    def with_written_inputs(self) -> StraightLine:
        """State that the graph writes becomes an argument, which is given in each call. What was recorded is what the
        first run left, which a second may leave as well: then zeros are given."""
        module, arguments = self.module(), copied(self.arguments())
        given = {**dict(module.named_buffers()), **arguments}
        before = {name: x._version for name, x in given.items() if isinstance(x, torch.Tensor)}
        scope: dict[str, Any] = {"state": module}
        exec(self.source(), scope)
        with torch.set_grad_enabled(self.grad):
            scope["f"](*arguments.values())
        written = {name for name, version in before.items() if given[name]._version != version}
        same = {name for name in written if torch.equal(given[name], self.inputs[name])}
        inputs = {name: torch.zeros_like(x) if name in same else x for name, x in self.inputs.items()}
        return replace(self, inputs=inputs, state=self.state - written)

    def without_dead_code(self) -> StraightLine:
        """Only the statements whose names the results need. One that writes in place is dropped as well, unless its
        own name is needed."""
        needed, kept = {*self.results}, []
        for statement in reversed(self.statements):
            if needed & assigned_names(statement):
                kept.append(statement)
                needed |= names_read(statement)
        return replace(self, statements=tuple(reversed(kept))).without_dead_inputs()

    def without_dead_inputs(self) -> StraightLine:
        needed = {*self.results}.union(*map(names_read, self.statements))
        return replace(self, inputs={name: value for name, value in self.inputs.items() if name in needed})

    def renamed(self) -> StraightLine:
        """The same with short names."""
        short = {name: f"x{k}" for k, name in enumerate(self.inputs)}
        for statement in self.statements:
            for name in sorted(assigned_names(statement) - short.keys()):
                short[name] = f"v{len(short) - len(self.inputs)}"

        return StraightLine(
            tuple(line for line in self.imports if is_needed(line, self.statements)),
            tuple(rename(statement, short) for statement in self.statements),
            tuple(short[name] for name in self.results),
            {short[name]: value for name, value in self.inputs.items()},
            frozenset(short[name] for name in self.state & self.inputs.keys()),
            self.grad,
        )


def rename(statement: str, names: Mapping[str, str]) -> str:
    tree = ast.parse(statement)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


def is_needed(line_that_imports: str, statements: tuple[str, ...]) -> bool:
    name = line_that_imports.split()[-1]
    return name == "torch" or any(name in names_read(statement) for statement in statements)


def straight_line(source: str, inputs: Mapping[str, Any], state: Iterable[str] = (), grad: bool = True) -> StraightLine:
    """Read a function whose body is a straight line."""
    tree = ast.parse(source)
    *imports, function = tree.body
    assert isinstance(function, ast.FunctionDef)
    *body, last = function.body
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Tuple)
    results = tuple(part.id for part in last.value.elts if isinstance(part, ast.Name))
    later = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not stores(node)}
    statements = tuple(ast.unparse(part) for part in body if not frees(part, later))
    lines, values = tuple(map(ast.unparse, imports)), dict(inputs)
    return StraightLine(lines, statements, tuple(dict.fromkeys(results)), values, frozenset(state), grad)


def frees(statement: ast.stmt, read_names: Collection[str]) -> bool:
    """Whether a statement only frees values, as `x = None` does, or names one that is not read by that name."""
    if not isinstance(statement, ast.Assign):
        return False
    if isinstance(statement.value, ast.Name):
        return not any(isinstance(target, ast.Name) and target.id in read_names for target in statement.targets)
    return isinstance(statement.value, ast.Constant) and statement.value.value is None


def assigned_names(statement: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(statement)) if isinstance(node, ast.Name) and stores(node)}


def names_read(statement: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(statement)) if isinstance(node, ast.Name) and not stores(node)}


def stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def copy_of(value: Any) -> Any:
    """A copy that may be an input: a leaf, with the layout of the original."""
    if isinstance(value, torch.Tensor):
        shape, strides = value.shape, value.stride()
        if value.numel() == 0:
            copy = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
        else:  # all of the memory that it spans: dimensions may overlap
            reach = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
            copy = value.detach().as_strided((reach,), (1,)).clone().as_strided(shape, strides)
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, tuple | list):
        return type(value)(map(copy_of, value))
    return value


def copied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: copy_of(value) for name, value in inputs.items()}
