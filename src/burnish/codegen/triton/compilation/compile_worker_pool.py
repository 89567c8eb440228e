"""Compiles kernels in parallel, in worker processes.

    start_early()                        in the background, as soon as a graph computes on a GPU
    compiled([job, other])               [Made(cubin, seconds), None]           None: compile it in this process

Triton holds the GIL for a quarter to a third of its time: threads of one process are at most three or four times as
fast as one, but processes scale with the cores. Workers are not forked from this process and do not run the user's
program: each is a fresh Python that imports Triton, and not torch.

Each worker process has a thread here, which starts it and sends it one job after the other. The worker ends after a
minute without a job, or with this process. No failure of a worker is an error. If none can be started, or one dies or
sends garbage, an event reports it. No others are started then, and the jobs are compiled in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from .... import events
from ....concurrency import thread_locks
from ....concurrency.await_future import result_of
from ....settings import current
from .compile_worker import CompiledKernel, read_answer, receive, send, written
from .invoke_triton import Job

MOST = 8
"""A graph has some tens of kernels, and starting a worker pays off if it compiles a few."""

FEWEST_CORES = 4
"""With fewer, threads are as fast."""

IDLE = 60.0
"""Seconds after which a worker without a job ends. It takes some 50 MB of memory."""

PATIENCE = 300.0
"""Seconds for one kernel."""

FRESH = """
import sys, types
sys.path[:] = sys.argv[2:]
package = types.ModuleType("burnish")
package.__path__ = [sys.argv[1]]
sys.modules["burnish"] = package
from burnish.codegen.triton.compilation.compile_worker import work
work()
"""
"""The program of a worker. The package is put in place without running its `__init__`, which imports torch."""


class WorkerLost(Exception):
    """A worker can no longer be used."""


def cores() -> int:
    """The cores for this process. A launcher of several processes on this machine sets how many there are."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(here // int(processes), 1) if processes.isdecimal() and int(processes) else here


def wanted_workers() -> int:
    """How many workers are allowed."""
    if why_not() is not None:
        return 0
    asked = current().compile_workers
    return asked if asked is not None else min(MOST, cores()) if cores() >= FEWEST_CORES else 0


def why_not() -> str | None:
    if sys.platform != "linux":
        return "worker processes are made for Linux"
    if not sys.executable or getattr(sys, "frozen", False):
        return "the executable of this process cannot start another Python"
    return None


class Worker:
    """A process, and the channel to it."""

    def __init__(self) -> None:
        package = str(Path(__file__).parents[3])
        self.channel, theirs = socket.socketpair()
        try:
            with theirs:
                # It has its own process group: Ctrl-C in a terminal must not reach it, nor the assembler it calls.
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-c", FRESH, package, *sys.path],
                    stdin=theirs,
                    process_group=0,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except BaseException:
            self.channel.close()
            raise
        self.channel.settimeout(PATIENCE)

    def compile(self, job: Job) -> CompiledKernel | None:
        """None if Triton rejects the job: compiling it in this process then raises the reason."""
        try:
            send(self.channel, written(job))
            answer = receive(self.channel)
            if answer is None:
                raise WorkerLost(f"a worker process ended while it compiled {job.name}")
            return read_answer(answer)
        except (TimeoutError, ValueError) as error:
            self.process.kill()
            raise WorkerLost(f"a worker process was stopped, which gave no answer for {job.name}: {error}") from error
        except OSError as error:
            raise WorkerLost(f"a worker process ended before it compiled {job.name}: {error}") from error

    def end(self) -> None:
        self.hang_up()
        self.process.wait()

    def hang_up(self) -> None:
        """Closes the channel; the worker then ends. A copy of the socket in a forked process does not keep it open."""
        with contextlib.suppress(OSError):  # it may have ended already
            self.channel.shutdown(socket.SHUT_RDWR)
        self.channel.close()

    def leave_to_the_parent(self) -> None:
        """In a forked process, which must neither use the worker nor wait for it."""
        self.channel.close()
        self.process.returncode = 0


@dataclass(eq=False, slots=True)
class PendingJob:
    job: Job
    made: Future[CompiledKernel | None] = field(default_factory=Future)


