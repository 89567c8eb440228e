"""One compiled function, called from eight threads: each gets eager's result, and compilation happens once."""

import functools
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish import settings

from ..forked_programs import TORCH, run_command
from ..recorded_events import recorded
from .concurrent_threads import at_once

ROOT = Path(__file__).resolve().parents[2]
THREADS = 8
CALLS = 6


def calls(compiled, inputs, count=CALLS):
    """The work of a thread: several calls, with all results kept."""
    return [compiled(*inputs) for _ in range(count)]


def agree(fn, compiled, inputs_of_each, count=CALLS):
    """Every call of every thread, the first ones all at once, gives what eager gives for that thread's inputs."""
    wanted = [fn(*inputs) for inputs in inputs_of_each]
    found = at_once(*(functools.partial(calls, compiled, inputs, count) for inputs in inputs_of_each))
    for want, results in zip(wanted, found, strict=True):
        for result in results:
            torch.testing.assert_close(result, want)


def chain(x, y):
    return torch.relu(x * 2 + y).sigmoid() * y, (x - y).softmax(-1)


def broken(x, y):
    z = x * y + 1
    if z.sum() > 0:
        z = z / 2
    return torch.tanh(z) - y


def looping(x, y):
    for _ in range(3):
        x = x * y
        if x.sum() > 1e30:
            break
        x = torch.sin(x)
    return x


def model():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


@pytest.mark.parametrize("fn", [chain, broken, looping])
@pytest.mark.parametrize("round", range(3))
def test_simultaneous_first_calls_equal_eager(fn, round, hasty):
    agree(fn, burnish.compile(fn), [(torch.randn(4, 8), torch.randn(4, 8)) for _ in range(THREADS)])


def test_first_calls_at_once_compile_once(hasty):
    for _ in range(5):
        compiled = burnish.compile(chain)
        agree(chain, compiled, [(torch.randn(4, 8), torch.randn(4, 8)) for _ in range(THREADS)])
        assert len(compiled.__burnish_program__.entry.segments) == 1


def test_each_continuation_is_compiled_once(hasty):
    compiled = burnish.compile(broken)
    agree(broken, compiled, [(torch.rand(4, 8), torch.rand(4, 8)) for _ in range(THREADS)])
    program = compiled.__burnish_program__
    assert len(program.entry.segments) == 1
    assert [len(point.segments) for point in program.continuations.values()] == [1]


