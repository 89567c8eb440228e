"""Whole programs with GPU kernels in Triton's interpreter, against eager: forward, backward and training steps."""

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

import burnish
from burnish.codegen.triton.compilation.cubin_cache import emitted
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.runtime.eager.eager_philox import random_bits
from burnish.runtime.linking import cuda_module_loader

from ..schedule.parse_loops import parse_kernel
from . import simulated_gpu
from .simulated_gpu import failures, interpreted, kernel_of


def same(fn, *args, fewest=1):
    """Compiles with interpreted kernels, at least as many as given, and compares with eager."""
    want = fn(*args)
    with interpreted() as ran:
        compiled = burnish.compile(fn, fullgraph=True)
        compiled(*args)  # captured: the operators run one by one
        got = compiled(*args)
    assert len(ran) >= fewest, ran
    torch.testing.assert_close(got, want)
    return ran


def test_elements_of_several_shapes_and_types():
    x, y = torch.randn(5, 33), torch.randn(33)
    same(lambda x, y: (torch.sin(x) * y + 1, (x > y).sum(), torch.nn.functional.gelu(x.to(torch.bfloat16))), x, y)
    same(lambda x: (x // 3, x % 3, x << 1, ~x), torch.arange(-20, 20))


def test_norms_softmax_and_their_likes_are_one_kernel_each():
    x, w, b = torch.randn(6, 100), torch.randn(100), torch.randn(100)
    assert len(same(lambda x: torch.softmax(x, -1), x)) == 1
    assert len(same(lambda x: torch.nn.functional.layer_norm(x, (100,), w, b), x)) == 1
    same(lambda x: torch.log_softmax(x, 0), x)
    same(lambda x: torch.nn.functional.group_norm(x.view(2, 6, 50), 3), x)
    same(lambda x: x.cumsum(1), x)
    same(lambda x: (x.argmax(1), x.max(0), x.var(1), x.norm()), x)


def test_a_long_row_is_reduced_in_steps_and_a_very_long_one_in_parts():
    x = torch.randn(2, 20_000)
    same(lambda x: torch.softmax(x, -1), x)
    same(lambda x: x.sum(), torch.randn(1 << 17))


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_sums_of_few_channels_are_cut_over_several_dimensions(format):
    x, over = torch.randn(4, 16, 56, 40).to(memory_format=format), (0, 2, 3)
    ran = same(lambda x: torch.relu(x * x.square().mean(over, keepdim=True) + x.mean(over, keepdim=True)), x)
    assert len(ran) == 3, "parts of both sums, the sums, and what they are for"
    same(lambda x: (x.mean((0, 2, 3)), x.amax((0, 3)), x.mean()), x)


def test_views_joins_and_stores_into_inputs():
    def f(x, y):
        z = torch.cat([x.t() * 2, y[:, :3]], 1)
        y[1:3] += 1
        return z, torch.nn.functional.pad(x, (1, 2)), y.transpose(0, 1).reshape(-1)

    x, y = torch.randn(3, 4), torch.randn(4, 5)
    want = f(x, first := y.clone())
    with interpreted():
        compiled = burnish.compile(f, fullgraph=True)
        compiled(x, y.clone())
        got = compiled(x, second := y.clone())
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(first, second)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def test_forward_and_backward_of_a_block():
    block, x = Block(), torch.randn(3, 7, 16)
    want = torch.autograd.grad(block(x).pow(2).sum(), block.parameters())
    with interpreted() as ran:
        compiled = burnish.compile(block)
        compiled(x)
        got = torch.autograd.grad(compiled(x).pow(2).sum(), block.parameters())
    assert len(ran) >= 3
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_training_in_one_graph(optimizer):
    def trained(compile):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        opt = optimizer(model.parameters(), lr=0.05)

        def step(x, y):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        run = compile(step)
        x, y = torch.randn(12, 8), torch.randint(0, 4, (12,))
        return [run(x, y).item() for _ in range(4)], list(model.parameters())

    want = trained(lambda fn: fn)
    with interpreted() as ran:
        got = trained(burnish.compile)
    assert ran
    torch.testing.assert_close(got, want)


def test_a_function_that_cannot_be_printed_stays_with_the_library():
    x = torch.rand(10, dtype=torch.float64)
    with interpreted() as ran:
        compiled = burnish.compile(lambda x: torch.lgamma(x) * 2, fullgraph=True)
        compiled(x)
        got = compiled(x)
    torch.testing.assert_close(got, torch.lgamma(x) * 2)
    assert len(ran) == 1


def test_dropout_and_noise_are_drawn_in_the_kernels_that_use_them_as_a_cpus_kernels_draw_them():
    def f(x):
        return torch.nn.functional.dropout(torch.sin(x), 0.3) + torch.randn_like(x) * x

    x = torch.randn(5, 77)
    torch.manual_seed(3)
    on_cpu = burnish.compile(f)
    want = [on_cpu(x) for _ in range(3)]
    torch.manual_seed(3)
    with interpreted() as ran:
        compiled = burnish.compile(f, fullgraph=True)
        got = [compiled(x) for _ in range(3)]
    assert len(ran) == 2
    torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6)


def test_gradients_of_dropout_use_the_same_mask():
    def f(x):
        return torch.nn.functional.dropout(x.exp(), 0.5).sum()

    x = torch.randn(300, requires_grad=True)
    with interpreted():
        compiled = burnish.compile(f)
        compiled(x)
        out = compiled(x)
        (gradient,) = torch.autograd.grad(out, x)
    kept = gradient != 0
    assert 90 < kept.sum() < 210
    torch.testing.assert_close(gradient[kept], 2 * x.exp()[kept])
    torch.testing.assert_close(out, gradient.sum())


def test_a_kernel_started_by_itself_makes_random_bits_as_the_cpus_does():
    kernel = parse_kernel("""
        kernel random_bits(b0: i64, b1: i64, b2: i64 out)
          loop i0 < 256
            stage
              b2[i0] = random_bits(b0[0], add(b1[0], i0))
    """)
    made = torch.empty(256, dtype=torch.int64)
    with interpreted():
        cuda_module_loader.start(kernel_of(kernel, frozenset()), torch.tensor(42), torch.tensor(1000), made)
    assert torch.equal(made, random_bits(torch.tensor(42), (1256,))[1000:])


def test_gathers_are_fused_into_the_kernel_that_uses_them():
    words, places = torch.randn(50, 24), torch.randn(10, 24)
    at = torch.randint(0, 50, (2, 10))

    def embedded(at):
        x = torch.nn.functional.embedding(at, words) + places
        return torch.nn.functional.layer_norm(x, (24,))

    assert len(same(embedded, at)) == 1
    same(lambda x, k: x[:, k] * 2, torch.randn(3, 40), torch.randint(-40, 40, (7,)))
    same(lambda x, k: torch.gather(x, 1, k).exp(), torch.randn(3, 400), torch.randint(0, 400, (3, 5)))
    same(lambda x, k: torch.cat([x[k - 4] + 1, x[:2] * 2]), torch.randn(9, 5), torch.arange(4, 9))


@pytest.mark.parametrize("wrong", [50, -1])
def test_an_index_out_of_range_ends_the_program(wrong):
    words = torch.randn(50, 24)
    with interpreted():
        compiled = burnish.compile(lambda at: torch.nn.functional.embedding(at, words).sin(), fullgraph=True)
        for _ in range(2):
            compiled(torch.tensor([0, 49]))
        assert not failures
        with pytest.raises(IndexError):  # eager, which is asked then, as on a CPU it can be
            compiled(torch.tensor([0, wrong]))
        assert "index out of range" in str(failures[0])


def test_triton_makes_machine_code_that_looks_at_indices():
    kernel = parse_kernel("""
        kernel picked(b0: f32, b1: i64, b2: f32 out)
          loop i0 < 300
            stage
              b2[i0] = exp(b0[1*@0](within(b1[i0], 50.i64)))
    """)
    made = emitted(print_kernel(kernel), 90)
    assert made.code[:4] == b"\x7fELF" and b"index out of range" in made.code and made.parameters >= 3


def test_kernels_of_several_gpus_are_started_where_they_belong():
    def f(x):
        rows = x.sum(1)
        y = torch.softmax(x @ x.t(), 1) * rows
        return y.sin() @ y, y.amax(0)

    x = torch.randn(9, 33)
    want = f(x)
    for gpus in (2, 3):
        with interpreted(gpus) as ran:
            compiled = burnish.compile(f, fullgraph=True)
            compiled(x)
            got = compiled(x)
        assert len(ran) >= 3
        torch.testing.assert_close(got, want)


def test_a_program_runs_on_its_gpu_where_another_one_is_the_current_one():
    x = torch.randn(5)
    with interpreted() as ran:
        compiled = burnish.compile(lambda x: x.sin() + 1, fullgraph=True)
        compiled(x)
        got = simulated_gpu.elsewhere(1, compiled, x)
    assert ran
    torch.testing.assert_close(got, x.sin() + 1)
