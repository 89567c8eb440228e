"""`burnish.quantize_`: its effect on a model, and that graphs read integers, also in third-party layers."""

import copy
import io
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.frontend import quantize_linear_layers

from ..recorded_events import recorded

FORMATS = ["int8", "int4", "int8_dynamic"]


class Block(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.up = nn.Linear(64, 96, dtype=dtype)
        self.down = nn.Linear(96, 64, bias=False, dtype=dtype)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def compiled_calls(fn, *inputs):
    """The results of three calls, and the library calls in the last plan."""
    with recorded("loops", datum="plan") as plans:
        compiled = burnish.compile(fn, fullgraph=True)
        with torch.no_grad():
            for _ in range(3):
                out = compiled(*inputs)
    return out, re.findall(r"call \w+ = (run <[^>]*>|\S+)", str(plans[-1]))


# ---- the model


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_results_are_near_those_of_the_floats(format, dtype):
    torch.manual_seed(0)
    model = Block(dtype)
    x = torch.randn(5, 64, dtype=dtype)
    right = model(x)
    assert burnish.quantize_(model, format, group_size=32) is model
    assert model(x).dtype is dtype
    assert distance(model(x), right) < (0.15 if format == "int4" else 0.03)
    assert distance(burnish.compile(model)(x), model(x)) < 5e-3


@pytest.mark.parametrize("format", FORMATS)
def test_the_structure_of_the_model_stays(format):
    model = burnish.quantize_(Block(), format, group_size=32)
    assert isinstance(model.up, nn.Linear) and isinstance(model.up, burnish.QuantizedLinear)
    assert list(model.state_dict())[:2] == ["up.weight", "up.bias"]
    assert not model.up.weight.is_floating_point() and not model.up.weight.requires_grad
    assert f"format='{format}'" in repr(model) and "in_features=64, out_features=96" in repr(model)
    size = sum(p.nbytes for p in model.up.parameters()) - model.up.bias.nbytes
    assert size == 96 * 64 // (2 if format == "int4" else 1)


@pytest.mark.parametrize("format", FORMATS)
def test_copies_and_saved_models_give_the_same(format):
    model = burnish.quantize_(Block(), format, group_size=32)
    x = torch.randn(2, 64)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = burnish.quantize_(Block(), format, group_size=32)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), model(x))
    whole = io.BytesIO()
    torch.save(model, whole)
    whole.seek(0)
    assert torch.equal(torch.load(whole, weights_only=False)(x), model(x))


def test_one_layer_at_two_places_stays_one():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
    model.append(model[0])
    burnish.quantize_(model)
    assert model[2] is model[0] and isinstance(model[0], burnish.QuantizedLinear)


def test_a_head_that_shares_its_weight_with_an_embedding_gets_its_own():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(40, 32)
            self.head = nn.Linear(32, 40, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model = Tied()
    tokens = torch.tensor([[1, 7]])
    right, before = model(tokens), model.embed.weight
    burnish.quantize_(model)
    assert model.embed.weight is before and model.head.weight.dtype is torch.int8
    assert distance(model(tokens), right) < 0.03


def test_hooks_and_the_mode_of_a_layer_stay():
    model = Block().eval()
    seen = []
    model.up.register_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
    burnish.quantize_(model)
    model(torch.randn(1, 64))
    assert seen == ["QuantizedLinear"] and not model.up.training


def test_a_filter_says_which_layers():
    model = burnish.quantize_(Block(), filter=lambda module, name: name == "down")
    assert type(model.up) is nn.Linear and isinstance(model.down, burnish.QuantizedLinear)


def test_gradients_flow_to_the_input_and_not_to_the_integers():
    model = burnish.quantize_(Block())
    x, y = (torch.ones(3, 64, requires_grad=True) for _ in range(2))
    model(x).square().sum().backward()
    burnish.compile(model)(y).square().sum().backward()
    assert distance(y.grad, x.grad) < 1e-5
    assert model.up.weight.grad is None and model.up.bias.grad is not None
    with pytest.raises(RuntimeError, match="floating point"):
        model.up.weight.requires_grad_()


def test_weights_of_zeros_stay_zeros():
    for format in FORMATS:
        model = nn.Sequential(nn.Linear(32, 8, bias=False))
        nn.init.zeros_(model[0].weight)
        burnish.quantize_(model, format, group_size=16)
        assert torch.equal(model(torch.randn(2, 32)), torch.zeros(2, 8))


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (Block(), {"format": "int3"}, "'int3' is not one of 'int8', 'int4'"),
        (Block(), {"format": "int4", "group_size": 128}, "take group_size=64"),
        (nn.Sequential(nn.Linear(10, 4)), {"format": "int4"}, "take format='int8'"),
        (nn.Linear(4, 4), {}, "nn.Sequential"),
        (nn.Sequential(nn.ReLU()), {}, "no nn.Linear"),
        (Block(torch.float64), {}, "Convert the model"),
        (burnish.quantize_(Block()), {"filter": lambda module, name: name == "up"}, "quantized already"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {"filter": lambda module, name: True}, "Only nn.Linear"),
        (lambda x: x, {}, "expected a module"),
    ],
)
def test_errors_say_what_to_do(model, arguments, message):
    before = copy.deepcopy(model)
    with pytest.raises(burnish.UserError, match=re.escape(message)):
        burnish.quantize_(model, **arguments)
    assert repr(before).partition(" at ")[0] == repr(model).partition(" at ")[0]


