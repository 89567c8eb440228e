"""Kernel compilation in worker processes: the same machine code, and processes that always end."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ..forked_programs import run_program

pytest.importorskip("triton")
if sys.platform != "linux":
    pytest.skip("worker processes are made for Linux", allow_module_level=True)

import torch

import burnish
from burnish.codegen.triton import compile_kernels as kernels
from burnish.codegen.triton.compilation import compile_worker, compile_worker_pool, cubin_cache
from burnish.codegen.triton.compilation.invoke_triton import Cubin, Job
from burnish.codegen.triton.kernel_function import PrintedKernel
from burnish.errors import InternalError
from burnish.ops import target_record
from burnish.targets import cuda

from ..recorded_events import recorded
from ..runtime.concurrent_threads import at_once
from ..schedule.parse_loops import parse_kernel

SOURCE = str(Path(burnish.__file__).parents[1])


def printed(number=3, name="scaled", text="    tl.store(b1 + x, tl.load(b0 + x) * {number}.0)\n"):
    text = f"# kernel {name}\ndef {name}(b0, b1):\n    x = tl.program_id(0) * 128 + tl.arange(0, 128)\n" + text
    return PrintedKernel(name, text.format(number=number), 4, 1, ("f32", "f32"), frozenset())


def compiled(*given):
    return [made.cubin for made in cubin_cache.compile_cubins(given, 90)]


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """No workers from before, at most two, and none left behind."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_worker_pool, "_workers", None)
    with burnish.settings.patch(compile_workers=2, cache=False):
        yield
    processes = (
        [one.process for one in list(compile_worker_pool._workers.processes)] if compile_worker_pool._workers else []
    )
    compile_worker_pool._end()
    assert all(process.wait(10) == 0 for process in processes)


@pytest.fixture
def messages():
    with recorded("kernels.workers", datum="text") as found:
        yield found


@pytest.fixture
def made_here(monkeypatch):
    """The names of the kernels that this process was to compile; it does not, which takes time."""
    found = []

    def made(job):
        found.append(job.name)
        return compile_worker.CompiledKernel(Cubin(b"", job.name, 0, 32, 4), 0.0)

    monkeypatch.setattr(cubin_cache, "compile_in_process", made)
    return found


def only_worker():
    (one,) = compile_worker_pool._workers.processes
    return one


def until(condition):
    end = time.monotonic() + 120  # a process may get no turn for seconds on a busy machine
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


