"""The suite on several versions of Python and PyTorch and levels of the processor, as one table.

    make platforms                                                     the usual versions, made where they are missing
    make platforms ARGS='--part tests/test_tiny.py'                    a part of the suite
    make platforms ARGS='--given /tmp/v312/bin/python --given "bash enter.sh python3.14"'
    make platforms ARGS='--level x86-64-v2 --level x86-64-v4'          code for these levels of x86-64

A version is ``PYTHON`` or ``PYTHON:TORCH``, as ``3.12:2.11.0``: a virtual environment of that Python if it is on PATH,
and else a root with Debian's (``suite_on_debian_python.sh``). ``--given`` takes the command of an interpreter that has
PyTorch and pytest. Outcomes are written to a JSON file after each part, and a further run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from ..table import Table, as_text

ROOT = Path(__file__).parents[2]
VERSIONS = "3.11:2.11.0", "3.11:2.12.1", "3.11:2.13.0", "3.11", "3.12", "3.13", "3.14"
PACKAGES = "llvmlite numpy scipy pytest expecttest hypothesis setuptools cryptography".split()
OUTCOMES = "passed", "failed", "skipped"
ASK = "import sys, torch; print('.'.join(map(str, sys.version_info[:3])), torch.__version__.partition('+')[0])"


def interpreter(version: str, folder: Path) -> list[str]:
    """The command of a Python with that PyTorch, which is installed the first time."""
    python, _, torch = version.partition(":")
    found = runnable(f"python{python}")
    torch = f"torch=={torch}" if torch else "torch"
    if found is None:
        place = [f"TORCH={torch}", f"PLATFORM_ROOT={folder / ('debian-' + version.replace(':', '-'))}"]
        return ["env", *place, "bash", str(ROOT / "bench/platforms/suite_on_debian_python.sh"), python, "--"]
    place = folder / version.replace(":", "-")
    made = place / "bin" / "python"
    if not (place / "complete").exists():
        subprocess.run([found, "-m", "venv", place], check=True)
        subprocess.run([made, "-m", "pip", "install", torch, *PACKAGES], check=True)
        (place / "complete").touch()
    return [str(made)]


def runnable(name: str) -> str | None:
    """The command of that name if it runs: one on PATH may only stand for a Python that is not chosen (pyenv's)."""
    found = shutil.which(name)
    return found if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0 else None


def run_part(command: list[str], level: str, part: str, more: list[str], limit: float) -> dict:
    """How many tests of a part had each outcome, and which failed. One that did not end in time counts as a failure."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.xml"
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")} | ({"BURNISH_CPU": level} if level else {})
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={file}", part, *more]
        try:
            done = subprocess.run([*command, *arguments], cwd=ROOT, env=environment, timeout=limit, capture_output=True)
            why = f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            why = f"not done in {limit:.0f} s"
        if not file.exists():
            return {"failed": 1, "failures": [f"{part}: {why}"]}
        return outcomes_in(file)


def outcomes_in(file: Path) -> dict:
    counts, failures = Counter(dict.fromkeys(OUTCOMES, 0)), []
    for case in ElementTree.parse(file).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts[outcome] += 1
        if outcome == "failed":
            failures.append(f"{case.get('classname')}::{case.get('name')}")
    return {**counts, "failures": failures}


def table(record: dict) -> Table:
    rows = []
    for name, parts in record.items():
        sums = [sum(found.get(outcome, 0) for found in parts.values()) for outcome in OUTCOMES]
        rows.append([*name.split(" "), *map(str, sums)])
    return Table("Tests by platform", ["Python", "PyTorch", "level", *OUTCOMES], rows)


def main(given: list[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m bench.platforms", description=__doc__.partition("\n")[0])
    made.add_argument("versions", nargs="*", metavar="PYTHON[:TORCH]", help=f"default: {' '.join(VERSIONS)}")
    made.add_argument("--given", action="append", default=[], help="the command of an interpreter; may be repeated")
    made.add_argument("--level", action="append", help="of x86-64, such as x86-64-v3; default: this processor's own")
    made.add_argument("--part", action="append", help="a file or folder of tests; default: each folder of tests/")
    made.add_argument("--folder", type=Path, default=Path("/tmp/burnish-platforms"), help="where environments are made")
    made.add_argument("--json", type=Path, default=ROOT / "bench/out/platforms.json", help="the outcomes")
    made.add_argument("--limit", type=float, default=3600.0, help="seconds for each part")
    made.add_argument("--again", action="store_true", help="run what has been run before")
    made.add_argument("--pytest", default="-m 'not slow'", help="further arguments of pytest")
    options = made.parse_args(given)
    versions = options.versions or ([] if options.given else VERSIONS)
    commands = [*map(shlex.split, options.given), *(interpreter(version, options.folder) for version in versions)]
    parts = options.part or [str(path.relative_to(ROOT)) for path in test_parts()]
    record = json.loads(options.json.read_text()) if options.json.exists() else {}
    for command in commands:
        asked = subprocess.run([*command, "-c", ASK], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for level in options.level or [""]:
            rows = record.setdefault(f"{' '.join(asked.split())} {level or 'native'}", {})
            for part in parts:
                if part not in rows or options.again:
                    rows[part] = run_part(command, level, part, shlex.split(options.pytest), options.limit)
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(as_text(table(record)))
    failures = [
        f"{name}: {each}" for name, rows in record.items() for found in rows.values() for each in found["failures"]
    ]
    print(*failures, sep="\n")
    return bool(failures)


def test_parts() -> list[Path]:
    tests = ROOT / "tests"
    return sorted(path for path in tests.iterdir() if path.is_dir() and any(path.glob("*_*.py"))) + sorted(
        tests.glob("test_*.py")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
