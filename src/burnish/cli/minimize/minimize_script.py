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
from .judge import CRASHES, DIFFERS, INVALID, PASSES, SLOWER, Judge
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


def minimize(command: Sequence[str], output: Path, say: Callable[[str], None], slower: bool = False) -> bool:
    """Write the smallest failing graph to `output`, and say how it fails. False if no graph of the script fails by
    itself. `slower`: graphs with which compiled code is slower than eager fail as well."""
    refuse_files_of_others(output)
    with tempfile.TemporaryDirectory(prefix="burnish-graphs-") as folder:
        output_of_run = run_recorded(command, Path(folder), may_end_well=slower)
        graphs = [graph for path in sorted(Path(folder).glob("*.pt"), reverse=True) if (graph := load(path, say))]
    if minimize_graphs(graphs, output, say, slower):
        return True
    last = "\n".join(f"    {line}" for line in output_of_run.splitlines()[-LAST_LINES:])
    how = "is slower than eager, or fails, by itself" if slower else "fails by itself"
    say(f"None of the script's {len(graphs)} graphs {how}." + f" Its output ends so:\n{last}" * bool(last))
    return False


def refuse_files_of_others(output: Path) -> None:
    for path in (output, output.with_suffix(".pt")):
        if path.exists() and not is_ours(output):
            raise UserError(f"{path} is there already, and `burnish bisect` did not write it. Choose another --output.")


def minimize_graphs(
    graphs: Sequence[StraightLine], output: Path, say: Callable[[str], None], slower: bool = False
) -> bool:
    """The first graph that fails counts; of slower ones, the one that loses most."""
    judge = Judge({**os.environ, **CHECKED}, 0.0 if slower else None)
    try:
        found: list[tuple[float, str, StraightLine]] = []
        for graph in graphs:
            verdict = judge.verdict(graph)
            if verdict not in (PASSES, INVALID):
                found.append((judge.lost, verdict, graph))
                if verdict != SLOWER:
                    break
        if not found:
            return False
        lost, verdict, graph = max(found, key=lambda each: (each[1] != SLOWER, each[0]))
        how = {
            DIFFERS: "gives other results than eager",
            CRASHES: "crashes",
            SLOWER: f"takes {lost * 1e3:.3g} ms more than eager",
        }.get(verdict, f"raises {verdict}")
        say(f"A graph of {len(graph.statements)} calls {how}. Making it smaller ...")
        judge.least = lost / 2 if verdict == SLOWER else None

        def fails(smaller: StraightLine) -> bool:
            return judge.verdict(smaller) == verdict

        small = smallest(graph, fails)
        beside = write_script(small, fails, output, judge.least)
    finally:
        judge.close()
    with_data = f", its inputs to {beside}" if beside is not None else ""
    calls = f"{len(small.statements)} call{'s' * (len(small.statements) != 1)}"
    say(f"{calls} left after {judge.tried} tries, written to {output}{with_data}:\n")
    say("\n".join(f"    {line}".rstrip() for line in output.read_text("utf-8").splitlines()))
    return True


def run_recorded(command: Sequence[str], folder: Path, may_end_well: bool) -> str:
    """What the script printed."""
    recorder = [sys.executable, "-m", "burnish.cli.minimize.record_graphs", str(folder), *command]
    run = subprocess.run(
        recorder, env={**os.environ, **CHECKED}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if run.returncode == 0 and not may_end_well:
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
