"""Own kernels for products: right for every tiling of an image or a matrix, with every epilogue."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from burnish.codegen.llvm.functions import matmul
from burnish.ops.scalar_ir import cast, const, make, select
from burnish.schedule.fusion.epilogue_fusion import SUMS
from burnish.schedule.layouts.channels_last_strides import channels_last_stride
from burnish.schedule.library.autotune_library_calls import Measurements, candidates, key_of, tuned
from burnish.schedule.library.call_specs import ConvSpec, LinearSpec
from burnish.schedule.library.measure_candidates import bind
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.own_matmul_and_convolution import NAME as OWN
from burnish.schedule.library.own_kernels.own_matmul_and_convolution import (
    linear_products,
    own_candidate,
    tilings,
    why_not_convolution,
    why_not_linear,
)
from burnish.tensors.tensor_types import TensorType

from ..runtime.concurrent_threads import at_once
from .library_references import error, f32, given, make_inputs, reference, rounding, strided, typical

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="this machine has no kernels for products"
)


def last(*shape):
    return TensorType(shape, channels_last_stride(shape), torch.float32)


def linear(m, k, n, **rest):
    return LinearSpec(f32(m, k), f32(n, k), rest.pop("bias", f32(n)), is_frozen=True, **rest)


def conv(images, channels, height, width, outputs, window, stride=1, padding=0, dilation=1, groups=1, **rest):
    return ConvSpec(
        rest.pop("x", last(images, channels, height, width)),
        f32(outputs, channels // groups, *window),
        rest.pop("bias", f32(outputs)),
        None,
        None,
        (stride,) * 2,
        (padding,) * 2,
        (dilation,) * 2,
        groups=groups,
        is_frozen=True,
        **rest,
    )


def with_residual(spec):
    is_linear = isinstance(spec, LinearSpec)
    return replace(spec, residual=f32(*spec.output_shape) if is_linear else last(*spec.output_shape))


def check(spec, epilogue=None, after=lambda y: y, inputs=None, make=own_candidate):
    """Into memory full of NaN, with nothing beside it touched, and with at most twice eager's error."""
    candidate = make(spec, epilogue)
    assert candidate is not None
    inputs = make_inputs(spec) if inputs is None else inputs
    exact = after(reference(spec, inputs))
    said = candidate.output
    memory = torch.full((said.numel + 64,), torch.nan, dtype=said.dtype)
    out = memory[32:-32].as_strided(said.shape, said.stride, 32)
    assert candidate.run_into(out, *bind(candidate, inputs)) is out
    eager = candidates(replace(spec, is_frozen=False))[0]
    least = typical(spec, exact, said.dtype) if said.dtype is torch.float32 else rounding(exact, said.dtype)
    allowed = 2 * max(error(after(eager.run(*given(eager, inputs))), exact), least)
    assert error(out, exact) <= allowed
    assert memory[:32].isnan().all() and memory[-32:].isnan().all()
    return out


def check_tilings(spec):
    """All of them right, and each another way to cut the same work up."""
    found = tilings(spec)
    assert len(found) > 3 and next(iter(found)) == str(matmul_tiling_and_packing.shape_here())
    for candidate in found.values():
        check(candidate.spec)


LINEARS = [
    (1, 40, 33),
    (4, 1, 1),
    (13, 7, 16),
    (14, 64, 32),
    (15, 33, 17),
    (29, 300, 96),
    (64, 257, 40),
    (197, 48, 33),
    (28, 1024, 8),
]


@pytest.mark.parametrize("m,k,n", LINEARS)
def test_linear_is_right(m, k, n):
    check(linear(m, k, n))
    check(linear(m, k, n, bias=None))
    check(with_residual(linear(m, k, n)))


def test_long_sums_are_made_in_parts():
    spec = linear(90, 2100, 40)
    assert len(linear_products(spec, None)) == 3
    check(spec)
    check(with_residual(replace(spec, bias=None)), *EPILOGUES["silu"])


def test_rows_of_x_may_have_gaps():
    check(LinearSpec(strided((20, 30), (50, 1)), f32(24, 30), is_frozen=True))


