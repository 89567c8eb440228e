"""The kernel cache for GPUs: cubins that Triton compiled from printed kernels, on disk.

    compile_cubin(printed, 90)              Cubin(code, name, shared memory, …)
    compile_cubins([printed, …], 90)        in parallel: in worker processes, or in threads of this one

Cubins are in the disk cache with all of Burnish's machine code, so they are found without importing Triton. A kernel
that another thread is compiling already is waited for.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

from ....concurrency import thread_locks
from ....concurrency.await_future import result_of
from ....concurrency.first_value_cache import once
from ....runtime.disk.disk_cache import disk_cache
from ..kernel_function import PrintedKernel
from . import compile_worker_pool, invoke_triton
from .compile_worker import CompiledKernel
from .invoke_triton import ALIGNED, Cubin, Job, packed, unpacked

KIND = "cubin"

MOST_THREADS = 8
"""Triton holds the GIL for a quarter to a third of its time, so more threads gain nothing."""

_underway: dict[str, Future[CompiledKernel]] = {}
_lock = thread_locks.lock()


def compile_cubin(printed: PrintedKernel, architecture: int, is_aligned: bool = True) -> Cubin:
    """`is_aligned`: every buffer begins at a multiple of ALIGNED."""
    return compile_cubins([printed], architecture, is_aligned)[0].cubin


def compile_cubins(
    printed: Sequence[PrintedKernel], architecture: int, is_aligned: bool = True
) -> list[CompiledKernel]:
    """In the order given. Equal kernels are compiled once."""
    jobs = [job_of(one, architecture, is_aligned) for one in printed]
    keys = [key_of(job) for job in jobs]
    futures: dict[str, Future[CompiledKernel]] = {}
    mine: dict[str, Job] = {}
    try:
        with _lock:
            for key, job in zip(keys, jobs, strict=True):
                if key not in _underway:
                    mine[key] = job
                    _underway[key] = Future()
                futures[key] = _underway[key]
        _complete(mine, futures)
    finally:
        for key in mine:
            futures[key].cancel()  # after an interrupt, no thread may wait for work that will not be done
            _underway.pop(key, None)
    return [made_by(futures[key], job) for key, job in zip(keys, jobs, strict=True)]


def _complete(jobs: Mapping[str, Job], futures: Mapping[str, Future[CompiledKernel]]) -> None:
    shelf = disk_cache()
    missing = {}
    for key, job in jobs.items():
        start = time.perf_counter()
        found = shelf.get(KIND, key) if shelf is not None else None
        if found is None:
            missing[key] = job
        else:
            futures[key].set_result(CompiledKernel(unpacked(found), time.perf_counter() - start))
    for key, made in zip(missing, side_by_side(list(missing.values())), strict=True):
        if shelf is not None:
            shelf.put(KIND, key, packed(made.cubin))
        futures[key].set_result(made)


def made_by(future: Future[CompiledKernel], job: Job) -> CompiledKernel:
    """The future's result. If the thread that was compiling it stopped or failed, this one compiles."""
    try:
        return result_of(future)
    except CancelledError:
        return compile_in_process(job)


def side_by_side(jobs: Sequence[Job]) -> list[CompiledKernel]:
    if not jobs:
        return []
    made = compile_worker_pool.compiled(jobs)
    rest = iter(made_in_threads([job for job, one in zip(jobs, made, strict=True) if one is None]))
    return [next(rest) if one is None else one for one in made]


def made_in_threads(jobs: Sequence[Job]) -> list[CompiledKernel]:
    threads = min(MOST_THREADS, compile_worker_pool.cores(), len(jobs))
    if threads < 2:
        return list(map(compile_in_process, jobs))
    with ThreadPoolExecutor(threads, "burnish-triton") as pool:
        try:
            made = [pool.submit(compile_in_process, job) for job in jobs]
        except RuntimeError:  # the interpreter is shutting down, or no more threads can be started
            return list(map(compile_in_process, jobs))
        return [result_of(each) for each in made]


def compile_in_process(job: Job) -> CompiledKernel:
    start = time.perf_counter()
    return CompiledKernel(invoke_triton.emitted(job), time.perf_counter() - start)


def emitted(printed: PrintedKernel, architecture: int, is_aligned: bool = True) -> Cubin:
    """Always compiles, in this thread."""
    return invoke_triton.emitted(job_of(printed, architecture, is_aligned))


def job_of(printed: PrintedKernel, architecture: int, is_aligned: bool) -> Job:
    sizes = tuple((size.type, size.is_even) for size in printed.sizes)
    return Job(
        printed.name,
        printed.text,
        printed.dtypes,
        printed.numbers,
        printed.warps,
        architecture,
        is_aligned,
        sizes,
        printed.stages,
    )


def key_of(job: Job) -> str:
    how = f"{job.is_aligned} {job.warps} {job.stages} {job.dtypes} {sorted(job.numbers)} {job.sizes}"
    return f"{toolchain_key(job.architecture)}\n{how}\n{without_comments(job.text)}"


def without_comments(text: str) -> str:
    """The text without comments. They name the user's lines, which do not matter once the code is the same."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def toolchain_key(architecture: int) -> str:
    return f"triton {triton_version()} sm_{architecture} {combine_functions()}"


@once
def combine_functions() -> str:
    """A digest of the functions that printed kernels call by name, whose text is not part of a kernel's."""
    source = Path(__file__).parent.parent / "reduction_combine.py"
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]


@once
def triton_version() -> str:
    """Triton's version, without importing Triton, which takes a fifth of a second."""
    return importlib.metadata.version("triton")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_underway.clear)  # the compiling threads do not exist in the child


__all__ = ["ALIGNED", "Cubin", "compile_cubin", "compile_cubins"]
