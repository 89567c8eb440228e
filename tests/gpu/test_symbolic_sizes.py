"""GPU kernels with symbolic sizes: one compilation for all sizes, and eager's results for each."""

import ctypes

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("triton")

import burnish
from burnish.captured_graph.symbolic_example_inputs import Like, hollow
from burnish.codegen.triton import compile_kernels, symbolic_size_kernel
from burnish.codegen.triton.compilation.cubin_cache import emitted
from burnish.codegen.triton.symbolic_size_kernel import SymbolicTritonKernel
from burnish.compiler import compile_or_fall_back
from burnish.errors import InternalError
from burnish.runtime.linking import cuda_module_loader
from burnish.tensors.fit_size_formulas import Space

from ..codegen.run_kernel import triton_version
from ..native.compare_sizes import called_with, watching
from ..schedule.parse_loops import parse_kernel
from . import simulated_gpu
from .simulated_gpu import interpreted

SIZES = (8, 9, 10, 77, 1100, 2, 1, 0)
"""The first is compiled for by itself, the second for all. Some are no multiples of a tile, some more than one."""

LENGTHS = (80, 81, 9, 17, 700, 3, 1, 3000)


def same_for_all(fn, calls, forms):
    """So many texts of kernels serve all calls."""
    with interpreted() as ran:
        seen = called_with(fn, calls)
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert ran and len(simulated_gpu.forms) == forms, simulated_gpu.forms


BY_ROWS = {
    "element by element": (lambda x: torch.sin(x) * 2 + 1, 1),
    "broadcast": (lambda x: x * torch.arange(16) + x.shape[0], 1),
    "softmax": (lambda x: torch.softmax(x, -1), 1),
    "layer norm": (lambda x: F.layer_norm(x, (16,)), 1),
    "joined": (lambda x: torch.cat([x.sin(), torch.ones(3, 16), (x * 2).cos()]), 1),
    "with a border": (lambda x: F.pad(x, (1, 2, 3, 4)), 1),
    "neighbours": (lambda x: x[1:] * x[:-1] if len(x) > 1 else x, 1),
    "turned": (lambda x: x.t().contiguous(), 1),
    "a range": (lambda x: x + torch.arange(x.shape[0])[:, None], 1),
    "half precision": (lambda x: F.gelu(x.to(torch.bfloat16)), 1),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_one_kernel_serves_all_rows(name):
    fn, forms = BY_ROWS[name]
    same_for_all(fn, [(torch.randn(n, 16),) for n in SIZES], forms)


DOWN = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "softmax": lambda x: torch.softmax(x, 0),
    "running sums": lambda x: x.cumsum(0),
    "sum of all": lambda x: x.sum(),
}


@pytest.mark.parametrize("name", DOWN)
def test_column_reductions_with_a_symbolic_number_of_rows(name):
    """Another form holds a whole column in registers, and another one goes down it in steps."""
    fn = DOWN[name]
    forms = {"sum of all": 3}.get(name, 2)
    same_for_all(fn, [(torch.randn(n, 16),) for n in SIZES if n], forms)


LONG = {"in two dimensions": (lambda x: x.sum((0, 1)), 64), "in one": (lambda x: x.view(-1, 40).amax(0), 128)}


@pytest.mark.parametrize("name", LONG)
def test_a_long_reduction_is_cut_where_that_comes_out_even_for_all_sizes(name):
    fn, parts = LONG[name]
    with interpreted() as ran:
        seen = called_with(fn, [(torch.randn(n, 128, 40),) for n in (16, 17, 20, 3)])
    assert seen.is_open and not seen.why_apiece, seen.words
    loops = [line for text in simulated_gpu.forms for line in text.splitlines() if line.startswith("# loop")]
    assert loops and all(line.startswith(f"# loop i0 < {parts} rows, i1 < 40 rows, i2 < ") for line in loops), loops
    assert len(ran) == 2 * 6, "the parts, and what they come to, for each call but those that capture"


BY_LENGTH = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "mean": lambda x: x.mean(-1),
    "variance": lambda x: x.var(-1, correction=0),
    "best place": lambda x: x.argmax(1),
    "running sums": lambda x: x.cumsum(1),
}


@pytest.mark.parametrize("name", BY_LENGTH)
def test_rows_of_open_length_are_held_in_three_ways(name):
    same_for_all(BY_LENGTH[name], [(torch.randn(3, n),) for n in LENGTHS], 3)


