"""Ctrl-C at many moments of a first call: the program cleans up after itself, and the next call compiles."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from pathlib import Path
from unittest import mock

import pytest
import torch

import burnish
from burnish.codegen.llvm import compile_to_machine_code
from burnish.concurrency import await_future

from ..forked_programs import TORCH, run_command

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
    import gc, signal, sys, time, traceback
    import torch
    from torch import nn
    import burnish

    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    x = torch.randn(4, 8)

    class Depth:
        now = 0
        def __enter__(self):
            self.now += 1
        def __exit__(self, *error):
            self.now -= 1

    depth = Depth()

    def infer(x):
        with depth:
            with torch.no_grad():
                y = net(x) * 2
            z = torch.sin(x) + y.sum()
            if z.sum() > 1e9:
                z = z + 1
            return torch.tanh(z).softmax(-1) @ x.t(), z

    def train(x):
        with depth:
            loss = (nn.functional.silu(net(x)) * x).sum()
            return torch.autograd.grad(loss, list(net.parameters()))

    def choose(x):
        with depth:
            y = torch.cond(x.sum() > 0, lambda x: net(x).sin() * 2, lambda x: torch.tanh(net(x)), (x,))
            return y + x.cos()

    def interrupt(*_):
        if armed:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    fn = {"infer": infer, "train": train, "choose": choose}[sys.argv[1]]
    rounds = int(sys.argv[2])
    want = fn(x)
    times = []
    for _ in range(4):
        burnish.reset()
        begun = time.perf_counter()
        burnish.compile(fn)(x)
        times.append(time.perf_counter() - begun)
    interrupted = 0
    for k in range(rounds):
        burnish.reset()
        armed, compiled, depth.now, hit = True, burnish.compile(fn), 0, []
        gc.collect()
        try:
            signal.setitimer(signal.ITIMER_REAL, min(times) * (k + 0.5) / rounds)
            begun = time.perf_counter()
            compiled(x)
            armed = False  # what comes later comes in code of the test
            times.append(time.perf_counter() - begun)  # less than expected: the machine had other work before
        except KeyboardInterrupt as error:
            interrupted += 1
            hit = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        # A block that is interrupted while it begins or ends is left half done in eager as well.
        assert depth.now == 0 or "__enter__" in hit or "__exit__" in hit, "a with block was not left"
        assert torch.is_grad_enabled() and gc.isenabled() and sys.getprofile() is None
        assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0
        for _ in range(3):
            torch.testing.assert_close(compiled(x), want)
        assert burnish.was_compiled(compiled)
        for program in compiled.__burnish_program__.continuations.values():
            assert not program.given_up
    print(interrupted)
"""


@pytest.mark.slow  # moments come by chance
@pytest.mark.parametrize("what", ["infer", "train", "choose"])
def test_an_interrupted_first_call_leaves_a_usable_function(what, tmp_path):
    rounds = 40
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(path), what, str(rounds)],
        capture_output=True,
        text=True,
        timeout=1200,  # a busy machine takes minutes
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "BURNISH_CHECK": "0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > rounds // 2


class Interrupting:
    """Native code that receives Ctrl-C, in the given calls."""

    def __init__(self, *at):
        self.at, self.calls = at, 0

    def __call__(self, gm, example_inputs):
        """As a backend: the interrupt comes during compilation."""
        self.calls += 1
        if self.calls in self.at:
            raise KeyboardInterrupt
        return gm.forward


class InterruptingRuns(Interrupting):
    """The interrupt comes during a run of the compiled graph that computes a sine."""

    def __call__(self, gm, example_inputs):
        def run(*inputs):
            self.calls += 1
            if self.calls in self.at:
                raise KeyboardInterrupt
            return gm.forward(*inputs)

        return run if "sin" in gm.code else gm.forward


class Depth:
    now = 0

    def __enter__(self):
        self.now += 1

    def __exit__(self, *error):
        self.now -= 1


def test_an_interrupt_while_compiling_runs_the_programs_clean_up():
    depth, depths = Depth(), []

    def fn(x):
        with depth:
            try:
                y = x * 2
                if y.sum() > 0:
                    y = y + 1
                return y
            finally:
                depths.append(depth.now)

    compiled, x = burnish.compile(fn, backend=Interrupting(1, 2)), torch.ones(3)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
        assert depth.now == 0
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert depths == [1] * 5 and burnish.was_compiled(compiled)


def test_an_interrupt_of_compiled_code_runs_the_programs_clean_up():
    """The graph behind the break runs inside of the program's `with` and `try`."""
    depth, depths = Depth(), []

    def fn(x):
        with depth:
            try:
                if x.sum() > 0:
                    x = x + 1
                return torch.sin(x)
            finally:
                depths.append(depth.now)

    compiled, x = burnish.compile(fn, backend=InterruptingRuns(2)), torch.ones(3)
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append(compiled(x))
        except KeyboardInterrupt:
            outcomes.append(None)
        assert depth.now == 0
    assert [outcome is None for outcome in outcomes].count(True) == 1
    assert depths == [1] * 6
    for outcome in outcomes:
        if outcome is not None:
            torch.testing.assert_close(outcome, torch.sin(x + 1))


