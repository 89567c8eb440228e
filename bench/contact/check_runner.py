"""Runs checks, each in a process of its own with a time limit, and writes each result at once.

    runner = Runner("contact", out, minutes=4, is_rehearsal=False)
    runner.run(checks)

A process is forked from this one, which has imported torch and Burnish but not used the GPU: a check starts at once.
If the first check finds that a forked process cannot use the GPU, later ones run in new processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import caches
from ..apart import ROOT, paths

TOO_LATE = 4.0
"""No check begins with fewer seconds left."""
PATIENCE = 4.0
"""Seconds for a command to write its results after its time is over."""
ERROR_LINES, ERROR_LETTERS = 3, 500
DETAIL_BYTES, FILE_BYTES = 200_000, 14_000_000
NOT_REACHED = "not reached: the minutes were over"


@dataclass(frozen=True)
class Check:
    name: str
    run: Callable[[Any], Any] | None = None
    """Called with a `Place`."""
    command: str = ""
    """If there is no `run`: arguments of Python. `{json}` is a file for results, `{minutes}` the remaining time."""
    rehearsal: str = ""
    """The arguments in a rehearsal; without any the check is left out there."""
    seconds: float = 30.0
    alone: bool = False
    """Nothing else runs meanwhile, because the check is timed."""
    interpreted: bool = False
    """Also rehearsed in Triton's interpreter, where results are computed."""
    tool: str = ""
    """A program that starts the process, with its arguments."""
    environment: tuple[tuple[str, str], ...] = ()


@dataclass
class Running:
    check: Check
    pid: int
    folder: Path
    begun: float
    end: float
    stopped: bool = False


