"""Products of a few rows by our own kernel: right on every size, layout and dtype, and chosen for one token."""

import itertools

import pytest
import torch

import burnish
from burnish.codegen.llvm import target_cpu
from burnish.codegen.llvm.compile_to_machine_code import emitted, symbols
from burnish.codegen.llvm.functions import skinny_gemm
from burnish.codegen.llvm.functions.skinny_gemm_code import SkinnyGemmForm
from burnish.codegen.llvm.target_cpu import preset
from burnish.runtime.program.native_kernels import load
from burnish.schedule.library.autotune_library_calls import Measurements, candidates, choose
from burnish.schedule.library.call_specs import Activation, LinearSpec
from burnish.schedule.library.candidate import bound
from burnish.schedule.library.measure_candidates import Measurement, bind
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.skinny_gemm import MOST_ROWS, NAME, own_skinny_gemm, why_not_skinny_gemm
from burnish.tensors.tensor_types import TensorType

from .library_references import error, f32, make_inputs, reference, typical

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="this machine has no kernels for products"
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def linear(m, k, n, dtype, bias=False, x=None, weight=None):
    contiguous = TensorType.contiguous
    return LinearSpec(
        contiguous((m, k), dtype) if x is None else TensorType((m, k), x, dtype),
        contiguous((n, k), dtype) if weight is None else TensorType((n, k), weight, dtype),
        contiguous((n,), dtype) if bias else None,
    )


