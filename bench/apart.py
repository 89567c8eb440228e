"""A measurement in a process of its own, with empty caches, so that it cannot disturb any other.

    found, why = run_in_own_process(["-m", "bench.tutorials", "--worker", …], folder, limit=300)

The process prints its findings with `hand_back`; `why` says why there are none and quotes its last output.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import caches

ROOT = Path(__file__).resolve().parents[1]
MARK = "found: "
TAIL = 600


def hand_back(found: Any) -> None:
    print(f"\n{MARK}{json.dumps(found)}", flush=True)


def paths() -> str:
    """PYTHONPATH with this checkout first, whatever else is installed."""
    return os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_family(command: Sequence[str], environment: Mapping[str, str], limit: float) -> tuple[int | None, list[str]]:
    """The exit status (None after a timeout), and the lines printed by the process and its children."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_family(process)
        said.seek(0)
        return status, said.read().decode("utf-8", "replace").splitlines()


def run_in_own_process(arguments: Sequence[str], folder: str | Path, limit: float) -> tuple[Any, str | None]:
    environment = {**os.environ, **caches.variables(Path(folder)), "PYTHONPATH": paths()}
    status, lines = run_family([sys.executable, *arguments], environment, limit)
    for line in reversed(lines):
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK)), None
    last = " / ".join(line.strip() for line in lines if line.strip())[-TAIL:]
    how = f"not done after {limit:.0f} s" if status is None else f"its process ended with status {status}"
    return None, f"{how}: {last}"


def kill_family(process: subprocess.Popen) -> None:
    """End the process and its children: it leads a session, in which compilers may have started others."""
    with contextlib.suppress(ProcessLookupError):  # all of them may have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
