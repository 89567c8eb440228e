"""The bench's models with inputs of 24 sizes, in random order: whether results equal eager's, and the compilations.

    python -m bench.sizes                    all of them
    python -m bench.sizes bert resnet18 --count 12
    python -m bench.sizes lstm --train       forward and backward: losses and gradients are compared

Images come in batches of 1 to 8; texts, two at a time, in lengths up to 128, or up to the model's limit; the rows of
plain functions vary. A model fails if a result differs from eager's, or if it is compiled more than three times.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import torch

import burnish
from burnish import events

from . import fallbacks
from .compare import tensors_of
from .models import FUNCTIONS, MODELS
from .workload import loss_of, remove_dropout

NEAR = 2e-4
"""Relatively, in norm. Gradients are compared as one vector: some are rounding errors of zero."""

MOST = 3
LENGTHS = {"nanogpt": 64, "t5": 64}
LONGEST = 128


def resized(value: Any, batch: int, length: int, rows: int | None) -> Any:
    """The same argument for another batch size: repeated, and cut off."""
    if not isinstance(value, torch.Tensor) or value.ndim == 0:
        return value
    wanted = [rows or batch, *value.shape[1:]]
    if value.ndim == 2 and not value.is_floating_point():
        wanted[1] = length
    times = [-(-want // have) for want, have in zip(wanted, value.shape, strict=True)]
    return value.repeat(*times)[tuple(slice(want) for want in wanted)].contiguous()


def difference(found: Any, wanted: Any) -> float:
    worst = 0.0
    ours, theirs = dict(tensors_of(found)), dict(tensors_of(wanted))
    if ours.keys() != theirs.keys():
        return float("inf")
    for name, want in theirs.items():
        got = ours[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return float("inf")
        if want.is_floating_point():
            norm = float(want.double().norm()) or 1.0
            error = float((got.double() - want.double()).norm()) / norm
            worst = max(worst, error if error == error else float("inf"))
        elif not torch.equal(got, want):
            return float("inf")
    return worst


def loss_and_gradients(run: Callable, module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    module.zero_grad()
    loss = loss_of(run(*args, **kwargs))
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def measure(name: str, count: int, pick: random.Random, train: bool = False) -> tuple[str, bool]:
    module, args, kwargs = MODELS[name]()
    if train:
        remove_dropout(module.train())
    longest = LENGTHS.get(name, LONGEST)
    words: list[str] = []
    segments: list[Any] = []

    def hear(event: events.Event) -> None:
        if event.kind == "segment":
            segments.append(event)
        elif event.kind == "guards.sizes":
            words.append(event.data["text"])

    burnish.reset()
    compiled: Callable[..., Any] = burnish.compile(module)

    def result_of(run: Callable, *args: Any, **kwargs: Any) -> Any:
        return loss_and_gradients(run, module, *args, **kwargs) if train else run(*args, **kwargs)

    worst = ours = theirs = 0.0
    stop = events.subscribe(hear)
    try:
        with torch.set_grad_enabled(train):
            for number in range(count):
                batch = (1, 8)[number] if number < 2 else pick.randint(1, 8)
                length = (longest, 1)[number] if number < 2 else pick.randint(1, longest)
                rows = pick.randint(1, 600) if name in FUNCTIONS else None
                if any(isinstance(x, torch.Tensor) and x.ndim == 2 for x in (*args, *kwargs.values())):
                    batch = 2
                given = [resized(value, batch, length, rows) for value in args]
                named = {key: resized(value, batch, length, rows) for key, value in kwargs.items()}
                start = time.perf_counter()
                found = result_of(compiled, *given, **named)
                between = time.perf_counter()
                wanted = result_of(module, *given, **named)
                ours, theirs = ours + between - start, theirs + time.perf_counter() - between
                worst = max(worst, difference(found, wanted))
    finally:
        stop()
    way = (
        "open"
        if any(word.startswith("compiled for all") for word in words)
        else "; ".join(dict.fromkeys(word for word in words if word.startswith("compiled for each")))
        or "no size varies"
    )
    is_good = worst <= NEAR and len(segments) <= MOST
    return (
        f"{name:<16} {len(segments):>3} compiled  {worst:8.1e} from eager  {ours:7.2f} s, eager {theirs:7.2f} s  "
        f"{'' if is_good else 'NOT GOOD  '}{way:.90}"
    ), is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="*", help="names of models; all of them without one")
    parser.add_argument("--count", type=int, default=24, help="sizes of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="forward and backward, without dropout")
    options = parser.parse_args()
    unknown = set(options.model) - set(MODELS)
    if unknown:
        parser.error(f"no model is called {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    good = 0
    names = options.model or [name for name in MODELS if not (options.train and name in FUNCTIONS)]
    for name in names:
        line, is_good = measure(name, options.count, random.Random(options.seed), options.train)
        good += is_good
        print(line, flush=True)
    print(f"{good} of {len(names)} models: eager's results in at most {MOST} compilations")
    return int(good < len(names))


if __name__ == "__main__":
    fallbacks.exit_with(main)