def test_two_sizes_and_a_number():
    def fn(x, y, scale: float):
        return (x[:, None] * y[None] * scale).relu().sum(-1)

    with interpreted() as ran:
        seen = called_with(
            fn,
            [
                (torch.randn(n), torch.randn(m), scale)
                for n, m, scale in ((8, 5, 0.5), (9, 7, 0.5), (9, 7, 1.5), (40, 300, 2.5), (3, 2, 0.25))
            ],
        )
    assert ran and seen.is_open and not seen.why_apiece, seen.words


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = (part.view(*x.shape[:2], 2, 8).transpose(1, 2) for part in self.qkv(self.first(x)).split(16, -1))
        y = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.second(x))))


@pytest.mark.parametrize("lengths", [(7, 9, 30, 2, 90), (15, 16, 9, 8)], ids=["odd", "multiples of the heads"])
def test_forward_and_backward_of_a_block_for_all_lengths(lengths):
    block, twin = Block(), Block()
    twin.load_state_dict(block.state_dict())
    burnish.reset()
    with interpreted() as ran, watching() as seen:
        compiled = burnish.compile(twin)
        for n in lengths:
            x = torch.randn(2, n, 16)
            mine, theirs = (x.clone().requires_grad_() for _ in range(2))
            for run, given in ((compiled, mine), (block, theirs)):
                run(given).square().mean().backward()
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5)
            for p, q in zip(block.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-5)
            block.zero_grad()
            twin.zero_grad()
        made = len(simulated_gpu.forms)
        compiled(torch.randn(2, 61, 16, requires_grad=True)).sum().backward()
        assert len(simulated_gpu.forms) == made, "another size like those before takes nothing new"
    assert ran and seen.is_open and not seen.why_apiece and seen.segments == 2, seen.words


@pytest.mark.skipif(triton_version() < (3, 8), reason="this interpreter of Triton takes no sizes as bounds of loops")
def test_steps_of_training_with_batches_of_all_sizes():
    def trained(compile_kernels):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        opt = torch.optim.AdamW(model.parameters(), lr=0.05)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        run = compile_kernels(step)
        given = [(torch.randn(n, 8), torch.randint(0, 4, (n,))) for n in (12, 12, 13, 13, 17, 40, 5, 2, 600)]
        return [run(x, y).item() for x, y in given], list(model.parameters())

    want = trained(lambda fn: fn)
    burnish.reset()
    with interpreted() as ran, watching() as seen:
        got = trained(burnish.compile)
    torch.testing.assert_close(got, want)
    assert ran and seen.is_open and not seen.why_apiece, seen.words


SOFTMAX = """
kernel softmax(b0: f32, b1: f32 out)
  loop i0 < 16 rows, i1 < {n}
    stage
      r0 = max.f32 b0[{n}*i0 + i1]
    stage
      r1 = sum.f32 exp(sub(b0[{n}*i0 + i1], r0))
    stage
      b1[{n}*i0 + i1] = div(exp(sub(b0[{n}*i0 + i1], r0)), r1)
"""

JOINED = """
kernel joined(b0: f32, b1: f32, b2: f32 out)
  loop i0 < {n} rows, i1 < 64 rows
    stage
      b2[64*i0 + i1] = exp(b0[64*i0 + i1])
  loop i0 < 7 rows, i1 < 64 rows
    stage
      b2[64*i0 + i1 + {end}] = neg(b1[64*i0 + i1])
"""

SPACE = Space(("s0",), [(40,), (41,), (44,), (53,)])


def opened(text):
    return SymbolicTritonKernel(
        [parse_kernel(text.format(n=n, end=64 * n)) for (n,) in SPACE.points], frozenset(), SPACE
    )


