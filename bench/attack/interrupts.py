"""Interrupts at every moment of a first call: what stands afterwards is what stood before, and the function compiles.

    python -m bench.attack.interrupts --minutes 10
    python -m bench.attack.interrupts --rounds 2000

A signal's handler raises at the n-th line that runs in a first call, for an n that is drawn each time (`lines`), or
after a time that is (`timer`). With `--how async` it is another thread that raises in this one
(`PyThreadState_SetAsyncExc`). Checked after each: the caller gets the exception that was raised; the handler, torch's
switches, its stacks of modes and the garbage collector are as they were; the function then computes what eager does,
and does so compiled. A call that ended before its moment came is repeated with another one, and not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import nn

import burnish


class LateError(Exception):
    """What the handler raises, in turn with others."""

    caught_in: list[str] = []

    def __init__(self) -> None:
        """Python makes the exception of another thread where it is caught."""
        LateError.caught_in[:] = [f"{at.filename}:{at.lineno} {at.name}" for at in traceback.extract_stack()[:-1]]


KINDS: tuple[type[BaseException], ...] = (LateError, KeyboardInterrupt, SystemExit, RecursionError)


class Depth:
    now = 0

    def __enter__(self) -> None:
        self.now += 1

    def __exit__(self, *error: object) -> None:
        self.now -= 1


def programs(depth: Depth) -> dict[str, Callable[[torch.Tensor], Any]]:
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))

    def infer(x: torch.Tensor) -> Any:
        with depth:
            with torch.no_grad():
                y = net(x) * 2
            z = torch.sin(x) + y.sum()
            if z.sum() > 1e9:
                z = z + 1
            return torch.tanh(z).softmax(-1) @ x.t(), z

    def train(x: torch.Tensor) -> Any:
        with depth:
            loss = (nn.functional.silu(net(x)) * x).sum()
            return torch.autograd.grad(loss, list(net.parameters()))

    return {"infer": infer, "train": train}


def surroundings() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        gc.isenabled(),
        sys.getprofile(),
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
    )


@contextlib.contextmanager
def lines_traced(trace: Callable[..., Any]) -> Iterator[None]:
    """With a trace function that Burnish does not see: it would run the call eagerly."""
    ours = [module for name, module in sys.modules.items() if name.startswith("burnish.")]
    asking = [module for module in ours if vars(module).get("gettrace") is sys.gettrace]
    with contextlib.ExitStack() as hidden:
        for module in asking:
            hidden.enter_context(mock.patch.object(module, "gettrace", lambda: None))
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)


def raise_in_thread(thread: int, kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


class Attack:
    def __init__(self, seed: int, how: str = "signal"):
        self.how, self.main = how, threading.get_ident()
        # No trace function: after an error was taken back, CPython 3.11 runs for ever where a traced function begins.
        self.ways = ("timer",) if how == "async" else ("lines", "timer")
        self.random = random.Random(seed)
        self.kind: type[BaseException] = LateError
        self.is_armed = False
        self.timer: threading.Timer | None = None
        self.raised_in: list[str] = []
        self.hit: list[str] = []
        self.depth = Depth()
        self.programs = programs(self.depth)
        self.x = torch.randn(4, 8)
        self.wanted = {name: fn(self.x) for name, fn in self.programs.items()}
        self.lines = {name: self.count_lines(fn) for name, fn in self.programs.items()}
        self.seconds = {name: self.time(fn) for name, fn in self.programs.items()}
        signal.signal(signal.SIGALRM, self.handle)
        sys.unraisablehook = self.ignored
        if how == "async":
            sys.setswitchinterval(1e-5)  # else the other thread raises at a few moments only

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_armed:
            self.is_armed = False
            self.raised_in = [entry.name for entry in traceback.extract_stack(frame)]
            raise self.kind

    def ignored(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Python drops what a destructor raises, in eager as well: no call was interrupted."""
        self.raised_in = []

    def first_call(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        burnish.reset()
        self.depth.now = 0
        return burnish.compile(fn)

    def time(self, fn: Callable[..., Any]) -> float:
        compiled, started = self.first_call(fn), time.perf_counter()
        compiled(self.x)
        return time.perf_counter() - started

    def count_lines(self, fn: Callable[..., Any]) -> int:
        counts = []
        for _ in range(2):  # the first one imports
            compiled, count = self.first_call(fn), [0]

            def trace(frame: FrameType, event: str, arg: Any, count: list[int] = count) -> Any:
                count[0] += event == "line"
                return trace  # noqa: B023

            with lines_traced(trace):
                compiled(self.x)
            assert burnish.was_compiled(compiled), "the lines are those of an eager call"
            counts.append(count[0])
        return counts[-1]

    def at_line(self, compiled: Callable[..., Any], n: int) -> None:
        count = 0

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal count
            count += event == "line"
            if count == n and self.is_armed:
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
            return trace

        with lines_traced(trace):
            compiled(self.x)
            self.is_armed = False

    def after(self, compiled: Callable[..., Any], seconds: float) -> None:
        timer = threading.Timer(seconds, self.interrupt) if self.how == "async" else None
        try:
            if timer is None:
                signal.setitimer(signal.ITIMER_REAL, seconds)
            else:
                self.timer, self.is_armed = timer, False
                timer.start()
                self.is_armed = True
            compiled(self.x)
            self.is_armed = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if timer is not None:
                self.is_armed = False
                timer.cancel()

    def interrupt(self) -> None:
        if self.is_armed:
            self.is_armed = False
            self.raised_in = LateError.caught_in = ["another thread"]
            raise_in_thread(self.main, self.kind)

    def await_error(self) -> bool:
        """Whether the other thread's error had still to come when the call ended."""
        try:
            if self.timer is not None:
                self.timer.join()
            for _ in range(100):
                len(self.raised_in)
        except BaseException as error:
            if type(error) is not self.kind:
                raise
            return True
        return False

    def round(self) -> str | None:
        """One call, which is interrupted if `hit` is not empty. What was wrong after it, or None."""
        name, how = self.random.choice(sorted(self.programs)), self.random.choice(self.ways)
        # C code raises a MemoryError without arguments, too: which of the two one is, nothing shows.
        self.kind = self.random.choice(KINDS if self.how == "async" else (*KINDS, MemoryError))
        moment = (
            self.random.randrange(1, self.lines[name])
            if how == "lines"
            else self.random.uniform(1e-6, self.seconds[name])
        )
        where = f"{name}, {how} {moment}, {self.kind.__name__}"
        compiled, before, raised = self.first_call(self.programs[name]), surroundings(), None
        self.is_armed, self.raised_in = True, []
        try:
            (self.at_line if how == "lines" else self.after)(compiled, moment)  # type: ignore[operator]
        except BaseException as error:
            raised = error
        self.is_armed = False
        is_late = self.how == "async" and self.await_error()
        frames = [] if raised is None else traceback.extract_tb(raised.__traceback__)
        self.hit = [frame.name for frame in frames]
        if raised is None and not is_late and self.raised_in:
            return f"{where}: the caller got nothing; raised in {self.raised_in}"
        if raised is not None and type(raised) is not self.kind:
            return f"{where}: the caller got {''.join(traceback.format_exception(raised))}"
        # Python, too, may raise an error of another thread where it calls __enter__ or __exit__.
        now, at = surroundings(), next((frame for frame in reversed(frames) if frame.name == name), None)
        is_at_border = bool({"__enter__", "__exit__"} & {*self.hit}) or at is not None and "with " in str(at.line)
        torch.set_grad_enabled(before[0])
        if now[is_at_border:] != before[is_at_border:]:
            return f"{where}: {now} and not {before}; hit {self.hit}"
        if self.depth.now and not is_at_border:
            return f"{where}: a with block was not left ({self.depth.now}); hit {self.hit}"
        for _ in range(3):
            found, wanted = compiled(self.x), self.wanted[name]
            torch.testing.assert_close(found, wanted)
        if not burnish.was_compiled(compiled):
            return f"{where}: it does not compile any more; hit {self.hit}"
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--how", choices=("signal", "async"), default="signal")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--rounds", type=int, default=1 << 62)
    options = parser.parse_args()
    faulthandler.enable()
    print(f"seed {options.seed}", flush=True)
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    burnish.settings.configure(never_slower=False, cache=False)
    attack, until, wrong, rounds = Attack(options.seed, options.how), time.monotonic() + 60 * options.minutes, 0, 0
    while time.monotonic() < until and rounds < options.rounds:
        try:
            found = attack.round()
        except Exception:
            found = f"afterwards, hit {attack.hit}\n{traceback.format_exc()}"
        rounds += bool(attack.hit)
        if found is not None:
            wrong += 1
            print(f"WRONG {found}", flush=True)
    print(f"{rounds} interrupted first calls, {wrong} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
