"""Subclasses of builtin containers that override methods: what each use of them returns, changes and calls.

    python -m bench.attack.subclasses --seed 7 --count 1000
    python -m bench.attack.subclasses --seed 7 --only 12          one program, with its text

An override notes its name and calls the builtin method. A program is a few uses of one container, which is made inside
or given from outside, with graph breaks between them. Results, errors and the container must be equal after each call,
and so must the notes: a method that ran although eager does not run it may as well have changed something. Methods that
run natively while a function is traced are found by the check of `BURNISH_CHECK`.
"""

from __future__ import annotations

import argparse
import collections
import copy
import linecache
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import burnish

from . import trial

CALLS = 3
UNCOUNTED = ("__len__",)
"""C code asks for a length to allocate memory. How often differs between Python's own versions."""

SEQUENCE = """c[0] ~ c[-1] ~ c[0:2] ~ len(c) ~ [i for i in c] ~ 1 in c ~ list(c) ~ tuple(c) ~ sorted(c) ~ sum(c)
    max(c) ~ bool(c) ~ c.count(1) ~ c.index(1) ~ list(reversed(c)) ~ list(zip(c, c)) ~ list(enumerate(c)) ~ [*c]
    take(*c) ~ any(c) ~ list(map(str, c)) ~ next(iter(c)) ~ [v for v in c if v in c] ~ 1 if c else 2
    torch.tensor(list(c)) ~ c == c[:1] ~ copy.copy(c) ~ repr(c) ~ '%s' % (c,) ~ type(c)(c) ~ c + c
    collections.deque(c)"""
LIST = """c.append(4) ~ c.extend([5, 6]) ~ c.insert(0, 7) ~ c.pop() ~ c.remove(1) ~ c.remove(9) ~ c.sort()
    c.reverse() ~ c + [1] ~ c * 2 ~ c.copy() ~ c.clear() ~ list.__getitem__(c, 0)
    super(type(c), c).__getitem__(0) ~ c.__setitem__(0, 9) ~ c.__delitem__(0) ~ c.__iadd__([3])
    [0].__iadd__(c) ~ [0].extend(c) ~ [0, 1].__setitem__(slice(1, 2), c) ~ c.extend(c) ~ [1] + c ~ 2 * c"""
MAPPING = """c['a'] ~ c.get('a') ~ c.get('z', 5) ~ 'a' in c ~ 'z' in c ~ len(c) ~ list(c) ~ list(c.keys())
    list(c.values()) ~ list(c.items()) ~ {**c} ~ take(**c) ~ dict(c) ~ c.pop('a') ~ c.pop('z', 3) ~ c.pop('z')
    c.setdefault('n', 4) ~ c.update({'u': 1}) ~ c.update(v=3) ~ sorted(c) ~ bool(c) ~ c.copy() ~ c.clear()
    c['z'] ~ dict.__getitem__(c, 'a') ~ super(type(c), c).get('b') ~ max(c.values()) ~ c.popitem()
    c.__setitem__('new', 3) ~ c.__delitem__('a') ~ list(reversed(c)) ~ c | {'z': 1} ~ {'z': 1} | c
    {'s': 1}.update(c) ~ collections.OrderedDict(c) ~ collections.Counter(c) ~ copy.copy(c) ~ dict.copy(c)
    '%s' % c ~ '%(a)s' % c ~ c == {'a': 1} ~ type(c)(c) ~ collections.OrderedDict(q=1).update(c)
    {'s': 1}.__ior__(c) ~ dict.__or__(c, {}) ~ c.update(c)"""
SET = """1 in c ~ 9 in c ~ len(c) ~ sorted(c) ~ c.add(4) ~ c.remove(1) ~ c.remove(9) ~ c.discard(9)
    c.update({7}) ~ c | {8} ~ c & {1} ~ c - {1} ~ c.union({3}) ~ bool(c) ~ {*c} ~ frozenset(c) ~ sum(c)
    c.copy() ~ c.clear() ~ set.__contains__(c, 1) ~ [v for v in c] ~ {1} | c ~ {1}.isdisjoint(c)
    c.isdisjoint({4}) ~ {1} <= c ~ c ^ {1} ~ type(c)(c) ~ {7}.union(c) ~ {7}.update(c) ~ c == {1, 2, 3}
    copy.copy(c) ~ c.issubset([1, 2])"""
QUEUE = """c[0] ~ c[-1] ~ len(c) ~ list(c) ~ 1 in c ~ c.append(4) ~ c.appendleft(3) ~ c.pop() ~ c.popleft()
    c.extend([1]) ~ c.rotate(1) ~ sum(c) ~ [v for v in c] ~ bool(c) ~ tuple(c) ~ c.__setitem__(0, 4) ~ c.copy()
    c * 2 ~ 2 * c ~ c + c ~ c == c ~ repr(c) ~ copy.copy(c) ~ type(c)(c) ~ c.extend(c) ~ c.extendleft(c)
    collections.deque([0]) + c"""


