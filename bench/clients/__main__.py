"""Run the compile tests of real projects by eager, torch.compile and Burnish.

    python -m bench.clients --cache DIR                              all clients
    python -m bench.clients --cache DIR tensordict --way burnish     one of them, one way; other ways as last recorded
    python -m bench.clients --cache DIR tensordict -- -k test_stack  further arguments of pytest

A client is installed into an environment of its own in DIR, and its test files are fetched at the version of the
release. Every test has a limit of time, and so has a way of a client. Records stay in DIR; --report prints the table
from them and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import caches
from ..apart import ROOT, kill_family
from .environments import PLUGIN, Environment, NotPrepared, prepare
from .outcomes import WAYS, ByTest, read_record, report
from .projects import PROJECTS, Project

GITHUB = "https://github.com/{owner}/{name}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.clients", description=(__doc__ or "").splitlines()[0])
    made.add_argument("clients", nargs="*", choices=[[], *PROJECTS], metavar="CLIENT", help=", ".join(PROJECTS))
    made.add_argument("--cache", type=Path, required=True, help="a folder for environments, sources and records")
    made.add_argument("--way", choices=WAYS, action="append", help="may be repeated (default: all)")
    made.add_argument("--backend", default="aot_eager", help="torch.compile's where tests name none (aot_eager)")
    made.add_argument("--check", action="store_true", help="run Burnish under BURNISH_CHECK=1")
    made.add_argument("--git", default=GITHUB, help=f"where repositories are (default: {GITHUB})")
    made.add_argument("--test-limit", type=float, default=60.0, help="seconds for each test")
    made.add_argument("--limit", type=float, default=1800.0, help="seconds for each client and way")
    made.add_argument("--report", action="store_true", help="print the records that are there")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, further = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    options = parser().parse_args(own)
    cache = options.cache.expanduser().resolve()
    if cache.is_relative_to(ROOT):
        raise SystemExit("--cache has to be outside of the repository")
    found: dict[str, dict[str, ByTest]] = {}
    for client in options.clients or PROJECTS:
        folder = cache / client
        if not options.report:
            try:
                environment = prepare(PROJECTS[client], folder, options.git)
            except NotPrepared as why:
                print(f"{client} is left out: {why}", file=sys.stderr)
                continue
            for way in options.way or WAYS:
                run_tests(PROJECTS[client], environment, folder, way, options, further)
        found[client] = {way: tests for way in WAYS if (tests := read_record(record_of(folder, way)))}
    print(report(found, {name: project.about_dynamo for name, project in PROJECTS.items()}))
    return 0


def record_of(folder: Path, way: str) -> Path:
    return folder / f"{way}.jsonl"


def run_tests(
    project: Project,
    environment: Environment,
    folder: Path,
    way: str,
    options: argparse.Namespace,
    further: Sequence[str],
) -> None:
    """What the tests say goes to a file beside the record."""
    record = record_of(folder, way)
    record.unlink(missing_ok=True)
    asked = {"way": way, "record": str(record), "limit": options.test_limit, "backend": options.backend}
    variables = {
        **os.environ,
        **caches.variables(folder / "caches"),
        "PYTHONPATH": os.pathsep.join([str(PLUGIN), str(ROOT / "src")]),
        "BURNISH_CLIENT": json.dumps(asked),
        "BURNISH_NEVER_SLOWER": "0",  # the contest with eager would decide which code a test tests
        "BURNISH_CHECK": str(int(options.check)),
        "HF_HUB_OFFLINE": "1",
        **dict(project.variables),
    }
    tests = [str(environment.sources / path) for path in project.tests]
    pytest = ["-m", "pytest", "-p", "burnish_client", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--no-header"]
    command = [
        str(environment.python),
        *pytest,
        "--continue-on-collection-errors",
        *tests,
        *project.arguments,
        *further,
    ]
    with (folder / f"{way}.txt").open("w") as said:
        process = subprocess.Popen(
            command,
            env=variables,
            cwd=environment.sources,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(options.limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_family(process)
    ending = "not done in time" if status is None else f"status {status}"
    print(f"{environment.sources.parent.parent.name} {environment.version}, {way}: {ending}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
