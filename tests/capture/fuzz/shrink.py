"""Makes a failing program smaller while it fails in the same way.

Statements are deleted, compound statements replaced by their bodies, expressions by their parts and calls' settings
dropped, as long as the failure keeps its signature and eager meets no new kind of error.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Iterator

from .check import Failure, Hang, check

BODIES = ("body", "orelse", "finalbody")
KEPT = {
    "fn",
    "calls",
    "call",
    "BOX",
    "LOG",
    "TOTAL",
    "SETTINGS",
    "LAYER",
    "WEIGHT",
    "NOTES",
    "Box",
    "Deep",
    "make_mat",
    "make_vec",
    "Model",
}


def shrink(source: str, failure: Failure, seconds: float = 30.0) -> str:
    """The smallest program found in the given time."""
    end = time.monotonic() + seconds
    best = ast.parse(source)
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        at = 0
        while time.monotonic() < end:
            smaller = edited(best, at)
            if smaller is None:
                break
            if fails_alike(smaller, failure):
                best, progress = smaller, True
            else:
                at += 1
    return ast.unparse(best) + "\n"


def fails_alike(tree: ast.Module, failure: Failure) -> bool:
    try:
        found, errors = check(ast.unparse(ast.fix_missing_locations(tree)))
    except (Exception, Hang):  # not a program any more: a name or a function it needs is gone
        return False
    return found is not None and found.signature == failure.signature and set(errors) <= set(failure.expected_errors)


def edited(tree: ast.Module, at: int) -> ast.Module | None:
    """A copy of ``tree`` with its ``at``-th possible edit made."""
    tree = copy.deepcopy(tree)
    for i, edit in enumerate(edits(tree)):
        if i == at:
            edit()
            return tree
    return None


def edits(tree: ast.Module) -> Iterator:
    """Every edit, the ones that remove most first: later definitions before earlier ones, outer before inner."""
    main = [node for node in tree.body if getattr(node, "name", None) in ("fn", "Model")]
    rest = [node for node in tree.body if node not in main]
    for node in main:
        yield from statement_edits(node)
    for node in reversed(rest):
        if not names_of(node) & KEPT:
            yield lambda node=node: tree.body.remove(node)
    for node in main:
        yield from expression_edits(node)
    for node in rest:
        if getattr(node, "name", None) == "calls":
            yield from call_edits(node)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and getattr(node, "name", "") != "call":
            yield from statement_edits(node)


def names_of(node: ast.stmt) -> set[str]:
    targets = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return targets | {getattr(node, "name", "")}


def statement_edits(root: ast.AST) -> Iterator:
    for node in ast.walk(root):
        for field in BODIES:
            body = getattr(node, field, None)
            if not isinstance(body, list):
                continue
            for i in range(len(body)):
                if not (len(body) == 1 and isinstance(body[0], ast.Pass)):
                    yield lambda node=node, field=field, body=body, i=i: replace(node, field, body, i, [])
                for inner in (*BODIES, "handlers", "cases"):
                    parts = getattr(body[i], inner, None)
                    if parts and isinstance(parts, list) and not isinstance(body[i], (ast.FunctionDef, ast.ClassDef)):
                        flat = [s for p in parts for s in (p.body if inner in ("handlers", "cases") else [p])]
                        yield lambda node=node, field=field, body=body, i=i, flat=flat: replace(
                            node, field, body, i, flat
                        )


def replace(node: ast.AST, field: str, body: list, i: int, new: list) -> None:
    body[i : i + 1] = new
    if not body and (field == "body" or (field == "finalbody" and not getattr(node, "handlers", [1]))):
        body.append(ast.Pass())


def expression_edits(root: ast.AST) -> Iterator:
    for node in ast.walk(root):
        for field, value in ast.iter_fields(node):
            if isinstance(node, (ast.Tuple, ast.List, ast.Dict)) and field in ("elts", "keys"):
                for i in range(len(value)):
                    yield lambda node=node, i=i: drop(node, i)
            for i, part in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(part, ast.expr) and isinstance(getattr(part, "ctx", ast.Load()), ast.Load):
                    for simpler in simpler_than(part):
                        yield lambda node=node, field=field, value=value, i=i, simpler=simpler: put(
                            node, field, value, i, simpler
                        )


def simpler_than(part: ast.expr) -> list[ast.expr]:
    if isinstance(part, ast.BinOp):
        return [part.left, part.right]
    if isinstance(part, ast.BoolOp):
        return part.values
    if isinstance(part, ast.IfExp):
        return [part.body, part.orelse]
    if isinstance(part, ast.UnaryOp):
        return [part.operand]
    if isinstance(part, ast.Call):
        return [*([part.func.value] if isinstance(part.func, ast.Attribute) else []), *part.args]
    if isinstance(part, (ast.Subscript, ast.Attribute)):
        return [part.value]
    return []


def put(node: ast.AST, field: str, value, i: int, new: ast.expr) -> None:
    if isinstance(value, list):
        value[i] = new
    else:
        setattr(node, field, new)


def drop(node: ast.AST, i: int) -> None:
    if isinstance(node, ast.Dict):
        del node.keys[i], node.values[i]
    else:
        del node.elts[i]


def call_edits(node: ast.FunctionDef) -> Iterator:
    """Fewer calls (not under the three that trace, replay and repeat) and fewer settings of each."""
    listed = node.body[-1].value
    if len(listed.elts) > 3:
        for i in range(len(listed.elts)):
            yield lambda i=i: listed.elts.pop(i)
    for element in listed.elts:
        for keyword in element.keywords:
            yield lambda element=element, keyword=keyword: element.keywords.remove(keyword)
