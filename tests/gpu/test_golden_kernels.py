"""Every kernel of the golden plans: equal results from GPU and CPU code, and compiled by Triton for Hopper."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton")

from burnish.codegen.loops.coalesce_loops import accesses
from burnish.codegen.triton.compilation.cubin_cache import emitted
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.tensors.dtypes import FLOATS

from ..codegen.run_kernel import random_buffer, run
from ..schedule.parse_loops import parse_kernel

PLAN = (Path(__file__).parent.parent / "golden" / "plan.txt").read_text(encoding="utf-8")
TEXTS = list(dict.fromkeys(re.findall(r"^kernel .*?(?=^  on )", PLAN, re.MULTILINE | re.DOTALL)))
each_kernel = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.split("(")[0].removeprefix("kernel "))


def buffers_of(kernel):
    """As large as it takes, of numbers that are neither odd nor large; whole ones can be indices."""
    sizes = [1] * len(kernel.dtypes)
    for loop in kernel.loops:
        for access in accesses(loop.stages):
            reach = access.offset + sum(max(s, 0) * (n - 1) for s, n in zip(access.strides, loop.extents, strict=True))
            reach += sum(stride * 64 for stride in access.indirect)
            sizes[access.buffer] = max(sizes[access.buffer], reach + 1)
    random = np.random.default_rng(7)
    return [
        np.clip(np.nan_to_num(random_buffer(dtype, size, random)), -3, 3)
        if dtype in FLOATS
        else random_buffer(dtype, size, random)
        if dtype == "b8"
        else random.integers(0, 2, size)
        for dtype, size in zip(kernel.dtypes, sizes, strict=True)
    ]


def test_there_are_golden_kernels():
    assert len(TEXTS) >= 30


@each_kernel
def test_a_golden_kernel_gives_equal_results_on_gpu_and_cpu(text):
    kernel = parse_kernel(text)
    buffers = buffers_of(kernel)
    with_llvm, with_triton = run(kernel, buffers), run(kernel, buffers, "triton")
    for at in sorted(kernel.stored):
        if kernel.dtypes[at] in FLOATS:
            scale = max(np.abs(with_llvm[at].astype(np.float64)).max(), 1.0)
            eps = {"f64": 2e-15, "f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}[kernel.dtypes[at]]
            np.testing.assert_allclose(
                with_triton[at].astype(np.float64),
                with_llvm[at].astype(np.float64),
                rtol=0,
                atol=eps * scale * math.sqrt(64),
            )
        else:
            np.testing.assert_array_equal(with_triton[at], with_llvm[at])


@each_kernel
def test_triton_makes_machine_code_of_it_for_hopper(text, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = emitted(print_kernel(parse_kernel(text)), 90)
    assert made.code[:4] == b"\x7fELF" and made.parameters >= len(parse_kernel(text).dtypes)