def uses(*texts: str) -> list[str]:
    return [use.strip() for text in texts for line in text.splitlines() for use in line.split(" ~ ")]


@dataclass(frozen=True)
class Kind:
    base: type
    content: Any
    uses: list[str]

    def methods(self) -> list[str]:
        """The methods that the uses may call."""
        names = {name for use in self.uses for name in dir(self.base) if f".{name}(" in use}
        spoken = (
            "__getitem__ __setitem__ __delitem__ __len__ __iter__ __contains__ __reversed__ __add__ __mul__ __or__ keys"
        )
        return sorted(names | {name for name in spoken.split() if hasattr(self.base, name)})


KINDS = (
    Kind(list, [1, 2, 3], uses(SEQUENCE, LIST)),
    Kind(tuple, (1, 2, 3), uses(SEQUENCE)),
    Kind(dict, {"a": 1, "b": 2}, uses(MAPPING)),
    Kind(collections.OrderedDict, {"a": 1, "b": 2}, uses(MAPPING)),
    Kind(set, {1, 2, 3}, uses(SET)),
    Kind(collections.deque, [1, 2, 3], uses(QUEUE)),
)


@dataclass(frozen=True)
class Program:
    kind: Kind
    overridden: list[str]
    is_inside: bool
    text: str

    @staticmethod
    def drawn(pick: random.Random) -> Program:
        kind = pick.choice(KINDS)
        overridden = [name for name in kind.methods() if pick.random() < 0.5]
        is_inside = pick.random() < 0.4
        lines = ["def fn(x, c):", "    out = []", *(["    c = c()"] if is_inside else [])]
        for _ in range(pick.randint(1, 4)):
            if pick.random() < 0.2:
                lines.append("    x = x + float(x.sum() > 1e9)")
            lines += [f"    out.append({pick.choice(kind.uses)})", "    x = x * 2"]
        return Program(kind, overridden, is_inside, "\n".join([*lines, "    return x, out, c", ""]))


def container_class(program: Program, log: list[str]) -> type:
    base = program.kind.base

    def override(name: str) -> Callable:
        if name in UNCOUNTED:
            return eval("lambda self: length(self)", {"length": base.__len__})  # the check passes over such code

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            log.append(name)
            return getattr(super(made, self), name)(*args, **kwargs)

        return method

    made = type(f"Sub{base.__name__}", (base,), {name: override(name) for name in program.overridden})
    return made


def observed(program: Program, compiler: Callable[[Any], Any]) -> list[tuple]:
    log: list[str] = []
    cls = container_class(program, log)
    namespace: dict[str, Any] = {
        "torch": torch,
        "collections": collections,
        "copy": copy,
        "take": lambda *args, **kwargs: (args, kwargs),
    }
    name = f"<subclasses {id(log)}>"
    linecache.cache[name] = len(program.text), None, program.text.splitlines(True), name
    exec(compile(program.text, name, "exec"), namespace)
    run, seen = compiler(namespace["fn"]), []
    for _ in range(CALLS):
        container = (lambda: cls(program.kind.content)) if program.is_inside else cls(program.kind.content)
        log.clear()
        try:
            result: Any = plain(run(torch.ones(2), container))
        except Exception as error:
            result = type(error).__name__, str(error)
        noted = [name for name in log if name not in UNCOUNTED]
        seen.append((result, noted, None if program.is_inside else plain(container)))
    del linecache.cache[name]
    return seen


def plain(value: Any) -> Any:
    """The content of a value, read past the methods of subclasses."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return kind, value.tolist()
    if isinstance(value, dict):
        return kind, [(key, plain(part)) for key, part in dict.items(value)]
    for base in (list, tuple, set, frozenset, collections.deque):
        if isinstance(value, base):
            return kind, [plain(part) for part in base.__iter__(value)]
    return kind, repr(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one program")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    torch.set_num_threads(1)
    wrong = ran = 0
    numbers = range(options.count) if options.only is None else [options.only]
    patched = burnish.settings.patch(never_slower=False, cache=False, check=True, on_error="raise")
    with patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            program = Program.drawn(random.Random(f"{options.seed} {number}"))
            burnish.reset()
            compiled: list[Any] = []

            def compiler(fn: Any, compiled: list[Any] = compiled) -> Any:
                compiled.append(burnish.compile(fn))
                return compiled[-1]

            wanted = observed(program, lambda fn: fn)
            with trial.counted_graphs() as graphs:
                found = observed(program, compiler)
            ran += bool(graphs) and burnish.was_compiled(compiled[0])
            if wanted != found or options.only is not None:
                wrong += wanted != found
                at = next((k for k in range(CALLS) if wanted[k] != found[k]), 0)
                print(f"{'WRONG' if wanted != found else 'equal'} {number} call {at}, overridden: {program.overridden}")
                print(f"{program.text}    eager:    {wanted[at]}\n    compiled: {found[at]}", flush=True)
    print(f"seed {options.seed}: {len(numbers)} programs, {ran} ran compiled, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
