"""Autotuning of tile sizes: all compute the same, and the fastest is chosen and cached."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burnish.codegen.triton import autotune_tiles
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.codegen.triton.tiling import VARIANTS
from burnish.schedule.loops.build_kernel import Launch
from burnish.tensors.tensor_types import TensorType

from ..codegen.run_kernel import _from_memory, _to_memory, run
from ..codegen.triton_interpreter import Interpreted
from ..schedule.parse_loops import parse_kernel
from .simulated_gpu import interpreted, placed
from .test_golden_kernels import TEXTS, buffers_of

KERNEL = parse_kernel("""
kernel softened(b0: f32, b1: f32 out)
  loop i0 < 40 rows, i1 < 70
    stage
      r0 = max.f32 b0[70*i0 + i1]
    stage
      b1[70*i0 + i1] = exp(sub(b0[70*i0 + i1], r0))
""")


@pytest.mark.parametrize("number", range(0, len(TEXTS), 2))
def test_other_tiles_compute_the_same(number):
    kernel = parse_kernel(TEXTS[number])
    buffers = buffers_of(kernel)
    want = run(kernel, buffers, "triton")
    plain = print_kernel(kernel)
    others = {(p.text, p.grid, p.warps): p for v in VARIANTS if (p := print_kernel(kernel, variant=v)) != plain}
    assert others, "no variant is another kernel"
    for printed in list(others.values())[number % 3 :: 3]:
        memory = [_to_memory(buffer, dtype) for buffer, dtype in zip(buffers, kernel.dtypes, strict=True)]
        Interpreted(printed)(*(array.ctypes.data for array in memory))
        for at in sorted(kernel.stored):
            got = _from_memory(memory[at], kernel.dtypes[at])
            # Sums over tiles of another width add in another order.
            np.testing.assert_allclose(got.astype(np.float64), want[at].astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(autotune_tiles, "LEAST_BYTES", 0)
    monkeypatch.setattr(autotune_tiles, "_chosen", {})
    monkeypatch.setattr(autotune_tiles.memory, "shelf", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 30))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    with interpreted() as ran:
        yield ran


LAUNCH = Launch(KERNEL, tuple(SimpleNamespace(type=TensorType.contiguous((40, 70), torch.float32)) for _ in range(2)))


def tuned_by(times, load=lambda printed: list(map(placed, printed))):
    """Simulates the seconds of the variants, in the order in which they are tried."""
    left = iter(times)

    def seconds_of(run):
        run()
        return next(left)

    return autotune_tiles.choose_tiles([LAUNCH], 0, "Triton", load, seconds_of)[0]


def test_the_fastest_is_taken_and_remembered(gpu):
    plain = print_kernel(KERNEL)
    found = tuned_by([3.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0])
    assert found == print_kernel(KERNEL, variant=VARIANTS[1]) != plain
    assert len(gpu) >= 3, "they have been run"
    assert tuned_by([]) == found, "nothing is measured twice"


def test_candidate_that_is_hardly_faster_is_not_chosen(gpu):
    assert tuned_by([1.0, 0.98, 1.0, 1.0, 1.0, 1.0, 1.0]) == print_kernel(KERNEL)


def test_a_variant_that_the_gpu_does_not_take_is_left_out(gpu):
    def load(printed):
        return [None if number == 1 else placed(one) for number, one in enumerate(printed)]

    found = tuned_by([3.0, 1.0, 2.0, 3.0, 3.0, 3.0], load)
    assert found not in (print_kernel(KERNEL), print_kernel(KERNEL, variant=VARIANTS[1]))


def test_where_memory_is_short_nothing_is_measured_and_it_may_be_later(gpu, monkeypatch):
    with monkeypatch.context() as short:
        short.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 1 << 30))
        assert tuned_by([]) == print_kernel(KERNEL)
    assert tuned_by([3.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0]) == print_kernel(KERNEL, variant=VARIANTS[1])


def test_other_processes_find_the_measurements(gpu, monkeypatch):
    kept = {}
    shelf = SimpleNamespace(get=kept.get, put=kept.__setitem__)
    monkeypatch.setattr(autotune_tiles.memory, "shelf", lambda: shelf)
    found = tuned_by([3.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0])
    autotune_tiles._chosen.clear()
    assert list(kept.values()) == ["1"] and tuned_by([]) == found
