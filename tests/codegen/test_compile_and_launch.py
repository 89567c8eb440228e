"""Compiling and launching kernels: each is compiled once, by LLVM alone, and runs on torch's threads."""

import ctypes
import gc
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from burnish.codegen.llvm import compile_to_machine_code as compiling
from burnish.codegen.llvm.compile_to_machine_code import compile_kernel, compile_kernels, object_code
from burnish.codegen.llvm.functions import torch_parallel_for_fallback
from burnish.codegen.llvm.kernel_sequence import compile_sequence
from burnish.codegen.llvm.print_kernel_module import PARALLEL, SYMBOL, print_module
from burnish.codegen.llvm.target_cpu import host
from burnish.errors import InternalError
from burnish.ops.scalar_ir import Access, load
from burnish.runtime.linking import torch_thread_pool
from burnish.runtime.program.native_kernels import NativeKernel, bind
from burnish.runtime.program.native_kernels import load as load_code

from ..forked_programs import run_program
from ..recorded_events import recorded
from ..runtime.concurrent_threads import at_once
from . import example_kernels as examples


def pointers(*tensors):
    return [tensor.data_ptr() for tensor in tensors]


def check_add(kernel, count):
    x, y, out = torch.randn(count), torch.randn(count), torch.empty(count)
    kernel(*pointers(x, y, out))
    assert torch.equal(out, x + y)


def test_equal_kernels_are_compiled_once():
    first, other, again = compile_kernels([examples.add(77), examples.add(78), replace(examples.add(77), name="sum")])
    assert first is again is compile_kernel(examples.add(77))
    assert other is not first


def test_machine_code_goes_with_its_kernel():
    kernel = compile_kernel(examples.add(79))
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None
    check_add(compile_kernel(examples.add(79)), 79)


def test_threads_that_ask_for_one_kernel_get_the_same():
    found = []
    at_once(*((lambda: found.append(compile_kernel(examples.add(1234)))) for _ in range(8)))
    assert len(set(map(id, found))) == 1 and len(found) == 8


def test_many_kernels_compile_side_by_side_and_all_are_right():
    counts = range(200, 216)
    for count, kernel in zip(counts, compile_kernels([examples.add(n) for n in counts]), strict=True):
        check_add(kernel, count)


def test_a_kernel_that_cannot_be_printed_says_so_and_the_next_try_does_too():
    kernel = examples.elementwise("wrong", load("f64", Access(0, 0, (1,))).digamma(), (4,), ("f64",))
    for _ in range(2):
        with pytest.raises(InternalError, match="digamma of f64"):
            compile_kernel(kernel)


@pytest.mark.parametrize(("refused", "width"), [("print_module", 64), ("emitted", 80)])
def test_a_kernel_that_fails_fails_none_of_those_that_differ_only_in_sizes(refused, width, monkeypatch):
    """Also not those that another thread is waiting for. Each width is compiled once in the process."""
    original, wrong = getattr(compiling, refused), examples.softmax(97, width)
    wrong_text, begun = print_module(wrong, host())[0], threading.Event()

    def fail(given, target):
        begun.set()
        if given is wrong or given == wrong_text or refused == "emitted" and f"@{SYMBOL}1" in given:
            raise RuntimeError("not this one")
        time.sleep(0.2)
        return original(given, target)

    monkeypatch.setattr(compiling, refused, fail)
    monkeypatch.setattr(compiling, "disk_cache", lambda: None)
    right, outcomes = [examples.softmax(rows, width) for rows in (61, 83)], {}

    def first():
        with pytest.raises(RuntimeError, match="not this one"):
            compile_kernels([right[0], wrong, right[1]])
        outcomes["first"] = "raised"

    def second():
        begun.wait()
        outcomes["second"] = compile_kernels(right)

    with recorded("kernels.apart") as apart:
        at_once(first, second)
    assert outcomes["first"] == "raised" and all(isinstance(made, NativeKernel) for made in outcomes["second"])
    assert len(apart) == (refused == "emitted")


