"""Random Python programs over tensors and containers, written from ``grammar.py`` and ``statements.py``.

``generate(choose)`` returns the text of a module with a function (or module instance) ``fn`` and ``calls()``, the
argument tuples of a few calls: equal cases on new data, another case, and a return to the first one.
"""

from __future__ import annotations

import ast
import re

from . import grammar, statements
from .prelude import PRELUDE
from .random_choices import Choose

HOLE = re.compile(r"<([=~@$!+.]?)(\w+)(?::(\w+))?>")
ARGUMENTS = {
    "x": "mat",
    "y": "vec",
    "items": "mats",
    "table": "table",
    "box": "box",
    "n": "int",
    "rate": "float",
    "flag": "bool",
    "mode": "str",
    "opt": "opt",
}
CASES = [
    "rows=2",
    "rows=1",
    "rows=4",
    "count=1",
    "count=3",
    "count=0",
    "n=0",
    "n=1",
    "n=3",
    "n=True",
    "n=2.0",
    "rate=-0.5",
    "rate=2",
    "flag=False",
    "mode='slow'",
    "mode='other'",
    "opt=True",
    "alias=True",
    "strided=True",
    "keys='abc'",
    "keys='ba'",
    "keys='b'",
    *["grad=True"] * 3,
]
ATTEMPTS = 20


class Impossible(Exception):
    """A rule that needs a variable no one has made."""


class Scope:
    """What a statement may read and write where it stands."""

    def __init__(self):
        self.readable: dict[str, list[str]] = {}
        self.writable: dict[str, list[str]] = {}
        self.looped_over: frozenset[str] = frozenset()
        self.is_main, self.in_loop, self.depth = True, False, 0

    def child(self, **changes) -> Scope:
        new = Scope()
        vars(new).update(vars(self))
        new.readable = {kind: list(names) for kind, names in self.readable.items()}
        new.writable = {kind: list(names) for kind, names in self.writable.items()}
        vars(new).update(changes)
        return new

    def function(self) -> Scope:
        """The scope of a nested function: it reads what is outside, and calls no function (that bounds the work)."""
        new = self.child(writable={}, is_main=False, in_loop=False)
        new.readable.pop("fn", None)
        return new

    def add(self, name: str, kind: str) -> None:
        for table in (self.readable, self.writable):
            if name not in table.setdefault(kind, []):
                table[kind].append(name)