class Workers:
    def __init__(self) -> None:
        self.why_not: str | None = None
        """Why no more workers are started."""
        self.processes: set[Worker] = set()
        self._pending: deque[PendingJob] = deque()
        self._changed = threading.Condition()
        self._running = self._free = 0

    def start(self, count: int) -> None:
        """Starts workers until there are `count`."""
        with self._changed:
            while self._running < count and self.why_not is None:
                try:
                    threading.Thread(target=self._serve, name="burnish-triton", daemon=True).start()
                except RuntimeError as error:  # the interpreter is shutting down, or no more threads can be started
                    self.why_not = str(error)
                    return
                self._running += 1
                self._free += 1

    def take(self, jobs: Sequence[Job], most: int) -> list[Future[CompiledKernel | None]]:
        pending = [PendingJob(job) for job in jobs]
        with self._changed:
            self.start(min(most, self._running - self._free + len(self._pending) + len(pending)))
            self._pending += pending
            self._changed.notify_all()
            self._return_unserved_jobs()
        return [one.made for one in pending]

    def _serve(self) -> None:
        """The main function of a worker's thread."""
        try:
            why = self._work()
        except Exception as error:  # any error: no caller may wait for this thread forever
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            self._leave(why)

    def _work(self) -> str | None:
        """Works until there was no job for a while, or returns the reason why it stopped."""
        try:
            worker = Worker()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"no worker process can be started: {error}"
        self.processes.add(worker)
        try:
            while (pending := self._next()) is not None:
                made = None
                try:
                    made = worker.compile(pending.job)
                except WorkerLost as lost:
                    return str(lost)
                finally:
                    self._finish(pending, made)
            return None
        finally:
            worker.end()
            self.processes.discard(worker)

    def _next(self) -> PendingJob | None:
        """The next job. None if there was none for a while: the calling worker is then no longer counted."""
        with self._changed:
            while self._changed.wait_for(lambda: self._pending, IDLE):
                pending = self._pending.popleft()
                if pending.made.set_running_or_notify_cancel():
                    self._free -= 1
                    return pending
            self._running -= 1
            self._free -= 1
            return None

    def _finish(self, pending: PendingJob, made: CompiledKernel | None) -> None:
        with self._changed:
            self._free += 1
        pending.made.set_result(made)

    def _leave(self, why: str) -> None:
        with self._changed:
            is_first, self.why_not = self.why_not is None, self.why_not or why
            self._running -= 1
            self._free -= 1
            self._return_unserved_jobs()
        if is_first:
            events.emit("kernels.workers", text=f"kernels are compiled in this process from now on: {why}")

    def _return_unserved_jobs(self) -> None:
        """Returns jobs without a worker to their callers."""
        while self._pending and not self._running:
            pending = self._pending.popleft()
            if pending.made.set_running_or_notify_cancel():
                pending.made.set_result(None)

    def end(self) -> None:
        """Ends all workers. A busy one ends after it has finished its job and cleaned up."""
        with self._changed:
            self.why_not = self.why_not or "the interpreter is ending"
        for worker in list(self.processes):
            worker.hang_up()


def start_early() -> None:
    """Starts workers before the kernels are known, so that Triton has been imported when they are."""
    count = wanted_workers()
    if count:
        _of_this_process().start(count)


def compiled(jobs: Sequence[Job]) -> list[CompiledKernel | None]:
    """In the order given; None for jobs that must be compiled in this process."""
    count = wanted_workers()
    if not count:
        return [None] * len(jobs)
    futures = _of_this_process().take(jobs, count)
    try:
        return [result_of(future) for future in futures]
    finally:
        for future in futures:  # after an interrupt, jobs that have not begun are not needed
            future.cancel()


_workers: Workers | None = None
_lock = thread_locks.lock()


def _of_this_process() -> Workers:
    global _workers
    with _lock:
        if _workers is None:
            _workers = Workers()
        return _workers


def _forget() -> None:
    """In a forked process: its threads are gone, and the workers belong to the parent."""
    global _workers
    before, _workers = _workers, None
    for worker in list(before.processes) if before is not None else []:
        worker.leave_to_the_parent()


def _end() -> None:
    if _workers is not None:
        _workers.end()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
