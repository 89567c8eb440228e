"""Whole models against their repeated blocks: Llamas of several depths, compiled in full and by regions.

    python -m bench.regions                                   4 to 48 layers, batches of 1 and 4
    python -m bench.regions --layers 4,48 --batch 1 --against eager,burnish,burnish-regions --plot regions.png

Each contestant compiles in a process of its own, with empty caches, and is timed there against eager, in turns. Regions
of torch.compile are what Accelerate makes of a model: each layer compiled in place.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import caches
from .steady import take_turns, warm_up

CONTESTANTS = ("burnish", "burnish-regions", "torch.compile", "torch.compile-regions")
LAYERS = (4, 12, 24, 48)
BATCHES = (1, 4)
LENGTH, WIDTH = 128, 256
ROUNDS, SECONDS = 8, 0.2


def model_of(layers: int, batch: int) -> tuple[Any, Any]:
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=4, vocab_size=1000, use_cache=False)
    return LlamaModel(config).eval(), torch.randint(0, 1000, (batch, LENGTH))


def compiled(name: str, model: Any) -> Any:
    import torch

    import burnish

    match name:
        case "burnish":
            return burnish.compile(model)
        case "burnish-regions":
            return burnish.compile_regions(model)
        case "torch.compile":
            return torch.compile(model)
    for layer in model.layers:
        layer.compile()
    return model


def measured(name: str, layers: int, batch: int) -> dict[str, float]:
    """In this process: the first call, and the medians of this contestant's and of eager's later ones."""
    import torch

    model, x = model_of(layers, batch)
    other, _ = model_of(layers, batch)
    with torch.no_grad():
        want = other(x).last_hidden_state
        begun = time.perf_counter()
        call = compiled(name, model)
        got = call(x).last_hidden_state
        first = time.perf_counter() - begun
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
        calls = {"eager": lambda: other(x), name: lambda: call(x)}
        for each in calls.values():
            warm_up(each)
        blocks = take_turns(calls, ROUNDS, SECONDS)
    return {"first": first, "steady": statistics.median(blocks[name]), "eager": statistics.median(blocks["eager"])}


def apart(name: str, layers: int, batch: int) -> dict[str, float] | None:
    """The same in a process of its own, which finds no caches."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.regions", "--worker", name, str(layers), str(batch)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent,
                              env={**os.environ, **caches.variables(caches.folder_of(folder, name))}, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
    for batch in sorted({row["batch"] for row in rows}):
        for name in dict.fromkeys(row["name"] for row in rows):
            some = [row for row in rows if row["name"] == name and row["batch"] == batch]
            layers = [row["layers"] for row in some]
            axes[0].plot(layers, [row["first"] for row in some], marker="o", label=f"{name}, batch {batch}")
            axes[1].plot(layers, [row["eager"] / row["steady"] for row in some], marker="o")
    axes[0].set(xlabel="layers", ylabel="first call, s", yscale="log")
    axes[1].set(xlabel="layers", ylabel="times as fast as eager")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.regions", description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)))
    parser.add_argument("--batch", default=",".join(map(str, BATCHES)))
    parser.add_argument("--against", default=",".join(CONTESTANTS), help=f"of {', '.join(CONTESTANTS)}")
    parser.add_argument("--plot", type=Path, help="write a picture, PNG or SVG")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, layers, batch = options.worker
        print(json.dumps(measured(name, int(layers), int(batch))))
        return 0
    names = [name.strip() for name in options.against.split(",") if name.strip() != "eager"]
    for name in names:
        if name not in CONTESTANTS:
            parser.error(f"there is no contestant {name!r}: there are {', '.join(CONTESTANTS)}")
    rows: list[dict[str, Any]] = []
    failed = False
    print(f"{'layers':>6} {'batch':>5}  {'contestant':<22} {'first call':>10} {'a call':>10} {'of eager':>9}")
    for batch in map(int, options.batch.split(",")):
        for layers in map(int, options.layers.split(",")):
            for name in names:
                found = apart(name, layers, batch)
                if found is None:
                    failed = True
                    print(f"{layers:>6} {batch:>5}  {name:<22} failed", flush=True)
                    continue
                rows.append({"layers": layers, "batch": batch, "name": name, **found})
                print(f"{layers:>6} {batch:>5}  {name:<22} {found['first']:>8.2f} s {found['steady'] * 1e3:>7.2f} ms "
                      f"{found['eager'] / found['steady']:>8.2f}×", flush=True)
    if options.plot:
        plot(rows, options.plot)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
