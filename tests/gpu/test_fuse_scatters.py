"""Scatter-add kernels for GPUs, in Triton's interpreter, against eager."""

import pytest
import torch

pytest.importorskip("triton")

import burnish
from burnish.codegen.triton.compilation.cubin_cache import emitted
from burnish.codegen.triton.kernel_function import print_kernel
from burnish.schedule.loops.loop_ir import print_kernel as text_of

from ..recorded_events import recorded
from ..schedule.parse_loops import parse_kernel
from .simulated_gpu import interpreted
from .test_whole_programs import same


def messages(x, w, source, target):
    """A layer of a network over graphs: of each edge the weighted neighbour, added up at its target."""
    sent = x[source] * w[:, None]
    return torch.zeros_like(x).index_add_(0, target, sent) + x


@pytest.fixture
def edges():
    torch.manual_seed(0)
    return torch.randn(20, 33), torch.randn(300), torch.randint(0, 20, (300,)), torch.randint(0, 20, (300,))


def test_messages_are_added_where_they_are_computed(edges):
    ran = same(messages, *edges)
    assert ran[-2:] == ["add_at", "add"]


def test_several_of_them_follow_one_another(edges):
    def f(x, w, source, target):
        y = messages(x, w, source, target)
        return messages(torch.relu(y), w.exp(), target, source).sum(1), y.amax(0)

    same(f, *edges)


def test_target_of_an_addition_is_unchanged_for_other_readers():
    x, target, v = torch.randn(6, 4), torch.randint(0, 6, (9,)), torch.randn(9, 4)
    same(lambda x: (x.index_add(0, target, v.exp()), x * 2), x)
    same(lambda x: x.t().index_add(1, target, v.t().exp()), x)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(7, 9), (3, 300), (130, 2)])
def test_each_element_may_have_an_index_of_its_own(dim, shape):
    index = torch.randint(0, 5, shape)
    size = [5 if k == dim else n for k, n in enumerate(shape)]
    same(lambda v: torch.zeros(size).scatter_add(dim, index, v.sin()), torch.randn(shape))


def test_many_elements_of_a_row_may_go_to_one_place():
    index = torch.randint(0, 5, (40, 1)).expand(40, 30)
    same(lambda v: torch.ones(5, 30).scatter_add(0, index, v.sin()), torch.randn(40, 30))
    same(lambda v: torch.zeros(40, 5).scatter_add(1, index, v.sin()), torch.randn(40, 30))


def test_sums_of_rows_and_their_softmax_are_added():
    target = torch.randint(0, 4, (50,))
    long = torch.randn(50, 300, dtype=torch.float64)
    same(lambda v: torch.zeros(4, dtype=v.dtype).index_add(0, target, v.sum(1) * 2), long)
    same(lambda v: torch.zeros(4, 30).index_add(0, target, torch.softmax(v, 1)), torch.randn(50, 30))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_of_several_types(dtype):
    target = torch.randint(0, 4, (50,))
    v = torch.randint(-3, 4, (50, 3)).to(dtype)
    same(lambda v: torch.zeros(4, 3, dtype=dtype).index_add(0, target, v * 2), v)


def test_where_torch_is_asked_for_one_order_it_stays_with_torch(edges):
    torch.use_deterministic_algorithms(True)
    try:
        assert "add_at" not in same(messages, *edges)
        assert "+=" not in shown_loops(edges)
    finally:
        torch.use_deterministic_algorithms(False)
    assert "+=" in shown_loops(edges)


def shown_loops(edges):
    with recorded("loops", datum="text") as found:
        same(messages, *edges)
    return "\n".join(found)


def test_gradients_of_an_index_are_added_up():
    x, at = torch.randn(9, 5, requires_grad=True), torch.randint(0, 9, (40,))
    (want,) = torch.autograd.grad(x.index_select(0, at).sin().sum(), x)
    with interpreted():
        compiled = burnish.compile(lambda x: x.index_select(0, at).sin().sum())
        compiled(x)
        (got,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(got, want)


ADDING = """
kernel adding(b0: f32 out, b1: i64, b2: f32)
  loop i0 < 300 rows, i1 < 40
    stage
      r0 = sum.f32 b2[40*i0 + i1]
      row b0[1*@0](within(b1[i0], 50.i64)) += r0
"""


def test_adding_stores_print_and_parse():
    kernel = parse_kernel(ADDING)
    assert kernel.loops[0].stages[0].row_stores[0].adds
    assert parse_kernel(text_of(kernel)) == kernel and " += r0" in text_of(kernel)


def test_triton_makes_machine_code_that_adds(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert emitted(print_kernel(parse_kernel(ADDING)), 90).code[:4] == b"\x7fELF"
