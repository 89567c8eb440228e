"""Kernels compiled side by side, each in a process of its own.

    start_early()                        in the background, once a graph comes that computes on a GPU
    compiled([job, other])               [Made(cubin, seconds), None]           None: to be compiled here

Triton holds Python's lock for a quarter to a third of its time: threads of one process are at most three or four times
as fast as one, processes as many times as there are cores. They do not begin as a copy of this process and do not run
the user's program: each is a fresh Python that imports Triton, and not torch.

For each process there is a thread here, which starts it, hands it one job after the other, and sees it end: after a
minute without a job, or with this process. Nothing about a worker is an error. Where none can be started, one dies or
answers nonsense, an event says so, no others are started, and what it was to compile is compiled here.
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
from ....concurrency import fork_safe_locks
from ....settings import current
from .compile_worker import Made, read_answer, receive, send, written
from .invoke_triton import Job

MOST = 8
"""A graph has some tens of kernels, and a worker is worth its start if it compiles a few."""

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


class Lost(Exception):
    """A worker is of no use any more."""


def cores() -> int:
    """Of this process, where others on this machine do the same: a launcher of several says how many."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(here // int(processes), 1) if processes.isdecimal() and int(processes) else here


def wanted() -> int:
    """How many workers there may be."""
    if why_not() is not None:
        return 0
    asked = current().compile_workers
    return asked if asked is not None else min(MOST, cores()) if cores() >= FEWEST_CORES else 0


def why_not() -> str | None:
    if sys.platform != "linux":
        return "worker processes are made for Linux"
    if not sys.executable or getattr(sys, "frozen", False):
        return "this program is no Python that another could be started with"
    return None


class Worker:
    """A process, and how to talk to it."""

    def __init__(self) -> None:
        package = str(Path(__file__).parents[3])
        self.channel, theirs = socket.socketpair()
        try:
            with theirs:
                # In a process group of its own: Ctrl-C in a terminal is not for it, nor for the assembler it calls.
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

    def compile(self, job: Job) -> Made | None:
        """None where Triton does not take it: who compiles it here gets to see why."""
        try:
            send(self.channel, written(job))
            answer = receive(self.channel)
            if answer is None:
                raise Lost(f"a worker process ended while it compiled {job.name}")
            return read_answer(answer)
        except (TimeoutError, ValueError) as error:
            self.process.kill()
            raise Lost(f"a worker process was stopped, which gave no answer for {job.name}: {error}") from error
        except OSError as error:
            raise Lost(f"a worker process ended before it compiled {job.name}: {error}") from error

    def end(self) -> None:
        self.hang_up()
        self.process.wait()

    def hang_up(self) -> None:
        """It ends when it sees that. A copy of the socket, in a process that was forked, does not keep it."""
        with contextlib.suppress(OSError):  # it may have ended already
            self.channel.shutdown(socket.SHUT_RDWR)
        self.channel.close()

    def leave_to_the_parent(self) -> None:
        """In a forked process, which must neither talk to it nor wait for it."""
        self.channel.close()
        self.process.returncode = 0


@dataclass(eq=False, slots=True)
class Order:
    job: Job
    made: Future[Made | None] = field(default_factory=Future)


class Workers:
    def __init__(self) -> None:
        self.why_not: str | None = None
        """Why no more of them are started."""
        self.processes: set[Worker] = set()
        self._orders: deque[Order] = deque()
        self._changed = threading.Condition()
        self._running = self._free = 0

    def start(self, count: int) -> None:
        """So that there are `count`, if there are fewer."""
        with self._changed:
            while self._running < count and self.why_not is None:
                try:
                    threading.Thread(target=self._serve, name="burnish-triton", daemon=True).start()
                except RuntimeError as error:  # the interpreter is ending, or the machine has no thread left
                    self.why_not = str(error)
                    return
                self._running += 1
                self._free += 1

    def take(self, jobs: Sequence[Job], most: int) -> list[Future[Made | None]]:
        orders = [Order(job) for job in jobs]
        with self._changed:
            self.start(min(most, self._running - self._free + len(self._orders) + len(orders)))
            self._orders += orders
            self._changed.notify_all()
            self._give_back()
        return [order.made for order in orders]

    def _serve(self) -> None:
        """What the thread of a worker does."""
        try:
            why = self._work()
        except Exception as error:  # whatever it is: nobody may wait for this thread
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            self._leave(why)

    def _work(self) -> str | None:
        """Until there has been nothing to do for a while, or for a reason that is given."""
        try:
            worker = Worker()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"no worker process can be started: {error}"
        self.processes.add(worker)
        try:
            while (order := self._next()) is not None:
                made = None
                try:
                    made = worker.compile(order.job)
                except Lost as lost:
                    return str(lost)
                finally:
                    self._finish(order, made)
            return None
        finally:
            worker.end()
            self.processes.discard(worker)

    def _next(self) -> Order | None:
        """None where there is none for a while: the worker that asked is not counted any more."""
        with self._changed:
            while self._changed.wait_for(lambda: self._orders, IDLE):
                order = self._orders.popleft()
                if order.made.set_running_or_notify_cancel():
                    self._free -= 1
                    return order
            self._running -= 1
            self._free -= 1
            return None

    def _finish(self, order: Order, made: Made | None) -> None:
        with self._changed:
            self._free += 1
        order.made.set_result(made)

    def _leave(self, why: str) -> None:
        with self._changed:
            is_first, self.why_not = self.why_not is None, self.why_not or why
            self._running -= 1
            self._free -= 1
            self._give_back()
        if is_first:
            events.emit("kernels.workers", text=f"kernels are compiled in this process from now on: {why}")

    def _give_back(self) -> None:
        """What nobody is there to do."""
        while self._orders and not self._running:
            order = self._orders.popleft()
            if order.made.set_running_or_notify_cancel():
                order.made.set_result(None)

    def end(self) -> None:
        """One that is at work ends when it has done its job, and has cleared up."""
        with self._changed:
            self.why_not = self.why_not or "the interpreter is ending"
        for worker in list(self.processes):
            worker.hang_up()


def start_early() -> None:
    """Kernels are not yet known; when they are, Triton has been imported."""
    count = wanted()
    if count:
        _of_this_process().start(count)


def compiled(jobs: Sequence[Job]) -> list[Made | None]:
    """In the order given; None for what is to be compiled here."""
    count = wanted()
    if not count:
        return [None] * len(jobs)
    futures = _of_this_process().take(jobs, count)
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:  # after an interrupt nobody needs what has not begun
            future.cancel()


_workers: Workers | None = None
_lock = fork_safe_locks.lock()


def _of_this_process() -> Workers:
    global _workers
    with _lock:
        if _workers is None:
            _workers = Workers()
        return _workers


def _forget() -> None:
    """In a forked process: threads have stayed behind, and who asks a worker is the other process."""
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


__all__ = ["compiled", "cores", "start_early"]
