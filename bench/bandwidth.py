"""How close fused kernels come to memory bandwidth: their bytes over their time, compared with a copy.

    python -m bench.bandwidth --device cuda                      2**28 elements, f32 and bf16
    python -m bench.bandwidth --elements 4194304 --dtype f32     on a CPU

A program that is one kernel reads its inputs once and writes its result once; one that moves more has intermediates
that go through memory. A copy of as many elements is timed in the same rounds. Burnish's own kernels run even where
eager is faster. A result that differs from eager's is reported, and its speed is not shown.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import burnish
from burnish.settings import patch

from . import fallbacks
from .clocks import WallClock, clock_for, wait
from .command import device, dtype
from .machine import describe
from .operators import Watched
from .record import finite
from .steady import take_turns
from .table import Table, as_text, times

ELEMENTS, WIDTH = 2**28, 4096
ROUNDS, SECONDS = 5, 0.05
WARM_CALLS = 3
ROUNDINGS = {torch.float32: 64}
"""How many rounding units of the largest number a result may be off by where `FEW` is too strict: long sums."""
FEW = 4
COPY = "copy_"


@dataclass(frozen=True)
class Program:
    name: str
    fn: Callable[..., torch.Tensor]
    inputs: int = 1


def chain(x):
    return torch.sigmoid(torch.relu(x) * 2.0 + 1.0) - x * 0.5


def add_relu_mul(x, y):
    return torch.relu(x + y) * y


PROGRAMS = (
    Program("pointwise chain", chain),
    Program("add, relu, mul", add_relu_mul, inputs=2),
    Program("softmax", lambda x: torch.softmax(x, -1)),
    Program("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:])),
    Program("sum of rows", lambda x: x.sum(1)),
    Program("sum of columns", lambda x: x.sum(0)),
)


@dataclass
class Found:
    program: str
    dtype: str
    bytes: int
    copy: float
    """Bytes per second of a copy, read and written."""
    seconds: dict[str, float]
    way: str
    """How Burnish ran it: see `bench.operators.WAYS`."""
    wrong: str | None = None

    def share(self, name: str) -> float:
        """The share of the copy's bandwidth."""
        return self.bytes / self.seconds[name] / self.copy


def measure(
    program: Program, elements: int, kind: torch.dtype, where: str, clock: WallClock, with_torch: bool = False
) -> Found:
    shape = elements // WIDTH, WIDTH
    made = torch.Generator(where).manual_seed(0)
    inputs = [torch.randn(shape, generator=made, dtype=kind, device=where) for _ in range(program.inputs)]
    copied = torch.empty_like(inputs[0])
    burnish.reset()
    with torch.no_grad(), patch(never_slower=False, cache=False):
        calls = {"eager": program.fn, "burnish": burnish.compile(program.fn)}
        if with_torch:
            torch.compiler.reset()
            calls["torch.compile"] = torch.compile(program.fn, mode="max-autotune-no-cudagraphs")
        with Watched() as watched:
            got = calls["burnish"](*inputs)
        want = program.fn(*inputs)
        wrong = why_far(want, got)
        moved = kind.itemsize * (elements * program.inputs + want.numel())
        del want, got
        timed: dict[str, Callable[[], Any]] = {COPY: lambda: copied.copy_(inputs[0])}
        timed.update({name: lambda call=call: call(*inputs) for name, call in calls.items()})
        for call in timed.values():
            for _ in range(WARM_CALLS):
                call()
        wait(where)
        blocks = take_turns(timed, ROUNDS, SECONDS, clock=clock)
    seconds = {name: statistics.median(found) for name, found in blocks.items()}
    return Found(
        program.name,
        str(kind).removeprefix("torch."),
        moved,
        2 * kind.itemsize * elements / seconds[COPY],
        seconds,
        watched.way,
        wrong,
    )


def why_far(want: torch.Tensor, got: torch.Tensor) -> str | None:
    """Why a result is wrong: the speed of a wrong kernel means nothing. Long sums may round differently."""
    largest = want.abs().max().item()
    precision = torch.finfo(want.dtype).eps
    off = (want - got).abs().max().item() if want.shape == got.shape else float("inf")
    if off <= ROUNDINGS.get(want.dtype, FEW) * precision * largest:
        return None
    return f"off by {off:.3g} where the largest number is {largest:.3g}"


def report(found: Sequence[Found]) -> str:
    names = [name for name in found[0].seconds if name != COPY]
    table = Table("Bytes over time, as a share of a copy's", ["program", "dtype", "copy", "burnish", "in", *names])
    for each in found:
        cells = ["wrong" if each.wrong and name == "burnish" else f"{each.share(name):.0%}" for name in names]
        table.rows.append(
            [
                each.program,
                each.dtype,
                f"{each.copy / 1e9:.0f} GB/s",
                f"{each.bytes / each.seconds['burnish'] / 1e9:.0f} GB/s",
                each.way,
                *cells,
            ]
        )
    least = min((each.share("burnish") for each in found if not each.wrong), default=None)
    notes = [f"! {each.program} {each.dtype}: {each.wrong}" for each in found if each.wrong]
    return "\n".join([as_text(table), f"the least of Burnish's: {times(least)} a copy", *notes])


def whole_rows(text: str) -> int:
    elements = int(text)
    if elements < WIDTH or elements % WIDTH:
        raise argparse.ArgumentTypeError(f"{elements} elements make no rows of {WIDTH}")
    return elements


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.bandwidth", description=__doc__.splitlines()[0])
    made.add_argument("--device", default="cpu", type=device)
    made.add_argument("--dtype", default="f32,bf16", help="with commas between (default: f32,bf16)")
    made.add_argument("--elements", type=whole_rows, default=ELEMENTS, help=f"a multiple of {WIDTH} (default: 2**28)")
    made.add_argument("--torch-compile", action="store_true", help="beside eager and Burnish, by max-autotune")
    made.add_argument("--json", type=Path)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    kinds = [getattr(torch, dtype(name)) for name in options.dtype.split(",")]
    clock, machine = clock_for(options.device), describe()
    found: list[Found] = []
    failed = 0
    for kind in kinds:
        for program in PROGRAMS:
            try:
                found.append(measure(program, options.elements, kind, options.device, clock, options.torch_compile))
            except Exception as error:
                failed += 1
                print(f"! {program.name} {kind}: {type(error).__name__}: {error}", file=sys.stderr)
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                data = {
                    "machine": machine,
                    "clock": clock.name,
                    "elements": options.elements,
                    "found": [{**dataclasses.asdict(each), "share": each.share("burnish")} for each in found],
                }
                options.json.write_text(json.dumps(finite(data), indent=1) + "\n")
    if found:
        print(report(found))
    return int(failed > 0 or any(each.wrong for each in found))


if __name__ == "__main__":
    fallbacks.exit_with(main)
