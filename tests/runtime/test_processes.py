"""Compiled code in forked and spawned processes, in pickles and copies, and in an exiting process."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import burnish

from ..forked_programs import TORCH, run_program

START = """
    import os, signal, sys, threading, time
    import torch
    from torch import nn
    import burnish

    torch.set_num_threads(1)

    def first(x, y):
        return torch.relu(x * 2 + y).sigmoid() @ x, (x - y).softmax(-1), x.sum(0), (x @ y).tanh()

    def second(x, y):
        return (x + y).tanh() @ x * 3, torch.exp(x).sum(-1), (torch.sin(x) * torch.cos(y)) @ x + 1

    def in_child(work):
        "The child's exit status, which is 0 if it does the work in time."
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(40)
                work()
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def agrees(fn, compiled, count=3):
        for _ in range(count):
            x, y = torch.randn(16, 16), torch.randn(16, 16)
            torch.testing.assert_close(compiled(x, y), fn(x, y))
"""


ENVIRONMENT = {**os.environ, "BURNISH_CHECK": "0"}


def run_alone(program, *arguments, **options):
    """Runs a program, and returns what it wrote to stderr."""
    code = textwrap.dedent(START) + textwrap.dedent(program)
    return run_program(code, *arguments, environment=ENVIRONMENT, **options).stderr


def test_a_forked_process_runs_code_compiled_by_its_parent():
    run_alone("""
        compiled = burnish.compile(first)
        agrees(first, compiled)
        assert in_child(lambda: agrees(first, compiled)) == 0
        agrees(first, compiled)
    """)


def test_a_forked_process_compiles():
    run_alone("""
        agrees(first, burnish.compile(first))
        assert in_child(lambda: agrees(second, burnish.compile(second))) == 0
        agrees(second, burnish.compile(second))
    """)


@pytest.mark.slow
def test_a_forked_process_trains():
    run_alone("""
        net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))
        compiled, x = burnish.compile(net), torch.randn(4, 8)

        def train():
            for _ in range(3):
                found = torch.autograd.grad(compiled(x).square().sum(), list(net.parameters()))
                want = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
                torch.testing.assert_close(found, want)

        train()
        assert in_child(train) == 0
    """)


def test_forks_while_another_thread_compiles():
    """At twenty moments of its work. The child runs compiled code, and compiles as well."""
    run_alone("""
        compiled = burnish.compile(first)
        agrees(first, compiled)
        ended = False

        def compile_again_and_again():
            k = 0
            while not ended:
                k += 1
                size = 3 + k % 50
                burnish.compile(lambda x: (x @ x).softmax(-1).tanh() * k)(torch.randn(size, size))

        def work():
            agrees(first, compiled)
            agrees(second, burnish.compile(second))

        thread = threading.Thread(target=compile_again_and_again, daemon=True)
        thread.start()
        try:
            for k in range(20):
                time.sleep(0.0137 * k % 0.1)
                assert in_child(work) == 0, k
        finally:
            ended = True
            thread.join(60)
    """)


def test_a_lock_that_another_thread_held_is_free_in_the_child():
    run_alone("""
        from burnish.concurrency import thread_locks as forks

        lock, taken, done = forks.lock(), threading.Event(), threading.Event()

        def hold():
            with lock:
                taken.set()
                done.wait()

        def work():
            assert lock.acquire(timeout=20)

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        try:
            assert in_child(work) == 0
            assert lock.locked()
        finally:
            done.set()
            thread.join()
    """)


LOADING = """
    from torch.utils.data import DataLoader, Dataset

    @burnish.compile
    def transform(x):
        return torch.relu(x * 2 + 1).softmax(-1) @ x

    class Transformed(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, k):
            return transform(torch.arange(9.0).reshape(3, 3) * k)

    if __name__ == "__main__":
        how, compiled_before = sys.argv[1:]
        if compiled_before == "yes":
            transform(torch.ones(3, 3))
            agrees(first, burnish.compile(first))
        loader = DataLoader(Transformed(), batch_size=2, num_workers=2, multiprocessing_context=how, timeout=90)
        for epoch in range(2):
            got = torch.cat(list(loader))
            x = torch.arange(9.0).reshape(3, 3) * torch.arange(8.0)[:, None, None]
            torch.testing.assert_close(got, torch.relu(x * 2 + 1).softmax(-1) @ x)
