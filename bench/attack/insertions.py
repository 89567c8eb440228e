"""What is put into the text of a program: writes, aliases, breaks, effects and exceptions.

The functions of `functions` are called by the changed programs, inside what is compiled. They look at the types of what
they are given, so that any local variable will do.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

import torch


class Inserted(Exception):
    """Raised by a program on purpose."""


def functions(log: list[Any]) -> dict[str, Callable]:
    """What a changed program calls, by name. `log` is what the effects leave behind: a world has one of its own, since
    a generator of another world may be closed, and leave an effect, at any time."""
    calls = [0]

    def write(x: Any, amount: float) -> None:
        """Add to a tensor in place, where eager allows it."""
        if isinstance(x, torch.Tensor) and x.dtype.is_floating_point and not (x.requires_grad and x.is_leaf):
            x.add_(amount)
        elif isinstance(x, list) and len(x) < 20:  # a loop over a list that grows would not end
            x.append(amount)
        elif isinstance(x, dict):
            x["written"] = amount

    def write_part(x: Any, amount: float) -> None:
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dim() and not (x.requires_grad and x.is_leaf):
            x[:1] = amount

    def alias(x: Any, way: int) -> Any:
        """The same memory under another shape, or the object itself."""
        if isinstance(x, torch.Tensor) and x.layout is torch.strided:
            return (x.view_as(x), x[...], x.detach(), x.transpose(0, -1) if x.dim() > 1 else x)[way]
        return x

    def note(x: Any) -> None:
        """An effect on a list that is there before and after the call."""
        log.append(x.shape if isinstance(x, torch.Tensor) else type(x).__name__)

    def note_sum(x: Any) -> None:
        """An effect that keeps a tensor."""
        if isinstance(x, torch.Tensor) and x.dtype.is_floating_point:
            log.append(x.detach().sum())

    def read(x: Any) -> None:
        """A graph break: Python looks at a tensor's value."""
        if isinstance(x, torch.Tensor) and x.dtype.is_floating_point and x.numel() and float(x.detach().sum()) > 1e30:
            log.append("large")

    @torch.compiler.disable
    def outside(x: Any) -> None:
        """A graph break: a call that is not captured."""
        log.append(id(x) == id(x))

    def fail_at(count: int) -> None:
        calls[0] += 1
        if calls[0] == count:
            raise Inserted(f"call {count}")

    def fail_if_large(x: Any) -> None:
        if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] > 3:
            raise Inserted(f"{tuple(x.shape)}")

    made = (write, write_part, alias, note, note_sum, read, outside, fail_at, fail_if_large)
    return {PREFIX + function.__name__: function for function in made}


PREFIX = "inserted_"


# ---- put into the text


def call(name: str, *arguments: Any) -> ast.Call:
    values = [arg if isinstance(arg, ast.AST) else ast.Constant(arg) for arg in arguments]
    return ast.Call(ast.Name(PREFIX + name, ast.Load()), values, [])


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def statements(pick: random.Random, name: str) -> list[ast.stmt]:
    """Some statements about the local variable `name`."""
    other = f"alias_{pick.randrange(1 << 30)}"
    amount = pick.choice([0.5, -1.0, 2.0])
    match pick.randrange(9):
        case 0:
            return [ast.Expr(call("write", load(name), amount))]
        case 1:
            return [ast.Expr(call("write_part", load(name), amount))]
        case 2:
            made = ast.Assign([ast.Name(other, ast.Store())], call("alias", load(name), pick.randrange(4)))
            return [made, ast.Expr(call("write", load(other), amount))]
        case 3:
            return [ast.Expr(call("note", load(name)))]
        case 4:
            return [ast.Expr(call("note_sum", load(name)))]
        case 5:
            return [ast.Expr(call("read", load(name)))]
        case 6:
            return [ast.Expr(call("outside", load(name)))]
        case 7:
            return [ast.Expr(call("fail_at", pick.randint(1, 6)))]
        case _:
            return [ast.Expr(call("fail_if_large", load(name)))]


def wrapped(pick: random.Random, statement: ast.stmt, name: str) -> ast.stmt:
    """The statement inside a `try`, whose handler or `finally` leaves an effect."""
    effect: list[ast.stmt] = [ast.Expr(call("note", load(name)))]
    if pick.random() < 0.5:
        return ast.Try([statement], [], [], effect)
    handler = ast.ExceptHandler(load("Exception"), None, [*effect, ast.Raise(None, None)])
    return ast.Try([statement], [handler], [], [])


class Inserter(ast.NodeTransformer):
    """Puts statements behind random statements of the functions inside a program's maker."""

    def __init__(self, pick: random.Random, chance: float):
        self.pick, self.chance = pick, chance
        self.count = 0
        self.names: list[list[str]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        arguments = node.args
        self.names.append(
            [
                a.arg
                for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                if a.arg not in ("self", "cls")
            ]
        )
        if len(self.names) > 1:  # the maker itself builds the world
            node.body = self.block(node.body)
        else:
            node.body = [self.visit(statement) for statement in node.body]
        self.names.pop()
        return node

    visit_AsyncFunctionDef = visit_Lambda = lambda self, node: node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [
            self.visit(statement) if isinstance(statement, ast.FunctionDef) else statement for statement in node.body
        ]
        return node

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            is_scope = isinstance(statement, ast.Global | ast.Nonlocal)
            before = not is_scope and self.draw()
            if before and self.names[-1]:
                found += self.made()
            if isinstance(statement, ast.If | ast.For | ast.While | ast.With):
                statement.body = self.block(statement.body)
            elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
                statement = self.visit(statement)
            elif not is_scope and self.names[-1] and not isinstance(statement, ast.Return) and self.draw():
                self.count += 1
                statement = wrapped(self.pick, statement, self.pick.choice(self.names[-1]))
            found.append(statement)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.names[-1].append(statement.targets[0].id)
        return found

    def draw(self) -> bool:
        return self.pick.random() < self.chance

    def made(self) -> list[ast.stmt]:
        self.count += 1
        return statements(self.pick, self.pick.choice(self.names[-1]))
