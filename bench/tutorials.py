"""The benchmarks of two tutorials on torch.compile, with Burnish as another contestant.

    python -m bench.tutorials --device cuda
    python -m bench.tutorials --only lightning --small          in seconds, on a CPU

`inference` and `training` are PyTorch's: densenet121 on 16 images of 128 × 128, in mode reduce-overhead, training as
one function that includes Adam. `lightning` is Lightning's: InceptionV3 on 16 images of 512 × 512, SGD, in a Trainer
whose callback times each batch. Each contestant has a process of its own with empty caches.

The first call is timed by the wall clock. The tutorials show the median of the next ten. Compilers that time their own
code are still doing so then, so the median of ten later calls is shown as well.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import caches, fallbacks
from .apart import hand_back, run_in_own_process
from .contestants import Contestant, contestant_of
from .record import EAGER
from .table import Table, as_text, seconds, times

CALLS, BETWEEN = 10, 40
NEAR = 0.02
"""The relative difference from eager's first result that is not reported: networks in reduced precision have it."""
BOTH = (EAGER, "torch.compile:reduce-overhead", "burnish:reduce-overhead")
PARTS: dict[str, tuple[str, ...]] = {
    "inference": BOTH,
    "training": BOTH,
    "lightning": (EAGER, "torch.compile", "burnish"),
}


# -- PyTorch's ---------------------------------------------------------------------------------------------------------


def densenet(device: str, is_small: bool) -> tuple[Any, Callable[[], tuple]]:
    """The network with its initial weights, and a function that returns new images and labels."""
    import torch
    from torchvision.models import DenseNet, densenet121

    torch.manual_seed(0)
    model = DenseNet(4, (2, 2), 8, num_classes=10) if is_small else densenet121()
    batch, size, labels = (2, 32, 10) if is_small else (16, 128, 1000)

    def data() -> tuple:
        return torch.randn(batch, 3, size, size).to(device), torch.randint(labels, (batch,)).to(device)

    return model.to(device), data


def inference(contestant: Contestant, device: str, is_small: bool, between: int) -> dict[str, Any]:
    import torch

    model, data = densenet(device, is_small)
    compiled = contestant.compile(model, (), {})
    with torch.no_grad():
        return timed(lambda images, labels: compiled(images), data, device, between)


