"""Golden files: small programs and the output of a stage of the compiler for them.

    # What this stage does, for readers.

    [case relu_in_place]
    # What to look at.
    def f(x: f32[2, 3]):
        return x.relu_()
    [out]
    graph(x: f32[2, 3])
      ...

A program is a Python function, its arguments' types written as the compiler prints them, in quotes where Python needs
it: `w: "f32[4, 3] state"` is a parameter of a module. Or it is a printed graph, for stages that take one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HEAD = re.compile(r"\[case (\w+)\]")


@dataclass(frozen=True, slots=True)
class Case:
    stage: str
    name: str
    comments: str
    program: str
    out: str

    def __str__(self) -> str:
        return f"[case {self.name}]\n{self.comments}{self.program}\n[out]\n{self.out}\n"

    @property
    def is_python(self) -> bool:
        return not self.program.startswith("graph(")


def files() -> list[Path]:
    return sorted(HERE.glob("*.txt"))


def read(path: Path) -> tuple[str, list[Case]]:
    """The text above the first case, and the cases. The file is named after the stage."""
    intro, *parts = re.split(r"^(?=\[case )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return intro, [case_of(path.stem, part) for part in parts]


def case_of(stage: str, text: str) -> Case:
    head, _, body = text.partition("\n")
    name = HEAD.fullmatch(head.strip())
    assert name is not None, f"{stage}: {head}"
    program, _, out = body.partition("\n[out]\n")
    comments = "".join(re.match(r"(?:#.*\n|\n)*", program)[0])
    return Case(stage, name[1], comments, program[len(comments) :].rstrip(), out.strip("\n"))


def write(path: Path, intro: str, cases: list[Case]) -> None:
    path.write_text("\n".join([intro.rstrip("\n") + "\n", *map(str, cases)]), encoding="utf-8")


def all_cases() -> list[Case]:
    return [case for path in files() for case in read(path)[1]]
