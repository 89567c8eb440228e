"""Products with weights of integers by our own kernel: right on every format, size, layout and dtype."""

import itertools
from dataclasses import replace

import pytest
import torch

from burnish.codegen.llvm import target_cpu
from burnish.codegen.llvm.compile_to_machine_code import emitted, symbols
from burnish.codegen.llvm.functions.quantized import int4_fixed_point_product, integer_product, quantized_product_code
from burnish.codegen.llvm.target_cpu import preset
from burnish.runtime.program.native_kernels import load
from burnish.schedule.library.autotune_library_calls import candidates, choose
from burnish.schedule.library.call_specs import IntegerSpec, QuantizedSpec
from burnish.schedule.library.candidate import bound
from burnish.schedule.library.measure_candidates import bind
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.quantized_product import (
    MOST_BLOCKS,
    NAME,
    most_rows,
    own_integers,
    own_quantized,
    product_of,
    why_not_integers,
    why_not_quantized,
)
from burnish.tensors.quantized_linear_reference import dequantized
from burnish.tensors.tensor_types import TensorType

from .library_references import error, typical

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="this machine has no kernels for products"
)

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
DTYPES = [F32, BF16, F16]
BYTES = {8: torch.int8, 4: torch.uint8}


def quantized(m, n, k, dtype, bits=8, group=None, scales=F32, shifts=None, bias=False, offset=0, **layouts):
    group = group or k

    def type(name, shape, dtype):
        found = layouts.get(name)
        return TensorType.contiguous(shape, dtype) if found is None else TensorType(shape, found, dtype)

    return QuantizedSpec(
        type("x", (m, k), dtype),
        type("weight", (n, k * bits // 8), layouts.get("bytes", BYTES[bits])),
        scales and type("scales", (n, k // group), scales),
        shifts and type("shifts", (n, k // group), shifts),
        type("bias", (n,), dtype) if bias else None,
        bits,
        group,
        offset,
    )


def random_inputs(spec):
    numbers = torch.Generator().manual_seed(1)
    made = {}
    for name, type in spec.inputs.items():
        tensor = torch.empty_strided(type.shape, type.stride, dtype=type.dtype)
        if type.dtype.is_floating_point:
            tensor.copy_(torch.randn(type.shape, generator=numbers))
        else:
            low, high = (-128, 128) if type.dtype is torch.int8 else (0, 256)
            tensor.copy_(torch.randint(low, high, type.shape, generator=numbers, dtype=torch.int16))
        made[name] = tensor
    return made


def exact(spec, inputs):
    numbers = inputs["weight"].contiguous()
    if spec.bits == 4:
        numbers = torch.stack((numbers & 15, numbers >> 4), -1).flatten(1)
    weight = (numbers.double() - spec.offset).view(numbers.shape[0], -1, spec.group)
    if "scales" in inputs:
        weight = weight * inputs["scales"].double()[:, :, None]
    if "shifts" in inputs:
        weight = weight + inputs["shifts"].double()[:, :, None]
    product = inputs["x"].double() @ weight.flatten(1).t()
    return product + inputs["bias"].double() if "bias" in inputs else product


def magnitude(spec, inputs):
    """The sums of the terms' magnitudes, to which rounding errors of float32 are relative."""
    largest = {name: value.abs() if name != "weight" else value for name, value in inputs.items()}
    scale = largest["scales"].double().max() if "scales" in inputs else 1.0
    shift = largest["shifts"].double().max() if "shifts" in inputs else 0.0
    number = (15 if spec.bits == 4 else 255) + spec.offset
    return (largest["x"].double().sum(1) * (number * scale + shift)).max().item()


def check(spec, inputs=None):
    """Into memory full of NaN, with nothing beside it touched, and with at most twice eager's error, or twice the
    typical one of such a sum where eager's is smaller by luck."""
    candidate = own_quantized(spec)
    assert candidate is not None, why_not_quantized(spec)
    inputs = random_inputs(spec) if inputs is None else inputs
    right = exact(spec, inputs)
    said = candidate.output
    memory = torch.full((said.numel + 128,), torch.nan, dtype=said.dtype)
    out = memory[64:-64].view(said.shape)
    bound(candidate, [out], bind(candidate, inputs))()
    eager = candidates(spec)[0]
    allowed = 2 * max(error(eager.run(*bind(eager, inputs)), right), typical(spec, right, said.dtype))
    if spec.x.shape[1] < 16:  # few terms, whose roundings do not average out
        allowed = max(allowed, torch.finfo(F32).eps / 2 * magnitude(spec, inputs))
    assert error(out, right) <= allowed
    assert memory[:64].isnan().all() and memory[-64:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [1, 2, 5, 8, 20])
def test_one_scale_for_each_row_and_odd_sizes(m, dtype):
    for (k, n), bits in itertools.product([(6, 33), (70, 40), (1026, 129), (2816, 17), (264, 1)], [8, 4]):
        check(quantized(m, n, k, dtype, bits, bias=n == 40, offset=8 if bits == 4 else 0))
    check(quantized(m, 65, 1025, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [1, 3, 6])
def test_groups_with_scales_and_shifts(m, dtype):
    scales = {1: BF16, 3: F32, 6: F16}[m]
    for group, k in [(32, 320), (64, 64), (64, 1152), (128, 2048), (1024, 2048)]:
        for bits, shifts in [(8, scales), (4, None), (4, scales)]:
            offset = {8: 0, 4: 8}[bits]
            check(quantized(m, 37, k, dtype, bits, group, scales, shifts, bias=m == 3, offset=offset))


@pytest.mark.parametrize("bits", [8, 4])
def test_scales_shifts_and_offsets_that_are_missing_or_odd(bits):
    for scales, shifts, offset in itertools.product([None, F32], [None, BF16], [0, 7, 128]):
        for group in (None, 64):
            check(quantized(2, 20, 192, F32, bits, group, scales, shifts, offset=offset))


def test_unsigned_bytes():
    for offset in (0, 128):
        check(quantized(1, 40, 300, F32, offset=offset, bytes=torch.uint8))
        check(quantized(3, 40, 256, BF16, 8, 64, shifts=F32, offset=offset, bytes=torch.uint8))


def test_few_outputs_and_many_tasks():
    for n in (1, 2, 3, 15, 16, 17, 700, 1301):
        check(quantized(1, n, 640, BF16))
        check(quantized(3, n, 64, F32, 4, 32, bias=True))


def test_steps_of_x_the_weight_and_the_scales_that_are_not_their_widths():
    check(quantized(4, 48, 70, F32, x=(99, 1), weight=(83, 1)))
    check(quantized(4, 48, 64, BF16, 4, 32, shifts=BF16, weight=(40, 1), scales=F32))
    check(quantized(1, 48, 70, F16, weight=(70, 1)))
    check(quantized(9, 48, 128, F16, 4, 64, x=(130, 1)))


@pytest.mark.parametrize("bits", [8, 4])
def test_nan_and_infinity_stay_in_their_row(bits):
    spec = quantized(4, 64, 70, F32, bits)
    inputs = random_inputs(spec)
    inputs["weight"] |= 17
    inputs["x"][1, 69] = torch.nan
    inputs["x"][2, 3] = torch.inf
    out = own_quantized(spec).run(*(inputs[name] for name in own_quantized(spec).operands))
    assert out[1].isnan().all() and not out[2].isfinite().any()
    assert out[0].isfinite().all() and out[3].isfinite().all()


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("m", [1, 2, 6])
def test_numbers_of_4_bits_as_integers(m, dtype):
    """Where the processor multiplies bytes; elsewhere as floats, with the same results."""
    for group, k in [(128, 128), (128, 640), (256, 1024), (1024, 2048), (None, 128), (None, 896), (None, 4096)]:
        for scales, shifts, offset in [(BF16, BF16, 8), (F32, None, 8), (None, F16, 0)]:
            check(quantized(m, 37, k, dtype, 4, group, scales, shifts, bias=m == 2, offset=offset))


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_numbers_of_any_size_keep_their_precision(dtype):
    """One large number beside small ones that the weight multiplies with more; chunks of very different size."""
    spec = quantized(1, 40, 512, dtype, 4, 128, offset=8)
    inputs = random_inputs(spec)
    inputs["x"][:, :128] *= 1000
    inputs["x"][:, 128:256] /= 1000
    inputs["x"][:, 5] = 30000
    inputs["weight"][:, 2] = 0x88  # an odd and an even number: nothing
    check(spec, inputs)
    inputs["x"].zero_()
    check(spec, inputs)
    if dtype is BF16:
        for size in (1e-30, 1e30):
            inputs = random_inputs(spec)
            inputs["x"] *= size
            check(spec, inputs)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_non_finite_numbers_stay_in_their_row_of_integers(value):
    spec = quantized(3, 40, 256, BF16, 4, 128, BF16, offset=8)
    inputs = random_inputs(spec)
    inputs["x"][1, 200] = value
    own = own_quantized(spec)
    out = own.run(*(inputs[name] for name in own.operands))
    assert not out[1].isfinite().any() and out[0].isfinite().all() and out[2].isfinite().all()


def test_which_products_are_computed_as_integers():
    machine = replace(preset("x86-64-v4"), features="+avx512vnni")
    wanted = [
        (quantized(1, 8, 256, BF16, 4, 128), True),
        (quantized(1, 8, 256, F32, 4, 128), False),
        (quantized(1, 8, 256, BF16, 4, 64), False),
        (quantized(1, 8, 256, BF16, 8, 128), False),
    ]
    for spec, is_wanted in wanted:
        product = product_of(spec, 1)
        assert (int4_fixed_point_product.why_not_fixed_point(product, machine) is None) is is_wanted
        assert int4_fixed_point_product.why_not_fixed_point(product, preset("x86-64-v3")) is not None


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_machines_have_the_same_kernels(machine, dtype, monkeypatch):
    if target_cpu.why_not_runnable(machine) is not None:
        pytest.skip("this processor cannot run it")
    there = preset(machine)

    def function(form):
        text = quantized_product_code.print_quantized(form, there)
        return load(emitted(text, there), "quantized", symbols())

    monkeypatch.setattr(quantized_product_code, "host", lambda: there)
    monkeypatch.setattr(quantized_product_code, "function", function)
    for m, bits in itertools.product([1, 6], [8, 4]):
        check(quantized(m, 35, 74, dtype, bits, bias=True, offset=8))
        check(quantized(m, 35, 256, dtype, bits, 64, BF16, F32, offset=8))


@pytest.mark.parametrize(
    "spec",
    [
        quantized(MOST_BLOCKS * most_rows(64) + 1, 64, 64, F32),
        quantized(1, 64, 64, torch.float64),
        quantized(1, 64, 64, F32, group=4),
        quantized(1, 64, 64, F32, scales=torch.float64),
        quantized(0, 64, 64, F32),
        quantized(1, 64, 64, F32, weight=(1, 64)),
        quantized(2, 64, 64, F32, x=(1, 2)),
        quantized(1, 4, 200_000, F32),
    ],
)
def test_other_products_are_refused(spec):
    assert why_not_quantized(spec) is not None
    assert NAME not in [candidate.name for candidate in candidates(spec)]


def test_few_rows_are_ours_without_measuring():
    choice = choose(quantized(1, 256, 256, BF16), seconds=0.0)
    assert choice.candidate.name == NAME and choice.seconds is None


def test_the_meaning_of_the_primitive_in_eager():
    spec = quantized(3, 20, 64, F32, 4, 32, BF16, BF16, offset=8)
    inputs = random_inputs(spec)
    weight = dequantized(inputs["weight"], inputs["scales"], inputs["shifts"], 4, 32, 8, F32)
    assert weight.shape == (20, 64)
    assert error(inputs["x"] @ weight.t(), exact(spec, inputs)) < 1e-4


# ---- products of integers


def integers(m, n, k, **layouts):
    types = {"x": (m, k), "weight": (n, k)}
    return IntegerSpec(
        **{name: TensorType(shape, layouts.get(name, (k, 1)), torch.int8) for name, shape in types.items()}
    )


def check_integers(spec):
    candidate = own_integers(spec)
    assert candidate is not None, why_not_integers(spec)
    inputs = random_inputs(spec)
    memory = torch.full((candidate.output.numel + 128,), -7, dtype=torch.int32)
    bound(candidate, [memory[64:-64].view(candidate.output.shape)], bind(candidate, inputs))()
    assert torch.equal(memory[64:-64].view(candidate.output.shape), inputs["x"].int() @ inputs["weight"].int().t())
    assert (memory[:64] == -7).all() and (memory[-64:] == -7).all()


@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_products_of_integers_are_exact(m):
    for n, k in [(1, 1), (2, 63), (33, 64), (17, 65), (40, 1000), (700, 256)]:
        check_integers(integers(m, n, k))
    check_integers(integers(m, 20, 70, x=(99, 1), weight=(83, 1)))


def test_the_largest_integers_do_not_saturate():
    spec = integers(1, 4, 4096)
    for a, b in itertools.product([-128, 127], repeat=2):
        x, weight = torch.full((1, 4096), a, dtype=torch.int8), torch.full((4, 4096), b, dtype=torch.int8)
        assert torch.equal(own_integers(spec).run(x, weight), torch.full((1, 4), 4096 * a * b, dtype=torch.int32))


@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_products_of_integers_on_machines_without_the_instruction(machine, monkeypatch):
    if target_cpu.why_not_runnable(machine) is not None:
        pytest.skip("this processor cannot run it")
    there = preset(machine)

    def function(form):
        text = integer_product.print_integers(form, there)
        assert "vpdpbusd" not in text
        return load(emitted(text, there), "quantized", symbols())

    monkeypatch.setattr(integer_product, "host", lambda: there)
    monkeypatch.setattr(integer_product, "function", function)
    for m in (1, 6):
        check_integers(integers(m, 35, 75))
        check_integers(integers(m, 35, 256))


@pytest.mark.parametrize(
    "spec",
    [integers(9, 8, 64), integers(1, 8, 64, weight=(1, 8)), integers(2, 8, 64, x=(1, 2)), integers(8, 8, 50_000)],
)
def test_other_products_of_integers_are_torchs(spec):
    assert why_not_integers(spec) is not None and [c.name for c in candidates(spec)] == ["_int_mm"]
