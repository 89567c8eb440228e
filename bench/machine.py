"""The machine that a benchmark ran on, and what other processes used of it meanwhile.

describe()["cpu"]                          "AMD EPYC 9755 128-Core Processor"
load = ForeignLoad(process.pid)
...
load.share()                               0.02: other processes took a fiftieth of all cores since then
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PACKAGES = "burnish torch llvmlite numpy onnx onnxruntime openvino torchvision timm transformers triton".split()
PREFIXES = (
    "BURNISH_",
    "TORCH",
    "PYTORCH_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "ONEDNN_",
    "DNNL_",
    "ATEN_",
    "MALLOC_",
    "LD_PRELOAD",
)
BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, both kinds of interrupts, and the time stolen by the hypervisor."""


def describe() -> dict[str, Any]:
    import torch

    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "torch_threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": dict(versions(PACKAGES)),
        "commit": commit(),
        "environment": {name: text for name, text in sorted(os.environ.items()) if name.startswith(PREFIXES)},
        "load_at_start": os.getloadavg()[0],
        "gpu": gpu_name(),
    }


def gpu_name() -> str | None:
    """The name of the first GPU; None if there is none."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, text = line.partition(":")
            if name.strip() == "model name":
                return text.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def commit() -> str | None:
    """The commit of the checkout, with a plus if files differ from it."""

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()

    try:
        return ask("rev-parse", "--short=12", "HEAD") + "+" * bool(ask("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None


class ForeignLoad:
    """What others used of the machine since this was created. One process and all its descendants are ours."""

    def __init__(self, pid: int):
        self.pid = pid
        self.began = self.read()

    def share(self) -> float | None:
        """The share of all cores together; None if the system does not report it."""
        now = self.read()
        if now is None or self.began is None:
            return None
        wall, busy, own = (b - a for a, b in zip(self.began, now, strict=True))
        cores = os.cpu_count() or 1
        return min(1.0, max(0.0, (busy - own) / (wall * cores))) if wall > 0 else None

    def read(self) -> tuple[float, float, float] | None:
        tick = os.sysconf("SC_CLK_TCK")
        try:
            columns = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
        except OSError:
            return None
        busy = sum(int(columns[column]) for column in BUSY)
        return time.monotonic(), busy / tick, ticks_of_family(self.pid) / tick


def ticks_of_family(root: int) -> int:
    """CPU time of a process and its living descendants, each including that of its ended children."""
    parents, ticks = {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                text = (place / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has just ended
            # Its name is in parentheses and may contain anything, including more parentheses.
            fields = text.rpartition(")")[2].split()
            parents[int(place.name)] = int(fields[1])
            ticks[int(place.name)] = sum(map(int, fields[11:15]))
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(pid, 0) for pid in family)