CONVOLUTIONS = {
    "3 by 3": conv(1, 16, 14, 14, 32, (3, 3), padding=1),
    "a narrow image": conv(1, 24, 7, 7, 40, (3, 3), padding=1),
    "an odd number of lines": conv(1, 8, 5, 6, 16, (3, 3)),
    "several images": conv(3, 8, 9, 10, 20, (3, 3), padding=1),
    "one pixel": conv(2, 20, 6, 5, 36, (1, 1)),
    "one pixel, every other": conv(2, 20, 9, 8, 36, (1, 1), stride=2),
    "one pixel and a border": conv(1, 8, 6, 6, 16, (1, 1), padding=1),
    "steps": conv(2, 3, 33, 31, 24, (7, 7), stride=2, padding=3),
    "dilated": conv(1, 12, 17, 16, 16, (3, 3), padding=2, dilation=2),
    "a window of one line": conv(1, 12, 17, 16, 16, (1, 5), padding=2),
    "x is contiguous": conv(2, 3, 12, 20, 16, (3, 3), padding=1, x=f32(2, 3, 12, 20)),
    "wide": conv(1, 16, 3, 50, 48, (3, 3), padding=1),
    "a long sum": conv(1, 128, 5, 5, 16, (3, 3), padding=1),
    "one channel": conv(1, 1, 10, 12, 16, (3, 3), padding=1),
    "depthwise": conv(1, 32, 14, 14, 32, (3, 3), padding=1, groups=32),
    "depthwise, several images": conv(2, 40, 9, 11, 40, (3, 3), padding=1, groups=40),
    "depthwise, 5 by 5, steps": conv(1, 24, 15, 14, 24, (5, 5), stride=2, padding=2, groups=24),
    "depthwise, 7 by 7": conv(1, 48, 20, 33, 48, (7, 7), padding=3, groups=48),
    "depthwise, dilated": conv(1, 17, 12, 13, 17, (3, 3), padding=2, dilation=2, groups=17),
    "depthwise, larger than the image": conv(1, 16, 2, 3, 16, (5, 5), padding=2, groups=16),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_is_right(name):
    spec = CONVOLUTIONS[name]
    check(spec)
    check(replace(spec, bias=None))
    check(with_residual(spec))


SUM = SUMS[torch.float32]
ACTIVATIONS = {
    "relu": (lambda x: select(make("lt", "b8", (x, const(0, "f32"))), const(0, "f32"), x), torch.relu),
    "silu": (lambda x: x / (1 + (-x).exp()), F.silu),
    "gelu": (lambda x: x * 0.5 * (1 + (x * 0.5**0.5).erf()), F.gelu),
}
EPILOGUES = {name: (formula(SUM), function) for name, (formula, function) in ACTIVATIONS.items()}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("spec", [linear(30, 20, 40), CONVOLUTIONS["3 by 3"], CONVOLUTIONS["depthwise"]], ids=repr)
def test_epilogue_is_computed_after_bias_and_residual(spec, name):
    expression, function = EPILOGUES[name]
    check(spec, expression, function)
    check(with_residual(spec), expression, function)


needs_pairs = pytest.mark.skipif(
    torch.bfloat16 not in matmul_tiling_and_packing.dtypes_of_tiles(), reason="does not multiply pairs of bf16"
)


def halved(spec):
    """The same in bf16."""
    types = {name: replace(type, dtype=torch.bfloat16) for name, type in spec.inputs.items()}
    return replace(spec, **types)


def rounded(name):
    """An epilogue that reads and writes bf16."""
    formula, function = ACTIVATIONS[name]
    return cast(formula(cast(SUMS[torch.bfloat16], "f32")), "bf16"), function


@needs_pairs
@pytest.mark.parametrize("m,k,n", [(m, k + k % 2, n) for m, k, n in LINEARS] + [(33, 2500, 72), (90, 1026, 50)])
def test_linear_in_bf16_is_right(m, k, n):
    spec = halved(linear(m, k, n))
    check(spec)
    check(replace(spec, bias=None))
    check(halved(with_residual(spec)), *rounded("gelu"))
    check(replace(spec, weight=strided((n, k), (1, n), torch.bfloat16)))
    check(replace(spec, x=strided((m, k), (k + 3, 1), torch.bfloat16)))


def can_be_halved(spec):
    return spec.groups > 1 or (spec.x.shape[1] % 2 == 0 and spec.x.stride[1] == 1)


@needs_pairs
@pytest.mark.parametrize("name", [name for name, spec in CONVOLUTIONS.items() if can_be_halved(spec)])
def test_convolution_in_bf16_is_right(name):
    spec = halved(CONVOLUTIONS[name])
    check(spec)
    check(replace(spec, bias=None))
    check(halved(with_residual(spec)), *rounded("relu"))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_pairs)])