def is_over(pid):
    """A worker that has not been waited for has ended, too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def test_a_worker_makes_the_machine_code_that_this_process_makes(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(cubin_cache, "compile_in_process", None)  # calling it fails
        made = compiled(printed(3), printed(4), printed(3))
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    assert made[0] is made[2]
    assert made[:2] == [cubin_cache.emitted(printed(number), 90) for number in (3, 4)]
    assert made[0].code != made[1].code


def test_a_worker_does_not_import_torch_nor_run_the_program_of_the_user():
    look = (
        compile_worker_pool.FRESH.replace("work()", "")
        + "from burnish.codegen.triton.compilation.compile_worker import prepare\nprepare()\n"
        "sys.exit(7 if 'triton' in sys.modules and 'torch' not in sys.modules else 1)"
    )
    assert subprocess.run([sys.executable, "-I", "-c", look, SOURCE + "/burnish", *sys.path]).returncode == 7


def test_triton_errors_are_reported_as_without_workers():
    with pytest.raises(InternalError, match="Triton does not take"):
        compiled(printed(text="    tl.no_such_function(x)\n"))
    assert len(compiled(printed())) == 1 and compile_worker_pool._workers.why_not is None


def test_a_worker_without_jobs_ends_and_another_one_comes(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(compile_worker_pool, "IDLE", 0.5)
        compiled(printed())
        first = only_worker().process
        until(lambda: first.poll() is not None)
    assert first.returncode == 0
    compiled(printed(4))
    assert only_worker().process.pid != first.pid


@pytest.mark.parametrize(
    "program",
    [
        "import socket, os; socket.socket(fileno=0).recv(8); os._exit(1)",
        "import os; os._exit(1)",
        "import socket; s = socket.socket(fileno=0); s.recv(8); s.sendall(bytes(9) + b'nonsense'); s.recv(1 << 20)",
        "import socket; s = socket.socket(fileno=0); s.recv(8); s.sendall(bytes([255] * 64)); s.recv(1 << 20)",
        "import socket; s = socket.socket(fileno=0); s.recv(8); s.sendall(bytes([14]) + bytes(7) + b'+' + bytes(13))",
    ],
)
def test_this_process_compiles_if_a_worker_dies_or_returns_nonsense(program, monkeypatch, messages, made_here):
    monkeypatch.setattr(compile_worker_pool, "FRESH", program)
    compiled(printed(3), printed(4), printed(5))
    assert made_here == ["scaled"] * 3
    until(lambda: messages and not compile_worker_pool._workers.processes)
    assert len(messages) == 1 and "worker process" in messages[0] and "scaled" in messages[0]
    compiled(printed(6))
    assert len(made_here) == 4 and not compile_worker_pool._workers.processes, "another one was started"


def test_a_worker_that_is_killed_at_work_is_replaced_by_this_process(messages, made_here):
    compiled(printed())
    one = only_worker()
    os.kill(one.process.pid, signal.SIGSTOP)  # it takes the job and does nothing
    threading.Timer(0.3, one.process.kill).start()
    with burnish.settings.patch(compile_workers=1, cache=False):
        compiled(printed(4))
    assert made_here == ["scaled"]
    until(lambda: messages)
    assert one.process.wait(10) == -signal.SIGKILL


def test_a_silent_worker_times_out(monkeypatch, messages, made_here):
    monkeypatch.setattr(compile_worker_pool, "PATIENCE", 0.2)
    monkeypatch.setattr(compile_worker_pool, "FRESH", "import time; time.sleep(60)")
    compiled(printed())
    assert made_here == ["scaled"]
    until(lambda: messages and not compile_worker_pool._workers.processes)


def test_threads_compile_if_no_process_can_be_started(monkeypatch, messages, made_here):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    compiled(printed(3), printed(4))
    assert len(made_here) == 2
    until(lambda: messages)
    assert "can be started" in messages[0]


@pytest.mark.parametrize("setting,executable", [(0, sys.executable), (None, ""), (2, None)])
def test_with_a_setting_of_0_or_without_a_python_none_are_started(setting, executable, monkeypatch, made_here):
    monkeypatch.setattr(sys, "executable", executable)
    with burnish.settings.patch(compile_workers=setting, cache=False):
        compile_worker_pool.start_early()
        compiled(printed())
    assert made_here == ["scaled"]
    assert compile_worker_pool._workers is None


def test_as_many_workers_as_cores_which_processes_of_one_launch_share(monkeypatch):
    def with_cores(count, processes=""):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        return compile_worker_pool.wanted_workers()

    with burnish.settings.patch(compile_workers=None):
        assert [with_cores(count) for count in (1, 3, 4, 8, 64)] == [0, 0, 4, 8, 8]
        assert [with_cores(16, processes) for processes in ("1", "2", "4", "8", "0", "many")] == [8, 8, 4, 0, 8, 8]
    with burnish.settings.patch(compile_workers=3):
        assert with_cores(1) == 3


def test_they_start_early_and_ctrl_c_is_not_for_them():
    compile_worker_pool.start_early()
    until(lambda: len(compile_worker_pool._workers.processes) == 2)
    for one in list(compile_worker_pool._workers.processes):
        assert os.getpgid(one.process.pid) == one.process.pid
    compiled(printed(3), printed(4))
    for one in list(compile_worker_pool._workers.processes):
        os.kill(one.process.pid, signal.SIGINT)
    compiled(printed(5), printed(6))
    assert compile_worker_pool._workers.why_not is None


def forked(act):
    """A copy of this process that does something and ends, with 0 if nothing went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12 on
        child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def test_a_forked_process_has_workers_of_its_own():
    compiled(printed())
    before = compile_worker_pool._workers
    one = only_worker()

    def compile_anew():
        assert compile_worker_pool._workers is None and one.channel.fileno() == -1
        compiled(printed(4))
        assert only_worker().process.pid != one.process.pid
        compile_worker_pool._end()

    assert os.waitpid(forked(compile_anew), 0)[1] == 0
    assert compile_worker_pool._workers is before and one.process.poll() is None
    compiled(printed(5))
    assert before.why_not is None


