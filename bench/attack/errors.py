"""Programs that fail on their data: the exception, and all that happened before it, must be eager's.

    python -m bench.attack.errors --seed 0 --count 500

Each program calls an operator that raises for some data (`failing_calls`), with writes to tensors, containers,
attributes and output around it. It runs eagerly and compiled, each with a world of its own: some calls that pass, one
that fails, and one that passes again. Every call's result or exception, what is printed, and the world afterwards,
with torch's random state, are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import linecache
import random
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

import burnish

from .failing_calls import CALLS, TABLE, FailingCall
from .trial import counted_graphs

VERSIONS = re.compile(r"version \d+")
"""How often a tensor was written to is not compared: compiled code counts its writes as one."""

STATEMENTS = (
    "b.add_(1)",
    "b[1:].mul_(2)",
    "c.copy_(b)",
    "b[0] = 5",
    "L.append(1)",
    "L.append(b * 2)",
    "L.append(b)",
    "D['k'] = len(L)",
    "S.count += 1",
    "S.last = b + 1",
    "print('here', len(L))",
    "b.zero_()",
    "z = b.sin() + c",
    "S.seen = [*S.seen, 2]",
    "c.index_copy_(0, torch.tensor([1]), b[:1])",
    "S.total.add_(b.sum())",
    "b.data.mul_(3)",
    "torch.relu_(b)",
    "L.clear()",
    "c.add_(torch.rand(4))",
    "S.bn(c[None].expand(2, 4))",
    "c, b = b, c",
    "z = F.dropout(z, 0.5)",
    "z = z @ z[:, None] + z",
)
USES = ("return z + b", "return z, y", "return y", "return (z, y * 2)", "return z + len(y)", "y = None\n    return z")
GRADS = ("plain", "plain", "no_grad", "inference", "weights", "step")


class World:
    """What a program may change."""

    def __init__(self) -> None:
        self.b, self.c = torch.arange(4.0), torch.ones(4)
        self.L: list = []
        self.D: dict = {}
        self.count, self.last, self.seen, self.total = 0, None, [0], torch.zeros(())
        self.w = torch.full((4,), 0.5, requires_grad=True)
        self.bn = torch.nn.BatchNorm1d(4)


@dataclass
class Program:
    text: str
    call: FailingCall
    grads: str
    fails_at: int
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"# gradients: {self.grads}; fails at call {self.fails_at}; {self.options}\n"
            f"# good {self.call.good}\n# bad {self.call.bad}\n{self.text}"
        )


def generate(choose: random.Random, calls: tuple[FailingCall, ...] = CALLS) -> Program:
    call = choose.choice(calls)
    before = choose.choices(STATEMENTS, k=choose.choice((0, 1, 1, 2, 3)))
    after = choose.choices(STATEMENTS, k=choose.choice((0, 1, 2, 3)))
    grads = choose.choice(GRADS)
    middle = [f"y = {call.text}"]
    if choose.random() < 0.25:
        handler = choose.choice(
            (
                "except Exception as error:\n        L.append(str(error))\n        y = b.clone()",
                "finally:\n        S.count += 10\n        c.add_(1)",
            )
        )
        inside = "\n        ".join([*choose.choices(STATEMENTS, k=choose.choice((0, 1))), *middle])
        middle = [f"try:\n        {inside}\n    {handler}"]
    body = ["b, c, L, D = S.b, S.c, S.L, S.D", f"z = c {'* S.w' if grads in ('weights', 'step') else '+ 1'}"]
    body += [*before, *middle, *after]
    if grads == "step":
        body += [
            "loss = (z * S.w).sum()",
            "S.w.grad = None",
            "loss.backward()",
            "with torch.no_grad():\n        S.w.sub_(S.w.grad)",
        ]
    body.append(choose.choice(USES))
    text = "def fn(S, p, q):\n    " + "\n    ".join(body) + "\n"
    options = {"dynamic": choose.choice((None, None, True)), "never_slower": choose.choice((True, False))}
    return Program(text, call, grads, choose.choice((0, 1, 1, 2, 2, 3)), options)


def make_function(program: Program) -> Any:
    name = f"<attack {id(program)}>"
    linecache.cache[name] = len(program.text), None, program.text.splitlines(True), name
    namespace = {"torch": torch, "F": F, "TABLE": TABLE, "checked": checked}
    exec(compile(program.text, name, "exec"), namespace)
    return namespace["fn"]


def checked(condition: torch.Tensor) -> torch.Tensor:
    assert condition, "not positive"
    return condition


def run(program: Program, fn: Any) -> list[Any]:
    """What each call showed."""
    torch.manual_seed(0)
    world, seen = World(), []
    if program.grads not in ("weights", "step"):
        world.w.requires_grad_(False)
        world.bn.requires_grad_(False)
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(program.grads, contextlib.nullcontext)
    for number in range(program.fails_at + 2):
        torch.manual_seed(number)
        given = program.call.bad if number == program.fails_at else program.call.good
        output, result, error = io.StringIO(), None, None
        arguments = [x.clone() for x in given]
        with contextlib.redirect_stdout(output), warnings.catch_warnings(), context():
            warnings.simplefilter("ignore")
            try:
                result = fn(world, *arguments)
            except Exception as raised:
                text = str(raised).split("\nException raised from")[0]
                error = (type(raised), VERSIONS.sub("version", text))
        seen.append(
            [as_data(result), error, output.getvalue(), as_data(vars(world)), as_data(arguments), torch.get_rng_state()]
        )
    return seen


PARTS = ("result", "exception", "output", "world", "arguments", "random state")


def as_data(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (
            "tensor",
            value.dtype,
            value.requires_grad,
            value.detach().clone(),
            None if not value.is_leaf or value.grad is None else value.grad.clone(),
        )
    if isinstance(value, torch.nn.Module):
        return as_data(dict(value.state_dict()))
    if isinstance(value, dict):
        return {key: as_data(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_data, value)) if type(value) in (list, tuple) else tuple(map(as_data, value))
    return copy.copy(value)


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.shape == b.shape
            and a.dtype == b.dtype
            and torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6, equal_nan=True)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b)


def first_difference(a: Any, b: Any, path: str = "") -> tuple[str, Any, Any]:
    if type(a) is type(b) and isinstance(a, (dict, list, tuple)) and len(a) == len(b):
        keys = list(a) if isinstance(a, dict) else range(len(a))
        for key in keys:
            if (not isinstance(b, dict) or key in b) and not is_same(a[key], b[key]):
                return first_difference(a[key], b[key], f"{path}[{key!r}]")
    return path, a, b


@dataclass
class Outcome:
    why_wrong: str | None
    raised: bool
    was_compiled: bool


def attack(program: Program) -> Outcome:
    """Run it both ways."""
    expected = run(program, make_function(program))
    burnish.reset()
    options = {"never_slower": program.options["never_slower"], "eager_random": True}
    compiled = burnish.compile(make_function(program), dynamic=program.options["dynamic"], options=options)
    raised = expected[program.fails_at][1] is not None
    with counted_graphs() as graphs:
        found: list[Any] = run(program, compiled)
    was_compiled = bool(graphs) and burnish.was_compiled(compiled)
    for number, (want, got) in enumerate(zip(expected, found, strict=True)):
        for name, a, b in zip(PARTS, want, got, strict=True):
            if not is_same(a, b):
                where, wanted, made = first_difference(a, b)
                return Outcome(
                    f"call {number}: the {name}{where} differs\n  eager    {wanted}\n  compiled {made}",
                    raised,
                    was_compiled,
                )
    return Outcome(None, raised, was_compiled)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.attack.errors", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", type=int, help="the number of one program")
    parser.add_argument("--call", default="", help="only calls that contain this text")
    parser.add_argument("--keep-compiled", action="store_true", help="never_slower is off in all programs, not in half")
    parser.add_argument("--show", type=int, default=5, help="how many programs that differ are printed")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    calls = tuple(call for call in CALLS if asked.call in call.text)
    count: Counter[str] = Counter()
    for number in range(asked.count) if asked.only is None else [asked.only]:
        program = generate(random.Random(f"{asked.seed} {number}"), calls)
        if asked.keep_compiled:
            program.options["never_slower"] = False
        outcome = attack(program)
        count["raised"] += outcome.raised
        count["ran compiled"] += outcome.was_compiled
        if outcome.why_wrong is not None:
            count["differ"] += 1
            count[f"differ: {program.call.name}"] += 1
            if count["differ"] <= asked.show:
                print(f"---- {number}\n{program}{outcome.why_wrong}\n")
    for name, times in sorted(count.items()):
        print(f"{name}: {times}")
    print(
        f"seed {asked.seed}: {asked.count} programs, {count['raised']} raised in the function or were caught late, "
        f"{count['ran compiled']} ran compiled, {count['differ']} differ"
    )
    return min(count["differ"], 1)


if __name__ == "__main__":
    sys.exit(main())