@pytest.mark.parametrize("channels,height,stride", [(6, 1, (6, 1, 1, 1)), (6, 9, (54, 1, 6, 1)), (1, 9, (9, 1, 1, 7))])
def test_padded_image_of_width_1_may_have_any_stride_there(channels, height, stride, dtype):
    x = strided((2, channels, height, 1), stride)
    spec = conv(2, channels, height, 1, 8, (3, 3), padding=1, x=x)
    check(spec if dtype is torch.float32 or channels % 2 else halved(spec))


@needs_pairs
def test_other_tiles_of_bf16_are_right():
    check_tilings(halved(linear(64, 48, 70)))
    check_tilings(halved(CONVOLUTIONS["3 by 3"]))


@needs_pairs
def test_pairs_need_no_alignment():
    """x, the weight and the residual may begin at any number."""
    spec = halved(with_residual(linear(9, 40, 20)))
    inputs = make_inputs(spec)
    moved = {name: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape) for name, x in inputs.items()}
    candidate = own_candidate(spec)
    own, want = (candidate.run(*bind(candidate, given)) for given in (moved, inputs))
    assert moved["x"].data_ptr() % 4 == 2 and moved["weight"].storage_offset() == 1
    assert torch.equal(own, want)


@needs_pairs
@pytest.mark.parametrize("name", [name for name, spec in CONVOLUTIONS.items() if not can_be_halved(spec)])
def test_odd_or_scattered_channels_of_bf16_have_no_pairs(name):
    assert why_not_convolution(halved(CONVOLUTIONS[name])) in (
        "an odd number of bf16 has no pairs",
        "x is not channels-last",
    )


@needs_pairs
def test_bf16_of_other_processors_or_beside_other_dtypes_is_refused(monkeypatch):
    spec = halved(linear(8, 6, 16))
    assert why_not_linear(spec) is None
    assert why_not_linear(halved(linear(8, 7, 16))) == "an odd number of bf16 has no pairs"
    assert "another dtype" in why_not_linear(replace(spec, bias=f32(16)))
    monkeypatch.setattr(matmul_tiling_and_packing, "dtypes_of_tiles", lambda: (torch.float32,))
    assert "another dtype" in why_not_linear(spec)


@needs_pairs
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_special_numbers_of_bf16_come_out_as_in_eager(special):
    spec = halved(linear(9, 40, 20))
    candidate, eager = own_candidate(spec), candidates(spec)[0]
    inputs = make_inputs(spec)
    inputs["x"][2, 7], inputs["weight"][3, 8] = special, special
    own, theirs = (c.run(*bind(c, inputs)) for c in (candidate, eager))
    torch.testing.assert_close(own, theirs, equal_nan=True)


def test_nan_and_infinity_come_out_where_eager_has_them():
    spec = CONVOLUTIONS["3 by 3"]
    inputs = make_inputs(spec)
    inputs["x"][0, 3, 5, 6], inputs["x"][0, 2, 0, 0] = torch.nan, torch.inf
    candidate = own_candidate(spec, EPILOGUES["relu"][0])
    result = candidate.run(*bind(candidate, inputs))
    eager = torch.relu(F.conv2d(inputs["x"], inputs["weight"], inputs["bias"], padding=1))
    assert torch.equal(result.isnan(), eager.isnan()) and torch.equal(result.isinf(), eager.isinf())
    assert result.isnan().any() and result.isinf().any()


def test_border_meets_no_weight():
    """Padding is not a zero that infinite weights turn into NaN, as it is in eager."""
    spec = replace(CONVOLUTIONS["depthwise"], bias=None)
    inputs = make_inputs(spec)
    inputs["weight"][0, 0, 0, 0] = torch.inf
    own_result, eager = (c.run(*bind(c, inputs)) for c in (own_candidate(spec), candidates(spec)[0]))
    inside = (slice(None), slice(0, 1), slice(1, -1), slice(1, -1))
    assert torch.equal(own_result[inside].isinf(), eager[inside].isinf())


