"""Own GPU matrix products, chosen where they are faster: whole programs against eager, with simulated times."""

import contextlib
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("triton")

import burnish
from burnish.codegen.triton.compile_matmul import complain, printed_for
from burnish.schedule.fusion import gpu_matmul_prologue_epilogue_fusion
from burnish.schedule.library import autotune_gpu_matmul, gpu_matmul_spec
from burnish.schedule.library.autotune_library_calls import memory
from burnish.schedule.library.gpu_matmul_spec import KernelSpec, LaunchableKernel, Maker, MatmulTiles
from burnish.schedule.library.own_kernels.matmul_tiling_and_packing import Stream
from burnish.tensors.tensor_types import TensorType

from ..codegen.run_kernel import is_interpreted
from ..recorded_events import recorded
from ..schedule.parse_loops import parse_kernel
from . import simulated_gpu
from .simulated_gpu import interpreted

pytestmark = pytest.mark.skipif(not is_interpreted(), reason="Triton's interpreter is too old")

SMALL = (MatmulTiles(16, 32, 16, 4, 3), MatmulTiles(32, 32, 16, 4, 3))


class Workshop:
    """Makes kernels as a GPU would get them, and simulates their times."""

    def __init__(self):
        self.product_of, self.other = lambda text: 1.0, 10.0
        """Seconds of a product of ours, by its text, and of all else."""
        self.change = lambda printed: printed
        self.refuses = lambda tiles: False
        self.measured = 0

    def make(self, wanted):
        return [
            f"{tiles} takes too much"
            if tiles is not None and self.refuses(tiles)
            else self.made(printed_for(spec, tiles), tiles)
            for spec, tiles in wanted
        ]

    def made(self, printed, tiles):
        kernel = simulated_gpu.placed(printed if tiles is None else self.change(printed))
        return LaunchableKernel(kernel.launcher, kernel.words, Stream(0, lambda: simulated_gpu.STREAM, complain))

    def seconds(self, run):
        self.measured += 1
        before = len(simulated_gpu.ran)
        run()
        names = simulated_gpu.ran[before:]
        return self.product_of(simulated_gpu.texts[-1]) if any("matrix" in name for name in names) else self.other


@pytest.fixture
def workshop(monkeypatch):
    made = Workshop()
    maker = Maker(made.seconds, lambda device: contextlib.nullcontext(), lambda device: "a stand-in", made.make)
    monkeypatch.setattr(simulated_gpu, "MACHINE", replace(simulated_gpu.MACHINE, matmul_compiler=lambda: maker))
    monkeypatch.setattr(gpu_matmul_prologue_epilogue_fusion, "FEWEST_OPERATIONS", 0)
    monkeypatch.setattr(autotune_gpu_matmul, "ROUNDS", 1)
    monkeypatch.setattr(gpu_matmul_spec, "HALF", SMALL)
    monkeypatch.setattr(gpu_matmul_spec, "FULL", SMALL)
    memory.clear()
    yield made
    memory.clear()


def same(fn, *args, mode="max-autotune-no-cudagraphs", **close):
    """The kernels that ran after the first call; results equal eager's."""
    want = fn(*args)
    burnish.reset()
    with interpreted() as ran:
        compiled = burnish.compile(fn, fullgraph=True, mode=mode)
        compiled(*args)
        ran.clear()
        got = compiled(*args)
    torch.testing.assert_close(got, want, **close)
    return ran


