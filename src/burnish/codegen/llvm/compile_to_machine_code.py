"""Compiles kernels to machine code in memory, with a kernel cache on disk.

    add, softmax = compile_kernels([add, softmax])      each kernel once in a process, several at a time
    add.launch(add.table(x.data_ptr(), y.data_ptr(), z.data_ptr()))

LLVM's optimizer is not run. Its work (vectorization, code motion, common subexpressions) is already in the printed
text, and the code generator alone takes a few milliseconds a kernel. Kernels that differ only in sizes are compiled
together, once (`shared_machine_code`).
"""

from __future__ import annotations

import contextvars
import functools
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from ctypes import string_at
from typing import NamedTuple

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from ... import events
from ...concurrency import thread_locks
from ...concurrency.await_future import AtomicCondition, SharedResult, result_of
from ...concurrency.first_value_cache import once
from ...concurrency.outside_errors import Suppressing, reraise_from_outside
from ...errors import InternalError
from ...runtime.disk.disk_cache import disk_cache
from ...runtime.linking import torch_blas_symbols, torch_thread_pool, vector_math_symbols
from ...runtime.program.native_kernels import NativeFunction, NativeKernel, bind, load
from ...schedule.loops.loop_ir import Kernel
from ..loops.kernel_listing import listing
from .functions import torch_parallel_for_fallback
from .print_kernel_module import PARALLEL, SYMBOL, print_module
from .shared_machine_code import ModuleForm, form_of, shared_module
from .target_cpu import Host, host, initialize

INTERRUPTS = (KeyboardInterrupt, SystemExit)
DIGITS = re.compile(r"\d+")
Job = tuple[str, Kernel, Future[NativeKernel]]

LEVEL = 2
"""Of the code generator. Levels 1 to 3 cost the same within a tenth; 0 does not keep values in registers."""


def compile_kernel(kernel: Kernel) -> NativeKernel:
    return compile_kernels([kernel])[0]


def compile_kernels(
    kernels: Sequence[Kernel],
    others: Sequence[Callable[[], object]] = (),
    while_waiting: Callable[[], object] = lambda: None,
) -> list[NativeKernel]:
    """In the order given. Equal kernels are compiled once; one that another thread is compiling is waited for. `others`
    are further compilation jobs that run in parallel. `while_waiting` is called while this thread would wait."""
    texts: dict[tuple, str] = {}
    for kernel in kernels:  # equal ones, as equal layers have them, are printed once
        if kernel.identity not in texts:
            texts[kernel.identity] = "\n".join(listing(kernel))
    keys = [texts[kernel.identity] for kernel in kernels]
    futures: list[Future[NativeKernel]] = []
    mine: list[Job] = []
    try:
        for key, kernel in zip(keys, kernels, strict=True):
            with _lock:
                future = _underway.get(key)
                if future is None:
                    future = SharedResult()
                    known = _known.get(key)
                    if known is not None:
                        future.set_result(known)
                    else:
                        mine.append((key, kernel, future))
                        _underway[key] = future
            futures.append(future)
        alike: dict[str, list[Job]] = {}
        for job in mine:
            alike.setdefault(DIGITS.sub("#", job[0]), []).append(job)
        jobs: deque[Callable[[], object]] = deque(others)
        beside: list[Future[None]] = []

        def work() -> None:
            while True:
                try:
                    job = jobs.popleft()
                except IndexError:
                    return
                job()

        def begin(more: Sequence[Callable[[], object]]) -> None:
            """Jobs that a job has made, which its own thread goes on with too."""
            jobs.extend(more)
            with Suppressing(RuntimeError):  # as below
                for _ in more[1 : _workers()]:
                    beside.append(_in_thread(work))

        jobs.extend(functools.partial(_part, same, begin) for same in alike.values())
        # Interrupts only reach the main thread, and must not stop LLVM half way: so the main thread only waits.
        works = threading.current_thread() is not threading.main_thread()
        try:
            for _ in range(min(_workers(), len(jobs)) - works):
                beside.append(_in_thread(work))
        except RuntimeError as error:  # the interpreter is shutting down, or no more threads can be started
            reraise_from_outside(error)
            works = True
        if works:
            work()
        while_waiting()
        for thread in beside:
            result_of(thread)
    finally:
        # After an interrupt, no thread may wait for work that will not be done.
        for key, _, future in mine:
            if future.cancel():
                _underway.pop(key, None)
    return [made_by(future, kernel) for future, kernel in zip(futures, kernels, strict=True)]


