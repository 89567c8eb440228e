"""What a call costs beyond the work: a function of one operator, and stacks of small modules.

    eager 2.1 µs, burnish +9.0 µs, torch.compile +12.4 µs

The operators are so small that nothing can be won in them. What is left over eager's time is finding the compiled code
and making sure that it still holds, which grows with the number of modules there are to look at. `torch.compile` with
its backend "eager" runs the same operators as eager does, so it shows the same of Dynamo.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from .contestants import contestant_of
from .record import EAGER, Overhead
from .steady import take_turns, warm_up

CONTESTANTS = (EAGER, "burnish", "burnish:backend=eager", "torch.compile:backend=eager")
STACKS = (1, 10, 100, 400)
WIDTH = 8


class Scale(nn.Module):
    """As little as a module can do with a weight of its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * self.weight


def one_operator(x):
    return torch.relu(x)


def programs(stacks: Sequence[int] = STACKS) -> Iterator[tuple[str, int, Callable]]:
    yield "one operator", 0, one_operator
    for count in stacks:
        yield f"{count} module{'s' * (count > 1)}", count, nn.Sequential(*(Scale() for _ in range(count))).eval()


def measure(program: str, modules: int, fn: Callable, rounds: int, seconds: float,
            contestants: Sequence[str] = CONTESTANTS) -> Overhead:
    x = torch.randn(WIDTH)
    found = Overhead(program, modules, 0.0)
    calls = {}
    with torch.no_grad():
        for name in contestants:
            try:
                contestant = contestant_of(name)
                contestant.bring()
                compiled = contestant.compile(fn, (x,), {})
                warm_up(lambda compiled=compiled: compiled(x))
            except Exception as error:
                found.why[name] = f"{type(error).__name__}: {error}"
                continue
            calls[name] = lambda compiled=compiled: compiled(x)
        blocks = take_turns(calls, rounds, seconds)
    eager = blocks.pop(EAGER)
    found.eager = statistics.median(eager)
    for name, times in blocks.items():
        found.over[name] = statistics.median(b - a for a, b in zip(eager, times, strict=True))
    return found


def forget() -> None:
    """Programs share code objects. What was compiled for the last one would be looked through for the next."""
    import burnish
    burnish.reset()
    torch._dynamo.reset()
