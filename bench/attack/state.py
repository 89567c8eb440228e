"""Sequences of calls with state changed between them, compiled against an eager twin.

    python -m bench.attack.state --seed 7 --count 1000
    python -m bench.attack.state --seed 7 --only 12             one program, with its changes

A program is a model drawn at random, and before each of its calls a change drawn at random: a hook, another parameter
or submodule, a flag of torch, a closure's cell. Both worlds are built from the same seed and changed in the same way.
Values, types, strides, aliases, errors, gradients, buffers and the log of hooks must be equal after each call.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import burnish
from burnish import events

from .state_changes import CHANGES, restored_switches
from .state_worlds import WORLDS, World
from .trial import counted_graphs

CALLS = 6
EXACT, COARSE = 1e-8, 2.0**-6
"""How far values may differ, of the largest entry or of 1. State that was missed shows in the first places, so programs
run in float64 but for some, whose gradients through a normalization are mostly rounding, and autocast's bfloat16."""


@dataclass(frozen=True)
class Plan:
    """What one program does: the same in both worlds."""

    world: str
    seed: int
    changes: tuple[str, ...]
    dtype: torch.dtype

    def tolerance(self) -> float:
        return EXACT if self.dtype is torch.float64 and "other_dtype" not in self.changes else COARSE

    def __str__(self) -> str:
        return f"{self.world} in {self.dtype} (seed {self.seed}): {', '.join(self.changes)}"


@dataclass(frozen=True)
class Outcome:
    differences: list[str]
    ran_compiled: bool


def drawn(pick: random.Random) -> Plan:
    changes = [pick.choice(list(CHANGES)) if pick.random() < 0.75 else "nothing" for _ in range(CALLS - 1)]
    dtype = torch.float64 if pick.random() < 0.7 else torch.float32
    return Plan(pick.choice(list(WORLDS)), pick.randrange(1 << 20), ("nothing", *changes), dtype)


def observed(plan: Plan, compiler: Callable[[Any], Any]) -> tuple[list[dict[str, Any]], Any]:
    torch.manual_seed(plan.seed)
    world = WORLDS[plan.world]()
    world.dtype = plan.dtype
    world.model.to(plan.dtype)
    run = compiler(world.run)
    seen = []
    with restored_switches():
        for number, name in enumerate(plan.changes):
            CHANGES[name](world, random.Random(f"{plan.seed} {number}"))
            torch.manual_seed(number)
            torch.clear_autocast_cache()  # eager's casts of a weight's former value: docs/limitations.md
            seen.append(one_call(world, run, number))
    return seen, run


def one_call(world: World, run: Any, number: int) -> dict[str, Any]:
    """All that a user sees of a call. Tensors are copied as they were; aliases are given by position."""
    args = world.args(number)
    given = [*tree_leaves(args), *world.tensors()]
    world.log.clear()
    result: dict[str, Any] = {}
    leaves: list[Any] = []
    try:
        leaves = tree_leaves(run(*args))
        flowing = [x.sum() for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
        if flowing:
            torch.stack([x.float() for x in flowing]).sum().backward()
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    named = [x for x in leaves if isinstance(x, torch.Tensor)]
    result["facts"] = [(x.dtype, tuple(x.shape), x.stride(), x.requires_grad, x.is_leaf) for x in named]
    result["aliases"] = [
        (i, k)
        for i, x in enumerate(named)
        for k, y in enumerate([*given, *named[:i]])
        if isinstance(y, torch.Tensor) and shares_memory(x, y)
    ]
    result["values"] = [x.detach().clone() for x in named]
    result["others"] = [repr(x) for x in leaves if not isinstance(x, torch.Tensor)]
    result["state"] = [x.detach().clone() for x in world.tensors()]
    result["gradients"] = [None if x.grad is None else x.grad.clone() for x in world.tensors()]
    result["log"] = list(world.log)
    return result


def shares_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.numel() > 0 and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def differences(wanted: list[dict[str, Any]], found: list[dict[str, Any]], tolerance: float) -> list[str]:
    return [
        f"call {number}: {part}: {text(got.get(part))}, in eager {text(want.get(part))}"
        for number, (want, got) in enumerate(zip(wanted, found, strict=True))
        for part in {**want, **got}
        if not is_same(want.get(part), got.get(part), tolerance)
    ]


def text(value: Any) -> str:
    return f"{value!r:.160}".replace("\n", " ")


def is_same(want: Any, got: Any, tolerance: float) -> bool:
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(is_same(a, b, tolerance) for a, b in zip(want, got, strict=True))
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return type(want) is type(got) and want == got
    if want.dtype != got.dtype or want.shape != got.shape:
        return False
    largest = max(1.0, float(want.double().abs().max())) if want.numel() else 1.0
    return torch.allclose(want.double(), got.double(), rtol=0, atol=tolerance * largest, equal_nan=True)


def tried(plan: Plan) -> Outcome:
    burnish.reset()
    with (
        warnings.catch_warnings(),
        burnish.settings.patch(never_slower=False, on_error="raise", cache=False, eager_random=True),
    ):
        warnings.simplefilter("ignore")
        wanted, _ = observed(plan, lambda run: run)
        failed: list[str] = []

        def note(event: events.Event) -> None:
            if event.kind == "graph.failed":
                failed.append(event.data["text"])

        stop = events.subscribe(note)
        try:
            with counted_graphs() as graphs:
                found, compiled = observed(plan, burnish.compile)
        finally:
            stop()
        wrong = differences(wanted, found, plan.tolerance())
        if len(failed) >= CALLS - 1 and not any("error" in call for call in wanted):
            wrong.append(f"graphs failed {len(failed)} times: {failed[0]:.200}")
        return Outcome(wrong, bool(graphs) and burnish.was_compiled(compiled))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one program")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    for number in range(options.count) if options.only is None else [options.only]:
        plan = drawn(random.Random(f"{options.seed} {number}"))
        outcome = tried(plan)
        counts["compiled"] += outcome.ran_compiled
        counts["wrong"] += bool(outcome.differences)
        if outcome.differences or options.only is not None:
            print(f"{'WRONG' if outcome.differences else 'equal'} {number} {plan}", flush=True)
            for line in outcome.differences[:4]:
                print(f"    {line}", flush=True)
    tried_count = options.count if options.only is None else 1
    print(
        f"seed {options.seed}: {tried_count} programs, {counts['compiled']} ran compiled, {counts['wrong']} differ, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