def test_workers_end_when_the_process_that_started_them_is_killed():
    ours, theirs = os.pipe()

    def start_and_wait():
        compile_worker_pool.start_early()
        until(lambda: len(compile_worker_pool._workers.processes) == 2)
        os.write(theirs, " ".join(str(one.process.pid) for one in compile_worker_pool._workers.processes).encode())
        time.sleep(60)

    child = forked(start_and_wait)
    pids = os.read(ours, 100).decode().split()
    assert len(pids) == 2 and not any(is_over(pid) for pid in pids)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: all(is_over(pid) for pid in pids))
    os.close(ours)
    os.close(theirs)


PROGRAM = """
import time, burnish
from burnish.codegen.triton.compilation import compile_worker_pool as workers
burnish.settings.configure(compile_workers=2)
workers.start_early()
while len(workers._workers.processes) < 2:
    time.sleep(0.01)
print(*(one.process.pid for one in workers._workers.processes), flush=True)
"""


def test_workers_end_with_the_program_and_nothing_is_printed():
    ended = run_program(PROGRAM)
    pids = ended.stdout.split()
    assert ended.stderr == "" and len(pids) == 2
    until(lambda: all(is_over(pid) for pid in pids))


def test_two_threads_that_want_the_same_kernel_compile_it_once(monkeypatch):
    asked = []

    def slowly(jobs):
        asked.extend(jobs)
        time.sleep(0.3)
        return [None] * len(jobs)

    monkeypatch.setattr(compile_worker_pool, "compiled", slowly)
    found = []
    at_once(*((lambda: found.extend(cubin_cache.compile_cubins([printed()], 90))) for _ in range(3)))
    assert len(found) == 3
    assert sum(job.text == printed().text for job in asked) == 1


def test_kernels_that_one_thread_fails_to_compile_are_retried_by_others(monkeypatch):
    def interrupted(jobs):
        time.sleep(0.3)
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_worker_pool, "compiled", interrupted)
    caught = []

    def stopped():
        with pytest.raises(KeyboardInterrupt):
            compiled(printed())
        caught.append(1)

    first = threading.Thread(target=stopped)
    first.start()
    until(lambda: cubin_cache._underway)
    assert compiled(printed())[0].name == "scaled"
    first.join()
    assert caught and not cubin_cache._underway


def test_kernel_identity_excludes_user_lines_and_includes_the_grid():
    one = printed()
    moved = replace(one, text="# line 9\n" + one.text)
    assert cubin_cache.key_of(cubin_cache.job_of(one, 90, True)) == cubin_cache.key_of(
        cubin_cache.job_of(moved, 90, True)
    )
    assert kernels.key_of(one, 0) == kernels.key_of(moved, 0)
    for other in (replace(one, grid=8), replace(one, dtypes=("f16", "f16")), replace(one, warps=2)):
        assert kernels.key_of(one, 0) != kernels.key_of(other, 0)
    jobs = [cubin_cache.job_of(one, 90, True), cubin_cache.job_of(one, 90, False), cubin_cache.job_of(one, 100, True)]
    assert len({cubin_cache.key_of(job) for job in jobs}) == 3


def test_equal_kernels_of_a_plan_are_compiled_and_loaded_once(monkeypatch):
    texts = ["kernel double(b0: f32, b1: f32 out)\nloop i0 < 256 rows\n  stage\n    b1[i0] = add(b0[i0], b0[i0])\n"]
    launches = [SimpleNamespace(kernel=parse_kernel(text), numbers=frozenset()) for text in texts * 3]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(
        kernels, "loaded", lambda one, cubin_cache, device, architecture: (cubin_cache, device, architecture)
    )
    monkeypatch.setattr(kernels, "_made", {})
    with recorded("kernels") as seen:
        first, second, third = kernels.compile_kernels(launches, 0)
        (again,) = kernels.compile_kernels(launches[:1], 0)
    assert first is second is third is again and first[0].name == "double" and first[1:] == (0, 90)
    assert len(seen) == 1 and seen[0].data["seconds"] > 0 and "def double" in seen[0].data["text"]


def test_workers_start_when_the_first_graph_on_a_gpu_comes(monkeypatch):
    monkeypatch.setattr(cuda.cuda_module_loader, "why_not", lambda: None)
    monkeypatch.setitem(target_record._targets, "cuda", cuda.gpu_target.__wrapped__)
    assert target_record.target_of(torch.device("cuda")) is cuda.TRITON
    until(lambda: len(compile_worker_pool._workers.processes) == 2)


def test_a_job_is_read_as_it_was_written():
    job = Job("k", "text: é\n", ("f32", "f64"), frozenset({1}), 4, 90, False)
    assert compile_worker.read(compile_worker.written(job)) == job
