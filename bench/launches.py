"""What one call of a model launches on a GPU, and how much memory the kernels access; no GPU is needed.

    python -m bench.launches bert_512 --train --dtype bf16
    python -m bench.launches resnet50 --train --against burnish --top 20

Each contestant runs in a process of its own on a pretended GPU (`bench.pretend`), where kernels do nothing but are
recorded: Triton's with their code and the memory passed to them, torch's by name, and library calls. The columns for
Triton's kernels are

    programs and threads    few programs leave most of a GPU idle
    bytes                   of each buffer, from the address passed to its end; too many for a part of a larger buffer
    at least                the time for these bytes at 3 TB/s, or for the instructions at an H100's issue rate,
                            whichever is longer; a loop's instructions are counted once

These are not speeds: they show where to look, and whether one contestant demands more of a GPU than another.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import caches, pretend
from .command import dtype
from .dynamic_instructions import disassembly
from .record import BURNISH, TORCH_COMPILE

BYTES_A_SECOND = 3e12
WARPS_A_SECOND = 132 * 4 * 1.6e9
"""Instructions per second that an H100 issues, each for a warp."""
WARM_CALLS = 4
LIMIT = 900


@dataclass
class Kernel:
    name: str
    programs: int
    threads: int
    bytes: int
    instructions: int
    calls: int = 0

    @property
    def seconds(self) -> float:
        started = self.programs * -(-self.threads // 32) * self.instructions
        return max(self.bytes / BYTES_A_SECOND, started / WARPS_A_SECOND)


@dataclass
class Started:
    """What one call launched."""

    kernels: dict[tuple, Kernel] = field(default_factory=dict)
    of_torch: Counter[str] = field(default_factory=Counter)
    of_libraries: Counter[str] = field(default_factory=Counter)


def note(model: str, mode: str, contestant_name: str, dtype: str, notes: Path) -> None:
    """Record one contestant's launches; runs in a process with the pretended GPU."""
    from .contestants import contestant_of
    from .workload import Workload

    torch.backends.cuda.enable_cudnn_sdp(False)  # its plans are not part of the pretended GPU
    work = Workload.of(model, mode, device="cuda", dtype=dtype)
    with work.grad_mode():
        contestant = contestant_of(contestant_name)
        contestant.bring()
        side = work.side(contestant, alone=True)
        side.prepare()
        side.begin()
        for _ in range(WARM_CALLS):
            side.call_and_wait()
        gpu = ctypes.CDLL(None)
        gpu.pretended_note(str(notes).encode())
        side.call_and_wait()
        gpu.pretended_note(None)


def noting_environment(place: Path, code: Path) -> dict[str, str]:
    """The environment of a process that records its launches, with empty caches below `place`. Each tensor has its own
    allocation, so its address identifies its size."""
    return {
        **os.environ,
        **pretend.surroundings(),
        **caches.variables(place),
        "PRETEND_CODE": str(code),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "BURNISH_NEVER_SLOWER": "0",
    }


def launches_of(model: str, mode: str, contestant_name: str, dtype: str) -> Started | str:
    """What one call launches, or why that is unknown."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        code = place / "code"
        code.mkdir()
        env = noting_environment(place, code)
        command = [
            sys.executable,
            "-m",
            "bench.launches",
            model,
            "--mode",
            mode,
            "--dtype",
            dtype,
            "--one",
            contestant_name,
            "--notes",
            str(place / "notes"),
        ]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        if ran.returncode != 0:
            return next(
                (line for line in reversed(ran.stderr.splitlines()) if "Error" in line), f"ended with {ran.returncode}"
            )
        return read((place / "notes").read_text(), code)


def read(notes: str, code: Path) -> Started:
    found = Started()
    for line in notes.splitlines():
        kind, name, *rest = line.split()
        if kind == "library":
            found.of_libraries[name] += 1
        elif kind == "eager":
            found.of_torch[name] += 1
        else:
            module, programs, threads, _, *sizes = map(int, rest)
            key = (name, module, programs, threads, tuple(sizes))
            if key not in found.kernels:
                length = instructions(code / f"{module}.cubin")
                found.kernels[key] = Kernel(name, programs, threads, sum(sizes), length)
            found.kernels[key].calls += 1
    return found


@functools.cache
def instructions(cubin: Path) -> int:
    """The number of instructions up to the last exit; only padding follows."""
    found = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(.*?);", disassembly(cubin), re.MULTILINE)
    return max((k + 1 for k, line in enumerate(found) if "EXIT" in line), default=len(found))


def summary_of(contestant_name: str, found: Started, top: int) -> str:
    kernels = sorted(found.kernels.values(), key=lambda kernel: -kernel.calls * kernel.seconds)
    lines = [
        f"{kernel.calls:5} x {kernel.name[:48]:48} {kernel.programs:7} programs of {kernel.threads:4} "
        f"{kernel.bytes / 1e6:9.2f} MB, at least {1e6 * kernel.seconds:6.1f} us"
        for kernel in kernels[:top]
    ]
    count = sum(kernel.calls for kernel in kernels)
    whole = sum(kernel.calls * kernel.seconds for kernel in kernels)
    moved = sum(kernel.calls * kernel.bytes for kernel in kernels)
    lines.append(
        f"{contestant_name}: {count} kernels over {moved / 1e6:.0f} MB, at least {1e6 * whole:.0f} us; "
        f"{sum(found.of_torch.values())} of torch's own, {sum(found.of_libraries.values())} library calls"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.launches", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--mode", default="inference", choices=["inference", "train", "train-step"])
    parser.add_argument("--train", dest="mode", action="store_const", const="train")
    parser.add_argument("--dtype", type=dtype, default="float32")
    parser.add_argument("--against", default=f"{TORCH_COMPILE},{BURNISH}", help="the contestants")
    parser.add_argument("--top", type=int, default=0, help="so many kernels are listed, the largest first")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--notes", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        note(asked.models[0], asked.mode, asked.one, asked.dtype, asked.notes)
        pretend.leave()
    if (reason := pretend.why_not()) is not None:
        sys.exit(f"no GPU can be pretended here: {reason}")
    for model in asked.models:
        print(f"{model}, {asked.mode}, {asked.dtype}")
        for contestant_name in asked.against.split(","):
            found = launches_of(model, asked.mode, contestant_name, asked.dtype)
            print(
                f"{contestant_name}: {found}"
                if isinstance(found, str)
                else summary_of(contestant_name, found, asked.top),
                flush=True,
            )


if __name__ == "__main__":
    main()
