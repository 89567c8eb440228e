"""How long programs with graph breaks take, which neither compiler captures as one graph.

    python -m bench.broken                   all programs: eager, burnish, torch.compile, in turns
    python -m bench.broken branch hidden     some

    branch        0.83 × eager, torch.compile 0.61 ×

Two kinds: functions so small that the cost of a break dominates, and twelve small layers with a break in each, as in a
module that reads a value or calls code outside torch. The contest with eager is off, so that compiled code is timed
even where eager would replace it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import torch
from torch import nn

import burnish
from burnish.settings import patch

from . import fallbacks
from .steady import compare, take_turns, warm_up

WIDTH, LAYERS, ROWS = 64, 12, 8
ROUNDS, SECONDS = 9, 0.1


def branch(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def read(x):
    y = (x * 2).relu()
    return y / (max(y.flatten().tolist()) + 1)


@torch.compiler.disable
def outside(x):
    return x


def call(x):
    return (outside(x * 2 + 1) * 3).sin()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = outside(nn.functional.gelu(self.first(self.norm(x))))
        return x + self.second(y)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Hidden(Layers):
    def forward(self, x):
        states = ()
        for layer in self.layers:
            states += (x,)
            x = layer(x)
        return x, states


class Numbered(Layers):
    def forward(self, x):
        for k in range(LAYERS):
            x = self.layers[k](x) / (k + 1)
        return x


PROGRAMS: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "branch": (branch, (WIDTH,)),
    "read": (read, (WIDTH,)),
    "call": (call, (WIDTH,)),
    **{
        name: (made().eval(), (ROWS, WIDTH))
        for name, made in (("layers", Layers), ("hidden", Hidden), ("numbered", Numbered))
    },
}


def measure(name: str) -> tuple[float, float]:
    """Eager's time over Burnish's, and over torch.compile's."""
    fn, shape = PROGRAMS[name]
    x = torch.rand(shape)
    with torch.no_grad(), patch(never_slower=False):
        compiled = {"eager": fn, "burnish": burnish.compile(fn), "torch.compile": torch.compile(fn)}
        calls = {contestant: lambda run=run: run(x) for contestant, run in compiled.items()}
        for each in calls.values():
            torch.testing.assert_close(each(), calls["eager"](), rtol=1e-4, atol=1e-4)
            warm_up(each)
        blocks = take_turns(calls, ROUNDS, SECONDS)
    return compare(blocks["eager"], blocks["burnish"])[1], compare(blocks["eager"], blocks["torch.compile"])[1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.broken", description="Programs with graph breaks.")
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=[], help="all, if none is named")
    chosen = parser.parse_args(arguments).programs or list(PROGRAMS)
    found = []
    for name in chosen:
        ours, theirs = measure(name)
        found.append((ours, theirs))
        print(f"{name:12s} {ours:5.2f} × eager, torch.compile {theirs:.2f} ×", flush=True)
    ours, theirs = (statistics.geometric_mean(column) for column in zip(*found, strict=True))
    print(f"geomean: {ours:.2f} × eager, torch.compile {theirs:.2f} ×")
    return 0


if __name__ == "__main__":
    fallbacks.exit_with(main, sys.argv[1:])
