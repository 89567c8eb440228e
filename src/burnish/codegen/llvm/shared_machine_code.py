"""Machine code that several kernels share: kernels whose text differs only in numbers, as layers of different widths
have them.

    @loop0 of one kernel     %v3 = mul nsw i64 %v2, 8192          shared     %w0 = load i64, ptr %words
    @loop0 of the other      %v3 = mul nsw i64 %v2, 2048                     …
                                                                             %v3 = mul nsw i64 %v2, %w0

A number becomes a register that holds the same number, so each kernel computes what its own text says. Each has an
entry of its own in the module, which passes the buffers and the kernel's numbers on.

It costs no time in the loops: numbers of innermost loops stay constants, except for bounds and for the steps between
the elements of a column, and so do divisors. Kernels that differ elsewhere share nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

MOST_NUMBERS = 6
"""So many different numbers at most: each takes a register, or is loaded again where it is used."""

LEAST_STEP = 16
"""A smaller step of a pointer may be a part of an address, which scales an index."""

ENTRY = "define void @"
NUMBER = re.compile(
    r"  %\S+ = (?:(?:add|sub|mul)(?: nuw| nsw)* i64 %\S+, |getelementptr \w+, ptr %\S+, i64 |icmp \w+ i64 %\S+, "
    r"|call i64 @llvm\.[su](?:min|max)\.i64\(i64 %\S+, i64 )(-?\d+)\)?"
)
"""A line with one number that may be a register. In the function that divides the work, divisors too."""

DIVISOR = re.compile(r"  %\S+ = udiv i64 %\S+, (\d+)")
BOUND = re.compile(r"  %\S+ = icmp ")
COUNTER = re.compile(r"  (%\S+) = phi i64 ")
STEP = re.compile(r"  %\S+ = mul nsw i64 (%\S+), (\d+)")
BACK = re.compile(r"  br i1 %\S+, label %(\S+), label %\S+")


@dataclass(frozen=True, slots=True)
class ModuleForm:
    """A module's text in parts. Equal `shape`s differ only in `numbers`."""

    entry: tuple[str, ...]
    """The lines of the kernel's own function, without its first."""
    declared: tuple[str, ...]
    lines: tuple[str, ...]
    shape: tuple[str, ...]
    """The other lines with their numbers taken out. Those that have to stay constants are still there."""
    numbers: tuple[tuple[int, int], ...]
    """The number of a line and its value."""
    steps: tuple[int, ...]
    """Those of the values that are steps in innermost loops."""


def form_of(text: str, symbol: str) -> ModuleForm | None:
    """None if the module has not the form in which `print_module` prints it."""
    lines = [line for line in text.splitlines() if line and not line.startswith(";")]
    first = f"{ENTRY}{symbol}(ptr %buffers) #0 {{"
    if lines.count(first) != 1:
        return None
    start = lines.index(first)
    end = lines.index("}", start)
    entry = tuple(lines[start + 1 : end + 1])
    declared = tuple(line for line in lines if line.startswith("declare "))
    lines = [line for line in lines[:start] + lines[end + 1 :] if not line.startswith("declare ")]
    shape, numbers, steps = list(lines), [], []
    innermost, divides, label = _innermost(lines), False, -1
    counters: set[str] = set()
    for k, line in enumerate(lines):
        if line.startswith("define "):
            divides = line.startswith("define internal void @items(")
            label = k
        elif line.endswith(":"):
            label, counters = k, set()
        elif counter := COUNTER.match(line):
            counters.add(counter[1])
        found = NUMBER.fullmatch(line) or (DIVISOR.fullmatch(line) if divides else None)
        is_step = label in innermost and _is_step(line, counters)
        if found is not None and (label not in innermost or BOUND.match(line) or is_step):
            shape[k] = f"{line[: found.start(1)]}#{line[found.end(1) :]}"
            numbers.append((k, int(found[1])))
            steps += [int(found[1])] * is_step
    return ModuleForm(entry, declared, tuple(lines), tuple(shape), tuple(numbers), tuple(steps))


def _is_step(line: str, counters: Container[str]) -> bool:
    """Whether a line multiplies a loop's counter by a number that no addressing mode holds. The code generator turns
    it into an addition to a pointer, which is the same instruction for a register and for a constant."""
    found = STEP.fullmatch(line)
    return found is not None and found[1] in counters and int(found[2]) >= LEAST_STEP


def _innermost(lines: Sequence[str]) -> set[int]:
    """The lines with the labels of blocks that end in a jump to themselves."""
    found, label = set(), -1
    for k, line in enumerate(lines):
        if line.endswith(":"):
            label = k
        elif label >= 0 and (back := BACK.fullmatch(line)) and f"{back[1]}:" == lines[label]:
            found.add(label)
    return found


def shared_module(forms: Sequence[ModuleForm], symbol: str) -> str | None:
    """One module for kernels of one shape. The entry of the nth is `symbol` with its number behind it. None if they
    differ in too many numbers."""
    first = forms[0]
    columns = list(zip(*([value for _, value in form.numbers] for form in forms), strict=True))
    rows = {column: None for column in columns if len(set(column)) > 1}
    if len(rows) > MOST_NUMBERS:
        return None
    registers = {column: f"%word{k}" for k, column in enumerate(rows)}
    lines = list(first.lines)
    used: dict[int, str] = {}
    for (k, _), column in zip(first.numbers, columns, strict=True):
        if column in registers:
            lines[k], used[k] = first.shape[k].replace("#", registers[column]), registers[column]
    body = _with_words(lines, used)
    entries: list[str] = []
    for number, form in enumerate(forms):
        words = ", ".join(f"i64 {column[number]}" for column in rows)
        entries += [
            f"@words{number} = private unnamed_addr constant [{len(rows)} x i64] [{words}]",
            f"{ENTRY}{symbol}{number}(ptr %buffers) #0 {{",
            "  %passed = alloca [2 x ptr]",
            "  store ptr %buffers, ptr %passed",
            "  %passed.words = getelementptr ptr, ptr %passed, i64 1",
            f"  store ptr @words{number}, ptr %passed.words",
            *(line.replace("ptr %buffers)", "ptr %passed)") for line in form.entry),
        ]
    declared = sorted({line for form in forms for line in form.declared})
    return "\n".join([body[0], *entries, *body[1:], *declared, ""])


def _with_words(lines: Sequence[str], used: dict[int, str]) -> list[str]:
    """The functions receive what the entries pass on, and load the words that they use."""
    made: list[str] = []
    starts = [k for k, line in enumerate(lines) if line.startswith("define ")]
    for k, line in enumerate(lines):
        if line.startswith("define "):
            line = line.replace("ptr %buffers)", "ptr %passed)")
            loads = ["  %buffers = load ptr, ptr %passed"]
            registers = dict.fromkeys(used[at] for at in range(k, lines.index("}", k)) if at in used)
            if registers:
                loads += ["  %words.at = getelementptr ptr, ptr %passed, i64 1", "  %words = load ptr, ptr %words.at"]
            for register in registers:
                number = register.removeprefix("%word")
                loads += [
                    f"  {register}.at = getelementptr i64, ptr %words, i64 {number}",
                    f"  {register} = load i64, ptr {register}.at",
                ]
            made.append(line)
            if lines[k + 1] != "entry:":
                made += loads
        elif line == "entry:" and k - 1 in starts:
            made += [line, *loads]
        else:
            made.append(line.replace("ptr %buffers)", "ptr %passed)"))
    return made
