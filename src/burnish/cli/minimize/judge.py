"""A process that tries graphs: does compiled code fail with this one?

    Judge().verdict(graph)        "passes", "differs", "InternalError", ..., "crashes", or "invalid" if eager raises too
    Judge(least=0.0)              also "slower": compiled code takes that many seconds more than eager, and 10 % more

The process stays, so that a graph costs milliseconds; one that dies is started again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from .straight_line import StraightLine, copied

CRASHES, INVALID, PASSES, DIFFERS, SLOWER = "crashes", "invalid", "passes", "differs", "slower"
SECONDS = 300
"""After which a graph that does not end counts as one that crashes."""


TURNS, MORE = 20, 0.1
"""How often compiled code and eager are timed in turns, and what share of eager's time counts as slower."""


class Judge:
    def __init__(self, environment: Mapping[str, str], least: float | None = None):
        self.least = least
        """Seconds that a slower graph has to lose. None: any speed passes."""
        self.lost = 0.0
        self.environment = {**environment, "_BURNISH_COMPARE_RESULTS": "1", "BURNISH_CACHE": "0"}
        self.folder = Path(tempfile.mkdtemp(prefix="burnish-judge-"))
        self.process: subprocess.Popen[str] | None = None
        self.tried = 0

    def verdict(self, graph: StraightLine) -> str:
        self.tried += 1
        path = self.folder / "graph.pt"
        torch.save({name: getattr(graph, name) for name in StraightLine.__slots__}, path)
        process = self.process
        if process is None or process.poll() is not None:
            command = [sys.executable, "-m", __name__]
            process = self.process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(SECONDS, process.kill)
        limit.start()
        try:
            process.stdin.write(f"{path}\t{'' if self.least is None else self.least}\n")
            process.stdin.flush()
            verdict, _, lost = process.stdout.readline().strip().partition("\t")
            self.lost = float(lost or 0)
        except BrokenPipeError:
            verdict = ""
        finally:
            limit.cancel()
        if not verdict:  # wait: a process that is about to end must not get the next graph
            process.kill()
            process.wait()
        return verdict or CRASHES

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- in the process


def main() -> None:
    """Judge the graphs whose files are named on standard input."""
    verdicts = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compiled programs print is not a verdict
    for line in sys.stdin:
        path, _, least = line.strip("\n").partition("\t")
        graph = StraightLine(**torch.load(path, weights_only=False))
        print(judged(graph, float(least) if least else None), file=verdicts, flush=True)


def judged(graph: StraightLine, least: float | None = None) -> str:
    import burnish

    scope: dict[str, Any] = {"state": graph.module()}
    exec(graph.source(), scope)
    function, state = scope["f"], [*scope["state"].buffers()]
    try:
        wanted = run(graph, function, state)
        draws = not same(run(graph, function, state, seed=1), wanted)  # random numbers, which compiled code may choose
    except Exception:
        return INVALID
    burnish.reset()
    with burnish.settings.patch(check=True, on_error="raise", never_slower=False):
        try:
            compiled = burnish.compile(function)
            for _ in range(3):  # the second call uses what the first has computed once
                made = run(graph, compiled, state)
        except burnish.InternalError as error:
            return DIFFERS if error.stage == "check" else type(error.__cause__ or error).__name__
        except Exception as error:
            return type(error).__name__
        if not draws and not same(made, wanted):
            return DIFFERS
        if least is not None:
            lost, eager = seconds_lost(graph, function, compiled, state)
            if lost > max(least, MORE * eager):
                return f"{SLOWER}\t{lost}"
    return PASSES


def seconds_lost(
    graph: StraightLine, function: Any, compiled: Any, state: Sequence[torch.Tensor]
) -> tuple[float, float]:
    """How much more time a call of compiled code takes than one of eager, and eager's: the fastest of each. What both
    do beside, as copying the arguments, cancels out."""
    fastest = [float("inf")] * 2
    for _ in range(TURNS):
        for k, each in enumerate((compiled, function)):
            start = perf_counter()
            run(graph, each, state)
            fastest[k] = min(fastest[k], perf_counter() - start)
    return fastest[0] - fastest[1], fastest[1]


def run(graph: StraightLine, function: Any, state: Sequence[torch.Tensor], seed: int = 0) -> list[Any]:
    """The results, the arguments as the function leaves them, and gradients."""
    torch.manual_seed(seed)
    given = [*copied(graph.arguments()).values()]
    leaves = [x for x in (*given, *state) if isinstance(x, torch.Tensor) and x.requires_grad]
    with torch.set_grad_enabled(graph.grad):
        results = function(*given)
    flowing = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if flowing and leaves:
        torch.manual_seed(1)
        weights = [torch.randn_like(x) for x in flowing]
        return [*results, *given, *torch.autograd.grad(flowing, leaves, weights, allow_unused=True)]
    return [*results, *given]


def same(made: list[Any], wanted: list[Any]) -> bool:
    """Roughly: the setting `check` compares exactly, also with float64."""
    from ...compiler.compare_with_eager import why_different

    return len(made) == len(wanted) and all(
        why_different(got.detach(), want.detach()) is None
        for got, want in zip(made, wanted, strict=True)
        if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor)
    )


if __name__ == "__main__":
    main()