def random(*shape, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def mlp(x, w, b, residual):
    return F.gelu(F.linear(x, w, b), approximate="tanh") + residual


ARGUMENTS = (3, 11, 24), (40, 24), (40,), (3, 11, 40)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_product_with_all_that_follows_is_one_kernel(workshop, dtype):
    ran = same(mlp, *(random(*shape, dtype=dtype) for shape in ARGUMENTS))
    assert ran == ["matrix_linear_add"]


def test_where_torch_is_faster_its_own_product_is_called(workshop):
    workshop.product_of = lambda text: 100.0
    ran = same(mlp, *(random(*shape) for shape in ARGUMENTS))
    assert len(ran) == 1 and "matrix" not in ran[0]


def test_without_max_autotune_nothing_is_measured(workshop):
    ran = same(mlp, *(random(*shape) for shape in ARGUMENTS), mode="default")
    assert not workshop.measured and "matrix" not in ran[0]


def test_prologues_are_fused_into_loads_where_that_is_faster(workshop):
    def f(x, w):
        return F.linear(torch.exp(x), w.to(torch.float16))

    args = random(2, 19, 21), random(40, 21, dtype=torch.float32)
    assert same(f, *args) == ["matrix_linear"]
    workshop.product_of = lambda text: 30.0 if "exp_f32(" in text else 1.0
    memory.clear()
    ran = same(f, *args)
    assert len(ran) == 2 and ran[-1] == "matrix_linear", "what the kernels before it take counts, and is less"


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: torch.bmm(a, b.transpose(1, 2)),
        lambda a, b: torch.relu(torch.bmm(a, b.transpose(1, 2)) * 0.5),
        lambda a, b: a[0] @ b[0].t() + b[1, 0, :1],
        lambda a, b: torch.matmul(a.unsqueeze(0), b.transpose(1, 2)).float(),
        lambda a, b: F.linear(a[0], a[0]),
        lambda a, b: F.linear(a[:, ::2, 1:17], b[0, :, 1:17]),
    ],
    ids=["bmm", "bmm relu", "mm and a number of a tensor", "four dimensions", "twice the same", "with gaps"],
)
def test_products_of_all_kinds(workshop, f):
    a, b = random(3, 37, 18), random(3, 21, 18).add(0.5)
    ran = same(f, a, b, rtol=1e-3, atol=1e-5)  # half's: a sum between two float16 values is rounded to either
    assert len(ran) == 1 and ran[0].startswith("matrix"), ran


def test_of_two_products_one_takes_the_other_on(workshop):
    def gated(x, up, gate):
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    ran = same(gated, random(2, 20, 24), random(40, 24), random(40, 24) * 0.5)
    assert len(ran) == 2 and all(name.startswith("matrix") for name in ran)


def test_values_with_other_readers_are_stored(workshop):
    def f(x, w):
        y = F.linear(x, w)
        return y, torch.relu(y) + x[:, :1]

    ran = same(f, random(40, 24), random(32, 24))
    assert len(ran) == 2 and ran[0] == "matrix_linear"


def test_index_dependent_epilogues_are_computed_afterwards(workshop):
    def f(x, w):
        return torch.relu(F.linear(x, w)).tril(), F.linear(x, w * 2).softmax(-1)

    ran = same(f, random(40, 24), random(40, 24))
    assert sum(name.startswith("matrix") for name in ran) == 2 and len(ran) == 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_forward_and_backward_of_a_block(workshop):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(2, 20, 24)
    want = torch.autograd.grad(block(x).pow(2).sum(), block.parameters())
    with interpreted() as ran:
        compiled = burnish.compile(block, mode="max-autotune-no-cudagraphs")
        compiled(x)
        ran.clear()
        got = torch.autograd.grad(compiled(x).pow(2).sum(), block.parameters())
    assert sum(name.startswith("matrix") for name in ran) >= 5
    torch.testing.assert_close(got, want)


def run_with_log(fn, *args):
    with recorded("kernels.measured", datum="text") as said:
        ran = same(fn, *args)
    return ran, "\n".join(said)


def test_a_kernel_that_computes_something_else_is_dropped(workshop):
    started = "r0 = tl.full((16, 32), {}, tl.float32)"
    workshop.change = lambda printed: replace(
        printed, text=printed.text.replace(started.format(0.0), started.format(0.5))
    )
    workshop.refuses = lambda tiles: tiles.rows != 16
    ran, said = run_with_log(mlp, *(random(*shape) for shape in ARGUMENTS))
    assert "are not those of torch's product" in said and "matrix" not in "".join(ran)


def test_a_configuration_that_cannot_be_made_leaves_the_others(workshop):
    workshop.refuses = lambda tiles: tiles.rows == 16
    ran, said = run_with_log(mlp, *(random(*shape) for shape in ARGUMENTS))
    assert "16x32x16 warps 4 stages 3 is dropped" in said and ran == ["matrix_linear_add"]
    memory.clear()
    workshop.refuses = lambda tiles: True
    ran, said = run_with_log(mlp, *(random(*shape) for shape in ARGUMENTS))
    assert "matrix" not in "".join(ran)


