"""Linear layers: every candidate equals eager within float32's accuracy, on every layout and epilogue."""

from dataclasses import replace

import pytest
import torch

from burnish.ops import target_record
from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_candidates import mkl
from burnish.schedule.library.call_candidates.linear import why_not_plain
from burnish.schedule.library.call_candidates.onednn_limits import why_not_fused as why_not
from burnish.schedule.library.call_specs import Activation, LinearSpec
from burnish.schedule.library.candidate import bound
from burnish.schedule.library.measure_candidates import bind
from burnish.tensors.tensor_types import TensorType

from .library_references import ACTIVATIONS, bf16, check_all, error, f32, make_inputs, reference, strided, unset

has_mkl = pytest.mark.skipif(mkl.library() is None, reason="torch runs without MKL's packed products")


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("m,k,n", [(1, 33, 17), (5, 64, 48), (64, 96, 80), (2, 1, 1)])
def test_every_candidate_is_right(m, k, n, has_bias, has_residual, is_frozen):
    check_all(
        LinearSpec(
            f32(m, k), f32(n, k), f32(n) if has_bias else None, f32(m, n) if has_residual else None, is_frozen=is_frozen
        )
    )


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
@pytest.mark.parametrize("keeps_nan", [True, False])
def test_every_activation_is_right(activation, keeps_nan):
    check_all(LinearSpec(f32(24, 40), f32(56, 40), f32(56), activation=activation, is_frozen=True, keeps_nan=keeps_nan))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_fused_activation_is_within_twice_the_error_of_eager_over_its_range(activation):
    """A product by one leaves the activation alone with its error."""
    points = torch.cat([torch.linspace(-30, 30, 4001), torch.linspace(-4, 4, 4001), torch.logspace(-30, 2, 500)])
    inputs = {"x": points[:, None].contiguous(), "weight": torch.ones(1, 1)}
    spec = LinearSpec(f32(len(points), 1), f32(1, 1), activation=activation, keeps_nan=False)
    exact = reference(spec, inputs)
    eager, *others = candidates(spec)
    allowed = 2 * (eager.run(*bind(eager, inputs)) - exact).abs().max()
    for candidate in others:
        assert (candidate.run(*bind(candidate, inputs)) - exact).abs().max() <= allowed, candidate.name
    assert [candidate.name for candidate in others] == ([] if why_not(spec) else ["onednn"])


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_nan_stays_one_unless_the_caller_gives_it_up(activation):
    spec = LinearSpec(f32(16, 32), f32(24, 32), f32(24), activation=activation, is_frozen=True)
    inputs = make_inputs(spec)
    inputs["x"][3, 5] = float("nan")
    for candidate in candidates(spec):
        result = candidate.run(*bind(candidate, inputs))
        assert result[3].isnan().all() and not result[4].isnan().any(), candidate.name