def test_a_program_that_catches_the_interrupt_goes_on():
    def fn(x):
        y = x * 2
        try:
            if y.sum() > 0:
                y = y + 1
            if y.sum() > 0:
                y = torch.sin(y)
            return y
        except KeyboardInterrupt:
            return y - 100

    compiled, x = burnish.compile(fn, backend=Interrupting(2)), torch.ones(3)
    torch.testing.assert_close(compiled(x), x * 2 + 1 - 100)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.sin(x * 2 + 1))


def test_an_interrupted_trace_is_not_used_by_later_calls():
    """The trace saw the handler run. Other calls must not."""

    class Sized:
        interrupts = 1

        def __len__(self):
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            return 2

    sized = Sized()

    def fn(x):
        try:
            n = len(sized)
        except KeyboardInterrupt:
            return x
        return x * n

    compiled, x = burnish.compile(fn), torch.ones(3)
    torch.testing.assert_close(compiled(x), x)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x * 2)


class LateError(Exception):
    """A time limit's, raised by the handler of a signal."""


@pytest.fixture
def alarm():
    """A handler that raises; the number of its signal."""

    def handle(number, frame):
        raise LateError

    before = signal.signal(signal.SIGALRM, handle)
    try:
        yield signal.SIGALRM
        assert signal.getsignal(signal.SIGALRM) is handle
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signal_inside_a_step_is_handled_after_it(alarm, monkeypatch):
    """By the program, at its place: its error is not an internal one, although it is an ordinary exception."""
    from burnish.capture.engine.graph_recorder import Recorder

    call, came = Recorder.call, []

    def interrupted(*args, **kwargs):
        if not came:
            came.append(1)
            signal.raise_signal(alarm)
        return call(*args, **kwargs)

    monkeypatch.setattr(Recorder, "call", interrupted)
    grad_modes = []

    def fn(x):
        try:
            with torch.no_grad():
                y = torch.sin(x) + torch.cos(x)
            return y * 2
        except LateError:
            grad_modes.append(torch.is_grad_enabled())
            raise

    compiled, x = burnish.compile(fn), torch.ones(3)
    with pytest.raises(LateError):
        compiled(x)
    assert grad_modes == [True] and came
    torch.testing.assert_close(compiled(x), fn(x))
    assert burnish.was_compiled(compiled)


def test_a_time_limit_passes_our_own_compiler(alarm, monkeypatch):
    from burnish.compiler import compile_or_fall_back, load_or_compile

    came = []

    def interrupted(*args):
        if not came:
            came.append(1)
            signal.raise_signal(alarm)
        return load_or_compile.recipe_of(*args)

    monkeypatch.setattr(compile_or_fall_back, "recipe_of", interrupted)
    compiled, x = burnish.compile(lambda x: torch.sin(x) * 2), torch.ones(3)
    with pytest.raises(LateError):
        compiled(x)
    torch.testing.assert_close(compiled(x), torch.sin(x) * 2)
    assert burnish.was_compiled(compiled)


@pytest.mark.parametrize("where", ["compiling", "running"])
def test_a_time_limit_is_not_taken_for_a_failure_of_the_compiler(alarm, where):
    calls = []

    def backend(gm, example_inputs):
        def run(*inputs):
            calls.append(1)
            if len(calls) == 2:
                signal.raise_signal(alarm)
            return gm.forward(*inputs)

        if where == "compiling" and not calls:
            calls.append(1)
            signal.raise_signal(alarm)
        return run if where == "running" else gm.forward

    compiled, x = burnish.compile(lambda x: torch.sin(x) * 2, backend=backend), torch.ones(3)
    outcomes = []
    for _ in range(4):
        try:
            torch.testing.assert_close(compiled(x), torch.sin(x) * 2)
            outcomes.append("right")
        except LateError:
            outcomes.append("late")
    assert sorted(outcomes) == ["late", "right", "right", "right"]
    assert burnish.was_compiled(compiled)


def test_a_handler_that_only_notes_what_came_is_run_once(monkeypatch):
    from burnish.capture.engine.graph_recorder import Recorder

    noted, call = [], Recorder.call

    def note(number, frame):
        noted.append(number)

    def interrupted(*args, **kwargs):
        if not noted:
            signal.raise_signal(signal.SIGUSR1)
        return call(*args, **kwargs)

    monkeypatch.setattr(Recorder, "call", interrupted)
    before = signal.signal(signal.SIGUSR1, note)
    try:
        compiled = burnish.compile(lambda x: x * 2)
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
        assert noted == [signal.SIGUSR1] and signal.getsignal(signal.SIGUSR1) is note
        assert burnish.was_compiled(compiled)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("at", range(12))