def training(contestant: Contestant, device: str, is_small: bool, between: int) -> dict[str, Any]:
    import torch

    model, data = densenet(device, is_small)
    optimizer = torch.optim.Adam(model.parameters())

    def train(model, data):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.CrossEntropyLoss()(model(data[0]), data[1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = contestant.compile(train, (), {})
    return timed(lambda *batch: compiled(model, batch), data, device, between)


def timed(call: Callable, data: Callable[[], tuple], device: str, between: int) -> dict[str, Any]:
    from .clocks import clock_for, wait

    clock = clock_for(device)
    batch = data()
    wait(device)
    begun = time.perf_counter()
    result = call(*batch)
    wait(device)
    first = time.perf_counter() - begun
    size = result.double().square().mean().sqrt().item()
    del result
    samples = []
    for _ in range(CALLS + between + CALLS):
        batch = data()  # before the clock starts, like in the tutorial
        clock.start()
        call(*batch)
        samples.append(clock.stop())
    return found(clock.name, first, samples, size)


def found(clock: str, first: float, samples: list[float], size: float | None) -> dict[str, Any]:
    """`size` is that of the first result, to compare with eager's; None if it is random because of dropout."""
    return {"clock": clock, "first": first, "ten": samples[:CALLS], "later": samples[-CALLS:], "size": size}


# -- Lightning's -------------------------------------------------------------------------------------------------------


def lightning(contestant: Contestant, device: str, is_small: bool, between: int) -> dict[str, Any]:
    import logging

    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torch import nn
    from torch.utils.data import DataLoader
    from torchvision.models import inception_v3
    from torchvision.models.inception import InceptionOutputs

    from .clocks import clock_for

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    batch, size, images = (2, 16, 8) if is_small else (16, 512, 256)

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
            self.net(torch.zeros(1, 3, size, size))

        def forward(self, x):
            return InceptionOutputs(self.net(x), None)

    class Classifier(LightningModule):
        def __init__(self):
            super().__init__()
            # The default when the tutorial was written: without an explicit choice it warns, and takes a minute.
            self.model = Small() if is_small else inception_v3(init_weights=False)

        def training_step(self, batch):
            return self.model(batch).logits.sum()

        def train_dataloader(self):
            return DataLoader([torch.randn(3, size, size) for _ in range(images)], batch_size=batch)  # type: ignore

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Benchmark(Callback):
        """Times each batch."""

        def __init__(self):
            self.clock = clock_for(device)
            self.samples: list[float] = []
            self.first = 0.0

        def on_train_batch_start(self, *_: Any) -> None:
            self.begun = time.perf_counter()
            self.clock.start()

        def on_train_batch_end(self, *_: Any) -> None:
            self.samples.append(self.clock.stop())
            if len(self.samples) == 1:
                self.first = time.perf_counter() - self.begun

    torch.manual_seed(0)
    benchmark = Benchmark()
    trainer = Trainer(
        accelerator="cpu" if device == "cpu" else "cuda",
        devices=1,
        max_steps=1 + CALLS + between + CALLS,
        callbacks=[benchmark],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(contestant.compile(Classifier(), (), {}))
    return found(benchmark.clock.name, benchmark.first, benchmark.samples[1:], None)


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "inference": inference,
    "training": training,
    "lightning": lightning,
}


# -- all of them -------------------------------------------------------------------------------------------------------


def report(results: dict[str, dict[str, Any]]) -> str:
    table = Table(
        "The tutorials' benchmarks",
        ["benchmark", "by", "first call", "median of ten", "over eager", "of ten later", "over eager"],
    )
    notes = []
    for part, by in results.items():
        eager = by.get(EAGER, {})
        for name, result in by.items():
            if "why" in result:
                notes.append(f"— {part}, {name}: {result['why']}")
                continue
            cells = [part, name.replace(":", " "), seconds(result["first"])]
            for kind in ("ten", "later"):
                middle = statistics.median(result[kind])
                ratio = statistics.median(eager[kind]) / middle if kind in eager else None
                cells += [f"{middle * 1e3:.3f} ms", times(ratio)]
            table.rows.append(cells)
            if eager.get("size") is not None and not is_near(result["size"], eager["size"]):
                notes.append(
                    f"! {part}, {name}: its first result is of size {result['size']}, eager's of {eager['size']}"
                )
    return "\n".join([as_text(table), *notes])


def is_near(size: float, eager: float) -> bool:
    return math.isfinite(size) and abs(size - eager) <= NEAR * abs(eager)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.tutorials", description=__doc__.splitlines()[0])
    made.add_argument("--device", default="cpu")
    made.add_argument("--only", choices=PARTS, action="append", help="one of the benchmarks; may be repeated")
    made.add_argument("--small", action="store_true", help="networks of a few layers on small images")
    made.add_argument(
        "--between",
        type=int,
        default=BETWEEN,
        metavar="N",
        help=f"calls between the ten and the ten later ones (default: {BETWEEN})",
    )
    made.add_argument("--against", metavar="NAMES", help="contestants, in place of the tutorial's and Burnish")
    made.add_argument("--limit", type=float, default=600.0, help="seconds for each contestant in each of them")
    made.add_argument("--json", type=Path)
    made.add_argument("--worker", nargs=2, metavar=("PART", "NAME"), help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.worker:
        part, name = options.worker
        contestant = contestant_of(name)
        contestant.bring()
        hand_back(MEASURES[part](contestant, options.device, options.small, options.between))
        return 0
    results: dict[str, dict[str, Any]] = {}
    for part in options.only or PARTS:
        for name in options.against.split(",") if options.against else PARTS[part]:
            with tempfile.TemporaryDirectory(prefix="burnish-bench-", ignore_cleanup_errors=True) as folder:
                result, why = run_in_own_process(
                    [
                        "-m",
                        "bench.tutorials",
                        "--worker",
                        part,
                        name,
                        "--device",
                        options.device,
                        "--between",
                        str(options.between),
                        *["--small"] * options.small,
                    ],
                    caches.folder_of(folder, name),
                    options.limit,
                )
            results.setdefault(part, {})[name] = result if why is None else {"why": why}
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report(results))
    return int(any("why" in result for by in results.values() for result in by.values()))


if __name__ == "__main__":
    fallbacks.exit_with(main)
