"""Kernels that differ only in sizes share their machine code, and each computes what it says."""

import ctypes
import mmap
import platform
import re
import sys

import numpy as np
import pytest

from burnish.codegen.llvm.compile_to_machine_code import assembly, natives
from burnish.codegen.llvm.print_kernel_module import SYMBOL, print_ir
from burnish.codegen.llvm.shared_machine_code import MOST_NUMBERS, form_of, shared_module
from burnish.codegen.llvm.target_cpu import host, preset
from burnish.ops.scalar_ir import Access, load, reduced, walk
from burnish.schedule.loops.loop_ir import Kernel, Loop, Reduction, Stage, Store

from . import example_kernels as examples
from .numpy_reference import evaluate
from .run_kernel import random_buffer


def doubled(extents, strides, offset=0):
    """Reads with strides and writes to contiguous memory."""
    out, step = [0] * len(extents), 1
    for k in reversed(range(len(extents))):
        out[k], step = step, step * extents[k]
    x = load("f32", Access(0, offset, strides))
    stage = Stage(stores=(Store(Access(1, 0, tuple(out)), x + x),))
    return Kernel("doubled", ("f32", "f32"), frozenset({1}), (Loop(extents, len(extents), (stage,)),))


def reach(kernel, buffer):
    """How many elements of a buffer a kernel may touch."""
    most = 1
    for loop in kernel.loops:
        for stage in loop.stages:
            accesses = [store.access for store in (*stage.stores, *stage.row_stores)]
            values = [*(r.value for r in stage.reductions), *(s.value for s in (*stage.stores, *stage.row_stores))]
            accesses += [x.payload for x in walk(*values) if x.op == "load"]
            for access in accesses:
                if access.buffer == buffer:
                    far = sum((n - 1) * s for n, s in zip(loop.extents, access.strides, strict=True) if n)
                    most = max(most, access.offset + far + 1)
    return most


def is_shared(kernels):
    functions = [kernel.function for kernel in kernels]
    return len({id(function.object_code) for function in functions}) == 1


def check(kernels):
    """Compiles all together; returns the native kernels."""
    found = natives(kernels, host())
    random = np.random.default_rng(0)
    for kernel, made in zip(kernels, found, strict=True):
        buffers = [random_buffer(dtype, reach(kernel, k), random) for k, dtype in enumerate(kernel.dtypes)]
        alone = [buffer.copy() for buffer in buffers]
        wanted = evaluate(kernel, buffers)
        made(*(buffer.ctypes.data for buffer in buffers))
        natives([kernel], host())[0](*(buffer.ctypes.data for buffer in alone))
        for number in kernel.stored:
            assert buffers[number].tobytes() == alone[number].tobytes(), "the same instructions on the same numbers"
            np.testing.assert_allclose(buffers[number], wanted[number], rtol=1e-5, atol=1e-5)
    return found


@pytest.mark.parametrize(
    "kernels",
    [
        [examples.softmax(rows, 64) for rows in (3, 8, 4000)],
        [examples.layer_norm(rows, 96) for rows in (5, 7)],
        [examples.add(n) for n in (64_000, 100_032, 640_000)],
        [examples.reduction("sum", (channels, 16, 32), 1, (32, channels * 32, 1)) for channels in (4, 12, 72)],
        [doubled((16, width, 64), (width * 640, 64, 1)) for width in (4, 6, 7)],
        [doubled((16, 5, 64), (1000 * k, 128, 1), offset=8 * k) for k in (1, 2, 3)],
        [examples.column_sum(rows, columns) for rows, columns in ((64, 64), (64, 128), (64, 192))],
    ],
)
def test_kernels_of_several_sizes_share_machine_code_and_are_right(kernels):
    assert is_shared(check(kernels))


@pytest.mark.parametrize("extents", [(0, 4), (1, 4), (4, 1), (1, 1), (4, 0), (3, 5)])
def test_sizes_of_nothing_and_one_are_right_beside_others(extents):
    check([doubled(sizes, (40, 1)) for sizes in (extents, (7, 4), (9, 4), (8, 5))])


def test_numbers_of_innermost_loops_stay_constants():
    """Strides that each element is read with are no registers, which would take time there."""
    assert not is_shared(check([doubled((4, 64), (64 * stride, stride)) for stride in (2, 3)]))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads the instructions of x86")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("example", [examples.column_sum, examples.column_gradient])