def test_kernels_that_share_nothing_compile_side_by_side(monkeypatch):
    """Their listings differ in numbers only, but in some that stay constants."""
    monkeypatch.setattr(compiling, "_workers", lambda: 2)
    monkeypatch.setattr(compiling, "_pool", lambda: pool)
    monkeypatch.setattr(compiling, "disk_cache", lambda: None)
    original, both = compiling.emitted, threading.Barrier(2, timeout=30)

    def emitted(text, target):
        both.wait()
        return original(text, target)

    monkeypatch.setattr(compiling, "emitted", emitted)
    with ThreadPoolExecutor(2) as pool:
        assert len(compile_kernels([strided(stride) for stride in (3, 5)])) == 2


def strided(stride):
    """Reads each third element, say: a number of the innermost loop."""
    value = load("f32", Access(0, 0, (64 * stride, stride)))
    return examples.elementwise("strided", value + value, (4, 64), ("f32",), (64, 1))


def test_compilation_emits_events():
    with recorded("kernels") as seen:
        kernel = compile_kernel(examples.add(81))
    assert [event.data["name"] for event in seen] == [kernel.name]
    assert "b2[i0] = add(b0[i0], b1[i0])" in seen[0].data["text"]


def test_no_compiler_is_called():
    program = """
import torch
from burnish.codegen.llvm.compile_to_machine_code import compile_kernel
from tests.codegen.example_kernels import softmax
x, out = torch.randn(5, 40), torch.empty(5, 40)
compile_kernel(softmax(5, 40))(x.data_ptr(), out.data_ptr())
torch.testing.assert_close(out, x.softmax(-1))
print("right")
"""
    environment = {**os.environ, "PATH": "", "PYTHONPATH": os.pathsep.join(["src", "."])}
    environment.pop("CXX", None)
    assert run_program(program, environment=environment).stdout.strip() == "right"


# Parallel work.

RECORDED = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


def shared_out(kernel, run):
    """The kernel, with `run(begin, end, grain, call)` in the place of torch's pool."""

    def record(begin, end, grain, function, context):
        call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(function)
        run(begin, end, grain, lambda first, last: call(first, last, context))
        return 0

    callback = RECORDED(record)
    text, cycles = print_module(kernel, host())
    address = ctypes.cast(callback, ctypes.c_void_p).value
    # Long enough for ctypes to let go of the lock, which the callback takes.
    return bind(kernel.name, object_code(text, host()), SYMBOL, {PARALLEL: address}, len(kernel.dtypes), 1e9), callback


@pytest.mark.parametrize(
    "kernel",
    [
        examples.add(1_000_003),
        examples.softmax(600, 500),
        examples.column_sum(500, 1000),
        examples.transposed_copy(500, 300),
    ],
    ids=lambda kernel: kernel.name,
)
def test_any_division_of_the_work_gives_the_same(kernel):
    torch.manual_seed(0)
    sizes = [1_000_003] * len(kernel.dtypes)
    inputs = [torch.randn(size) for size in sizes]
    results = []
    for cuts in ([0.0, 1.0], [0.0, 0.1, 0.35, 0.36, 0.9, 1.0]):
        grains = []

        def run(begin, end, grain, call, cuts=cuts, grains=grains):
            grains.append((begin, end, grain))
            places = [int(begin + (end - begin) * cut) for cut in cuts]
            for first, last in reversed(list(zip(places, places[1:]))):
                call(first, last)

        native, keep = shared_out(kernel, run)
        tensors = [x.clone() for x in inputs]
        native(*pointers(*tensors))
        results.append(tensors[-1])
        assert len(grains) == 1 and grains[0][0] == 0 and 1 <= grains[0][2] < grains[0][1]
        del keep
    assert torch.equal(*results)


def test_little_work_stays_on_its_thread():
    def run(begin, end, grain, call):
        raise AssertionError("shared out")

    assert PARALLEL not in print_module(examples.add(1000), host())[0]
    native, keep = shared_out(examples.add(1000), run)
    check_add(native, 1000)


