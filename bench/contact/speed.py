"""Figures: ceilings of the machine, bandwidth of kernels, first calls and steady times of models."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional as F

import burnish

from .. import bandwidth, caches
from ..clocks import clock_for, wait
from ..record import BURNISH, EAGER, TORCH_COMPILE
from ..steady import take_turns, warm_up
from .place import Place

WITHOUT_WAITING = 20
"""Calls between two events: a busy GPU hides the cost of launching."""
GRAPHS = ":reduce-overhead"


def versions(place: Place) -> None:
    import triton

    place.figure(
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton.__version__,
        cores=len(os.sched_getaffinity(0)),
        cuda=torch.version.cuda,
        gpu=torch.cuda.get_device_name(0),
        capability=str(torch.cuda.get_device_capability(0)),
        processors=torch.cuda.get_device_properties(0).multi_processor_count,
        memory_gb=torch.cuda.get_device_properties(0).total_memory / 2**30,
        tools=" ".join(filter(shutil.which, ("compute-sanitizer", "ncu", "nvdisasm", "nvidia-smi"))),
    )
    begun = perf_counter()
    torch.ones(3, device="cuda").sum().item()
    place.figure(first_use_s=perf_counter() - begun)
    if not place.is_rehearsal and shutil.which("nvidia-smi"):
        asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem,power.limit", "--format=csv,noheader"]
        place.figure(
            driver=subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
        )
    from burnish.runtime.linking.cuda_module_loader import why_not

    assert why_not() is None, why_not()


def rate(place: Place, call: Callable[[], Any], amount: float, calls: int = WITHOUT_WAITING) -> float:
    """Amount per second, for calls that follow each other without a wait: the best of three."""
    for _ in range(3):
        call()
    clock, seconds = clock_for(place.device), []
    for _ in range(3):
        clock.start()
        for _ in range(calls):
            call()
        seconds.append(clock.stop() / calls)
    return amount / max(min(seconds), 1e-9)


def ceilings(place: Place) -> None:
    """A copy's bytes, read and written, and the operations of a product of random numbers."""
    for dtype in (torch.float32, torch.bfloat16):
        x = place.randn(place.size(1 << 28, 1000), dtype=dtype)
        y = torch.empty_like(x)
        found = rate(place, lambda x=x, y=y: y.copy_(x), 2 * x.numel() * x.element_size())
        place.figure(**{f"copy {dtype} GB/s": found / 1e9})
    del x, y
    n = place.size(8192, 32)
    for dtype, precision in ((torch.bfloat16, "highest"), (torch.float32, "high")):
        torch.set_float32_matmul_precision(precision)
        a, b = place.randn(n, n, dtype=dtype), place.randn(n, n, dtype=dtype)
        place.figure(**{f"product {dtype} TFLOP/s": rate(place, lambda a=a, b=b: a @ b, 2 * n**3, 10) / 1e12})


def launching(place: Place) -> None:
    """The CPU time of a call, and the time of one kernel from begin to end."""
    x = place.randn(1000)
    for name, mode in (("default", None), ("graph", "reduce-overhead")):
        run = burnish.compile(lambda x: x.sin() * 2, mode=mode, fullgraph=True)
        with torch.no_grad():
            for _ in range(10):
                run(x)
            place.wait()
            begun = perf_counter()
            for _ in range(200):
                run(x)
            returned = perf_counter() - begun
            place.wait()
            place.figure(**{f"{name} returns us": returned * 5e3, f"{name} done us": (perf_counter() - begun) * 5e3})


# ---- bandwidth


