"""`burnish bisect`: find the rewrite of the compiler that makes a command fail.

    burnish bisect python script.py          the script exits with another status than 0 if its results are wrong
    burnish bisect script.py                 any difference from eager counts; first the smallest failing graph is found
    burnish bisect --slower script.py        so does a graph with which compiled code takes more time than eager

The command runs a dozen times. With the setting `fuel` at n the compiler stops optimizing after n rewrites, and the
same n always gives the same program. So some n passes, n + 1 fails, and the rewrite n + 1 is the one to look at.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError
from ..report.dump_stages import REWRITES
from ..settings import from_environment

NO_LIMIT = 10**9
LAST_LINES = 10
"""Of the output of a run that failed where it should not have."""


@dataclass(slots=True)
class Bisection:
    command: Sequence[str]
    folder: Path
    """For what runs leave behind."""
    say: Callable[[str], None]
    output: str = ""
    """What the last run printed."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def passes(self, fuel: int, dump: Path | None = None) -> bool:
        """Run the command once. `dump` is where it writes the stages of each graph."""
        environment = {"PYTHONHASHSEED": "0", **self.environment, "BURNISH_FUEL": str(fuel), "BURNISH_CACHE": "1"}
        if not from_environment(self.environment).cache:
            # Measurements are remembered all the same: each run has to choose the same library calls.
            environment["BURNISH_CACHE_DIR"] = str(self.folder / "cache")
        if dump is not None:
            environment["BURNISH_DUMP"] = str(dump)
        try:
            run = subprocess.run(
                self.command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
        except OSError as error:
            raise UserError(f"The command cannot be run: {error}.") from error
        self.output = run.stdout.decode(errors="replace")
        limit = "every rewrite" if fuel == NO_LIMIT else f"{fuel} rewrite{'s' * (fuel != 1)}"
        self.say(f"with {limit}: {'passes' if run.returncode == 0 else f'fails with status {run.returncode}'}")
        return run.returncode == 0

    def first_wrong(self) -> tuple[int, int, str]:
        """The number of the first rewrite with which the command fails, how many there are, and its description."""
        if not self.passes(0):
            raise UserError(
                "The command fails without any rewrite, so that no optimization is at fault. Run it without Burnish. "
                'If it passes then, run it with `backend="eager"`: if it fails there, capture is at fault, else a pass '
                f"that is always needed. Its output ends so:\n{self.last_lines()}"
            )
        if self.passes(NO_LIMIT, self.folder / "all"):
            raise UserError(
                "The command passes with every rewrite. If it fails without `burnish bisect`, it is not the same in "
                "every run, or the fault is in what is off meanwhile: the cache of programs (try `BURNISH_CACHE=0`), "
                "and the choice between compiled code and eager (try `BURNISH_NEVER_SLOWER=0`)."
            )
        total = max(rewrites_in(self.folder / "all"), default=0)
        passing, failing = 0, total
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if self.passes(middle):
                passing = middle
            else:
                failing = middle
        found = {} if self.passes(failing, self.folder / "stages") else rewrites_in(self.folder / "stages")
        if failing not in found:
            raise UserError(
                f"The command fails with every rewrite, but not always with the first {failing} of {total}: it is not "
                "the same in every run. Seed its random numbers, and let one thread compile."
            )
        return failing, total, found[failing]

    def last_lines(self) -> str:
        return "\n".join(f"    {line}" for line in self.output.splitlines()[-LAST_LINES:])


def rewrites_in(dump: Path) -> dict[int, str]:
    """What was dumped of each rewrite, by its number. Of several processes, or sizes, the first."""
    path = dump / REWRITES
    found: dict[int, str] = {}
    for part in re.split(r"^(?=\[\d+\] )", path.read_text("utf-8") if path.is_file() else "", flags=re.MULTILINE):
        if part:
            number, _, text = part[1:].partition("] ")
            found.setdefault(int(number), text.rstrip())
    return found


def report(bisection: Bisection) -> str:
    """Bisect, and describe the rewrite that was found."""
    number, total, text = bisection.first_wrong()
    heading, _, change = text.partition("\n")
    rewrite, _, line = heading.partition(" ")
    command = shlex.join(bisection.command)
    return "\n".join(
        [
            f"\nThe command fails from rewrite {number} of {total} on: {rewrite}",
            *([f"  {line}"] if line else []),
            *(f"    {part}" for part in change.splitlines()),
            f"\nThe stages with it are in {bisection.folder / 'stages'}. To run it with and without:",
            f"    BURNISH_FUEL={number} {command}",
            f"    BURNISH_FUEL={number - 1} {command}",
        ]
    )


def bisect(command: Sequence[str], output: Path, slower: bool = False) -> str:
    """What `burnish bisect` prints at its end; before, a line for each run. Of a script that is given without Python,
    the smallest failing graph is written to `output`, and that is what is bisected."""
    environment = os.environ
    if slower and not command[0].endswith(".py"):
        raise UserError("`burnish bisect --slower` takes a script: `burnish bisect --slower train.py`.")
    if command[0].endswith(".py"):
        if not Path(command[0]).is_file():
            raise UserError(f"There is no file {command[0]}.")
        from .minimize.minimize_script import CHECKED, minimize

        environment = {**os.environ, **CHECKED}
        is_smaller = minimize(command, output, say, slower)
        if slower and not is_smaller:
            return "There is nothing to bisect."
        command = [sys.executable, str(output)] if is_smaller else [sys.executable, *command]
    folder = Path(tempfile.mkdtemp(prefix="burnish-bisect-"))
    try:
        return report(Bisection(command, folder, say, environment=environment))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # only a report names it
        raise


def say(line: str) -> None:
    print(line, flush=True)