class Writer:
    """Expands rules into lines of Python."""

    def __init__(self, choose: Choose, budget: int):
        self.choose, self.left, self.names = choose, budget, 0
        topics = [topic for topic in statements.STATEMENTS if topic == "assign" or choose.chance(55)]
        self.topics = [statements.STATEMENTS[topic] for topic in topics]

    def statements(self, scope: Scope, least: int, most: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.choose.integer(least, most)):
            lines += self.statement(scope)
        return lines

    def statement(self, scope: Scope) -> list[str]:
        self.left -= 1
        for _ in range(ATTEMPTS):
            simple = self.left < 0 or scope.depth > 3
            rules = statements.ASSIGN[:22] if simple else self.choose.weighted(self.topics)
            if scope.in_loop and not simple and self.choose.chance(15):
                rules = statements.INTERRUPT
            try:
                return self.expand(self.choose.one(rules), scope)
            except Impossible:
                continue
        return ["pass"]

    def expand(self, rule: str, scope: Scope) -> list[str]:
        """The lines of one statement; ``scope`` learns its new variables only when all of it could be written."""
        labels: dict[str, str] = {}
        kept: list[tuple[str, str]] = []
        levels = [(-1, scope.child())]
        lines: list[str] = []
        for line in rule.splitlines():
            indent = len(line) - len(line.lstrip())
            while levels[-1][0] >= indent:
                levels.pop()
            here = levels[-1][1]
            whole = HOLE.fullmatch(line.strip())
            if whole and whole[2] in ("block", "loop", "body", "raise", "return", "nonlocal"):
                lines += [" " * indent + inner for inner in self.several(whole[2], here)]
                continue
            fresh: list[tuple[str, str, str]] = []
            looped: list[str] = []
            lines.append(HOLE.sub(lambda hole: self.fill(hole, here, labels, fresh, looped), line))
            is_def = line.strip().startswith("def ")
            for at, (mark, name, kind) in enumerate(fresh):
                if not is_def or at == 0:
                    here.add(name, kind) if mark == "=" or not line.endswith(":") else None
                    kept += [(name, kind)] if mark == "=" else []
            if line.endswith(":"):
                inner = here.function() if is_def else here.child(looped_over=here.looped_over | set(looped))
                for _, name, kind in fresh[1:] if is_def else fresh:
                    inner.add(name, kind)
                levels.append((indent, inner))
        for name, kind in kept:
            scope.add(name, kind)
        return lines

    def several(self, hole: str, scope: Scope) -> list[str]:
        inner = scope.child(depth=scope.depth + 1)
        if hole == "raise":
            return self.expand(self.choose.one(statements.RAISES), inner)
        if hole == "return":
            rule = "return " + (self.choose.one(statements.RESULTS) if scope.is_main else "<mat>")
            return self.expand(rule, inner)
        if hole == "nonlocal":
            names = [
                name
                for kind in ("mat", "vec", "int", "float")
                for name in scope.readable.get(kind, ())
                if name not in ARGUMENTS or self.choose.chance(30)
            ]
            names = [name for name in names if name not in sum(scope.writable.values(), [])][-2:]
            for name in names:
                scope.add(name, next(kind for kind, known in scope.readable.items() if name in known))
            return [f"nonlocal {', '.join(names)}"] if names else ["pass"]
        if hole == "body":
            lines = self.statements(inner, 0, 3) + self.expand("return <mat>", inner)
            return ["global TOTAL", *lines] if assigns_total(lines) else lines
        inner.in_loop = scope.in_loop or hole == "loop"
        return self.statements(inner, 1, 3)

    def fill(self, hole: re.Match, scope: Scope, labels: dict, fresh: list, looped: list) -> str:
        mark, kind, label = hole.groups()
        if mark == ".":
            return labels[kind]
        if mark in ("=", "~"):
            self.names += 1
            text = f"{kind}{self.names}"
            fresh.append((mark, text, kind))
        elif mark in ("@", "$", "!", "+"):
            known = (scope.writable if mark in "@+" else scope.readable).get(kind, [])
            if not known or (mark == "+" and (kind in scope.looped_over or not scope.is_main)):
                raise Impossible
            text = self.choose.one(known)
            looped += [kind] if mark == "!" else []
        else:
            text = self.expression(kind, scope, 0)
        if label:
            labels[label] = text
        return text

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        known = scope.readable.get(kind, []) + (scope.readable.get("counter", []) if kind == "int" else [])
        if known and (depth > 2 or self.choose.chance((25, 60, 80)[depth])):
            return self.choose.one(known)
        for _ in range(ATTEMPTS if kind in grammar.EXPRESSIONS and depth <= 2 else 0):
            labels: dict[str, str] = {}

            def fill(hole: re.Match, labels=labels) -> str:
                mark, inner, label = hole.groups()
                text = self.fill(hole, scope, labels, [], []) if mark else self.expression(inner, scope, depth + 1)
                if label:
                    labels[label] = text
                return text

            rule = self.choose.one(grammar.EXPRESSIONS[kind])
            try:
                return f"({HOLE.sub(fill, rule)})"
            except Impossible:
                continue
        return f"({self.choose.one(grammar.LEAVES[kind])})"


def assigns_total(lines: list[str]) -> bool:
    return any("TOTAL = " in line or "TOTAL += " in line for line in lines)


def generate(choose: Choose) -> str:
    writer = Writer(choose, budget=choose.integer(6, 24))
    scope = Scope()
    for name, kind in ARGUMENTS.items():
        scope.add(name, kind)
    is_module = choose.chance(20)
    if is_module:
        scope.add("self", "module")
    lines = writer.statements(scope, 4, 9)
    known = [
        name
        for kind, names in scope.readable.items()
        if kind not in ("fn", "counter", "module", "box")
        for name in names
    ]
    lines.append(f"return {', '.join(known[-8:])}, x")
    if assigns_total(lines):
        lines.insert(0, "global TOTAL")
    text = PRELUDE.replace("TRAINED", str(choose.chance(40))) + target(lines, is_module) + write_calls(choose)
    return ast.unparse(ast.parse(text)) + "\n"


def target(lines: list[str], is_module: bool) -> str:
    arguments = ", ".join(ARGUMENTS)[: -len("opt")] + "opt=None"
    if not is_module:
        return f"\ndef fn({arguments}):\n" + "".join(f"    {line}\n" for line in lines)
    return (
        f"""
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.steps = LAYER, 0
        self.parts = torch.nn.ModuleList([torch.nn.Sequential(LAYER, torch.nn.ReLU()), torch.nn.Tanh()])
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, {arguments}):
"""
        + "".join(f"        {line}\n" for line in lines)
        + "\nfn = Model()\n"
    )


def write_calls(choose: Choose) -> str:
    """Four calls: mostly case A twice, then B, then A again."""
    base = [choose.one(CASES) for _ in range(choose.integer(0, 2))]
    other = [choose.one(CASES) for _ in range(choose.integer(1, 2))]
    third = [choose.one(CASES)]
    pattern = choose.one(
        [[base, base, other, base], [base, other, base, other], [base, base, base, base], [base, other, third, base]]
    )
    written = []
    for i, case in enumerate(pattern):
        settings = dict(setting.split("=") for setting in case)
        written.append(f"call({100 * i}{''.join(f', {k}={v}' for k, v in settings.items())})")
    return f"\ndef calls():\n    return [{', '.join(written)}]\n"
