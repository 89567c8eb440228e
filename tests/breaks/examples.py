"""The example programs of the break catalog, made runnable: as they are, or with their ``fn`` compiled."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from typing import Any

from burnish.capture.breaks import CATALOG

EXAMPLES = [(f"{code}-{name}", getattr(kind, name)) for code, kind in CATALOG.items() for name in ("broken", "fixed")]


def run_example(name: str, code: str, compiler: Callable = lambda fn: fn) -> dict[str, Any]:
    """Run the program with ``fn`` replaced by ``compiler(fn)`` as soon as it is defined; returns its globals."""
    filename = f"<example {name}>"
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    before, after = split_after_fn(ast.parse(code, filename))
    scope: dict[str, Any] = {"__name__": f"example_{name}"}
    exec(compile(before, filename, "exec", dont_inherit=True), scope)
    scope["fn"] = compiler(scope["fn"])
    exec(compile(after, filename, "exec", dont_inherit=True), scope)
    return scope


def split_after_fn(tree: ast.Module) -> tuple[ast.Module, ast.Module]:
    """The program up to the definition of ``fn``, and the rest."""
    cut = [i for i, part in enumerate(tree.body) if getattr(part, "name", None) == "fn"]
    assert len(cut) == 1, "an example defines fn once"
    return ast.Module(tree.body[: cut[0] + 1], []), ast.Module(tree.body[cut[0] + 1 :], [])