def test_steps_in_registers_take_no_more_instructions(example, cpu):
    texts = [print_ir(example(64, columns), preset(cpu)) for columns in (64, 128, 192)]
    shared = shared_module([form_of(text, SYMBOL) for text in texts], SYMBOL)
    assert shared is not None
    together, *alone = (innermost_loops(assembly(text, preset(cpu))) for text in (shared, *texts))
    assert together
    for found in alone:
        assert list(map(len, found)) == list(map(len, together))
        assert list(map(spills, found)) == list(map(spills, together))


def spills(instructions):
    return sum("(%rsp)" in line for line in instructions)


def innermost_loops(text):
    """The instructions of the blocks that end in a jump to themselves."""
    found, label, lines = [], None, []
    for line in text.splitlines():
        if line.startswith("."):
            label, lines = line.partition(":")[0], []
        elif re.match(r"\t[a-z]", line):
            lines.append(line.strip())
            if re.fullmatch(rf"j\w+\s+{re.escape(label or '.')}", line.strip()):
                found.append(list(lines))
    return found


def test_kernels_that_differ_in_many_numbers_share_only_with_those_of_equal_steps():
    """Six numbers may differ. Here seven do, the steps among them."""

    def columns(step, scale):
        loops = tuple(
            Loop((8, 4, 64), 2, (Stage((Reduction("sum", load("f32", access)),), (), (store,)),))
            for k in range(MOST_NUMBERS)
            for access in [Access(0, 0, (640 * scale * (k + 1), 1, step))]
            for store in [Store(Access(1, 300 * k, (4, 1, 0)), reduced(0, "f32"))]
        )
        return Kernel("columns", ("f32", "f32"), frozenset({1}), loops)

    found = check([columns(64, 10), columns(64, 11), columns(192, 30)])
    assert is_shared(found[:2])
    assert not is_shared(found)


def test_kernels_that_differ_in_many_numbers_share_nothing():
    def rows(scale):
        loops = tuple(
            Loop((4, 64), 2, (Stage(stores=(Store(Access(1, 300 * k, (64, 1)), load("f32", access)),)),))
            for k in range(MOST_NUMBERS + 1)
            for access in [Access(0, 0, (64 + 8 * scale * (k + 1), 1))]
        )
        return Kernel("rows", ("f32", "f32"), frozenset({1}), loops)

    assert not is_shared(check([rows(1), rows(3)]))


@pytest.mark.skipif(sys.platform != "linux", reason="reserves memory that it does not use")
def test_strides_beyond_32_bits_are_right():
    strides = (1 << 31, (1 << 32) + 64, 128)
    kernels = [doubled((2, 3, 64), (stride, 64, 1)) for stride in strides]
    found = natives(kernels, host())
    assert is_shared(found)
    memory = mmap.mmap(-1, 4 * (strides[1] + 1024), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    start = ctypes.addressof(view := ctypes.c_char.from_buffer(memory))
    try:
        for kernel, stride in zip(found, strides, strict=True):
            parts = [np.frombuffer(memory, np.float32, 192, offset=4 * k * stride) for k in range(2)]
            for k, part in enumerate(parts):
                part[:] = np.arange(192) + 1000 * k + stride % 97
            wanted = 2 * np.concatenate(parts)
            out = np.zeros(384, np.float32)
            kernel(start, out.ctypes.data)
            assert out.tobytes() == wanted.tobytes()
            del part, parts
    finally:
        del view
        memory.close()


def test_each_entry_passes_the_numbers_of_its_own_text():
    """With the numbers put back, the shared functions are those of each kernel."""
    kernels = [examples.layer_norm(rows, 96) for rows in (5, 7, 3000)]
    texts = [print_ir(kernel) for kernel in kernels]
    shared = shared_module([form_of(text, SYMBOL) for text in texts], SYMBOL)
    for number, text in enumerate(texts):
        words = re.search(rf"@words{number} = .* \[(.*)\]$", shared, re.MULTILINE)[1]
        values = [word.removeprefix("i64 ") for word in words.split(", ") if word]
        body = re.sub(r"  %(words|passed|word\d+|buffers)\S* = .*\n", "", shared)
        body = re.sub(r"%word(\d+)", lambda found: values[int(found[1])], body)
        own = [line for line in text.splitlines() if line.startswith("  ") and "%buffers)" not in line]
        lines = set(body.splitlines())
        assert [line for line in own if line not in lines] == []


def test_a_text_of_another_form_is_compiled_alone():
    assert form_of("define void @other(ptr %buffers) #0 {\n  ret void\n}\n", SYMBOL) is None
