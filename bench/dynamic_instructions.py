"""How many instructions a thread of a kernel executes on average, loops included, according to its machine code.

    executed(Path("3.cubin"))        what `nvdisasm` lists, each loop's body as often as its counter says

A loop is a backward branch. Its counter is the register that its condition compares with a constant, and that the body
adds a constant to; a loop without a recognized counter counts once. A forward branch over many instructions is taken
half the time, as between the loops of a kernel that computes several. One over a slow path, such as that of a division
near the ends of the range, is always taken; others never are.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

LABEL = re.compile(r"^(\.L_\S+):")
LINE = re.compile(r"^\s+(?:/\*[0-9a-f]+\*/)?\s+(.*?);")
BACK = re.compile(r"(?:@(!?U?P\d+) )?BRA(?:\.\w+)* .*?`\((\.L_\S+)\)")
COMPARED = r"U?ISETP\.[\w.]+ {predicate}, U?PT, (U?R\d+)(?:\.reuse)?, (-?0x[0-9a-f]+)"
STEPPED = r"\S*ADD\S* {register},(?: !?U?P[\dT]+,)* {register}(?:\.reuse)?, (-?0x[0-9a-f]+)"


def disassembly(cubin: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return subprocess.run([str(tool), "-c", str(cubin)], capture_output=True, text=True, check=True).stdout


@functools.cache
def listing(cubin: Path) -> tuple[str, ...]:
    """The instructions, with labels between them, up to the last exit; only padding follows."""
    found = []
    for line in disassembly(cubin).splitlines():
        if label := LABEL.match(line):
            found.append(label[1])
        elif instruction := LINE.match(line):
            found.append(instruction[1].strip())
    ends = [k + 1 for k, line in enumerate(found) if "EXIT" in line]
    return tuple(found[: max(ends, default=len(found))])


MUCH = 24
"""From so many instructions on, a skipped block is taken for a loop of its own."""


@functools.cache
def executed(cubin: Path) -> float:
    code = listing(cubin)
    places = {line: k for k, line in enumerate(code) if line.startswith(".L_")}
    share = [0.0] * (len(code) + 1)
    share[0] = 1.0
    times = [1] * len(code)
    for at, line in enumerate(code):
        branch = BACK.match(line)
        target = places.get(branch[2], at + 1) if branch else at + 1
        if branch and target <= at:
            repeated = trip_count(code[target:at], branch[1].lstrip("!")) if branch[1] else 1
            times[target : at + 1] = [n * repeated for n in times[target : at + 1]]
            taken = 0.0
        elif branch:
            calls_slow_path = any("slowpath" in other for other in until_branch(code, at + 1))
            taken = 1.0 if not branch[1] or calls_slow_path else 0.5 if target - at > MUCH else 0.0
        else:
            taken = 1.0 if re.match(r"(EXIT|RET)", line) else 0.0
        if branch and target > at:
            share[target] += share[at] * taken
        share[at + 1] += share[at] * (1 - taken)
    return sum(share[k] * times[k] for k, line in enumerate(code) if not line.startswith(".L_"))


def until_branch(code: tuple[str, ...], at: int) -> list[str]:
    """The lines of the basic block that begins at `at`."""
    end = next((k for k in range(at, len(code)) if "BRA" in code[k] or code[k].startswith(".L_")), len(code))
    return list(code[at:end])


def trip_count(body: tuple[str, ...], predicate: str) -> int:
    compared = [found for line in body if (found := re.match(COMPARED.format(predicate=predicate), line))]
    if not compared:
        return 1
    register, bound = compared[-1][1], int(compared[-1][2], 16)
    steps = [int(step[1], 16) for line in body if (step := re.match(STEPPED.format(register=register), line))]
    step = max(steps, default=0)
    return max(-(-bound // step), 1) if step > 0 and bound > 0 else 1


__all__ = ["listing", "executed"]
