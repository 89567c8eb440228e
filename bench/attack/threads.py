"""Many threads and one process that has compiled nothing: first calls, contests, recompiles, resets, garbage.

    python -m bench.attack.threads --minutes 10 --threads 8

Each round is a process of its own with an empty cache, under faulthandler: what goes wrong once in a process goes wrong
in its first second. Threads share a served model, a function with a break and a training step, each result is compared
with eager's; one thread resets, another looks for garbage. A round fails if a value is wrong, a thread raises or is
stuck, or the process dies.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import burnish

CALLS = 150
"""Of each thread in a round: contests are decided, and guards are watched natively."""

STUCK = 120
"""Seconds without a call that ends, after which a process prints where its threads are, and ends. `--patience` sets
another number for a machine that others use."""


def breaking(x: torch.Tensor) -> torch.Tensor:
    y = x / (x.abs() + 1)
    if y.sum() < 0:
        y = -y
    return (y * x).softmax(-1)


def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def works(pick: random.Random) -> list[Callable[[random.Random], None]]:
    """What a thread does with programs that all threads share."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32)).eval()
    learner = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    twin, weights = copy.deepcopy(learner), list(learner.parameters())
    serve, branch, learn = burnish.compile(model), burnish.compile(breaking), burnish.compile(learner)

    def served(pick: random.Random) -> None:
        x = torch.randn(pick.choice((1, 1, 1, 2, 3)), 64)
        with torch.no_grad():
            near(serve(x), model(x))

    def branched(pick: random.Random) -> None:
        x = torch.randn(4, pick.choice((8, 8, 8, 9)))
        near(branch(x), breaking(x))

    def trained(pick: random.Random) -> None:
        x = torch.randn(8, 16)
        found = torch.autograd.grad(learn(x).square().mean(), weights)
        for ours, theirs in zip(
            found, torch.autograd.grad(twin(x).square().mean(), list(twin.parameters())), strict=True
        ):
            near(ours, theirs)

    def own(pick: random.Random) -> None:
        """A function of the thread's own, with an object whose parts change."""
        parts = [torch.ones(4), torch.ones(4)]

        def fn(x: torch.Tensor) -> torch.Tensor:
            return x * parts[0] + parts[1]

        compiled = burnish.compile(fn)
        for _ in range(6):
            x = torch.randn(3, 4)
            near(compiled(x), fn(x))
            parts[pick.randrange(2)] = torch.randn(4)

    return [served] * 12 + [branched] * 4 + [trained] * 4 + [own]


def run_round(seed: int, threads: int, patience: int = STUCK) -> list[str]:
    pick, wrong = random.Random(seed), []
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    sys.setswitchinterval(pick.choice((1e-5, 1e-4, 5e-3)))
    kinds = works(pick)
    if pick.random() < 0.5:
        kinds = kinds[:1]  # all threads serve one model
    barrier, resets = threading.Barrier(threads), pick.choice((0, 0, 3))

    def work(number: int) -> None:
        choose = random.Random(seed * 1000 + number)
        barrier.wait(60)
        try:
            for k in range(CALLS):
                choose.choice(kinds)(choose)
                if k % 10 == 0:
                    faulthandler.dump_traceback_later(patience, exit=True)
                if number == 0 and resets and k % (CALLS // resets) == CALLS // resets - 1:
                    burnish.reset()
                if number == 1 and k % 10 == 0:
                    gc.collect()
        except Exception:
            wrong.append(traceback.format_exc())

    running = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    faulthandler.dump_traceback_later(patience, exit=True)
    return wrong


def spawn(seed: int, threads: int, patience: int) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "bench.attack.threads",
                "--round",
                str(seed),
                "--threads",
                str(threads),
                "--patience",
                str(patience),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "BURNISH_CACHE_DIR": folder},
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--rounds", type=int, default=1 << 62)
    parser.add_argument("--patience", type=int, default=STUCK, help="seconds without a call that ends")
    parser.add_argument("--round", type=int, help="one round of this seed, in this process")
    options = parser.parse_args()
    if options.round is not None:
        faulthandler.dump_traceback_later(options.patience, exit=True)
        wrong: list[Any] = run_round(options.round, options.threads, options.patience)
        print("\n".join(wrong))
        return int(bool(wrong))
    print(f"seed {options.seed}", flush=True)
    until, rounds, failed = time.monotonic() + 60 * options.minutes, 0, 0
    while time.monotonic() < until and rounds < options.rounds:
        done = spawn(options.seed + rounds, options.threads, options.patience)
        if done.returncode:
            failed += 1
            print(
                f"FAILED seed {options.seed + rounds}, status {done.returncode}\n{done.stdout}\n{done.stderr}",
                flush=True,
            )
        rounds += 1
    print(f"{rounds} processes of {options.threads} threads, {failed} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