# ---- graphs


@pytest.mark.parametrize("format", ["int8", "int4"])
@pytest.mark.parametrize("rows", [1, 4])
def test_few_rows_read_integers_in_one_kernel(format, rows):
    model = burnish.quantize_(Block(torch.bfloat16), format, group_size=32)
    x = torch.randn(rows, 64, dtype=torch.bfloat16)
    out, calls = compiled_calls(model, x)
    assert calls == ["run <own quantized>"] * 2
    assert distance(out, model(x)) < 0.01


def test_rounded_inputs_are_multiplied_as_floats_where_torch_overflows(monkeypatch):
    """Products of int8 that oneDNN cuts to 16 bits were off by a quarter, on processors without VNNI."""
    monkeypatch.setattr(quantize_linear_layers, "HAS_EXACT_PRODUCT", False)
    model, x = Block(), torch.randn(30, 64)
    right = model(x)
    burnish.quantize_(model, "int8_dynamic")
    out, calls = compiled_calls(model, x)
    assert distance(model(x), right) < 0.03 and distance(out, model(x)) < 1e-5
    assert not any("int_mm" in call or "integers" in call for call in calls)


@pytest.mark.parametrize("length", [64, 40001])
def test_products_of_integers_as_floats_are_exact_under_autocast(monkeypatch, length):
    monkeypatch.setattr(quantize_linear_layers, "HAS_EXACT_PRODUCT", False)
    x, y = (torch.randint(lowest, 128, (8, length), dtype=torch.int8) for lowest in (-127, 100))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = quantize_linear_layers.product_of_integers(x, y.t())
    assert made.dtype == torch.float32 and torch.equal(made, (x.long() @ y.long().t()).float())


@pytest.mark.skipif(not quantize_linear_layers.HAS_EXACT_PRODUCT, reason="torch's product of int8 overflows here")
def test_rounded_inputs_are_multiplied_as_integers():
    model = burnish.quantize_(Block(torch.bfloat16), "int8_dynamic")
    for rows, wanted in ((2, "run <own integers>"), (30, "aten._int_mm.default")):
        x = torch.randn(rows, 64, dtype=torch.bfloat16)
        out, calls = compiled_calls(model, x)
        assert calls == [wanted] * 2
        assert distance(out, model(x)) < 0.01


def test_many_rows_keep_no_floats_between_calls():
    model = burnish.quantize_(Block(), "int4", group_size=32)
    x = torch.randn(200, 64)
    out, calls = compiled_calls(model, x)
    assert calls.count("run <own dequantized>") == 2
    assert distance(out, model(x)) < 1e-5


def test_any_number_of_rows_with_one_graph():
    model = burnish.quantize_(Block(), "int4", group_size=32)
    compiled = burnish.compile(model, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (20, 33, 9, 2, 100, 1):
            x = torch.randn(rows, 64)
            assert distance(compiled(x), model(x)) < 1e-5


def test_integers_that_change_are_read_again():
    model = burnish.quantize_(Block())
    compiled = burnish.compile(model)
    x = torch.randn(1, 64)
    with torch.no_grad():
        for _ in range(4):
            assert distance(compiled(x), model(x)) < 1e-5
            model.up.weight.add_(1)
            model.down.scales.mul_(1.5)


class PostScaled(nn.Module):
    """As in gpt-fast: the scale is multiplied after the product."""

    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (48, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(48, dtype=dtype))

    def forward(self, x):
        return F.linear(x, self.weight.to(dtype=x.dtype)) * self.scales


class Grouped(nn.Module):
    """Groups as rows of their own, and integer zero points."""

    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (48, 32), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(48 * 2, 1, dtype=dtype))
        self.register_buffer("zero", torch.randint(0, 16, (48 * 2, 1), dtype=torch.uint8))

    def forward(self, x):
        low, high = self.weight & 15, (self.weight >> 4) & 15
        numbers = torch.cat([low.unsqueeze(-1), high.unsqueeze(-1)], dim=-1).reshape(-1, 32)
        weight = (numbers.to(x.dtype) - self.zero.to(x.dtype)) * self.scale
        return F.linear(x, weight.view(48, 64))


