"""Validate the Python source that torch.fx generates for a loaded graph, before it runs.

    graph.set_codegen(CheckedCode())

The file reader accepts only plain names and constants (`graph_to_json`). This is a second check: the printed source
is parsed. Each call must be one that the graph makes; each name an input, a result or a global of torch.fx; each
attribute a tensor of the graph. Anything else is a `UserError`, and nothing runs.

    linear = torch.nn.functional.linear(x, self.weight)        a call that the graph makes, of its input and its tensor
    linear = torch.nn.functional.linear(x, exec("..."))        refused: the graph calls no exec
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
from torch.fx.graph import CodeGen, PythonCode

from ..errors import UserError
from ..foundation.torch_private import get_qualified_name

OF_CONSTANTS = frozenset(("slice", "complex", "device"))
"""Names that torch.fx prints constants with: `slice(0, None, None)`, `device(type='cpu')`."""

STATEMENTS = (ast.Assign, ast.AnnAssign, ast.Return)
EXPRESSIONS = (
    ast.Call,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Subscript,
    ast.UnaryOp,
    ast.BinOp,
)
PIECES = (
    ast.keyword,
    ast.Load,
    ast.Store,
    ast.USub,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
)


class CheckedCode(CodeGen):
    """Prints as torch.fx does, and checks the result."""

    def _gen_python_code(self, nodes: Any, *args: Any, **options: Any) -> PythonCode:
        printed = super()._gen_python_code(nodes, *args, **options)
        if not options.get("colored"):  # colored source is for people, and does not run
            why = next(why_not_code(printed, list(nodes)), None)
            if why is not None:
                raise UserError(
                    f"The graph of a loaded file does not run: the Python source that torch.fx prints of "
                    f"it holds {why}, which the graph does not. Do not use the file: export the function "
                    f"again."
                )
        return printed


def why_not_code(printed: PythonCode, nodes: list[torch.fx.Node]) -> Iterator[str]:
    """What the source contains and the graph does not."""
    try:
        body = ast.parse(printed.src).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield f"something that is not Python ({error})"
        return
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        yield "more than one function"
        return
    function = body[0]
    if function.decorator_list or function.args.defaults or any(function.args.kw_defaults):
        yield "decorators or defaults"
    yield from GeneratedCodeChecker(printed, nodes, function).found()


class GeneratedCodeChecker:
    def __init__(self, printed: PythonCode, nodes: list[torch.fx.Node], function: ast.FunctionDef):
        self.function = function
        called = [node.target for node in nodes if node.op == "call_function"]
        self.functions = {get_qualified_name(target) for target in called} | OF_CONSTANTS
        self.functions |= {name for name, value in printed.globals.items() if any(value is x for x in called)}
        self.methods = {node.target for node in nodes if node.op == "call_method"}
        self.paths = {f"self.{node.target}" for node in nodes if node.op == "get_attr"}
        self.locals = {node.name for node in nodes} | {arg.arg for arg in function.args.args}
        self.names = self.locals | printed.globals.keys() | {"Ellipsis"}

    def found(self) -> Iterator[str]:
        for statement in self.function.body:
            if not isinstance(statement, (*STATEMENTS, ast.Pass)):
                yield f"the statement {ast.unparse(statement)!r:.100}"
            elif isinstance(statement, ast.AnnAssign):  # the printer annotates shapes
                yield from self.expression(statement.value)
            else:
                for part in ast.iter_child_nodes(statement):
                    yield from self.expression(part)

    def expression(self, part: ast.AST | None) -> Iterator[str]:
        if part is None or isinstance(part, PIECES) and not isinstance(part, ast.keyword):
            return
        if dotted(part) in self.paths:
            return
        if isinstance(part, ast.Call):
            if not self.is_call(part.func):
                yield f"the call {ast.unparse(part)!r:.100}"
            if isinstance(part.func, ast.Attribute) and dotted(part.func) not in self.functions:
                yield from self.expression(part.func.value)
            for argument in (*part.args, *part.keywords):
                yield from self.expression(argument)
        elif isinstance(part, ast.Attribute):
            if not self.is_constant(dotted(part)):
                yield f"the attribute {ast.unparse(part)!r:.100}"
        elif isinstance(part, ast.Name):
            if part.id not in self.names:
                yield f"the name {part.id!r:.100}"
        elif isinstance(part, ast.keyword) and part.arg is not None:
            yield from self.expression(part.value)
        elif isinstance(part, EXPRESSIONS):
            for inner in ast.iter_child_nodes(part):
                yield from self.expression(inner)
        else:
            yield f"the expression {ast.unparse(part)!r:.100}"

    def is_call(self, called: ast.expr) -> bool:
        if dotted(called) in self.functions:
            return True
        return (
            isinstance(called, ast.Attribute)
            and called.attr in self.methods
            and isinstance(called.value, ast.Name)
            and called.value.id in self.locals
        )

    def is_constant(self, path: str | None) -> bool:
        """A constant of torch: `torch.float32`."""
        root, _, name = (path or "").partition(".")
        return (
            root == "torch"
            and root not in self.locals
            and isinstance(getattr(torch, name, None), (torch.dtype, torch.layout, torch.memory_format))
        )


def dotted(part: ast.AST) -> str | None:
    """`a.b.c` as text, which may be written as `getattr(a, "b").c`; None for anything else."""
    names = []
    while True:
        match part:
            case ast.Attribute(value, attr):
                names.append(attr)
            case ast.Call(ast.Name("getattr"), [value, ast.Constant(str(name))], []):
                names.append(name)
            case _:
                break
        part = value
    if not isinstance(part, ast.Name):
        return None
    return ".".join([part.id, *reversed(names)])
