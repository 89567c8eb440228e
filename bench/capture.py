"""What capture costs and how much of a model it gets into one graph.

    python -m bench.capture                  all models of bench.models
    python -m bench.capture --only bert,lstm

For each model, under no_grad: eager's time, the first compiled call, its share of capture (first call minus eager),
breaks, graphs and operations, and whether three later calls on new data equal eager. Where the tracer reports it and
there was no break, also the time per bytecode instruction: of tracing, and of the whole first call. Both exclude
torch's own calls, which tracing makes too, and are the fastest of several captures: a single one mostly measures the
other load of the machine. The backend runs graphs as they are: no time is spent on generating code.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("BURNISH_ON_ERROR", "raise")

import torch

import burnish

from .compare import why_different
from .models import MODELS
from .observe import GraphCounter, Observed

CALLS = 7
CAPTURES = 5
HEADINGS = (
    "model",
    "eager",
    "first call",
    "capture",
    "breaks",
    "graphs",
    "operations",
    "tracing/instr.",
    "all/instr.",
    "replay",
)


@dataclass
class Row:
    name: str
    eager: float
    first: float
    breaks: int | None
    graphs: int
    operations: int
    traced: float | None  # µs an instruction
    captured: float | None
    wrong: str | None
    codes: Counter[str]

    def cells(self) -> tuple[str, ...]:
        return (
            self.name,
            milliseconds(self.eager),
            milliseconds(self.first),
            milliseconds(self.first - self.eager),
            known(self.breaks),
            str(self.graphs),
            str(self.operations),
            known(self.traced, "{:.2f} µs"),
            known(self.captured, "{:.2f} µs"),
            "equal" if self.wrong is None else self.wrong,
        )


def measure(name: str) -> Row:
    burnish.reset()
    module, args, kwargs = MODELS[name]()
    backend = GraphCounter()
    with torch.no_grad():
        eager_runs = [timed(module, args, kwargs)[0] for _ in range(CALLS)]
        want = module(*args, **kwargs)
        with Observed() as seen:
            first, got = timed(burnish_of(module, backend), args, kwargs)
        wrong = why_different(want, got)
        wrong = f"first call: {wrong}" if wrong else wrong_replays(module, args, kwargs)
        traced, captured = (None, None) if seen.breaks else per_instruction(module, args, kwargs)
    return Row(
        name,
        statistics.median(eager_runs),
        first,
        len(seen.breaks) if seen.listening else None,
        len(backend.graphs),
        sum(operations(graph) for graph in backend.graphs),
        traced,
        captured,
        wrong,
        Counter(seen.break_codes),
    )


def per_instruction(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Microseconds per instruction of tracing, and of the whole first call: each the minimum of several."""
    captures = []
    for _ in range(CAPTURES):
        burnish.reset()
        with Observed() as seen:
            first, _ = timed(burnish_of(module, "eager"), args, kwargs)
        if not seen.instructions:
            return None, None
        captures.append((seen, first))
    return (
        min(seen.microseconds_per_instruction() for seen, _ in captures),
        min((first - seen.torch_seconds) / seen.instructions * 1e6 for seen, first in captures),
    )


def burnish_of(module: Any, backend: Any) -> Callable:
    return burnish.compile(module, backend=backend)


def wrong_replays(module: Any, args: tuple, kwargs: dict[str, Any]) -> str | None:
    """The first of three replays, each on different data, that does not equal eager."""
    compiled = burnish_of(module, "eager")
    compiled(*args, **kwargs)
    for call in range(3):
        args, kwargs = other_data(args), dict(zip(kwargs, other_data(tuple(kwargs.values())), strict=True))
        want = module(*args, **kwargs)
        wrong = why_different(want, compiled(*args, **kwargs))
        if wrong:
            return f"replay {call + 1}: {wrong}"
    return None


def other_data(values: tuple) -> tuple:
    """Tensors of the same metadata, flipped along every dimension, and floats scaled."""

    def other(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        flipped = value.flip(tuple(range(value.dim())))
        return flipped * 0.5 if value.is_floating_point() else flipped

    return tuple(map(other, values))


def operations(graph: Any) -> int:
    return sum(node.op.startswith("call") for node in graph.graph.nodes)


def timed(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = fn(*args, **kwargs)
    return time.perf_counter() - start, result


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def known(value: Any, form: str = "{}") -> str:
    return "–" if value is None else form.format(value)


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, len(row) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of models, with commas between")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads; capture itself uses one")
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    rows = []
    # The first capture of a process pays for imports and tables, so no model is charged for it.
    burnish.compile(lambda x: torch.sin(x), backend="eager")(torch.ones(2))
    for name in settings.only.split(",") if settings.only else MODELS:
        rows.append(measure(name))
        if sys.stderr.isatty():
            print(f"\r{len(rows)} {name:20}", end="", file=sys.stderr)
    print(table([HEADINGS, *(row.cells() for row in rows)]))
    for row in rows:
        if row.codes:
            print(f"{row.name}: " + ", ".join(f"{code} ×{count}" for code, count in row.codes.most_common()))
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
