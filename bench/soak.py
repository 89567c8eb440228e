"""A soak test: changing shapes, threads and modules for a long time; results are compared, and memory is watched.

    python -m bench.soak --minutes 30

Several threads pick at random among programs that they share: calls with changing sizes, training steps, weights that
are replaced, new modules that are compiled and dropped. It fails if a value differs from eager's, or if memory in the
last third of the time is above that in the second.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

import burnish

from . import fallbacks
from .memory import give_back, memory

NEAR = 2e-4
"""The relative tolerance in norm: float32 after a few layers."""

GROWTH = 1.03
"""The allowed growth of the median memory from the second third to the last one, for the allocator."""

EVERY = 10.0
"""Seconds between two measurements of memory."""


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, stride=2),
            nn.SiLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))


def breaking(x: torch.Tensor) -> torch.Tensor:
    """A branch that depends on data."""
    y = x / (x.abs() + 1)
    if y.sum() < 0:
        y = -y
    return (y * x).softmax(-1)


def counting(x: torch.Tensor, n: int) -> list[torch.Tensor]:
    found = []
    for k in range(n % 3 + 1):
        found.append(x.roll(k, 0).cumsum(-1) * n)
    return found


@dataclass
class Soak:
    random: random.Random
    wrong: list[str] = field(default_factory=list)
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, what: str, found: object, wanted: object) -> None:
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, (list, tuple)) else [(found, wanted)]
        for ours, theirs in pairs:
            if (
                ours.shape != theirs.shape
                or not (ours.double() - theirs.double()).norm() <= NEAR * theirs.double().norm() + 1e-6
            ):
                with self.lock:
                    self.wrong.append(f"{what}: {ours.shape} {theirs.shape}")

    def kinds(self) -> list[Callable[[random.Random], None]]:
        """The programs of a thread. Modules are shared except for those that are trained: eager would race, too."""
        block, images = Block(32).eval(), Images().eval()
        fast_block, fast_images = burnish.compile(block), burnish.compile(images)
        fast_breaking, fast_counting = burnish.compile(breaking), burnish.compile(counting)

        def attend(pick: random.Random) -> None:
            x = torch.randn(pick.choice((1, 2, 5)), pick.randint(1, 70), 32)
            with torch.no_grad():
                self.check("attention", fast_block(x), block(x))

        def look(pick: random.Random) -> None:
            x = torch.randn(pick.randint(1, 6), 3, pick.choice((16, 24, 33)), 24)
            with torch.no_grad():
                self.check("images", fast_images(x), images(x))

        def branch(pick: random.Random) -> None:
            x = torch.randn(pick.randint(1, 40), pick.randint(1, 9))
            self.check("branches", fast_breaking(x), breaking(x))

        def count(pick: random.Random) -> None:
            x, n = torch.randn(pick.randint(1, 12), 8), pick.randint(1, 20)
            self.check("a number", fast_counting(x, n), counting(x, n))

        def learn(pick: random.Random) -> None:
            """A new module is compiled, trained for a few steps beside an eager copy, and dropped."""
            module = Block(16)
            twin = copy.deepcopy(module)
            # Adam would amplify rounding: the gradient of the bias of the keys consists of rounding only.
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (module, twin)]
            compiled = burnish.compile(module)
            for _ in range(pick.randint(2, 4)):
                x = torch.randn(pick.randint(1, 4), 7, 16)
                for run, optimizer in zip((compiled, twin), optimizers, strict=True):
                    optimizer.zero_grad()
                    run(x).square().mean().backward()
                    optimizer.step()
            self.check("training", list(module.parameters()), list(twin.parameters()))

        def replace(pick: random.Random) -> None:
            """Calls between which the weights of a private module change."""
            module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).eval()
            compiled = burnish.compile(module)
            x = torch.randn(pick.randint(1, 5), 8)
            with torch.no_grad():
                for change in (
                    lambda: None,
                    lambda: module[0].weight.mul_(2),
                    lambda: setattr(module[2], "weight", nn.Parameter(torch.ones(4, 8))),
                    lambda: module.double(),
                ):
                    change()
                    x = x.to(module[0].weight.dtype)
                    self.check("weights", compiled(x), module(x))

        return [attend] * 6 + [look] * 5 + [branch] * 5 + [count] * 5 + [learn, replace]

    def work(self, kinds: list, seed: int, until: float) -> None:
        pick = random.Random(seed)
        while time.monotonic() < until and not self.wrong:
            kind = pick.choice(kinds)
            try:
                kind(pick)
            except Exception:
                with self.lock:
                    self.wrong.append(f"{kind.__name__} raised\n{traceback.format_exc()}")
            with self.lock:
                self.calls += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    soak = Soak(random.Random(options.seed))
    kinds, started = soak.kinds(), time.monotonic()
    until = started + 60 * options.minutes
    threads = [
        threading.Thread(target=soak.work, args=(kinds, options.seed + n, until)) for n in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    held: list[float] = []
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        time.sleep(min(EVERY, max(until - time.monotonic(), 0.0)))
        give_back()
        held.append(memory("VmRSS") / 1e6)
        print(f"{(time.monotonic() - started) / 60:5.1f} min  {soak.calls} rounds  {held[-1]:.0f} MB", flush=True)
    for thread in threads:
        thread.join()
    for wrong in soak.wrong[:3]:
        print(f"WRONG {wrong}", file=sys.stderr)
    third = len(held) // 3
    before, after = (statistics.median(part) for part in (held[third : 2 * third] or held, held[2 * third :] or held))
    is_flat = after <= GROWTH * before
    print(
        f"{soak.calls} rounds in {len(threads)} threads, {len(soak.wrong)} wrong; memory {before:.0f} MB in the "
        f"second third, {after:.0f} MB in the last: {'flat' if is_flat else 'it grows'}"
    )
    return int(bool(soak.wrong) or not is_flat)


if __name__ == "__main__":
    fallbacks.exit_with(main)