def check(spec, inputs=None):
    """Into memory full of NaN, with nothing beside it touched, and with at most eager's error, or the typical one of
    such a sum. In float32, whose roundings are those of the additions, either is smaller by luck."""
    candidate = own_skinny_gemm(spec)
    assert candidate is not None, why_not_skinny_gemm(spec)
    inputs = make_inputs(spec) if inputs is None else inputs
    exact = reference(spec, inputs)
    said = candidate.output
    memory = torch.full((said.numel + 128,), torch.nan, dtype=said.dtype)
    out = memory[64:-64].view(said.shape)
    bound(candidate, [out], bind(candidate, inputs))()
    eager = candidates(spec)[0]
    allowed = max(error(eager.run(*bind(eager, inputs)), exact), typical(spec, exact, said.dtype))
    assert error(out, exact) <= allowed * (1.25 if said.dtype is torch.float32 else 1.001)
    assert memory[:64].isnan().all() and memory[-64:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", range(1, MOST_ROWS + 1))
@pytest.mark.parametrize("is_transposed", [False, True])
def test_every_number_of_rows_and_odd_sizes(m, dtype, is_transposed):
    for (k, n), bias in itertools.product([(1, 33), (7, 40), (100, 65), (1025, 129), (2816, 96)], [False, True]):
        check(linear(m, k, n, dtype, bias, weight=(1, n) if is_transposed else None))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_few_outputs_and_many_tasks(dtype):
    for n in (1, 2, 3, 15, 16, 17, 31, 700, 1300):
        check(linear(1, 600, n, dtype))
        check(linear(3, 40, n, dtype, bias=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [1, 3, 8])
def test_steps_of_x_and_the_weight_that_are_not_their_widths(m, dtype):
    check(linear(m, 70, 48, dtype, x=(99, 1), weight=(83, 1)))
    check(linear(m, 70, 48, dtype, x=(0, 1), weight=(1, 51)))
    check(linear(m, 70, 48, dtype, weight=(0, 1)))  # an expanded row
    check(linear(m, 1, 48, dtype, x=(5, 3), weight=(2, 9)))
    check(linear(m, 64, 1, dtype, weight=(7, 1)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_nan_and_infinity_stay_in_their_row(dtype, is_transposed):
    spec = linear(4, 70, 64, dtype, weight=(1, 64) if is_transposed else None)
    inputs = make_inputs(spec)
    inputs["x"][1, 69] = torch.nan
    inputs["x"][2, 3] = torch.inf
    inputs["weight"][5, 66] = torch.nan
    out = own_skinny_gemm(spec).run(inputs["x"], inputs["weight"])
    want = torch.nn.functional.linear(inputs["x"].double(), inputs["weight"].double())
    assert torch.equal(out.isnan(), want.isnan())
    assert torch.equal(out.isinf(), want.to(dtype).isinf())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_few_rows_keep_denormal_numbers(dtype):
    tiny = torch.finfo(dtype).smallest_normal / 4
    x, weight = torch.full((1, 64), tiny, dtype=dtype), torch.full((32, 64), 1024.0, dtype=dtype)
    out = own_skinny_gemm(linear(1, 64, 32, dtype)).run(x, weight)
    assert torch.equal(out, torch.full_like(out, tiny * 1024 * 64))


def test_long_sums_round_no_more_than_in_eager():
    check(linear(1, 100_003, 40, torch.float32))
    check(linear(8, 50_001, 40, torch.float32))
    check(linear(2, 30_001, 64, torch.float32, weight=(1, 64)))


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("loads", [0, 2])
@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_other_machines_have_the_same_kernels(rows, dtype, loads, machine, monkeypatch):
    """With vectors of 256 bits, and of 512 without an instruction for pairs of bf16."""
    if target_cpu.why_not_runnable(machine) is not None:
        pytest.skip("this processor cannot run it")
    there = preset(machine)
    text = skinny_gemm.print_skinny_gemm(SkinnyGemmForm(rows, dtype, True, loads), there)
    assert "dpbf16ps" not in text
    function = load(emitted(text, there), "thin", symbols())
    monkeypatch.setattr(skinny_gemm, "host", lambda: there)
    monkeypatch.setattr(skinny_gemm, "function", lambda form: function)
    monkeypatch.setattr(skinny_gemm, "columns_form", lambda product, machine: SkinnyGemmForm(rows, dtype, True, loads))
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    for k, n in [(67, 130), (512, 96)]:
        check(linear(rows, k, n, kind, True, weight=(1, n) if loads else None))


@pytest.mark.parametrize(
    "spec",
    [
        linear(MOST_ROWS + 1, 64, 64, torch.float32),
        linear(1, 64, 64, torch.float64),
        linear(1, 0, 64, torch.float32),
        linear(0, 64, 64, torch.float32),
        linear(1, 64, 64, torch.float32, weight=(128, 2)),
        linear(4, 64, 64, torch.float32, x=(1, 4)),
        linear(1, 64, 64, torch.float32, x=(1, 2)),
        linear(1, 64, 20, torch.float32, weight=(1, 20)),
        LinearSpec(f32(1, 64), f32(64, 64), activation=Activation("relu")),
        LinearSpec(f32(1, 64), f32(64, 64), residual=f32(1, 64)),
        LinearSpec(f32(1, 64), f32(64, 64), TensorType((64,), (0,), torch.float32)),
    ],
)
def test_other_products_are_refused(spec):
    assert why_not_skinny_gemm(spec) is not None
    assert NAME not in [candidate.name for candidate in candidates(spec)]


def test_a_large_weight_is_measured_on_a_part_and_never_packed():
    seen = []

    def pinned(offered):
        seen.extend(offered)
        return Measurement({candidate.name: 1.0 for candidate in offered} | {NAME: 0.5})

    memory = Measurements()
    memory.pinned = pinned
    spec = LinearSpec(f32(1, 1024), f32(32000, 1024), is_frozen=True)
    assert choose(spec, seconds=0.001, memory=memory).candidate.name == NAME
    assert all(candidate.prepare is None for candidate in seen)
    assert all(candidate.spec.weight.bytes <= 8 << 20 for candidate in seen)


def test_a_small_product_is_ours_where_eager_has_no_native_call():
    assert choose(linear(1, 32, 32, torch.bfloat16), seconds=0.001).candidate.name == NAME
    assert choose(linear(1, 32, 32, torch.float32), seconds=0.001).candidate.name != NAME


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_that_change_in_place_or_are_swapped_are_read_where_they_are(dtype):
    model = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.SiLU(), torch.nn.Linear(64, 40)).to(dtype).eval()
    compiled = burnish.compile(model)
    x = torch.randn(2, 48, dtype=dtype)
    with torch.no_grad():
        for change in (
            lambda: None,
            lambda: model[0].weight.mul_(2),
            lambda: setattr(model[2], "weight", torch.nn.Parameter(torch.randn(40, 64, dtype=dtype))),
            lambda: model[0].bias.data.fill_(1),
            lambda: None,
        ):
            change()
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-2, atol=2e-2)


def test_gradients_of_thin_products_are_eagers():
    model = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.Tanh(), torch.nn.Linear(64, 40)).bfloat16()
    compiled = burnish.compile(model)
    x, y = (torch.randn(3, 48, dtype=torch.bfloat16) for _ in range(2))
    for value in (x, y):
        given, taken = value.clone().requires_grad_(), value.clone().requires_grad_()
        compiled(given).square().sum().backward()
        got = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        model(taken).square().sum().backward()
        want = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        for a, b in zip([given.grad, *got], [taken.grad, *want], strict=True):
            assert (a - b).norm() <= 0.02 * b.norm()