@dataclass
class Runner:
    command: str
    out: Path
    minutes: float
    is_rehearsal: bool = False
    at_once: int = 1
    places: Callable[[Path, Check], Sequence[Callable[[], Any]]] | None = None
    """Returns context managers that open the places in which a check runs."""
    forks: bool = True
    failed: list[Check] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        for name in ("jsonl", "details.txt"):
            self.file(name).unlink(missing_ok=True)  # left by an earlier run
        self.deadline = time.monotonic() + 60 * self.minutes

    def file(self, name: str) -> Path:
        return self.out / f"{self.command}.{name}"

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def run(self, checks: Sequence[Check]) -> None:
        """Run checks in order, several at once. A check with `alone` waits for earlier ones, and later ones for it."""
        pending, running = [c for c in checks if c.run or not self.is_rehearsal or c.rehearsal], []
        with tempfile.TemporaryDirectory(prefix="burnish-contact-", ignore_cleanup_errors=True) as folder:
            try:
                while pending or running:
                    while pending and self.may_start(pending[0], running):
                        check = pending.pop(0)
                        if self.left < TOO_LATE:
                            self.tell(check, None, 0.0, {}, NOT_REACHED)
                        else:
                            running.append(self.start(check, Path(folder)))
                    running = [one for one in running if not self.has_ended(one)]
                    time.sleep(0.02)
            finally:
                for one in running:
                    kill(one.pid)

    def may_start(self, check: Check, running: Sequence[Running]) -> bool:
        if check.alone or any(one.check.alone for one in running):
            return not running
        return len(running) < self.at_once

    # ---- processes

    def start(self, check: Check, folder: Path) -> Running:
        place = folder / "".join(c if c.isalnum() else "_" for c in check.name)
        place.mkdir(exist_ok=True)
        now = time.monotonic()
        end = min(now + check.seconds, self.deadline)
        pid = os.fork()
        if pid == 0:
            self.child(check, place, end - now)
        return Running(check, pid, place, now, end)

    def child(self, check: Check, folder: Path, seconds: float) -> None:
        """Does not return."""
        status = 70
        try:
            os.setsid()
            output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
            os.environ.update(
                caches.variables(folder), PYTHONPATH=paths(), PYTHONUNBUFFERED="1", **dict(check.environment)
            )
            os.chdir(ROOT)
            words = self.words(check, folder, seconds)
            if words:
                for name in QUIET_SETTINGS if check.command else ():
                    os.environ.pop(name, None)
                os.execvp(words[0], words)
            status = self.perform(check, folder)
        except BaseException as error:
            traceback.print_exception(error)
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def words(self, check: Check, folder: Path, seconds: float) -> list[str]:
        """The command line; empty for a function that this process can call."""
        if check.command:
            text = check.rehearsal if self.is_rehearsal else check.command
            known = {"json": folder / "result.json", "minutes": f"{max(seconds - 10, 5) / 60:.3f}"}
            words = [sys.executable, *(word.format(**known) for word in shlex.split(text))]
        elif self.forks and not check.tool:
            return []
        else:
            words = [sys.executable, "-m", "bench.contact", self.command, "--one", check.name, "--folder", str(folder)]
            words += ["--rehearse"] if self.is_rehearsal else []
        return [*shlex.split(check.tool), *words]

    def perform(self, check: Check, folder: Path) -> int:
        import faulthandler

        from .place import perform

        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        assert check.run is not None and self.places is not None
        return perform(check.run, self.places(folder, check))

    def has_ended(self, one: Running) -> bool:
        pid, status = os.waitpid(one.pid, os.WNOHANG)
        late = time.monotonic() > one.end
        if pid == 0 and late and not one.stopped:
            one.stopped = True
            # On a signal a command writes its results so far, a function its stack.
            asked = signal.SIGINT if one.check.command else signal.SIGUSR1
            one.end = time.monotonic() + (PATIENCE if one.check.command else 0.5)
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, asked)
            return False
        if pid == 0 and not late:
            return False
        kill(one.pid, is_child=pid == 0)
        code = None if one.stopped else os.waitstatus_to_exitcode(status)
        self.note(one, code)
        shutil.rmtree(one.folder, ignore_errors=True)
        return True

    # ---- output

    def note(self, one: Running, code: int | None) -> None:
        report = read(one.folder / "report.jsonl")
        figure: dict[str, Any] = {}
        for line in report:
            figure.update(line.get("figure", {}))
        output = text_of(one.folder / "output", DETAIL_BYTES)
        errors = [line["error"] for line in report if "error" in line]
        error = ""
        if code != 0:
            how = f"not done after {one.check.seconds:.0f} s" if code is None else f"ended with {code}"
            error = errors[-1] if errors else f"{how}: {last_lines(output)}"
        seconds = round(time.monotonic() - one.begun, 1)
        details = [f"==== {one.check.name}: {error or 'good'}"]
        if code != 0 or one.check.command:
            details += [line["note"] for line in report if "note" in line]
            details += [text_of(one.folder / "kernels.txt", DETAIL_BYTES)] if code != 0 else []
            details.append(f"---- output\n{output if code != 0 else output[-20_000:]}")
            self.append("details.txt", "\n".join(details) + "\n\n")
        result = one.folder / "result.json"
        if result.exists():
            with contextlib.suppress(ValueError):
                figure["result"] = json.loads(result.read_text())
        self.tell(one.check, code == 0, seconds, figure, error)
        if code != 0:
            self.failed.append(one.check)

    def tell(self, check: Check, ok: bool | None, seconds: float, figure: dict[str, Any], error: str) -> None:
        line = {"name": check.name, "ok": ok, "seconds": seconds, "figure": figure, "error": shortened(error)}
        self.lines.append(line)
        self.append("jsonl", json.dumps(line) + "\n")
        shown = {**line, "figure": {name: x for name, x in figure.items() if name != "result"}}
        print(json.dumps({name: x for name, x in shown.items() if x not in ("", {})}), flush=True)

    def append(self, name: str, text: str) -> None:
        """Append text so that it is in the file whatever happens to this process next."""
        place = self.file(name)
        if place.exists() and place.stat().st_size + len(text) > FILE_BYTES:
            text = f"{text[:2000]}\n… left out, the file is full\n"
        with open(place, "a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


QUIET_SETTINGS = ("BURNISH_NEVER_SLOWER", "BURNISH_ON_ERROR", "BURNISH_CACHE", "BURNISH_COMPILE_WORKERS")
"""Settings for checks only; commands run with users' defaults."""


def kill(pid: int, is_child: bool = True) -> None:
    """Kill a process with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if is_child:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def read(place: Path) -> list[dict[str, Any]]:
    """The complete lines of a file."""
    found = []
    for line in text_of(place, 10 * DETAIL_BYTES).splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def text_of(place: Path, most: int) -> str:
    if not place.exists():
        return ""
    text = place.read_text(errors="replace")
    return text if len(text) <= most else f"{text[: most // 2]}\n…\n{text[-most // 2 :]}"


def last_lines(text: str) -> str:
    """The last lines of a process's output; if a signal ended it, those before the stacks."""
    text = re.sub(r"(Fatal Python error: [^\n]*).*", r"\1", text, flags=re.DOTALL)
    return " / ".join([line.strip() for line in text.splitlines() if line.strip()][-ERROR_LINES:])


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= ERROR_LETTERS else f"{text[: ERROR_LETTERS // 2]} … {text[-ERROR_LETTERS // 2 :]}"
