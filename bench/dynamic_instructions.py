"""How many instructions a thread of a kernel starts, loops included, by its machine code.

    started(Path("3.cubin"))        what `nvdisasm` lists, each loop's body as often as its counter says

A loop is a branch backwards. Its counter is the register that its condition compares with a number, and that a number
is added to in the body; a loop whose counter is not found counts once. Branches forwards count as if not taken.
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


@functools.cache
def listing(cubin: Path) -> tuple[str, ...]:
    """The instructions up to the last end of a program, behind which there is filling, with labels between them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    text = subprocess.run([str(tool), "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    found = []
    for line in text.splitlines():
        if label := LABEL.match(line):
            found.append(label[1])
        elif instruction := LINE.match(line):
            found.append(instruction[1].strip())
    ends = [k + 1 for k, line in enumerate(found) if "EXIT" in line]
    return tuple(found[: max(ends, default=len(found))])


@functools.cache
def started(cubin: Path) -> int:
    code = listing(cubin)
    places = {line: k for k, line in enumerate(code) if line.startswith(".L_")}
    times = [0 if line.startswith(".L_") else 1 for line in code]
    for end, line in enumerate(code):
        branch = BACK.match(line)
        begin = places.get(branch[2], end) if branch else end
        if branch and branch[1] and begin < end:
            repeated = trips(code[begin:end], branch[1].lstrip("!"))
            for k in range(begin, end + 1):
                times[k] *= repeated
    return sum(times)


def trips(body: tuple[str, ...], predicate: str) -> int:
    compared = [found for line in body if (found := re.match(COMPARED.format(predicate=predicate), line))]
    if not compared:
        return 1
    register, bound = compared[-1][1], int(compared[-1][2], 16)
    steps = [int(step[1], 16) for line in body if (step := re.match(STEPPED.format(register=register), line))]
    step = max(steps, default=0)
    return max(-(-bound // step), 1) if step > 0 and bound > 0 else 1


__all__ = ["listing", "started"]
