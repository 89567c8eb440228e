"""What Burnish does, on one screen: real models and functions, eager and compiled side by side.

    make demo

Times are medians of runs that alternate between eager and compiled, so that both see the same machine load. Weights are
random and nothing is downloaded. The exit status is 1 only if a compiled result differs from eager's.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import burnish

# When this is started as a file, Python looks for modules beside it and not in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.compare import max_difference, tensors_of
from bench.models import MODELS
from bench.observe import Observed

SECONDS_EACH = 1.5
RUNS = (5, 200)
HEADINGS = ("program", "eager ms", "burnish ms", "speed", "first call ms", "breaks", "max difference")
TITLES = {
    "lstm": "LSTM tagger",
    "resnet18": "ResNet-18",
    "mobilenet_v3": "MobileNetV3",
    "densenet121": "DenseNet-121",
    "vit": "ViT-small",
    "bert": "BERT-base",
    "gpt2": "GPT-2",
}
WIDTHS = (28, 10, 11, 7, 14, 7, 15)


@dataclass
class Example:
    """The same program twice."""

    eager: Callable[[], Any]
    compiled: Callable[[], Any]


def examples() -> Iterator[tuple[str, Callable[[], Example]]]:
    yield "gelu, written by hand", lambda: function(gelu, torch.randn(64, 4096))
    yield "loop that ends by its data", lambda: function(settle, torch.randn(256, 256))
    for name, title in TITLES.items():
        yield title, lambda name=name: inference(name)
    yield "nanoGPT, training step", lambda: training("nanogpt")


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def settle(x):
    """A function that no single graph can represent: the number of steps depends on the data."""
    steps = 0
    while x.norm() > 10 and steps < 8:
        x = F.layer_norm(x * torch.sigmoid(x), x.shape[-1:]) * 0.1 * (8 - steps)
        steps += 1
    return x, steps


def function(fn: Callable, *args: torch.Tensor) -> Example:
    compiled = burnish.compile(fn)
    return Example(lambda: fn(*args), lambda: compiled(*args))


def inference(name: str) -> Example:
    module, args, kwargs = MODELS[name]()
    compiled = burnish.compile(module)

    def run(model: Callable) -> Any:
        with torch.no_grad():
            return model(*args, **kwargs)

    return Example(lambda: run(module), lambda: run(compiled))


def training(name: str) -> Example:
    module, args, kwargs = MODELS[name]()
    twin = copy.deepcopy(module)
    # Dropout draws eager's numbers here: the results are compared.
    compiled = burnish.compile(twin, options={"eager_random": True})

    def run(owner: torch.nn.Module, model: Callable) -> Any:
        torch.manual_seed(0)  # dropout
        owner.zero_grad()
        loss = model(*args, **kwargs)[-1]
        loss.backward()
        return loss.detach(), [weight.grad for weight in owner.parameters()]

    module.train(), twin.train()
    return Example(lambda: run(module, module), lambda: run(twin, compiled))


@dataclass
class Row:
    title: str
    eager: float
    compiled: float
    first: float
    breaks: int | None
    difference: float
    is_close: bool

    def cells(self) -> tuple[str, ...]:
        eager, compiled, first = (f"{seconds * 1e3:.2f}" for seconds in (self.eager, self.compiled, self.first))
        breaks = "–" if self.breaks is None else str(self.breaks)
        difference = f"{self.difference:.1e}" if self.difference else "0"
        return self.title, eager, compiled, f"{self.eager / self.compiled:.2f}×", first, breaks, difference


def measure(title: str, example: Example) -> Row:
    want = example.eager()
    with Observed() as seen:
        first = timed(example.compiled)
    eager: list[float] = []
    compiled: list[float] = []
    sides = [(example.eager, eager), (example.compiled, compiled)]
    end = time.perf_counter() + SECONDS_EACH
    while len(eager) < RUNS[0] or (time.perf_counter() < end and len(eager) < RUNS[1]):
        for fn, times in sides:
            times.append(timed(fn))
        sides.reverse()  # the second to run finds other data in the CPU caches
    got = example.compiled()
    difference = max_difference(want, got)
    largest = max(
        (part.detach().abs().max().item() for _, part in tensors_of(want) if part.is_floating_point()), default=1.0
    )
    return Row(
        title,
        statistics.median(eager),
        statistics.median(compiled),
        first,
        len(seen.breaks) if seen.listening else None,
        difference,
        difference <= 1e-3 * max(1.0, largest),
    )


def timed(fn: Callable[[], Any]) -> float:
    """Seconds of one run. Its result is freed, so that every run finds the same memory free."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def print_row(cells: tuple[str, ...]) -> None:
    numbers = (f"{cell:>{width}}" for cell, width in zip(cells[1:], WIDTHS[1:], strict=True))
    print(f"{cells[0]:{WIDTHS[0]}}{''.join(numbers)}", flush=True)


def main() -> int:
    print(f"Burnish on {torch.get_num_threads()} threads, torch {torch.__version__}; medians of alternating runs\n")
    print_row(HEADINGS)
    rows: list[Row] = []
    for title, build in examples():
        try:
            rows.append(measure(title, build()))
        except ImportError as missing:
            print(f"{title:{WIDTHS[0]}}not run: {missing.name} is not installed", flush=True)
            continue
        print_row(rows[-1].cells())
    wrong = [row.title for row in rows if not row.is_close]
    if wrong:
        print(f"\nWrong: {', '.join(wrong)} did not give eager's result.")
        return 1
    print(f"\n{summary(rows)}")
    return 0


def summary(rows: list[Row]) -> str:
    speed = statistics.geometric_mean(row.eager / row.compiled for row in rows)
    whole = sum(row.breaks == 0 for row in rows)
    graphs = "" if any(row.breaks is None for row in rows) else f", {whole} of them without a break"
    return (
        f"Shown: {len(rows)} programs compiled with burnish.compile(fn) give eager's results{graphs}, "
        f"at {speed:.2f}× eager's speed."
    )


if __name__ == "__main__":
    sys.exit(main())
