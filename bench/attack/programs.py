"""Programs of the language corpus with writes, breaks, effects, aliases and exceptions put in at random.

    python -m bench.attack.programs --seed 7 --count 2000
    python -m bench.attack.programs --seed 7 --only 1234 --show       one program, with its text

Each program of `tests/capture` builds a world and is called several times there. It is run eagerly twice, which must
agree with itself, and once compiled: results, errors, arguments, state, output and the log of inserted effects must be
equal in every call.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import faulthandler
import importlib
import linecache
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tests.capture.harness import Same, run_world, snapshot

import burnish
from burnish.report.collect_fallbacks import collect_fallbacks

from . import insertions
from .trial import TooLong, at_most, counted_graphs

FOLDER = Path(__file__).parents[2] / "tests" / "capture"
CHANCE = 0.25
EAGER_LIMIT, LIMIT = 20, 120
"""Seconds for one program, eagerly and compiled; what takes longer does not end. The first are of the process, the
others on the wall, since nothing runs in a deadlock: `--patience` sets another number where others use the machine."""


@dataclass(frozen=True)
class Source:
    """One program of the corpus."""

    module: str
    name: str
    tree: ast.FunctionDef


def corpus() -> list[Source]:
    found = []
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if (
                isinstance(node, ast.FunctionDef)
                and any(map(is_program, node.decorator_list))
                and not any("xfail" in ast.unparse(mark) for mark in node.decorator_list)
            ):
                found.append(Source(f"tests.capture.{path.stem}", node.name, node))
    return found


LIMITATIONS = (("grad_fn",), ("is_compiling",), ("autocast", "weight.add_"))
"""Names of what docs/limitations.md says is another thing in compiled code: programs that use all of a group are left
out."""


def is_program(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id == "program"


@dataclass(frozen=True)
class Mutant:
    source: Source
    text: str

    def maker(self, log: list[Any]) -> Callable[[], Any]:
        """The function that builds the world, from the text, among the names of its module."""
        module: ModuleType = importlib.import_module(self.source.module)
        names = {**vars(module), **insertions.functions(log)}
        path = f"attack of {self.source.name}"  # without "<", or the check passes over what runs natively
        lines = [line + "\n" for line in self.text.splitlines()]
        linecache.cache[path] = len(self.text), None, lines, path
        exec(compile(self.text, path, "exec"), names)
        return names[self.source.name]


def unchanged(source: Source) -> Mutant:
    tree = copy.deepcopy(source.tree)
    tree.decorator_list = []
    return Mutant(source, ast.unparse(tree))


def mutant(source: Source, pick: random.Random) -> Mutant | None:
    inserter = insertions.Inserter(pick, CHANCE)
    tree = copy.deepcopy(source.tree)
    tree.decorator_list = []
    tree = inserter.visit(tree)
    text = ast.unparse(ast.fix_missing_locations(tree))
    if not inserter.count or any(all(name in text for name in names) for names in LIMITATIONS):
        return None
    if "yield" in text and "finally" in text:
        return None  # when a generator that is left suspended is closed depends on who holds its frame
    return Mutant(source, text)


def observed(made: Mutant, compiler: Callable) -> list[dict[str, Any]]:
    log: list[Any] = []
    seen = run_world(made.maker(log), compiler)
    return [*seen, {"log": snapshot(list(log))}]


def difference(wanted: list[dict[str, Any]], found: list[dict[str, Any]], text: str) -> str | None:
    same = Same(exact=False, same_text=True)
    try:
        assert len(wanted) == len(found)
        for i, (want, got) in enumerate(zip(wanted, found, strict=True)):
            if got.get("error") is None and "modified by an inplace operation" in str(want.get("error")):
                return None  # what compiled code saves for backward may be another tensor: docs/limitations.md
            for part in want:
                if part == "state" and isinstance(want["error"], RuntimeError) and "backward" in text:
                    continue  # gradients are stored together, or none is: docs/limitations.md
                same(want[part], got[part], f"call {i}: {part}")
    except AssertionError as error:
        return str(error)
    return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def tried(made: Mutant, backend: str) -> tuple[str, str]:
    """("equal" | "wrong" | "unsteady" | "invalid", detail)."""
    try:
        with at_most(EAGER_LIMIT):
            wanted = observed(made, lambda fn: fn)
            again = observed(made, lambda fn: fn)
    except (Exception, TooLong) as error:  # what was put into it may keep a loop from ending
        return "invalid", f"{type(error).__name__}: {error}"
    if difference(wanted, again, made.text) is not None:
        return "unsteady", ""
    burnish.reset()
    compiled = []

    def compiler(fn: Callable) -> Callable:
        compiled.append(burnish.compile(fn, backend=backend))
        return compiled[-1]

    try:
        with collect_fallbacks() as fallbacks, counted_graphs() as graphs:
            found = observed(made, compiler)
    except insertions.Inserted:
        return "invalid", "a hook of a module raises while the module is compiled, not called"
    except Exception as error:
        return "wrong", f"raised {type(error).__name__}: {error}"
    internal = [str(fallback) for fallback in fallbacks if fallback.cause == "internal"]
    if internal:
        return "wrong", internal[0]
    why = difference(wanted, found, made.text)
    if why is not None:
        return "wrong", why
    return "equal", "compiled" if graphs and any(burnish.was_compiled(fn) for fn in compiled) else "eager"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one program")
    parser.add_argument("--show", action="store_true", help="print the text of what is wrong")
    parser.add_argument("--patience", type=int, default=LIMIT, help="seconds on the wall for one program")
    parser.add_argument("--backend", default="burnish")
    parser.add_argument("--unchanged", action="store_true", help="each program of the corpus once, as it stands")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    torch.set_num_threads(1)
    sources = corpus()
    counts: Counter[str] = Counter()
    count = len(sources) if options.unchanged else options.count
    numbers = range(count) if options.only is None else [options.only]
    start = time.perf_counter()
    with (
        burnish.settings.patch(never_slower=False, on_error="raise", cache=False, eager_random=True, check=True),
        quiet(),
    ):
        for number in numbers:
            pick = random.Random(f"{options.seed} {number}")
            made = unchanged(sources[number]) if options.unchanged else mutant(pick.choice(sources), pick)
            if made is None:
                continue
            faulthandler.dump_traceback_later(options.patience, exit=True)
            outcome, detail = tried(made, options.backend)
            counts[outcome] += 1
            counts["compiled"] += detail == "compiled"
            if outcome == "wrong":
                print(f"WRONG {number} {made.source.module} {made.source.name}: {detail:.500}", flush=True)
                if options.show:
                    print(made.text)
            elif options.only is not None:
                print(outcome, detail, made.text, sep="\n")
            if number % 200 == 199:
                print(f"{number + 1} {dict(counts)} {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    total = counts["equal"] + counts["wrong"]
    print(
        f"seed {options.seed}: {total} programs, {counts['compiled']} ran compiled, {counts['wrong']} differ, "
        f"{counts['unsteady']} differ from themselves, {counts['invalid']} cannot be built"
    )
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
