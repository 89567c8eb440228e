"""Matrix products with unaligned rows: padded if the setting asks for it and it is faster, with eager's results."""

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

import burnish
from burnish.ops import target_record
from burnish.schedule.layouts import pad_matmul_operands

from ..ir.parse_graph import parse_graph
from ..recorded_events import recorded
from .simulated_gpu import MACHINE, interpreted


@pytest.fixture
def worth_it(monkeypatch):
    """The matrices of tests are small."""
    monkeypatch.setattr(pad_matmul_operands, "FEWEST_OPERATIONS", 0)
    monkeypatch.setattr(pad_matmul_operands, "OPERATIONS_PER_BYTE", 0)


@pytest.fixture
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def padded(text):
    with target_record.substitute_target("cpu", MACHINE):
        return str(pad_matmul_operands.pad_matmul_operands(parse_graph(text)))


def layer(m, n, k, dtype="bf16"):
    return (
        f"graph(x: {dtype}[{m}, {k}], w: {dtype}[{n}, {k}], b: {dtype}[{n}])\n"
        f"  y = linear x, w, b, None, None : {dtype}[{m}, {n}]\n  z = aten.relu.default y : {dtype}[{m}, {n}]\n"
        "  return z"
    )


def test_the_summed_dimension_is_padded_in_both_operands():
    text = padded(layer(4096, 4096, 4090))
    assert text.count("aten.constant_pad_nd") == 2 and text.count("[0, 6, 0, 0]") == 2
    assert "slice" not in text


def test_a_long_vocabulary_is_padded_in_the_weight_and_the_bias_and_cut_from_the_result():
    text = padded(layer(8192, 50257, 768))
    assert "[0, 0, 0, 7]" in text and "aten.constant_pad_nd.default b, [0, 7]" in text
    assert "bf16[8192, 50264]" in text and "slice[1: 0, 1, 50257]" in text


@pytest.mark.parametrize(
    "m, n, k, why",
    [
        (4096, 4096, 4096, "aligned"),
        (64, 64, 60, "small"),
        (64, 4096, 4090, "bound by memory"),
        (4091, 4096, 4096, "rows may be as many as they like"),
    ],
)
def test_operands_that_gain_nothing_are_not_padded(m, n, k, why):
    assert "pad" not in padded(layer(m, n, k)), why


def test_a_result_that_leaves_is_copied_and_that_counts():
    text = layer(4096, 4090, 256)
    assert "pad" in padded(text)
    assert "pad" not in padded(text.replace("return z", "return y"))


def test_float32_is_padded_where_it_is_multiplied_in_tensor_cores(tf32):
    text = layer(4096, 4096, 4093, "f32")
    assert padded(text).count("[0, 3, 0, 0]") == 2
    torch.set_float32_matmul_precision("highest")
    assert "pad" not in padded(text)


def test_transposed_operands_are_padded_in_their_layout_once_for_all_readers():
    text = padded("""graph(x: bf16[4096, 4090], w: bf16[4096, 4090], g: bf16[4096, 4096])
  y = linear x, w, None, None, None : bf16[4096, 4096]
  t = view w, permute[1, 0] : bf16[4090, 4096]{1, 4090}
  u = linear g, t, None, None, None : bf16[4096, 4090]
  v = aten.relu.default u : bf16[4096, 4090]
  return y, v""")
    assert text.count("aten.constant_pad_nd") == 2
    assert "view constant_pad_nd_1, permute[1, 0]" in text


def test_on_a_cpu_nothing_is_padded():
    text = layer(4096, 4096, 4090)
    assert "pad" not in str(pad_matmul_operands.pad_matmul_operands(parse_graph(text)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(18, 37), nn.Linear(37, 11)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        return y.softmax(-1) @ y.transpose(-1, -2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_forward_and_backward_with_padding_equal_eager(dtype, worth_it, tf32):
    net, x = Net().to(dtype), torch.randn(2, 5, 18, dtype=dtype)
    want = net(x)
    gradients = torch.autograd.grad(want.float().sum(), net.parameters())
    with recorded("lower.padded", datum="text") as said, interpreted() as ran:
        compiled = burnish.compile(net, options={"shape_padding": True})
        compiled(x)
        got = compiled(x)
        found = torch.autograd.grad(got.float().sum(), net.parameters())
    assert ran and len(said) >= 6 and any("bmm" in text for text in said)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(
        found, gradients, rtol=2e-2 if dtype is torch.bfloat16 else None, atol=2e-2 if dtype is torch.bfloat16 else None
    )


def test_infinity_and_nan_stay_where_they_are(worth_it):
    x, w = torch.randn(5, 18, dtype=torch.bfloat16), torch.randn(11, 18, dtype=torch.bfloat16)
    x[1, 3], x[2, 17], w[4, 17], w[10, 0] = float("inf"), float("nan"), float("inf"), float("-inf")
    with interpreted():
        compiled = burnish.compile(torch.nn.functional.linear, options={"shape_padding": True})
        compiled(x, w)
        got = compiled(x, w)
    torch.testing.assert_close(got, torch.nn.functional.linear(x, w), equal_nan=True)


def test_without_the_option_nothing_changes(worth_it):
    with recorded("lower.padded") as said:
        x, w = torch.randn(5, 18, dtype=torch.bfloat16), torch.randn(11, 18, dtype=torch.bfloat16)
        with interpreted():
            compiled = burnish.compile(torch.nn.functional.linear)
            compiled(x, w)
            compiled(x, w)
    assert not said
