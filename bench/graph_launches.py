"""What the small programs of `bench.graphs` launch on a GPU, compared with torch.compile; no GPU is needed.

    python -m bench.graph_launches                        all, and the geometric means of the ratios
    python -m bench.graph_launches softmax "rms norm"     those whose names begin with one of these

Each contestant runs in a process of its own on the pretended GPU, as in `bench.launches`. Columns are

    launches        kernels of Triton and of torch
    MB              of each buffer of Triton's kernels, from the address passed to the buffer's end
    instructions    millions that warps execute in Triton's kernels, loops by their counters
    peak MB         memory in use during the call, beyond that in use between two calls
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from . import pretend
from .dynamic_instructions import executed
from .graphs import GRAPHS, TRAINING
from .launches import LIMIT, WARM_CALLS, noting_environment, read
from .record import BURNISH, TORCH_COMPILE

COLUMNS = ("launches", "MB", "instructions", "peak MB")
LEAST = {"launches": 1.0, "MB": 0.01, "instructions": 0.01, "peak MB": 0.01}
"""Smaller values count as this much."""


def note(names: list[str], contestant_name: str, folder: Path) -> None:
    """Write one contestant's launches to the folder; runs in a process with the pretended GPU."""
    from .contestants import contestant_of
    from .workload import Workload

    torch.backends.cuda.enable_cudnn_sdp(False)
    contestant = contestant_of(contestant_name)
    contestant.bring()
    gpu = ctypes.CDLL(None)
    gpu.pretended_live.restype = gpu.pretended_most.restype = ctypes.c_size_t
    for name in names:
        mode = "train" if name.endswith(TRAINING) else "inference"
        path = folder / name.replace(" ", "_")
        try:
            with torch.device("cuda"):
                fn, args = GRAPHS[name]()
            work = Workload(fn, args, {}, mode, "cuda")
            with work.grad_mode():
                side = Sides[mode](contestant, fn, args, {})
                side.device = "cuda"
                side.prepare()
                for _ in range(WARM_CALLS):
                    side.call_and_wait()
                side.forget()
                begun = gpu.pretended_live()
                gpu.pretended_most(1)
                gpu.pretended_note(str(path).encode())
                kept = side.call_and_wait()
                gpu.pretended_note(None)
            path.with_suffix(".peak").write_text(str(gpu.pretended_most(1) - begun))
            side.forget()
            del kept, side, work, fn, args
        except Exception as error:  # the other graphs are still of interest
            path.with_suffix(".failed").write_text(f"{type(error).__name__}: {error}")


class Called:
    """One contestant's program, called without a loss around it: the gradient passed in is all ones."""

    device = "cuda"

    def __init__(self, contestant, fn, args, kwargs):
        self.contestant, self.fn, self.args = contestant, fn, args
        self.leaves = []
        self.ones = None

    def prepare(self) -> None:
        self.compiled = self.contestant.compile(self.fn, self.args, {})

    def forget(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None

    def call_and_wait(self):
        found = self.compiled(*self.args)
        torch.cuda.synchronize()
        return found


class Trained(Called):
    def __init__(self, contestant, fn, args, kwargs):
        super().__init__(contestant, fn, args, kwargs)
        self.leaves = [x.requires_grad_() for x in args if x.is_floating_point()]
        if isinstance(fn, torch.nn.Module):
            self.leaves += fn.parameters()

    def call_and_wait(self):
        self.forget()
        found = self.compiled(*self.args)
        if self.ones is None:
            self.ones = torch.ones_like(found)
        found.backward(self.ones)
        torch.cuda.synchronize()


Sides = {"inference": Called, "train": Trained}


def measured(names: list[str], contestant_name: str) -> dict[str, dict[str, float] | str]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        code = place / "code"
        code.mkdir()
        env = noting_environment(place, code)
        command = [sys.executable, "-m", "bench.graph_launches", *names, "--one", contestant_name, "--notes", folder]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=4 * LIMIT, check=False)
        found: dict[str, dict[str, float] | str] = {}
        for name in names:
            path = place / name.replace(" ", "_")
            if not path.with_suffix(".peak").exists():
                why = path.with_suffix(".failed")
                found[name] = why.read_text() if why.exists() else ran.stderr[-300:]
                continue
            begun = read(path.read_text(), code)
            kernels = begun.kernels.items()
            found[name] = {
                "launches": sum(kernel.calls for _, kernel in kernels) + sum(begun.of_torch.values()),
                "MB": sum(kernel.calls * kernel.bytes for _, kernel in kernels) / 1e6,
                "instructions": sum(
                    kernel.calls * kernel.programs * -(-kernel.threads // 32) * executed(code / f"{key[1]}.cubin")
                    for key, kernel in kernels
                )
                / 1e6,
                "peak MB": int(path.with_suffix(".peak").read_text()) / 1e6,
            }
        return found


def table(found: dict[str, dict[str, dict[str, float] | str]]) -> str:
    """A line for each graph: ours / theirs for each column, and the ratio."""
    lines, ratios = [f"{'':38}" + "".join(f"{column:>28}" for column in COLUMNS)], {column: [] for column in COLUMNS}
    for name in next(iter(found.values())):
        ours, theirs = (found[contestant_name][name] for contestant_name in (BURNISH, TORCH_COMPILE))
        if isinstance(ours, str) or isinstance(theirs, str):
            lines.append(f"{name:38}  burnish: {ours}, torch.compile: {theirs}")
            continue
        line = f"{name:38}"
        for column in COLUMNS:
            ratio = max(ours[column], LEAST[column]) / max(theirs[column], LEAST[column])
            ratios[column].append(ratio)
            line += f"{ours[column]:10.2f} /{theirs[column]:9.2f} {ratio:6.2f}"
        lines.append(line)
    means = (math.exp(sum(map(math.log, ratios[column])) / max(len(ratios[column]), 1)) for column in COLUMNS)
    lines.append(f"{'geometric mean':38}" + "".join(f"{mean:28.2f}" for mean in means))
    lines.append(f"{'worst':38}" + "".join(f"{max(ratios[column], default=0):28.2f}" for column in COLUMNS))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.graph_launches", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--against", type=Path, help="figures of torch.compile, which are written there if missing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--notes", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = [name for name in GRAPHS if not asked.names or any(name.startswith(begin) for begin in asked.names)]
    if asked.one:
        note(asked.names, asked.one, asked.notes)
        pretend.leave()
    if (reason := pretend.why_not()) is not None:
        sys.exit(f"no GPU can be pretended here: {reason}")
    if asked.against and asked.against.exists():
        theirs = json.loads(asked.against.read_text())
    else:
        theirs = measured(names, TORCH_COMPILE)
        if asked.against:
            asked.against.write_text(json.dumps(theirs))
    print(table({BURNISH: measured(names, BURNISH), TORCH_COMPILE: {name: theirs[name] for name in names}}))


if __name__ == "__main__":
    main()