def cross_entropy_backward(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(F.cross_entropy(x, labels), x)[0]


def kernel_bandwidth(place: Place, dtype: torch.dtype) -> None:
    """Fused kernels as a share of `copy_`'s bytes a second."""
    rows, width = place.size(1 << 16, 8), place.size(4096, 64)
    x = place.randn(rows, width, dtype=dtype)
    y = torch.empty_like(x)
    size = x.numel() * x.element_size()
    copied = rate(place, lambda: y.copy_(x), 2 * size)
    place.figure(**{"copy_ GB/s": copied / 1e9})
    table: dict[str, tuple[Callable[..., Any], float]] = {
        each.name: (each.fn, (each.inputs + 1) * size) for each in bandwidth.PROGRAMS if "sum" not in each.name
    }
    table |= {
        "sum of rows": (lambda x: x.sum(1), size),
        "sum of columns": (lambda x: x.sum(0), size),
        "transpose": (lambda x: (x * 2).t().contiguous(), 2 * size),
        "mixed layouts": (lambda x, y: x.sin() + y.view(width, rows).t(), 3 * size),
        "running sum": (lambda x: x.cumsum(1), 2 * size),
        "dropout": (lambda x: F.dropout(x, 0.1) + x, 2 * size),
        "argmax": (lambda x: x.argmax(1), size),
    }
    with torch.no_grad():
        for name, (fn, moved) in table.items():
            inputs = [x, y][: fn.__code__.co_argcount]
            run = burnish.compile(fn, fullgraph=True)
            run(*inputs)
            share = rate(place, functools.partial(run, *inputs), moved) / copied
            place.figure(
                **{name: f"{share:.2f} (eager {rate(place, functools.partial(fn, *inputs), moved) / copied:.2f})"}
            )


def training_bandwidth(place: Place) -> None:
    """Forward and backward of losses and norms: milliseconds, peak memory, and eager's."""
    tokens, words, width = place.size(4096, 8), place.size(50_257, 9001), place.size(4096, 64)
    logits = place.randn(tokens, words, dtype=torch.bfloat16).requires_grad_()
    labels = place.randint(words, tokens)
    x = place.randn(place.size(1 << 14, 8), width, dtype=torch.bfloat16).requires_grad_()
    w = place.randn(width, dtype=torch.bfloat16).requires_grad_()
    table = {
        "cross entropy": (
            lambda: F.cross_entropy(logits, labels),
            lambda r: lambda: r(logits, labels),
            F.cross_entropy,
        ),
        "layer norm": (None, lambda r: lambda: r(x, w), lambda x, w: F.layer_norm(x, w.shape, w)),
        "rms norm": (None, lambda r: lambda: r(x, w), lambda x, w: F.rms_norm(x, w.shape, w)),
    }
    for name, (_, bound, fn) in table.items():
        for label, call in (("eager", bound(fn)), ("burnish", bound(burnish.compile(fn, fullgraph=True)))):

            def step(call=call):
                for leaf in (logits, x, w):
                    leaf.grad = None
                call().sum().backward()

            seconds = 1 / rate(place, step, 1.0, 10)
            torch.cuda.reset_peak_memory_stats()
            step()
            place.wait()
            place.figure(**{f"{name}, {label} ms": 1e3 * seconds})
            place.figure(**{f"{name}, {label} peak MB": torch.cuda.max_memory_allocated() / 1e6})


# ---- models


def model_times(
    place: Place, model: str, mode: str = "inference", dtype: str | None = None, times: int | None = None
) -> None:
    """First calls, then steady times in turns: eager, Burnish, torch.compile, each also with CUDA graphs."""
    from ..contestants import contestant_of
    from ..workload import Workload

    work = Workload.of("mlp" if place.is_rehearsal else model, mode, device=place.device, dtype=dtype, times=times)
    rivals = [] if place.is_rehearsal else [TORCH_COMPILE, TORCH_COMPILE + GRAPHS]
    with work.grad_mode(), tempfile.TemporaryDirectory() as folder:
        eager = work.side(contestant_of(EAGER))
        for _ in range(2):  # libraries choose their kernels, and the allocator gets its memory
            eager.call_and_wait()
        sides = {EAGER: eager}
        for stage in ([BURNISH, BURNISH + GRAPHS], *([rival] for rival in rivals)):
            for contestant_name in stage:
                os.environ.update(caches.variables(Path(folder) / contestant_name))
                contestant = contestant_of(contestant_name)
                contestant.bring()
                side = work.side(contestant)
                side.prepare()
                begun = perf_counter()
                side.begin()
                place.figure(**{f"{contestant_name} first s": perf_counter() - begun})
                sides[contestant_name] = side
                warm_up(side.call_and_wait, least=4)
                if mode != "inference":
                    torch.cuda.reset_peak_memory_stats()
                    side.call_and_wait()
                    place.figure(**{f"{contestant_name} peak MB": torch.cuda.max_memory_allocated() / 1e6})
            steady(place, {name: side.call for name, side in sides.items()})


def steady(place: Place, calls: dict[str, Callable[[], Any]]) -> None:
    """Write steady times after each contestant that joins: the last one may take too long."""
    rounds, seconds = (2, 0.005) if place.is_rehearsal else (6, 0.08)
    blocks = take_turns(calls, rounds, seconds, clock=clock_for(place.device))
    found = {f"{contestant_name} ms": 1e3 * statistics.median(times) for contestant_name, times in blocks.items()}
    for contestant_name, call in calls.items():
        wait(place.device)
        least = float("inf")
        for _ in range(5):
            begun = perf_counter()
            call()
            least = min(least, perf_counter() - begun)
            wait(place.device)
        found[f"{contestant_name} returns ms"] = 1e3 * least
    place.figure(**found)