class Subtracted(nn.Module):
    """Signed numbers of 4 bits, repeated scales, and a shift behind them."""

    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (48, 32), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(48, 2, dtype=dtype))
        self.register_buffer("shift", torch.rand(48, 1, dtype=dtype))
        self.bias = nn.Parameter(torch.randn(48, dtype=dtype))

    def forward(self, x):
        numbers = torch.stack([self.weight & 0xF, self.weight >> 4], dim=-1).flatten(1).to(torch.int8) - 8
        weight = numbers.to(x.dtype) * self.scale.repeat_interleave(32, dim=1) + self.shift
        return torch.addmm(self.bias, x, weight.t())


class PerTensor(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (48, 64), dtype=torch.int8))
        self.register_buffer("scale", torch.rand((), dtype=dtype))

    def forward(self, x):
        return x @ (self.weight.to(x.dtype) * self.scale * 0.5).T


STRANGERS = [PostScaled, Grouped, Subtracted, PerTensor]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", STRANGERS)
def test_dequantization_of_other_layers_is_fused(kind, dtype):
    torch.manual_seed(0)
    model = kind(dtype)
    x = torch.randn(2, 64, dtype=dtype)
    out, calls = compiled_calls(model, x)
    assert calls == ["run <own quantized>"]
    right = copy.deepcopy(model).double()(x.double())
    assert distance(out, right) <= max(2 * distance(model(x), right), torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_torchs_own_products_of_integers_are_part_of_a_graph(dtype):
    torch.manual_seed(0)
    x, q, s = torch.randn(2, 64, dtype=dtype), torch.randint(-128, 128, (64, 64), dtype=torch.int8), torch.rand(64)
    out, calls = compiled_calls(lambda x: torch.ops.aten._weight_int8pack_mm(x, q, s.to(dtype)), x)
    assert calls == ["run <own quantized>"]
    right = x.double() @ (q.double() * s.to(dtype).double()[:, None]).T
    assert distance(out, right) <= torch.finfo(dtype).eps
    numbers = torch.randint(0, 16, (64, 64), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    groups = torch.rand(2, 64, 2, dtype=torch.bfloat16)

    def grouped(x):
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, 32, groups) + 1

    out, calls = compiled_calls(grouped, x.bfloat16())
    assert calls == ["aten._weight_int4pack_mm_for_cpu.default"]
    assert distance(out, grouped(x.bfloat16())) < 0.01


@pytest.mark.parametrize("kind", STRANGERS)
def test_weights_that_are_arguments_are_fused_too(kind):
    model = kind(torch.float32)
    buffers = dict(model.named_buffers()) | dict(model.named_parameters())

    def call(buffers, x):
        return torch.func.functional_call(model, buffers, (x,))

    x = torch.randn(3, 64)
    out, _ = compiled_calls(call, buffers, x)
    assert distance(out, model(x)) < 1e-5


@pytest.mark.parametrize(
    "weight",
    [
        lambda q, s: (q + q).to(torch.float32) * s,  # bytes wrap around
        lambda q, s: q.to(torch.float32) * s * torch.linspace(0, 1, 64),  # a scale for each column
        lambda q, s: q.to(torch.float32).relu() * s,
        lambda q, s: q.to(torch.float32).T.contiguous().T * s,
        lambda q, s: q.view(8, 6, 64).transpose(0, 1).reshape(48, 64).to(torch.float32) * s,  # rows in another order
        lambda q, s: q.to(torch.float64).mul(s).to(torch.float32),
        lambda q, s: torch.where(q > 0, q.to(torch.float32), 0.0) * s,
        lambda q, s: (q.to(torch.float32) + 1) * (q.to(torch.float32) * s),
        lambda q, s: (q.view(torch.uint8) >> 4).to(torch.float32) * s,
        lambda q, s: (q.to(torch.float32) * 0.37).to(torch.int8).to(torch.float32) * s,
        lambda q, s: (q.to(torch.float32) * 0.37).to(torch.int32) * s,
        lambda q, s: (q.to(torch.int32) * 3).to(torch.int8) * s,
        lambda q, s: q.flip(0).to(torch.float32) * s,
        lambda q, s: torch.add(q.to(torch.float32), s, alpha=2),
        lambda q, s: q[:, :1].expand(48, 64).to(torch.float32) * s,
    ],
)
def test_other_functions_of_integers_are_right(weight):
    torch.manual_seed(0)
    q = torch.randint(-128, 128, (48, 64), dtype=torch.int8)
    s = torch.rand(48, 1)
    x = torch.randn(3, 64)

    def fn(x, q, s):
        return F.linear(x, weight(q, s))

    out, _ = compiled_calls(fn, x, q, s)
    assert distance(out, fn(x, q, s)) < 1e-5


def test_a_product_that_is_read_before_its_scale_is_right():
    q, s = torch.randint(-128, 128, (48, 64), dtype=torch.int8), torch.rand(48)

    def fn(x):
        product = F.linear(x, q.to(x.dtype))
        return product * s, product.sum()

    x = torch.randn(3, 64)
    out, _ = compiled_calls(fn, x)
    assert distance(out[0], fn(x)[0]) < 1e-5 and distance(out[1], fn(x)[1]) < 1e-4
