"""Compiling whole models against compiling their repeated blocks: Llamas of several depths, whole and by regions.

    python -m bench.regions                                   4 to 48 layers, batches of 1 and 4
    python -m bench.regions --layers 4,48 --batch 1 --against eager,burnish,burnish-regions
    python -m bench.regions --json bench/out/regions.json --plot docs/regions.svg
    python -m bench.regions --read bench/out/regions.json --plot docs/regions.svg      the picture again, of that run
    python -m bench.regions --layers 48 --batch 1 --together                           Burnish's two ways in one process

Each contestant compiles in a process of its own, with empty caches, and is timed there against eager, in turns. Regions
for torch.compile are those of Accelerate: each layer is compiled in place.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import caches, fallbacks
from .plot import COLOURS, OTHERS, why_not_plot
from .record import BURNISH
from .steady import take_turns, warm_up

CONTESTANTS = ("burnish", "burnish-regions", "torch.compile", "torch.compile-regions")
LAYERS = (4, 12, 24, 48)
BATCHES = (1, 4)
LENGTH, WIDTH = 128, 256
ROUNDS, SECONDS = 8, 0.2
DECIDED = 64
"""After so many calls nothing is timed or watched any more."""


def model_of(layers: int, batch: int) -> tuple[Any, Any]:
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=1000,
        use_cache=False,
    )
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
    """The first call and the medians of later ones, of this contestant and of eager, measured in this process."""
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


def together(layers: int, batch: int) -> dict[str, float]:
    """The medians of a call as a whole, by regions and of eager, in turns in this process. Two processes may choose
    different library calls as the fastest, and differ by more than the cost of regions."""
    import torch

    names = ("burnish", "burnish-regions")
    models = {name: model_of(layers, batch)[0] for name in ("eager", *names)}
    x = model_of(layers, batch)[1]
    with torch.no_grad():
        calls = {
            name: functools.partial(compiled(name, model) if name in names else model, x)
            for name, model in models.items()
        }
        for _ in range(DECIDED):
            for each in calls.values():
                each()
        blocks = take_turns(calls, ROUNDS, SECONDS)
    return {name: statistics.median(seconds) for name, seconds in blocks.items()}


def measured_in_own_process(name: str, layers: int, batch: int) -> dict[str, float] | None:
    """`measured` in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.regions", "--worker", name, str(layers), str(batch)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, **caches.variables(caches.folder_of(folder, name))},
            check=False,
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def line_of(row: dict[str, Any]) -> str:
    return (
        f"{row['layers']:>6} {row['batch']:>5}  {row['name']:<22} {row['first']:>8.2f} s "
        f"{row['steady'] * 1e3:>7.2f} ms {row['eager'] / row['steady']:>8.2f}×"
    )


def numbers(text: str) -> list[int]:
    return list(map(int, text.split(",")))


COMPILERS = {"burnish": COLOURS[BURNISH], "torch.compile": OTHERS[0]}
MARKERS = "os^v"


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Plot against depth the seconds of the first call, and the speed of later calls over eager."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    # Text stays text and no ids are generated: a small file that changes only where figures do.
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "regions"}):
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
        batches = sorted({row["batch"] for row in rows})
        for batch, marker in zip(batches, MARKERS * len(batches), strict=False):
            for name in dict.fromkeys(row["name"] for row in rows):
                some = sorted(
                    (row for row in rows if (row["name"], row["batch"]) == (name, batch)), key=lambda row: row["layers"]
                )
                compiler, _, regions = name.partition("-")
                layers = [row["layers"] for row in some]
                style = {"color": COMPILERS[compiler], "linestyle": "--" if regions else "-", "marker": marker}
                label = f"{compiler}, {regions or 'whole'}, batch {batch}"
                axes[0].plot(layers, [row["first"] for row in some], label=label, **style)
                axes[1].plot(layers, [row["eager"] / row["steady"] for row in some], **style)
        depths = sorted({row["layers"] for row in rows})
        for axis, title in zip(axes, ("first call in seconds, logarithmic", "speed over eager"), strict=True):
            axis.set_title(title, loc="left", fontsize=10)
            axis.set_xticks(depths, list(map(str, depths)))
            axis.set_xlabel("layers")
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="y", linewidth=0.3)
        axes[0].set_yscale("log")
        axes[1].axhline(1.0, color="#444444", linewidth=0.8)
        figure.legend(loc="outside lower center", ncols=4, fontsize=7, frameon=False)
        figure.tight_layout(rect=(0, 0.12, 1, 1))
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
        pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.regions", description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)))
    parser.add_argument("--batch", default=",".join(map(str, BATCHES)))
    parser.add_argument("--against", default=",".join(CONTESTANTS), help=f"of {', '.join(CONTESTANTS)}")
    parser.add_argument("--plot", type=Path, help="write a picture, PNG or SVG")
    parser.add_argument("--json", type=Path, help="write what was measured")
    parser.add_argument("--read", type=Path, help="measure nothing: the figures are in this file")
    parser.add_argument("--together", action="store_true", help="Burnish's two ways in one process, in turns")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, layers, batch = options.worker
        print(json.dumps(measured(name, int(layers), int(batch))))
        return 0
    if options.together:
        for batch, layers in itertools.product(numbers(options.batch), numbers(options.layers)):
            found = together(layers, batch)
            print(
                f"{layers:>6} {batch:>5}  {'  '.join(f'{name} {s * 1e3:.2f} ms' for name, s in found.items())}  "
                f"regions / whole {found['burnish-regions'] / found['burnish']:.3f}",
                flush=True,
            )
        return 0
    names = [name.strip() for name in options.against.split(",") if name.strip() != "eager"]
    for name in names:
        if name not in CONTESTANTS:
            parser.error(f"there is no contestant {name!r}: there are {', '.join(CONTESTANTS)}")
    why = why_not_plot(options.plot) if options.plot else None
    if why is not None:
        parser.error(why)
    rows: list[dict[str, Any]] = []
    failed = False
    print(f"{'layers':>6} {'batch':>5}  {'contestant':<22} {'first call':>10} {'a call':>10} {'of eager':>9}")
    if options.read:
        rows = json.loads(options.read.read_text("utf-8"))
        print("\n".join(map(line_of, rows)))
        names = []
    for batch, layers, name in itertools.product(numbers(options.batch), numbers(options.layers), names):
        found = measured_in_own_process(name, layers, batch)
        if found is None:
            failed = True
            print(f"{layers:>6} {batch:>5}  {name:<22} failed", flush=True)
            continue
        rows.append({"layers": layers, "batch": batch, "name": name, **found})
        print(line_of(rows[-1]), flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    if options.plot and rows:
        plot(rows, options.plot)
    return int(failed)


if __name__ == "__main__":
    fallbacks.exit_with(main)