def test_handlers_are_restored_when_one_of_them_raises(alarm, at, monkeypatch):
    """A trace takes the place of each handler in turn, and gives it back. The signal comes at any of these moments."""
    from burnish.capture.interpreter import deferred_os_signals

    numbers, calls, put = [signal.SIGINT, signal.SIGTERM, alarm], [], signal.signal
    before = [signal.getsignal(number) for number in numbers]

    def interrupted(number, handler):
        result = put(number, handler)
        calls.append(number)
        if len(calls) == at + 1:
            signal.raise_signal(alarm)
        return result

    monkeypatch.setattr(deferred_os_signals.signal, "signal", interrupted)
    compiled, x = burnish.compile(lambda x: torch.sin(x) * 2), torch.ones(3)
    try:
        compiled(x)
    except LateError:
        pass
    else:
        assert at >= len(calls)
    monkeypatch.undo()
    assert [signal.getsignal(number) for number in numbers] == before
    torch.testing.assert_close(compiled(x), torch.sin(x) * 2)
    assert burnish.was_compiled(compiled)


def test_the_caller_gets_the_handlers_own_error_when_the_compiler_has_just_ended(alarm):
    from burnish.capture.interpreter.deferred_os_signals import Signals

    deferred_os_signals = Signals()

    def late(number):
        """As a signal that comes right behind the call: it is still to pass a compiler."""
        deferred_os_signals.passes, deferred_os_signals.waits = True, False
        signal.raise_signal(number)

    with pytest.raises(LateError), deferred_os_signals:
        late(alarm)
    assert not deferred_os_signals.passes and not deferred_os_signals.waits


def test_an_interrupt_after_pushing_a_mode_leaves_no_mode(monkeypatch):
    """As one that comes between the call and the `try` that takes it off. With a mode left on, this thread would
    compile nothing any more."""

    def interrupted(*args):
        torch._C._push_on_torch_dispatch_stack(Depth())
        raise KeyboardInterrupt

    class Once:
        calls = 0

        def __call__(self, gm, example_inputs):
            self.calls += 1
            return interrupted() if self.calls == 1 else gm.forward

    compiled, x = burnish.compile(lambda x: torch.sin(x) * 2, backend=Once()), torch.ones(3)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0
    torch.testing.assert_close(compiled(x), torch.sin(x) * 2)
    assert burnish.was_compiled(compiled)


def run_attack(minutes, rounds):
    return run_command(
        [
            sys.executable,
            "-m",
            "bench.attack.interrupts",
            "--minutes",
            str(minutes),
            "--rounds",
            str(rounds),
            "--seed",
            "1",
        ],
        text=True,
        timeout=400,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "BURNISH_CHECK": "0"},
        prepare=TORCH,
    )


def test_a_few_interrupts_at_chance_moments_leave_nothing_behind():
    done = run_attack(1, 25)
    assert done.returncode == 0 and done.stdout.endswith("25 interrupted first calls, 0 wrong\n"), done.stdout


@pytest.mark.slow  # it takes a minute
def test_interrupts_for_a_minute_leave_nothing_behind():
    done = run_attack(1, 1 << 30)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("where", ["let_go", "continuation_for"])
def test_an_interrupt_between_a_break_and_what_follows_leaves_the_programs_blocks(where, monkeypatch):
    from burnish.capture.engine.engine import Program
    from burnish.capture.interpreter.instruction_loop import Machine

    owner, depth, came = Machine if where == "let_go" else Program, Depth(), []
    before = getattr(owner, where)

    def interrupted(*args):
        result = before(*args)
        if not came:
            came.append(1)
            raise KeyboardInterrupt
        return result

    def fn(x):
        with depth:
            if x.sum() > 0:
                x = x + 1
            return torch.sin(x)

    monkeypatch.setattr(owner, where, interrupted)
    compiled, x = burnish.compile(fn), torch.ones(3)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert came and depth.now == 0
    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.sin(x + 1))
    assert burnish.was_compiled(compiled) and depth.now == 0


def interrupted_wait(interrupt):
    """A future whose condition meets the interrupt where it takes its lock back."""

    def take_back(state):
        raise interrupt

    future = Future()
    future._condition._acquire_restore = take_back
    threading.Timer(0.05, future.set_result, (1,)).start()
    return future


def test_an_interrupt_of_a_wait_is_no_failure_of_the_lock():
    for interrupt in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(interrupt)) as found:
            await_future.result_of(interrupted_wait(interrupt))
        assert found.value is interrupt
    failed = Future()
    failed.set_exception(RuntimeError("of the job"))
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(RuntimeError, match="of the job"):
            await_future.result_of(failed)


def test_an_interrupt_that_the_job_handled_stays_its_own():
    failed = Future()
    try:
        try:
            raise SystemExit(3)
        except SystemExit:
            raise RuntimeError("of the job")  # noqa: B904
    except RuntimeError as error:
        failed.set_exception(error)
    with pytest.raises(RuntimeError, match="of the job"):
        await_future.result_of(failed)


def test_an_interrupt_while_another_thread_compiles_reaches_the_caller():
    kernel, stopped = object(), Future()
    with pytest.raises(KeyboardInterrupt):
        compile_to_machine_code.made_by(interrupted_wait(KeyboardInterrupt()), kernel)
    stopped.set_exception(KeyboardInterrupt())  # of the thread that compiled it
    with mock.patch.object(compile_to_machine_code, "native", lambda kernel, host: kernel):
        assert compile_to_machine_code.made_by(stopped, kernel) is kernel