def _in_thread(work: Callable[[], None]) -> Future[None]:
    """Begins `work` in another thread, with the settings of this one, for example whether machine code goes to disk."""
    done: Future[None] = SharedResult()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    _pool().submit(contextvars.copy_context().run, run)
    return done


def made_by(future: Future[NativeKernel], kernel: Kernel) -> NativeKernel:
    """The future's result. If the thread that was compiling it stopped, this one compiles."""
    try:
        return result_of(future)
    except CancelledError:
        pass
    except INTERRUPTS as error:
        if future.cancelled() or not future.done() or future.exception() is not error:
            raise  # it came in this thread
    return native(kernel, host())


def _part(jobs: list[Job], begin: Callable[[list[Callable[[], object]]], object]) -> None:
    """Begins a job for each of the kernels, which may differ only in sizes, and one for those that share their code."""
    if len(jobs) == 1:
        return _complete(jobs)
    modules, refused = [], []
    for job in jobs:
        try:
            modules.append((job, _printed(job[1], host())))
        except Exception as error:
            reraise_from_outside(error)
            refused.append(functools.partial(_complete, [job]))  # which raises the error again
    made = []
    for members, shared in _groups([module.text for _, module in modules]):
        together = [modules[k] for k in members]
        made.append(functools.partial(_complete, [job for job, _ in together], [m for _, m in together], shared))
    begin([*made, *refused])


def _complete(jobs: list[Job], modules: list[KernelModule] | None = None, shared: str | None = None) -> None:
    """Compiles a kernel, or several that share their machine code."""
    if not any([future.set_running_or_notify_cancel() for _, _, future in jobs]):
        return
    try:
        for (key, _, future), made in zip(jobs, _outcomes([job[1] for job in jobs], modules, shared), strict=True):
            if future.cancelled():
                continue
            if isinstance(made, Exception):
                future.set_exception(made)
            else:
                _known[key] = made
                future.set_result(made)
    except BaseException as error:
        for _, _, future in jobs:
            if not future.done():
                future.set_exception(error)
        raise
    finally:
        for key, _, _ in jobs:
            _underway.pop(key, None)


def _outcomes(
    kernels: list[Kernel], modules: list[KernelModule] | None, shared: str | None
) -> list[NativeKernel] | list[Exception]:
    """Each by its own code where the shared code cannot be generated."""
    try:
        return _natives(kernels, modules or [_printed(kernel, host()) for kernel in kernels], shared, host())
    except Exception as error:
        reraise_from_outside(error)
        if len(kernels) == 1:
            return [error]
        events.emit("kernels.apart", text=f"{len(kernels)} kernels are compiled each by itself: {error}")
    return [_outcomes([kernel], None, None)[0] for kernel in kernels]


def native(kernel: Kernel, target: Host) -> NativeKernel:
    """Always compiles, for a machine whose code this one can run."""
    return natives([kernel], target)[0]


def natives(kernels: Sequence[Kernel], target: Host) -> list[NativeKernel]:
    """In the order given. Those whose text differs only in numbers share their machine code."""
    modules = [_printed(kernel, target) for kernel in kernels]
    found: dict[int, NativeKernel] = {}
    for members, shared in _groups([module.text for module in modules]):
        made = _natives([kernels[k] for k in members], [modules[k] for k in members], shared, target)
        found.update(zip(members, made, strict=True))
    return [found[k] for k in range(len(kernels))]


class KernelModule(NamedTuple):
    text: str
    cycles: float
    seconds: float
    """Taken to print it."""


def _printed(kernel: Kernel, target: Host) -> KernelModule:
    start = time.perf_counter()
    text, cycles = print_module(kernel, target)
    return KernelModule(text, cycles, time.perf_counter() - start)


def _groups(texts: Sequence[str]) -> Iterator[tuple[list[int], str | None]]:
    """The modules that are compiled together, by number, and the text of what they share. All others alone."""
    same: dict[object, list[tuple[int, ModuleForm]]] = {}
    for number, form in enumerate(form_of(text, SYMBOL) if len(texts) > 1 else None for text in texts):
        if form is None:
            yield [number], None
        else:
            same.setdefault(form.shape, []).append((number, form))
    for members in same.values():
        yield from _of_one_shape(members)


