"""All attackers whose programs are compiled and compared with eager, in shares of one number of programs.

    python -m bench.attack.campaign --count 20000 --seed 7

Compiled code is kept also where it is slower. What was drawn but could not be compared, such as a program that eager
cannot run, does not count: the last attacker fills up. The table counts as compiled the programs for which graphs were
compiled and ran. It ends with status 1 if a result differs from eager's, or an attacker dies.

Below the rows of attackers that compare with float64 stands the distribution of errors over all their samples, in
eager's errors, and the programs of the largest.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
import resource
import subprocess
import sys
from dataclasses import dataclass

SHARES = {
    "state": 3500,
    "errors": 4000,
    "programs": 3500,
    "layouts": 2000,
    "sizes": 500,
    "borders": 500,
    "databases": 500,
    "models": 500,
}
"""Of 20,000, what each draws. The others are `LAST`'s."""
LAST = "subclasses"
OPTIONS = {"errors": ["--keep-compiled"], "programs": ["--patience", "1800"]}
ERRORS = re.compile(r"^error against float64, .*? of (\d+) tensors, (\d+) above .*(?:\n    .*)*", re.MULTILINE)
SUMMARY = re.compile(r"(\d+) programs\b.*?\b(\d+) ran compiled\b.*?\b(\d+) (?:differ|wrong)\b")


@dataclass
class Row:
    attacker: str
    programs: int = 0
    compiled: int = 0
    differ: int = 0
    seconds: float = 0.0
    """Of processors."""
    has_failed: bool = False
    errors: str = ""
    """The distribution of errors over all samples."""
    tensors: int = 0
    above: int = 0
    """Tensors that were compared with float64, and those whose error is more than twice eager's."""

    def __str__(self) -> str:
        note = "  did not end" if self.has_failed else ""
        return f"{self.attacker:<12}{self.programs:>10,}{self.compiled:>14,}{self.differ:>8,}{self.seconds:>8.0f}{note}"


HEAD = f"{'attacker':<12}{'programs':>10}{'ran compiled':>14}{'differ':>8}{'CPU s':>8}"


def attack(attacker: str, count: int, seed: int) -> Row:
    """In a process of its own; what it prints is shown if anything is wrong."""
    command = [sys.executable, "-m", f"bench.attack.{attacker}", "--count", str(count), "--seed", str(seed)]
    before = processor_seconds()
    done = subprocess.run([*command, *OPTIONS.get(attacker, [])], capture_output=True, text=True, check=False)
    row, summaries = Row(attacker, seconds=processor_seconds() - before), SUMMARY.findall(done.stdout)
    if summaries:
        row.programs, row.compiled, row.differ = map(int, summaries[-1])
    found = ERRORS.search(done.stdout)  # the first one: further ones are of a part of the samples, again
    if found is not None:
        row.errors, row.tensors, row.above = found[0], int(found[1]), int(found[2])
    row.has_failed = not summaries or bool(done.returncode) != bool(row.differ)
    if row.has_failed or row.differ:
        print(f"{' '.join(command[1:])}: status {done.returncode}\n{done.stdout}\n{done.stderr}", flush=True)
    return row


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="programs of all attackers together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 10))
    options = parser.parse_args()
    print(f"seed {options.seed}\n{HEAD}", flush=True)
    total = Row("all")
    for attacker in (*SHARES, LAST):
        if attacker == "models" and importlib.util.find_spec("nnsmith") is None:
            print("models: NNSmith is not installed", flush=True)
            continue
        share = max(1, SHARES[attacker] * options.count // 20_000) if attacker in SHARES else 0
        row = attack(attacker, share or max(1, options.count - total.programs), options.seed)
        print(row, *[row.errors] * bool(row.errors), sep="\n", flush=True)
        total.tensors += row.tensors
        total.above += row.above
        total.programs += row.programs
        total.compiled += row.compiled
        total.differ += row.differ
        total.seconds += row.seconds
        total.has_failed |= row.has_failed
    print(f"error against float64: more than twice eager's for {total.above:,} of {total.tensors:,} tensors")
    print(total)
    return int(total.differ > 0 or total.has_failed)


if __name__ == "__main__":
    sys.exit(main())
