"""What a saved program costs before it runs: `python -m bench.load`.

    BERT-base, 438 MB, 7 processes, medians
    load      12.3 ms     burnish.load
    link      23.5 ms     the program for the first call's inputs, ready to run
              35.8 ms     both
    first    176.8 ms     the first call's own run beyond a later one: pages come from the file, weights are packed

Each start is a process of its own that has already imported torch and Burnish. The file is in the system's page cache,
as it is after a download. A first process is not counted: it compiles the modules to bytecode.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import fallbacks

STEADY_CALLS = 25
COLUMNS = {
    "load": "burnish.load",
    "link": "the program for the first call's inputs, ready to run",
    "first": "the first call's own run beyond a later one: pages come from the file, weights are packed",
}


def inputs() -> dict[str, Any]:
    tokens = torch.arange(16).reshape(1, 16)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "return_dict": False}


def save(path: Path) -> None:
    import burnish

    from .models import transformers

    hf = transformers()
    torch.manual_seed(0)
    model = hf.BertModel(hf.BertConfig()).eval()
    with torch.no_grad():
        burnish.save(model, path, (), inputs())


def start(path: Path) -> dict[str, float]:
    """In a new process."""
    import burnish

    given = inputs()
    clock = time.perf_counter
    with torch.no_grad():
        begun = clock()
        loaded = burnish.load(path, trust=True)
        read = clock()
        flat = loaded.matched((), given)[0]
        loaded.native.program(flat, *loaded.native.held.current())
        linked = clock()
        loaded(**given)
        ran = clock()
        calls = []
        for _ in range(STEADY_CALLS):
            before = clock()
            loaded(**given)
            calls.append(clock() - before)
    return {"load": read - begun, "link": linked - read, "first": ran - linked - statistics.median(calls)}


def measure(starts: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder:
        path = Path(folder) / "model.burnish"
        os.environ["BURNISH_CACHE_DIR"] = str(Path(folder) / "cache")  # without timings taken under other load
        save(path)
        environment = os.environ | {"PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        print(f"BERT-base, {path.stat().st_size / 1e6:.0f} MB, {starts} processes, medians")
        made = []
        for _ in range(1 + starts):
            done = subprocess.run(
                [sys.executable, "-m", "bench.load", "--start", str(path)],
                env=environment,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            made.append(json.loads(done.stdout))
        return made[1:]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="What a saved program costs.")
    parser.add_argument("--starts", metavar="N", type=int, default=7, help="processes (default: 7)")
    parser.add_argument("--start", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.start:
        print(json.dumps(start(options.start)))
        return 0
    found = measure(options.starts)
    middle = {name: statistics.median(each[name] for each in found) * 1e3 for name in COLUMNS}
    for name in ("load", "link"):
        print(f"{name:6}{middle[name]:8.1f} ms     {COLUMNS[name]}")
    print(f"{'':6}{statistics.median(each['load'] + each['link'] for each in found) * 1e3:8.1f} ms     both")
    print(f"{'first':6}{middle['first']:8.1f} ms     {COLUMNS['first']}")
    return 0


if __name__ == "__main__":
    fallbacks.exit_with(main, sys.argv[1:])
