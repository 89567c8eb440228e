"""Programs of joined, padded, sliced and written values whose borders cross as the sizes change: results and gradients.

    python -m bench.attack.borders --seed 1 --count 100

A program has values of n columns. Each is joined from parts, and each border lies a number after the start, a number
before the end, in the middle, or where an input of m columns ends. Which of two borders comes first depends on n and m.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

import burnish

from .sizes import as_attacked
from .trial import counted_graphs

SIZES = ((24, 20), (24, 20), (27, 22), (27, 22), (33, 20), (38, 25), (41, 20), (44, 30), (57, 20), (30, 20), (26, 21))
FURTHER = ((70, 23), (21, 20), (36, 21), (39, 20), (40, 20), (40, 39), (140, 24), (300, 290), (33, 20))
"""Sizes n and m, where m is less than n."""


def border(draw: random.Random) -> str:
    """An expression of a column, from 0 to n."""
    k = draw.randrange(1, 20)
    return draw.choice((str(k), str(k), f"n - {k}", f"n - {k}", "n // 2", "m", "n - m"))


def value(draw: random.Random, depth: int) -> str:
    """An expression of a value with n columns."""
    if not depth or draw.random() < 0.1:
        return draw.choice(("x", "y"))
    one, at = value(draw, depth - 1), border(draw)
    makers: tuple[Callable[[], str], ...] = (
        lambda: f"(F.pad(a, (0, n - m)) * {draw.randrange(2, 5)})",
        lambda: f"(F.pad(a, (n - m, 0)) + {one})",
        lambda: f"torch.cat([{one}[:, :{at}], {value(draw, depth - 1)}[:, {at}:]], 1)",
        lambda: f"torch.cat([{one}[:, {at}:], {value(draw, depth - 1)}[:, :{at}]], 1)",
        lambda: f"torch.cat([a, {one}], 1)[:, {draw.choice(('m', str(draw.randrange(1, 20))))}:][:, :n]",
        lambda: f"torch.slice_scatter({one}, a, 1, {(start := draw.choice(('0', 'n - m')))}, {start} + m)",
        lambda: f"({one} + {value(draw, depth - 1)})",
        lambda: f"{one}.flip(1)",
        lambda: f"F.pad({one}[:, {at}:], ({at}, 0))",
        lambda: f"{one}.roll({draw.randrange(1, 20)}, 1)",
    )
    return draw.choice(makers)()


def result(draw: random.Random) -> str:
    some, k = value(draw, 3), draw.randrange(1, 20)
    return draw.choice(
        (
            f"{some} * 2",
            f"{some}[:, :{border(draw)}] * 2",
            f"{some}[:, {border(draw)}:].sum(1)",
            f"{some}[:, {k}] * 2",
            f"{some}[:, -{k}] * 2",
            f"{some}.unfold(1, {k}, {k})[:, {draw.choice((0, -1))}] * 2",
            f"{some}.reshape(-1)[{k}:{k + draw.randrange(1, 90)}] * 2",
            f"{some}.t().reshape(-1)[{k}:{k + draw.randrange(1, 90)}] * 2",
        )
    )


def program(draw: random.Random) -> str:
    results = ", ".join(result(draw) for _ in range(draw.randrange(1, 3)))
    return f"def fn(x, y, a):\n    n, m = x.shape[1], a.shape[1]\n    return {results},\n"


def function(source: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(source, namespace)
    return namespace["fn"]  # type: ignore[no-any-return]


def outcome(fn: Callable[..., Any], size: tuple[int, int], trains: bool) -> list[torch.Tensor]:
    torch.manual_seed(sum(size))
    given = [torch.randn(4, columns, requires_grad=trains) for columns in (size[0], *size)]
    found = list(fn(*given))
    if trains:
        sum((part * torch.arange(part.numel()).view(part.shape)).sum() for part in found).backward()  # type: ignore
        found += [torch.zeros(()) if x.grad is None else x.grad for x in given]
    return found


def tried(source: str, trains: bool, dynamic: bool | None, backend: str) -> tuple[str | None, bool]:
    """What differs from eager, and whether compiled code ran."""
    burnish.reset()
    fn = function(source)
    compiled = burnish.compile(function(source), backend=backend, dynamic=dynamic)
    with torch.set_grad_enabled(trains), counted_graphs() as graphs:
        for size in SIZES + FURTHER:
            try:
                wanted = outcome(fn, size, trains)
            except (RuntimeError, IndexError):
                continue  # no such slice
            for number, (want, got) in enumerate(zip(wanted, outcome(compiled, size, trains), strict=True)):
                if want.shape != got.shape or not torch.allclose(want, got, 1e-4, 1e-3):
                    return f"result {number} for n, m = {size}", bool(graphs)
    return None, bool(graphs) and burnish.was_compiled(compiled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="burnish")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    wrong = ran = 0
    warnings.simplefilter("ignore")
    with as_attacked():
        for _ in range(asked.count):
            source, trains, dynamic = program(draw), draw.random() < 0.5, draw.choice((True, None))
            try:
                why, was_compiled = tried(source, trains, dynamic, asked.backend)
                ran += was_compiled
            except Exception as error:
                why = f"the case fails: {type(error).__name__}: {error}"[:300]
            if why is not None:
                wrong += 1
                print(f"{'gradients, ' if trains else ''}dynamic {dynamic}: {why}\n{source}", flush=True)
    print(f"seed {asked.seed}: {asked.count} programs, {ran} ran compiled, {wrong} differ from eager")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