def test_how_many_programs_run_it_follows_the_sizes():
    softmax, joined = opened(SOFTMAX), opened(JOINED)
    assert [softmax.at((n,)).grid for n in (1, 41, 256, 257, 9000)] == [8, 8, 8, 16, 16]
    for n in (0, 1, 41, 1 << 20):
        found = joined.at((n,))
        assert found.grid == -(-64 * n // 512) + 1
        assert found.sizes[:2] == (64 * n, -(-64 * n // 512)), "the rows, and the programs of the first loop"
    assert joined.at((5,)).printed is joined.at((500,)).printed


def test_values_always_divisible_by_sixteen_are_declared_so():
    assert [size.is_even for size in opened(JOINED).at((41,)).printed.sizes] == [True, False]
    assert not any(size.is_even for size in opened(SOFTMAX).at((64,)).printed.sizes)


def test_places_that_are_far_are_counted_in_64_bits():
    for text in (SOFTMAX, JOINED):
        kernel = opened(text)
        near, far = kernel.at((1 << 12,)).printed, kernel.at((1 << 30,)).printed
        assert {size.type for size in near.sizes} == {"i32"} and {size.type for size in far.sizes} == {"i64"}
        assert "(pid).to(tl.int64)" in far.text and "int64" not in near.text


def test_the_form_for_far_places_computes_the_same(monkeypatch):
    monkeypatch.setattr(symbolic_size_kernel, "NEAR", 0)
    same_for_all(lambda x: torch.softmax(x, -1) + x.argmax(1, keepdim=True), [(torch.randn(3, n),) for n in LENGTHS], 3)
    same_for_all(lambda x: torch.cat([x.sin(), x[:, :3]], 1), [(torch.randn(n, 16),) for n in SIZES], 1)
    assert all("int64" in text for text in simulated_gpu.forms)


@pytest.mark.parametrize("text", [SOFTMAX, JOINED], ids=["softmax", "joined"])
@pytest.mark.parametrize("size", [41, 1 << 12, 1 << 30])
@pytest.mark.parametrize("is_aligned", [True, False])
def test_triton_makes_machine_code_of_each_form_for_hopper(text, size, is_aligned, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    printed = opened(text).at((size,)).printed
    made = emitted(printed, 90, is_aligned)
    assert made.code[:4] == b"\x7fELF" and made.parameters >= len(printed.dtypes) + len(printed.sizes)


def test_a_form_is_compiled_and_loaded_when_a_size_first_takes_it(tmp_path, monkeypatch):
    loaded = []

    def load(code, name, shared, device):
        loaded.append(name)
        return cuda_module_loader.CudaFunction(len(loaded), shared)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(cuda_module_loader, "load", load)
    monkeypatch.setattr(
        cuda_module_loader, "launch_address", lambda: ctypes.cast(simulated_gpu.launch, ctypes.c_void_p).value
    )
    monkeypatch.setattr(compile_kernels, "_forms", {})
    (kernel,) = compile_kernels.compile_symbolic_kernels([opened(SOFTMAX)], (40,), 0)
    assert len(loaded) == 1, "for the size that was seen it is ready"
    first, second, long = (kernel.words.at((n,)) for n in (41, 200, 3000))
    assert [words.numbers[0] for words in (first, second, long)] == [1, 1, 2] and len(loaded) == 2
    count = first.numbers[8]
    assert first.numbers[9:12] == (cuda_module_loader.POINTER, cuda_module_loader.POINTER, cuda_module_loader.SIZE)
    assert (first.numbers[9 + count :], second.numbers[9 + count :], long.numbers[9 + count :]) == (
        (41,),
        (200,),
        (3000,),
    )
    others = {cuda_module_loader._launched[words.address][0]() for words in (first, second)}
    assert len(others) == 1 and len(loaded) == 3, "the form for buffers that lie anywhere serves all sizes as well"


def test_examples_of_sizes_that_find_no_room_take_none():
    like = Like((1 << 20, 1 << 20), (1 << 20, 1), torch.float64, torch.device("cpu"), False, 3, False)
    x = hollow(like)
    assert Like.of(x) == like


@pytest.mark.falls_back("sizes")
def test_with_cuda_graphs_each_size_is_compiled_separately(monkeypatch):
    monkeypatch.setattr(compile_or_fall_back, "gpus_of", lambda inputs: {torch.device("cuda", 0)})
    with watching() as seen, burnish.settings.patch(cuda_graphs=True):
        compiled = burnish.compile(lambda x: x * 2)
        for n in (4, 5, 6):
            compiled(torch.randn(n))
    assert any("CUDA graphs are recorded for fixed sizes" in why for why in seen.why_apiece), seen.words


@pytest.mark.falls_back("internal")
def test_sizes_whose_form_cannot_be_compiled_still_run(monkeypatch):
    """Some rows are held in another way, and its kernel is compiled when the first of them comes."""
    real, refused = simulated_gpu.Interpreted, []

    def first_alone(printed):
        if printed.sizes and simulated_gpu.forms:
            refused.append(printed)
            raise InternalError("codegen", "too many registers")
        return real(printed)

    monkeypatch.setattr(simulated_gpu, "Interpreted", first_alone)
    with interpreted():
        seen = called_with(lambda x: torch.softmax(x, -1), [(torch.randn(3, n),) for n in LENGTHS])
    assert seen.is_open and len(simulated_gpu.forms) == 1 and len(refused) == 2, "of each size once: 700 and 3000"