@pytest.mark.parametrize("count", [1, 2])
def test_kernels_are_right_on_any_number_of_torchs_threads(count):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count)
        check_add(compile_kernel(examples.add(1_000_003)), 1_000_003)
    finally:
        torch.set_num_threads(before)


def test_python_threads_may_launch_one_kernel_at_once():
    kernel = compile_kernel(examples.add(200_000))
    failures = []

    def work():
        try:
            for _ in range(5):
                check_add(kernel, 200_000)
        except AssertionError as error:
            failures.append(error)

    at_once(*[work] * 4)
    assert not failures


@pytest.mark.parametrize("way", ["openmp", "serial"])
def test_a_torch_without_the_c_interface_is_served(way, monkeypatch):
    found = torch_thread_pool.openmp_addresses() if way == "openmp" else {}
    if way == "openmp" and not found:
        pytest.skip("this torch brings no libgomp")
    monkeypatch.setattr(torch_thread_pool, "addresses", lambda: found)
    compiling.symbols.cache_clear()
    try:
        for example in (examples.add(1_000_003),):
            text, cycles = print_module(example, host())
            native = bind("add", object_code(text, host()), SYMBOL, compiling.symbols(), 3, cycles)
            check_add(native, 1_000_003)
    finally:
        compiling.symbols.cache_clear()


def test_the_openmp_replacement_covers_every_range_once():
    found = torch_thread_pool.openmp_addresses()
    if not found:
        pytest.skip("this torch brings no libgomp")
    made = load_code(object_code(torch_parallel_for_fallback.OPENMP, host()), PARALLEL, found)
    chunk = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, chunk, ctypes.c_void_p)
    for begin, end, grain in ((0, 10, 1), (5, 6, 1), (3, 103, 40), (0, 7, 100)):
        seen = []
        run(made.address)(begin, end, grain, chunk(lambda first, last, _: seen.append((first, last))), None)
        assert sorted(i for first, last in seen for i in range(first, last)) == list(range(begin, end))
        assert all(last - first >= min(grain, end - begin) for first, last in seen) or end - begin < 2 * grain


# Launching.


def test_a_kernel_takes_as_many_addresses_as_it_has_buffers():
    kernel = compile_kernel(examples.add(16))
    with pytest.raises(AssertionError, match="takes 3 buffers, not 2"):
        kernel(0, 0)


def test_a_table_may_be_passed_as_its_address():
    kernel, (x, y, out) = compile_kernel(examples.add(16)), (torch.randn(16), torch.randn(16), torch.empty(16))
    table = kernel.table(*pointers(x, y, out))
    kernel.launch(ctypes.addressof(table))
    assert torch.equal(out, x + y)


def test_a_sequence_runs_its_kernels_in_order_from_one_table():
    add, softmax = compile_kernels([examples.add(40), examples.softmax(5, 8)])
    x, y, out = torch.randn(40), torch.randn(40), torch.empty(120)
    half = 40 * 4
    run = compile_sequence([(add, (0, 1, 2)), (softmax, (2, (2, half))), (add, ((2, half), 0, (2, 2 * half)))])
    del add, softmax
    gc.collect()
    table = run.table(*pointers(x, y, out))
    for _ in range(2):
        run(table)
    total, soft, last = out.view(3, 40)
    assert torch.equal(total, x + y)
    torch.testing.assert_close(soft.view(5, 8), (x + y).view(5, 8).softmax(-1))
    assert torch.equal(last, soft + x)


def test_a_sequence_of_nothing_does_nothing():
    run = compile_sequence([])
    run(run.table())


def test_a_kernel_can_be_bound_again_from_its_object_code():
    kernel = compile_kernel(examples.add(33))
    again = bind("again", kernel.function.object_code, SYMBOL, compiling.symbols(), kernel.buffers, kernel.cycles)
    assert isinstance(again, NativeKernel)
    check_add(again, 33)
