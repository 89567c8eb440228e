"""Runs a script, and keeps each graph that Burnish compiles for it: its source and its inputs.

python -m burnish.cli.minimize.record_graphs FOLDER SCRIPT [ARGUMENT ...]

FOLDER/0001.pt        {"source": "def f(x, w): ...", "inputs": {"x": ..., "w": ...}, "state": ["w"], "grad": True}
"""

from __future__ import annotations

import ast
import itertools
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from ...captured_graph.compile_request import facts_of_input
from ...compiler import compile_or_fall_back
from ...foundation.torch_private import OpOverload

MOST_BYTES = 1 << 30
"""A graph with larger inputs is not kept."""


class NotPrintable(Exception):
    """A graph calls an object that no import finds, so no script can call it."""


def main(arguments: Sequence[str]) -> None:
    folder, script, *rest = arguments
    keep_graphs(Path(folder))
    sys.argv, sys.path[0] = [script, *rest], str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def keep_graphs(folder: Path) -> None:
    """Before the backend is first used: it is registered with the function that it has then."""
    compile_graph, numbers = compile_or_fall_back.burnish, itertools.count(1)

    def burnish(gm: GraphModule, example_inputs: list[Any]) -> Any:
        tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
        if sum(x.untyped_storage().nbytes() for x in tensors) <= MOST_BYTES:
            try:
                torch.save(recorded(gm, example_inputs), folder / f"{next(numbers):04}.pt")
            except NotPrintable as why:
                print(f"burnish: a graph is not kept: {why}", file=sys.stderr)
        return compile_graph(gm, example_inputs)

    burnish.__module__ = compile_graph.__module__
    compile_or_fall_back.burnish = burnish


def recorded(gm: GraphModule, example_inputs: Sequence[Any]) -> dict[str, Any]:
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    values = {str(node.target): value for node, value in zip(inputs, example_inputs, strict=True)}
    state = [str(node.target) for node in inputs if facts_of_input(node).is_module_state]
    return {"source": source_of(gm), "inputs": values, "state": state, "grad": torch.is_grad_enabled()}


def source_of(gm: GraphModule) -> str:
    """A function `f` of the graph's inputs, below the imports that it needs."""
    if any(node.op == "get_attr" for node in gm.graph.nodes):
        raise NotPrintable("it has graphs inside")
    for node in gm.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace not in ("aten", "prims"):
            raise NotPrintable(f"it calls {node.target}, an operator of another library")
    code = gm.graph.python_code("self")
    tree = AttributesRead(code.globals).visit(ast.parse(code.src.strip()))
    function = next(part for part in tree.body if isinstance(part, ast.FunctionDef))
    function.name = "f"
    function.args.args = [ast.arg(argument.arg) for argument in function.args.args if argument.arg != "self"]
    function.returns = None
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    imports = [line_that_imports(name, value) for name, value in code.globals.items() if name in read]
    return "\n".join([*imports, "", ast.unparse(function)])


class AttributesRead(ast.NodeTransformer):
    """Calls of functions that stand for reading an attribute, as Python writes it: `x.T`."""

    def __init__(self, functions: Mapping[str, Any]):
        self.functions = functions

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = self.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        attribute = getattr(function, "torch_attribute", None)
        return node if attribute is None else ast.Attribute(node.args[0], attribute, ast.Load())


def line_that_imports(name: str, value: Any) -> str:
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if value is torch:
        return "import torch"
    if isinstance(value, float):
        return f"from math import {name}"
    if module is None or getattr(sys.modules.get(module), own, None) is not value:
        raise NotPrintable(f"it calls {value!r:.80}")
    return f"from {module} import {own} as {name}"


if __name__ == "__main__":
    main(sys.argv[1:])