def _of_one_shape(members: list[tuple[int, ModuleForm]]) -> Iterator[tuple[list[int], str | None]]:
    """All together; or those with the same steps, if all differ in too many numbers; or each alone."""
    shared = shared_module([form for _, form in members], SYMBOL) if len(members) > 1 else None
    if shared is not None:
        yield [number for number, _ in members], shared
        return
    alike: dict[tuple[int, ...], list[tuple[int, ModuleForm]]] = {}
    for member in members:
        alike.setdefault(member[1].steps, []).append(member)
    for some in alike.values():
        if 1 < len(some) < len(members):
            yield from _of_one_shape(some)
        else:
            yield from (([number], None) for number, _ in some)


def _natives(
    kernels: Sequence[Kernel], modules: Sequence[KernelModule], shared: str | None, target: Host
) -> list[NativeKernel]:
    """Of one kernel, or of several with the text that they share."""
    start = time.perf_counter()
    code = object_code(modules[0].text if shared is None else shared, target)
    found = []
    for number, (kernel, module) in enumerate(zip(kernels, modules, strict=True)):
        symbol = SYMBOL if shared is None else f"{SYMBOL}{number}"
        found.append(bind(kernel.name, code, symbol, symbols(), len(kernel.dtypes), module.cycles))
        if events.is_watched("kernels"):
            seconds = module.seconds + (time.perf_counter() - start) / len(kernels)
            events.emit("kernels", name=kernel.name, text=module.text, seconds=seconds)
    return found


def object_code(text: str, target: Host) -> bytes:
    """The object file of a module, from disk if it was compiled before. Threads compile in parallel."""
    shelf = disk_cache()
    if shelf is None:
        return emitted(text, target)
    key = f"{toolchain_key(target)}\n{text}"
    found = shelf.get(OBJECT_CODE, key)
    if found is None:
        found = emitted(text, target)
        shelf.put(OBJECT_CODE, key, found)
    return found


OBJECT_CODE = "object code"


def toolchain_key(target: Host) -> str:
    return f"llvm {llvm.llvm_version_info} {LEVEL} {target}"


def emitted(text: str, target: Host) -> bytes:
    machine = _machine(target)
    context = llvm.create_context()
    context._owned = True  # closed below only: after an interrupt the collector might close it before its module
    module = None
    try:
        try:
            module = llvm.parse_assembly(text, context)
        except RuntimeError as error:
            reraise_from_outside(error)
            raise InternalError("codegen", f"LLVM does not take what was printed: {error}\n{text}") from error
        with ffi.OutputString() as problem:
            # llvmlite guards every call with one lock. This call needs none, because context and machine belong to this
            # thread, and it takes nearly all the time.
            emit = ffi.lib.LLVMPY_TargetMachineEmitToMemory
            buffer = getattr(emit, "_cfn", emit)(machine, module, 1, problem)
            if not buffer:
                raise InternalError("codegen", f"LLVM generates no code: {problem}")
        try:
            return string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
    finally:
        if module is not None:
            module.close()
        context._owned = False
        context.close()


def assembly(text: str, target: Host) -> str:
    """For debugging and tests."""
    return _machine(target).emit_assembly(llvm.parse_assembly(text, llvm.create_context()))


def _machine(target: Host) -> llvm.TargetMachine:
    machines = _local.__dict__.setdefault("machines", {})
    if target not in machines:
        initialize()
        machines[target] = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=LEVEL, jit=True
        )
    return machines[target]


def compile_function(text: str, symbol: str) -> NativeFunction:
    """A printed function as machine code for this processor."""
    return load(object_code(text, host()), symbol, symbols())


@once
def symbols() -> dict[str, int]:
    """Addresses of the external functions that kernels call."""
    found = torch_thread_pool.addresses()
    others = vector_math_symbols.symbols() | torch_blas_symbols.symbols()
    if PARALLEL in found:
        return found | others
    text = torch_parallel_for_fallback.OPENMP if found else torch_parallel_for_fallback.SERIAL
    made = load(object_code(text, host()), PARALLEL, found)
    _forever.append(made)
    return {PARALLEL: made.address} | others


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@once
def _pool() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(_workers(), "burnish-codegen")
    pool._idle_semaphore._cond = AtomicCondition(threading.Lock())  # type: ignore[attr-defined]
    return pool


_lock = thread_locks.lock()
_local = threading.local()
_known: weakref.WeakValueDictionary[str, NativeKernel] = weakref.WeakValueDictionary()
_underway: dict[str, Future[NativeKernel]] = {}
_forever: list[object] = []


def _start_anew() -> None:
    """In a forked process: the threads of the pool, and those that were compiling, do not exist."""
    _pool.cache_clear()
    _underway.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