@pytest.mark.falls_back("sizes")
def test_threads_do_not_use_up_the_limit_of_segments(hasty):
    compiled = burnish.compile(chain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (3, 5, 7, 9):
            agree(chain, compiled, [(torch.randn(4, size), torch.randn(4, size)) for _ in range(THREADS)])
    assert not compiled.__burnish_program__.entry.given_up


def test_threads_with_shapes_of_their_own(hasty):
    compiled = burnish.compile(chain)
    agree(chain, compiled, [(torch.randn(2, 3 + k), torch.randn(2, 3 + k)) for k in range(THREADS)])


def test_modules_with_packed_weights(hasty):
    eager = model().eval()
    with torch.no_grad():
        agree(eager, burnish.compile(eager), [(torch.randn(8, 16),) for _ in range(THREADS)], 1)

    def without_gradients(run):
        def call(x):
            with torch.no_grad():
                return run(x)

        return call

    agree(
        without_gradients(eager),
        without_gradients(burnish.compile(eager)),
        [(torch.randn(8, 16),) for _ in range(THREADS)],
    )


def test_gradients_in_some_threads_and_none_in_others(hasty):
    eager = model()
    compiled = burnish.compile(eager)

    def work(x, wants_gradients):
        found = []
        for _ in range(CALLS):
            with torch.set_grad_enabled(wants_gradients):
                found.append(compiled(x))
        return found

    inputs = [torch.randn(8, 16) for _ in range(THREADS)]
    results = at_once(*(functools.partial(work, x, k % 2 == 0) for k, x in enumerate(inputs)))
    for k, (x, found) in enumerate(zip(inputs, results, strict=True)):
        for y in found:
            assert y.requires_grad == (k % 2 == 0)
            torch.testing.assert_close(y.detach(), eager(x).detach())


def test_forward_and_backward_in_all_threads(hasty):
    eager = model()
    compiled = burnish.compile(eager)
    weights = list(eager.parameters())

    def gradients(run, x, target):
        return torch.autograd.grad(F.mse_loss(run(x), target), weights)

    data = [(torch.randn(8, 16), torch.randn(8, 4)) for _ in range(THREADS)]
    agree(functools.partial(gradients, eager), functools.partial(gradients, compiled), data)


def test_each_thread_trains_a_model_of_its_own(hasty):
    def step(net, optimizer, x, target):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    compiled = burnish.compile(step)

    def train(run, seed):
        random = torch.Generator().manual_seed(seed)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        for weight in net.parameters():
            weight.data.uniform_(-0.5, 0.5, generator=random)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        x, target = torch.randn(4, 6, generator=random), torch.randn(4, 2, generator=random)
        losses = [run(net, optimizer, x, target).detach() for _ in range(5)]
        return losses, [weight.detach() for weight in net.parameters()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eight models are more variants than one place keeps
        found = at_once(*(functools.partial(train, compiled, seed) for seed in range(THREADS)))
    for seed, result in enumerate(found):
        torch.testing.assert_close(result, train(step, seed))


def test_an_error_in_one_thread_is_that_threads_alone(hasty):
    def fn(x, y):
        z = x * 2
        if z.sum() < 0:
            raise ValueError("negative")
        return z + y

    compiled = burnish.compile(fn)

    def work(x, y):
        found = []
        for _ in range(CALLS):
            try:
                found.append(compiled(x, y))
            except ValueError as error:
                found.append(str(error))
        return found

    data = [(torch.full((3,), 1.0 if k % 2 else -1.0), torch.full((3,), float(k))) for k in range(THREADS)]
    results = at_once(*(functools.partial(work, *inputs) for inputs in data))
    for k, (inputs, found) in enumerate(zip(data, results, strict=True)):
        for result in found:
            if k % 2:
                torch.testing.assert_close(result, fn(*inputs))
            else:
                assert result == "negative"


def test_reset_while_others_call(hasty):
    compiled = burnish.compile(broken)
    x, y = torch.rand(4, 8), torch.rand(4, 8)

    def forget():
        for _ in range(20):
            burnish.reset()

    want = broken(x, y)
    *found, _ = at_once(*(functools.partial(calls, compiled, (x, y), 10) for _ in range(3)), forget)
    for results in found:
        for result in results:
            torch.testing.assert_close(result, want)


def test_functions_of_equal_kernels_compiled_at_once(hasty):
    def make(k):
        def fn(x, y):
            return torch.relu(x + y) * 3

        return burnish.compile(fn)

    compiled = [make(k) for k in range(THREADS)]
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    for found in at_once(*(functools.partial(calls, fn, (x, y)) for fn in compiled)):
        for result in found:
            torch.testing.assert_close(result, torch.relu(x + y) * 3)


def test_each_compiled_function_has_switches_of_its_thread(hasty):
    """Code that one thread traces under autocast is not run by another one without it."""
    linear = nn.Linear(8, 8)

    def fn(x):
        return linear(x) + 1

    compiled = burnish.compile(fn)

    def work(x, casts):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=casts):
            return [compiled(x).dtype for _ in range(CALLS)]

    found = at_once(*(functools.partial(work, torch.randn(2, 8), k % 2 == 0) for k in range(THREADS)))
    assert [set(dtypes) for dtypes in found] == [{torch.bfloat16}, {torch.float32}] * (THREADS // 2)


def test_the_contest_with_eager_is_decided_by_many_threads(hasty):
    before = settings.current().never_slower
    settings.configure(never_slower=True)
    try:
        with recorded("runtime.contest") as decided:
            compiled = burnish.compile(chain)
            agree(chain, compiled, [(torch.randn(4, 8), torch.randn(4, 8)) for _ in range(THREADS)], 40)
    finally:
        settings.configure(never_slower=before)
    assert len(decided) == 1


def test_a_user_function_that_waits_for_the_other_threads(hasty):
    """Other threads must not wait for the one that compiles: here it waits for them."""
    import threading

    barrier = threading.Barrier(3)

    def fn(x):
        y = x * 2
        barrier.wait(60)
        return y + 1

    compiled = burnish.compile(fn)
    agree(lambda x: x * 2 + 1, compiled, [(torch.randn(4),) for _ in range(3)], 3)


def attack(*arguments):
    return run_command(
        [sys.executable, "-m", "bench.attack.threads", *arguments],
        text=True,
        timeout=400,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "BURNISH_CHECK": "0",
            "BURNISH_CACHE": "1",
            "BURNISH_NEVER_SLOWER": "1",
        },
        prepare=TORCH,
    )


def test_threads_of_a_process_that_has_compiled_nothing_yet():
    done = attack("--rounds", "1", "--seed", "1")
    assert done.returncode == 0 and done.stdout.endswith("1 processes of 8 threads, 0 failed\n"), done.stdout


@pytest.mark.slow  # many processes
def test_threads_of_many_processes_that_have_compiled_nothing_yet():
    done = attack("--minutes", "2", "--seed", "2")
    assert done.returncode == 0, done.stdout