def test_measurements_are_cached_and_equal_layers_are_measured_once(workshop):
    def f(x, w):
        return torch.relu(F.linear(torch.relu(F.linear(x, w)), w))

    same(f, random(40, 24), random(24, 24))
    once, kept = workshop.measured, memory.export()
    same(f, random(40, 24), random(24, 24))
    assert workshop.measured == once > 0
    memory.clear()
    memory.load(kept)
    assert "".join(same(f, random(40, 24), random(24, 24))).count("matrix") == 2
    assert workshop.measured == once


def test_a_result_that_goes_on_into_other_loops_is_not_worth_a_kernel(workshop):
    """Our epilogue is computed for free there: only torch's product has to be beaten."""
    workshop.product_of = lambda text: 15.0
    args = tuple(random(*shape) for shape in ARGUMENTS)
    assert same(mlp, *args) == ["matrix_linear_add"]
    ran = same(lambda *args: mlp(*args).softmax(-1), *args)
    assert "matrix" not in "".join(ran)


def test_argument_passed_by_value_is_left_to_the_next_kernel(workshop):
    def f(x, w, scale):
        return torch.relu(F.linear(x, w)) * scale

    args = random(40, 24), random(40, 24)
    burnish.reset()
    with interpreted() as ran:
        compiled = burnish.compile(f, mode="max-autotune-no-cudagraphs")
        for scale in (0.5, 0.25, 3.0, 5.0):
            got = compiled(*args, scale)
            torch.testing.assert_close(got, f(*args, scale))
    assert any(name.startswith("matrix_linear") for name in ran)


@pytest.mark.parametrize(
    "shape, sizes, found",
    [
        ((8, 64, 768), (512, 768), (1, 1, 2)),
        ((512, 1, 768), (512, 768), (1, 2, 2)),
        ((2, 3, 5, 7), (6, 5, 7), (0, 0, 1, 2)),
        ((8, 64, 12, 64), (512, 768), (1, 1, 2, 2)),
        ((512, 768), (768, 512), None),
        ((8, 768, 64), (512, 768), None),
    ],
)
def test_dimensions_are_part_of_the_products_own(shape, sizes, found):
    dims = (1, 2) if len(sizes) == 2 else (0, 1, 2)
    assert gpu_matmul_prologue_epilogue_fusion.grouped(shape, sizes, dims) == found


def test_tilings_are_no_larger_than_the_matrix_and_keep_the_gpu_busy():
    def rows_of(m, n):
        text = f"""kernel product(b0: bf16 out, b1: bf16, b2: bf16)
  loop i0 < 1, i1 < {m}, i2 < {n} rows, i3 < 64
    stage
      r0 = sum.f32 mul(cast.f32(b1[64*i1 + i3]), cast.f32(b2[64*i2 + i3]))
      row b0[{n}*i1 + i2] = cast.bf16(r0)
"""
        types = tuple(TensorType.contiguous(shape, torch.bfloat16) for shape in ((m, n), (m, 64), (n, 64)))
        return [
            tiles.rows
            for tiles in gpu_matmul_spec.tilings(KernelSpec(parse_kernel(text), types, ("product", "a", "b")))
        ]

    assert set(rows_of(32, 4096)) == {32} and max(rows_of(64, 4096)) == 64
    assert max(rows_of(8192, 8192)) == 128 and len(rows_of(8192, 8192)) == 5
    assert max(rows_of(512, 512)) == 64, "of tiles of 128 there would be 16"


def test_where_nothing_can_be_measured_torchs_is_called_and_it_is_said_why(workshop, monkeypatch):
    args = tuple(random(*shape) for shape in ARGUMENTS)

    def full(type):
        raise torch.OutOfMemoryError("8 GB are asked for")

    with monkeypatch.context() as patched:
        patched.setattr(autotune_gpu_matmul, "random_tensor", full)
        ran, said = run_with_log(mlp, *args)
    assert "no room to measure: 8 GB" in said and "matrix" not in "".join(ran)
    monkeypatch.setattr(autotune_gpu_matmul, "MOST_BYTES", 1024)
    ran, said = run_with_log(mlp, *args)
    assert "measuring takes more than" in said and "matrix" not in "".join(ran)


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(16, 32, 3, padding=1), nn.Linear(32, 24)

    def forward(self, x):
        return self.linear(self.conv(x).flatten(2).transpose(1, 2))


def test_result_of_a_convolution_has_the_layout_the_kernel_expects(workshop):
    with torch.no_grad():
        ran = same(Pixels().eval(), random(2, 16, 20, 20, dtype=torch.float32))
    assert any(name.startswith("matrix") for name in ran)