"""


@pytest.mark.parametrize("compiled_before", ["yes", pytest.param("no", marks=pytest.mark.slow)])
def test_forked_workers_of_a_data_loader_call_a_compiled_transform(compiled_before):
    run_alone(LOADING, "fork", compiled_before)


@pytest.mark.slow
@pytest.mark.parametrize("compiled_before", ["yes", "no"])
def test_spawned_workers_of_a_data_loader_call_a_compiled_transform(compiled_before, tmp_path):
    path = tmp_path / "program.py"  # which a spawned process runs again
    path.write_text(textwrap.dedent(START) + textwrap.dedent(LOADING), encoding="utf-8")
    command = [sys.executable, str(path), "spawn", compiled_before]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr


TORCH_ABORTS = "terminate called without an active exception\n"
"""Python ends a daemon thread where it next wants to go on. Where that is in C++ of torch, which has let go of Python
for an operator, the process aborts: one whose daemon thread runs plain operators does so nearly every time."""


def test_processes_that_end_while_a_daemon_thread_compiles():
    """The main thread ends at some moment of the other's work: we do not crash, and nothing is printed."""
    for k in range(2):
        output = run_alone(
            """
            begun = threading.Event()

            def compile_again_and_again():
                k = 0
                while True:
                    k += 1
                    begun.set()
                    size = 3 + k % 50
                    burnish.compile(lambda x: (x @ x).softmax(-1).tanh() * k)(torch.randn(size, size))

            threading.Thread(target=compile_again_and_again, daemon=True).start()
            begun.wait()
            time.sleep(0.3 + int(sys.argv[1]) * 0.087)
        """,
            str(k),
            ends=(0, -signal.SIGABRT),
            prepare=TORCH,
        )
        assert output in ("", TORCH_ABORTS)


def test_a_process_compiles_when_it_ends():
    """Python no longer starts threads when it calls the functions that are registered for its end."""
    assert (
        run_alone(
            """
        import atexit
        atexit.register(lambda: agrees(second, burnish.compile(second, fullgraph=True)))
    """,
            prepare=TORCH,
        )
        == ""
    )


# ---- pickles and copies


def calls(model, x):
    return [model(x) for _ in range(3)]


@burnish.compile
def decorated(x):
    return torch.relu(x) + 1


def plain(x):
    return torch.relu(x) + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    "make", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy], ids=["pickle", "deepcopy", "copy"]
)
@pytest.mark.parametrize("called_before", [False, True])
def test_a_copy_of_a_compiled_module_runs_compiled(make, called_before):
    compiled, x = burnish.compile(Net()), torch.randn(3, 6)
    want = compiled._orig_mod(x)
    if called_before:
        calls(compiled, x)
    made = make(compiled)
    for found in calls(made, x):
        torch.testing.assert_close(found, want)
    assert burnish.was_compiled(made)


def test_a_deep_copy_has_weights_of_its_own():
    compiled, x = burnish.compile(Net()), torch.randn(3, 6)
    before = calls(compiled, x)[0]
    made = copy.deepcopy(compiled)
    calls(made, x)
    with torch.no_grad():
        for weight in made.parameters():
            weight.zero_()
    torch.testing.assert_close(calls(compiled, x)[-1], before)
    assert not calls(made, x)[-1].any()


def test_a_module_compiled_in_place_is_copied_plainly():
    model, x = burnish.compile_(Net()), torch.randn(3, 6)
    want = calls(model, x)[0]
    for made in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        torch.testing.assert_close(made(x), want)


def test_a_decorated_function_is_pickled_by_its_name():
    made = pickle.loads(pickle.dumps(decorated))
    assert made is decorated
    assert copy.deepcopy(decorated) is decorated


def test_unpicklable_objects_are_named():
    with pytest.raises(pickle.PicklingError, match=r"plain.*not the same object as .*test_processes\.plain"):
        pickle.dumps(burnish.compile(plain))
    with pytest.raises((pickle.PicklingError, AttributeError), match="backend"):
        pickle.dumps(burnish.compile(Net(), backend=make_backend()))


def make_backend():
    def backend(gm, example_inputs):
        return gm.forward

    return backend
