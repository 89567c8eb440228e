"""One import fills the records: a family that it leaves out compiles by chance, if another module has imported it."""

import re
from pathlib import Path

import burnish

from ..forked_programs import TORCH, run_program

REGISTERS = re.compile(r"^@(?!functools|once|dataclass)|\brecord\(", re.MULTILINE)
PROGRAM = "import sys, burnish.ops.import_all_operators; print(*sorted(sys.modules))"


def test_every_module_of_operators_is_imported():
    folder = Path(burnish.__file__).parent
    expected = {
        ".".join(["burnish", *path.relative_to(folder).with_suffix("").parts])
        for path in (folder / "ops").rglob("*.py")
        if REGISTERS.search(path.read_text("utf-8"))
    }
    found = run_program(PROGRAM, prepare=TORCH).stdout.split()
    assert expected - {*found} == set()