def test_clamping_activation_is_fused_only_where_nan_is_given_up():
    relu = Activation("relu")
    kept, lost = (LinearSpec(f32(8, 8), f32(8, 8), activation=relu, keeps_nan=keeps) for keeps in (True, False))
    assert why_not(kept) == "oneDNN turns a NaN into a bound of relu, eager hands it on"
    assert why_not(lost) is None
    assert [c.name for c in candidates(kept)] == ["mm"]
    assert [c.name for c in candidates(lost)] == ["mm", "onednn"]


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(
    "x",
    [
        strided((20, 32), (32, 1)),
        strided((20, 32), (50, 1)),
        strided((20, 32), (1, 20)),
        strided((20, 32), (1, 31)),
        strided((20, 32), (64, 2)),
        strided((20, 32), (0, 1)),
        strided((20, 32), (1, 0)),
        strided((1, 32), (1, 1)),
        strided((1, 32), (3, 2)),
        strided((20, 1), (1, 7)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("order", ["rows", "columns", "gaps", "apart"])
def test_strides_of_x_and_weight_are_free(x, order, is_frozen):
    n, k = 24, x.shape[1]
    stride = {"rows": (k, 1), "columns": (1, n), "gaps": (k + 5, 1), "apart": (3 * k, 3)}[order]
    check_all(LinearSpec(x, strided((n, k), stride), f32(n), is_frozen=is_frozen))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gaps_between_rows_of_two_bytes_an_element_are_not_given_to_torchs_product(dtype):
    """Kernels for matrix units read on to a multiple of 32 elements: NaN in the gap is NaN in the result."""

    def rows_taken(columns, step, rows=33, **rest):
        weight = TensorType.contiguous((40, columns), dtype)
        offered = candidates(LinearSpec(strided((rows, columns), (step, 1), dtype), weight, **rest))
        return {one.name: one.rows for one in offered if one.name in ("mm", "addmm", "addmm onto residual")}

    bias, residual = (TensorType.contiguous(shape, dtype) for shape in ((40,), (33, 40)))
    assert rows_taken(65, 68) == {"mm": ("x",)}
    assert rows_taken(65, 68, bias=bias) == {"addmm": ("x",)}
    assert rows_taken(65, 68, residual=residual) == {"mm": ("x",), "addmm onto residual": ("x",)}
    assert rows_taken(64, 68) == rows_taken(65, 65) == rows_taken(65, 68, rows=1) == {"mm": ()}


def test_products_of_bf16_read_no_gap_that_holds_nan():
    x = strided((33, 65), (68, 1), torch.bfloat16)
    for added in ({}, {"bias": bf16(40)}, {"residual": bf16(33, 40)}):
        spec = LinearSpec(x, bf16(40, 65), is_frozen=True, **added)
        inputs = make_inputs(spec)
        inputs["x"].as_strided((32, 3), (68, 1), 65).fill_(torch.nan)
        check_all(spec, inputs)


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(
    "residual", [strided((20, 24), (1, 20)), strided((20, 24), (30, 1)), strided((20, 24), (0, 1))], ids=repr
)
def test_strides_of_the_residual_are_free(residual, is_frozen):
    check_all(LinearSpec(f32(20, 32), f32(24, 32), f32(24), residual, is_frozen=is_frozen))
    check_all(LinearSpec(f32(20, 32), f32(24, 32), None, residual, is_frozen=is_frozen))


def test_bias_with_gaps_is_right():
    assert check_all(LinearSpec(f32(8, 16), f32(12, 16), strided((12,), (2,)), is_frozen=True))[0] == "addmm"


@pytest.mark.parametrize("m,k,n", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_empty_sizes_are_right(m, k, n, has_bias):
    names = check_all(LinearSpec(f32(m, k), f32(n, k), f32(n) if has_bias else None, is_frozen=True))
    assert names == ["addmm" if has_bias else "mm"]


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("activation", [None, Activation("gelu", algorithm="tanh")])
def test_bfloat16_is_right(activation, is_frozen):
    names = check_all(LinearSpec(bf16(16, 64), bf16(32, 64), bf16(32), activation=activation, is_frozen=is_frozen))
    assert "mkl packed" not in names


@has_mkl
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "x",
    [strided((20, 32), (50, 1)), strided((20, 32), (1, 31)), strided((1, 32), (3, 1)), strided((20, 1), (1, 7))],
    ids=repr,
)
@pytest.mark.parametrize("order", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_library_call_of_eager_is_called_natively(x, order, has_bias, dtype):
    """The numbers are eager's to the last bit: it is the same product of the same matrices."""
    n, k = 24, x.shape[1]
    stride = {"rows": (k, 1), "columns": (1, n), "gaps": (k + 5, 1)}[order]
    bias = strided((n,), (1,), dtype) if has_bias else None
    spec = LinearSpec(replace(x, dtype=dtype), strided((n, k), stride, dtype), bias)
    plain = candidates(spec)[0]
    assert plain.steps is not None and [step.kernel.name for step in plain.steps()] == ["gemm"]
    inputs, out = make_inputs(spec), unset(plain.output)
    bound(plain, [out], bind(plain, inputs))()
    assert torch.equal(out, plain.run(*bind(plain, inputs)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes_are_left_to_eager(dtype):
    x, weight = strided((9, 16), (16, 1), dtype), strided((12, 16), (16, 1), dtype)
    assert check_all(LinearSpec(x, weight, is_frozen=True)) == ["mm"]


def test_mixed_dtypes_are_left_to_eager():
    assert why_not(LinearSpec(f32(4, 4), f32(4, 4), bf16(4))) == "bias has another dtype than x"


def test_packed_weights_are_offered_to_frozen_specs_alone():
    for frozen in (False, True):
        for candidate in candidates(LinearSpec(f32(64, 64), f32(64, 64), f32(64), is_frozen=frozen)):
            assert ("packed" in candidate.name) == (candidate.prepare is not None) and (frozen or not candidate.prepare)


def test_residual_that_is_x_itself_is_right():
    spec = LinearSpec(f32(16, 24), f32(24, 24), f32(24), f32(16, 24), is_frozen=True)
    inputs = make_inputs(spec)
    inputs["residual"] = inputs["x"]
    check_all(spec, inputs)


@has_mkl
def test_packed_product_reads_rows_with_gaps_without_a_copy():
    names = check_all(LinearSpec(strided((20, 32), (100, 1)), f32(24, 32), is_frozen=True))
    assert "mkl packed" in names


def test_candidate_says_which_tensors_it_takes():
    spec = LinearSpec(f32(16, 32), f32(24, 32), f32(24), f32(16, 24), is_frozen=True)
    for candidate in candidates(spec):
        assert set(candidate.operands) <= set(spec.inputs) | set(candidate.prepared)


def test_weight_with_gaps_is_not_given_to_onednn_as_it_is():
    assert why_not_plain(strided((8, 8), (16, 1))) == "the weight has gaps"
    assert why_not_plain(strided((8, 6), (1, 8))) is None


def test_parameters_that_require_gradients_can_be_packed():
    spec = LinearSpec(f32(16, 32), f32(24, 32), f32(24), is_frozen=True)
    inputs = make_inputs(spec)
    parameters = {**inputs, "weight": torch.nn.Parameter(inputs["weight"]), "bias": torch.nn.Parameter(inputs["bias"])}
    for candidate in candidates(spec):
        with torch.no_grad():
            result = candidate.run(*bind(candidate, parameters))
        assert not result.requires_grad and error(result, reference(spec, inputs)) < 1e-5


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="x has 3 columns, weight 4"):
        LinearSpec(f32(2, 3), f32(5, 4))
    with pytest.raises(ValueError, match=r"expected \[5\], got f32\[4\]"):
        LinearSpec(f32(2, 3), f32(5, 3), f32(4))


def test_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="no library call has the activation 'mish'"):
        Activation("mish")
    with pytest.raises(ValueError, match="gelu's algorithm"):
        Activation("gelu")


def test_without_the_libraries_eager_is_left(monkeypatch):
    spec = LinearSpec(f32(8, 16), f32(12, 16), f32(12), is_frozen=True)
    monkeypatch.setattr(mkl, "library", lambda: None)
    assert "mkl packed" not in [c.name for c in candidates(spec)]
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setitem(target_record._targets, "cpu", lambda: target_record.CPU)
    assert [c.name for c in candidates(spec)] == ["addmm"]
    assert why_not(spec) == "torch runs without oneDNN"


@has_mkl
def test_a_bound_call_does_not_need_its_candidate_alive():
    """Its table holds addresses; the memory there must not be freed."""
    spec = LinearSpec(f32(16, 32), f32(24, 32), f32(24))
    inputs = make_inputs(spec)
    runs = []
    for _ in range(20):
        out, plain = unset(f32(16, 24)), candidates(spec)[0]
        runs.append((bound(plain, [out], bind(plain, inputs)), out))
    exact = reference(spec, inputs)
    for run, out in runs:
        run()
        assert error(out, exact) < 1e-5
