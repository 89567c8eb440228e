"""From a script that fails to the smallest graph with which compiled code fails in the same way.

    minimize(["train.py", "--epochs", "1"], Path("burnish-repro.py"), print)

The script runs once, with results compared with eager's, and its graphs are kept. The last one that fails by itself is
reduced, and written as a script of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ...errors import UserError
from .judge import CRASHES, DIFFERS, INVALID, PASSES, Judge
from .reduce_graph import smallest
from .straight_line import StraightLine, straight_line
from .write_script import is_ours, write_script

CHECKED = {
    "BURNISH_CHECK": "1",
    "_BURNISH_COMPARE_RESULTS": "1",
    "BURNISH_ON_ERROR": "raise",
    "BURNISH_NEVER_SLOWER": "0",
    "BURNISH_CACHE": "0",
}
"""Under these settings compiled code that is wrong raises."""

LAST_LINES = 10
"""Of the script's output, where that is all there is to show."""


def minimize(command: Sequence[str], output: Path, say: Callable[[str], None]) -> bool:
    """Write the smallest failing graph to `output`, and say how it fails. False if no graph of the script fails by
    itself."""
    for path in (output, output.with_suffix(".pt")):
        if path.exists() and not is_ours(output):
            raise UserError(f"{path} is there already, and `burnish bisect` did not write it. Choose another --output.")
    with tempfile.TemporaryDirectory(prefix="burnish-graphs-") as folder:
        output_of_run = run_recorded(command, Path(folder))
        graphs = [graph for path in sorted(Path(folder).glob("*.pt"), reverse=True) if (graph := load(path, say))]
    judge = Judge({**os.environ, **CHECKED})
    try:
        for graph in graphs:
            verdict = judge.verdict(graph)
            if verdict not in (PASSES, INVALID):
                break
        else:
            last = "\n".join(f"    {line}" for line in output_of_run.splitlines()[-LAST_LINES:])
            say(f"None of the script's {len(graphs)} graphs fails by itself. Its output ends so:\n{last}")
            return False
        how = {DIFFERS: "gives other results than eager", CRASHES: "crashes"}.get(verdict, f"raises {verdict}")
        say(f"A graph of {len(graph.statements)} calls {how}. Making it smaller ...")

        def fails(smaller: StraightLine) -> bool:
            return judge.verdict(smaller) == verdict

        small = smallest(graph, fails)
        beside = write_script(small, fails, output)
    finally:
        judge.close()
    with_data = f", its inputs to {beside}" if beside is not None else ""
    calls = f"{len(small.statements)} call{'s' * (len(small.statements) != 1)}"
    say(f"{calls} left after {judge.tried} tries, written to {output}{with_data}:\n")
    say("\n".join(f"    {line}".rstrip() for line in output.read_text("utf-8").splitlines()))
    return True


def run_recorded(command: Sequence[str], folder: Path) -> str:
    """What the script printed."""
    recorder = [sys.executable, "-m", "burnish.cli.minimize.record_graphs", str(folder), *command]
    run = subprocess.run(
        recorder, env={**os.environ, **CHECKED}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if run.returncode == 0:
        raise UserError(
            "The script ends well when each compiled graph is compared with eager. If it is another result that is "
            "wrong, let the script exit with another status than 0, and run `burnish bisect python script.py`."
        )
    return run.stdout.decode(errors="replace")


def load(path: Path, say: Callable[[str], None]) -> StraightLine | None:
    """A graph that the script has just written; None if it does not run by itself."""
    try:
        return straight_line(**torch.load(path, weights_only=False)).with_written_inputs()
    except Exception as error:
        say(f"A graph is left out, because it does not run by itself: {type(error).__name__}: {error:.200}")
        return None