def test_one_candidate_serves_several_threads():
    spec = CONVOLUTIONS["several images"]
    candidate = own_candidate(spec)
    given = [bind(candidate, {name: tensor + n for name, tensor in make_inputs(spec).items()}) for n in range(4)]
    wanted = [candidate.run(*operands) for operands in given]
    failures = []

    def work(operands, want):
        for _ in range(50):
            if not torch.equal(candidate.run(*operands), want):
                failures.append(operands)

    at_once(*(partial(work, *pair) for pair in zip(given, wanted, strict=True)))
    assert not failures


def test_number_of_threads_changes_nothing():
    spec = CONVOLUTIONS["steps"]
    candidate, inputs = own_candidate(spec), make_inputs(spec)
    operands, before = bind(candidate, inputs), torch.get_num_threads()
    wanted = candidate.run(*operands)
    try:
        torch.set_num_threads(1)
        assert torch.equal(candidate.run(*operands), wanted)
    finally:
        torch.set_num_threads(before)


def test_equal_tiles_are_compiled_once():
    tile = matmul_tiling_and_packing.MatmulTile((3, 2), 2)
    assert matmul.tile_function(tile) == matmul.tile_function(matmul_tiling_and_packing.MatmulTile((3, 2), 2))


def test_refusals_say_why():
    spec = linear(16, 32, 24)
    assert why_not_linear(replace(spec, is_frozen=False)) == "the weight may change"
    assert (
        why_not_linear(replace(spec, x=strided((16, 32), (1, 16)))) == "the rows of x have gaps between their numbers"
    )
    grouped = conv(1, 8, 6, 6, 8, (3, 3), groups=2)
    assert why_not_convolution(grouped) == "groups of several channels"
    depthwise = conv(1, 8, 6, 6, 8, (3, 3), groups=8, x=f32(1, 8, 6, 6))
    assert why_not_convolution(depthwise) == "x is not channels-last"
    beside = conv(1, 16, 4, 4, 16, (3, 3), padding=4, groups=16)
    assert why_not_convolution(beside) == "some windows lie beside the image"


def test_own_kernels_are_candidates_with_the_libraries():
    assert OWN in [candidate.name for candidate in candidates(linear(64, 64, 64))]
    assert OWN in [candidate.name for candidate in candidates(CONVOLUTIONS["3 by 3"])]


@pytest.mark.parametrize("count,most", [(1, 14), (14, 14), (15, 14), (64, 14), (197, 14)])
def test_parts_are_of_nearly_one_size(count, most):
    parts = matmul_tiling_and_packing.split_evenly(count, most)
    assert sum(parts) == count and max(parts) <= most and max(parts) - min(parts) <= 1


# Tiles that are measured ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        linear(1, 40, 33),
        linear(15, 33, 17),
        linear(64, 257, 40),
        linear(37, 2100, 70),
        with_residual(linear(29, 300, 96)),
        conv(2, 8, 9, 7, 40, (3, 3), padding=1),
        conv(1, 16, 20, 20, 24, (1, 1)),
        conv(1, 5, 13, 30, 33, (5, 3), stride=2, padding=2, x=f32(1, 5, 13, 30)),
    ],
    ids=repr,
)
def test_every_shape_of_tiles_computes_the_same(spec):
    check_tilings(spec)


def test_depthwise_kernels_have_one_shape_of_tiles():
    assert tilings(conv(1, 32, 8, 8, 32, (3, 3), padding=1, groups=32)) == {}


@pytest.mark.parametrize("faster, is_taken", [(0.5, True), (0.99, False)])
def test_tiles_that_are_surely_faster_are_taken(faster, is_taken):
    spec = linear(64, 256, 256)
    usual, other, *_ = tilings(spec).values()
    memory = Measurements()
    memory.load({f"{key_of(spec)} tiles": f"{usual.name}=1.0; {other.name}={faster}"})
    found = tuned(spec, seconds=0.0, memory=memory)
    assert found.tiles == (other.spec.tiles if is_taken else None)
    assert (str(other.spec.tiles) in key_of(found)) == is_taken
    check(found, EPILOGUES["relu"][0], F.relu)
