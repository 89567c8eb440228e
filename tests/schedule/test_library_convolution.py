"""Convolutions: every candidate equals eager, in one to three dimensions, on both layouts, with every epilogue."""

from dataclasses import replace

import pytest
import torch

from burnish.schedule.layouts.channels_last_strides import channels_last_stride, is_channels_last
from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_candidates import mkl
from burnish.schedule.library.call_candidates.convolution import eager_stride, in_channels_last
from burnish.schedule.library.call_candidates.onednn_limits import why_not_fused as why_not
from burnish.schedule.library.call_specs import Activation, ConvSpec
from burnish.schedule.library.measure_candidates import bind
from burnish.tensors.tensor_types import TensorType, has_stride

from .library_references import ACTIVATIONS, check_all, f32, make_inputs, strided

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def convolution(
    x: TensorType,
    outputs: int,
    window: int,
    *,
    groups: int = 1,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    transposed: bool = False,
    output_padding: int = 0,
    bias: bool = True,
    residual: bool = False,
    activation: Activation | None = None,
    **rest,
) -> ConvSpec:
    dims, channels = x.ndim - 2, x.shape[1]
    pair = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    weight = TensorType.contiguous((*pair, *[window] * dims), x.dtype)
    spec = ConvSpec(
        x,
        weight,
        TensorType.contiguous((outputs,), x.dtype) if bias else None,
        None,
        activation,
        (stride,) * dims,
        (padding,) * dims,
        (dilation,) * dims,
        transposed,
        (output_padding,) * dims,
        groups,
        **rest,
    )
    return replace(spec, residual=TensorType.contiguous(spec.output_shape, x.dtype)) if residual else spec


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("turn", [lambda spec: spec, in_channels_last], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize(
    "rest",
    [
        dict(outputs=12, window=3, padding=1),
        dict(outputs=12, window=3, padding=1, bias=False),
        dict(outputs=12, window=3, stride=2),
        dict(outputs=12, window=3, padding=2, dilation=2),
        dict(outputs=12, window=1),
        dict(outputs=12, window=1, bias=False),
        dict(outputs=12, window=1, stride=2),
        dict(outputs=16, window=3, groups=4, padding=1),
        dict(outputs=8, window=5, groups=8, padding=2),
        dict(outputs=1, window=3),
        dict(outputs=12, window=3, padding=1, residual=True),
        dict(outputs=12, window=1, residual=True),
        dict(outputs=12, window=1, residual=True, bias=False),
        dict(outputs=12, window=3, padding=1, residual=True, activation=Activation("relu"), keeps_nan=False),
    ],
    ids=repr,
)
@pytest.mark.parametrize("x", [f32(1, 8, 9, 7), f32(3, 8, 6, 5)], ids=repr)
def test_every_candidate_is_right(x, rest, turn, is_frozen):
    check_all(turn(convolution(x, **rest, is_frozen=is_frozen)))


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(
    "rest",
    [
        dict(outputs=6, window=3, padding=1),
        dict(outputs=6, window=1),
        dict(outputs=6, window=3, residual=True),
        dict(outputs=8, window=3, groups=4, stride=2),
        dict(outputs=6, window=3, transposed=True, stride=2),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "x",
    [
        f32(2, 4, 11),
        strided((2, 4, 11), (44, 1, 4)),
        strided((2, 4, 11), (88, 22, 2)),
        f32(1, 4, 6, 5, 7),
        f32(2, 4, 6, 5, 7),
    ],
    ids=repr,
)
def test_one_and_three_dimensions_are_right(x, rest, is_frozen):
    spec = convolution(x, **rest, is_frozen=is_frozen)
    check_all(spec)
    if spec.dims == 3:
        check_all(in_channels_last(spec))


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(
    "rest",
    [
        dict(stride=2),
        dict(stride=2, padding=1, output_padding=1),
        dict(groups=2),
        dict(groups=4, stride=2),
        dict(dilation=2, bias=False),
        dict(activation=Activation("silu")),
    ],
    ids=repr,
)
def test_transposed_convolution_is_right(rest, is_frozen):
    spec = convolution(f32(2, 4, 6, 5), outputs=8, window=3, transposed=True, **rest, is_frozen=is_frozen)
    assert "onednn" in check_all(spec)
    check_all(in_channels_last(spec))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_every_activation_is_right(activation):
    for window in (1, 3):
        check_all(convolution(f32(2, 8, 7, 6), 12, window, activation=activation, is_frozen=True, keeps_nan=False))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_nan_stays_one_unless_the_caller_gives_it_up(activation):
    spec = convolution(f32(2, 8, 7, 6), 12, 1, activation=activation, is_frozen=True)
    inputs = make_inputs(spec)
    inputs["x"][1, 2, 3, 4] = float("nan")
    for candidate in candidates(spec):
        result = candidate.run(*bind(candidate, inputs))
        assert result[1, :, 3, 4].isnan().all() and result.isnan().sum() == 12, candidate.name


def test_residual_comes_before_the_activation():
    spec = convolution(
        f32(1, 8, 5, 5), 8, 3, padding=1, residual=True, activation=Activation("relu"), is_frozen=True, keeps_nan=False
    )
    inputs = make_inputs(spec)
    inputs["residual"].fill_(-1000.0)
    for candidate in candidates(spec):
        assert candidate.run(*bind(candidate, inputs)).count_nonzero() == 0, candidate.name


def test_residual_of_another_layout_is_right():
    spec = convolution(f32(2, 8, 6, 5), 12, 3, padding=1, residual=True, is_frozen=True)
    x = replace(spec.x, stride=channels_last_stride(spec.x.shape))
    check_all(replace(spec, x=x))
    check_all(replace(spec, residual=replace(spec.residual, stride=channels_last_stride(spec.output_shape))))


@pytest.mark.parametrize("x", [f32(0, 4, 5, 5), f32(0, 4, 5), f32(0, 4, 5, 5, 5)], ids=repr)
@pytest.mark.parametrize("window", [1, 3])
def test_empty_batch_is_right(x, window):
    assert check_all(convolution(x, 6, window, padding=1, is_frozen=True)) == ["convolution"]


def test_bfloat16_is_right():
    x = TensorType.contiguous((2, 8, 6, 5), torch.bfloat16)
    for window in (1, 3):
        spec = convolution(x, 12, window, is_frozen=True)
        check_all(spec)
        check_all(in_channels_last(spec))


def test_float64_is_left_to_eager():
    assert check_all(convolution(TensorType.contiguous((2, 8, 6, 5), torch.float64), 12, 3)) == ["convolution"]


def test_x_and_weight_with_gaps_are_right():
    spec = convolution(strided((2, 4, 6, 5), (480, 120, 10, 2)), 6, 3, is_frozen=True)
    check_all(spec)
    check_all(replace(spec, weight=strided((6, 4, 3, 3), (72, 18, 6, 2))))
    pointwise = convolution(strided((2, 4, 6, 5), (480, 120, 10, 2)), 6, 1, is_frozen=True)
    check_all(replace(pointwise, weight=strided((6, 4, 1, 1), (8, 2, 1, 1))))
    check_all(replace(in_channels_last(pointwise), weight=strided((6, 4, 1, 1), (1, 6, 1, 1))))


def test_window_of_one_pixel_is_a_linear_layer_on_channels_last():
    names = check_all(in_channels_last(convolution(f32(2, 8, 6, 5), 12, 1, is_frozen=True)))
    assert {"pointwise addmm", "pointwise onednn packed"} <= set(names)
    if mkl.library():
        assert "pointwise mkl packed" in names


@pytest.mark.parametrize("batch,name", [(1, "pointwise mm"), (3, "pointwise bmm")])
def test_window_of_one_pixel_is_a_product_on_contiguous_memory(batch, name):
    spec = convolution(f32(batch, 8, 6, 5), 12, 1, bias=False, is_frozen=True)
    result = {c.name: c for c in candidates(spec)}[name]
    assert result.output.is_contiguous and name in check_all(spec)


def test_packed_weight_gives_channels_last():
    spec = convolution(f32(2, 8, 6, 5), 12, 3, is_frozen=True)
    packed = {c.name: c for c in candidates(spec)}["onednn packed"]
    assert packed.output.stride == channels_last_stride(spec.output_shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_strides_of_eager_are_predicted(dims, dtype):
    for n, c, size, outputs, window, groups in [
        (1, 4, 7, 6, 3, 1),
        (2, 4, 7, 6, 3, 1),
        (0, 4, 7, 6, 3, 1),
        (16, 4, 7, 6, 1, 2),
        (1, 1, 7, 1, 3, 1),
        (1, 1, 7, 6, 3, 1),
        (2, 4, 1, 6, 1, 1),
        (2, 8, 5, 8, 3, 8),
        (1, 3, 5, 1, 1, 1),
        (1, 1, 1, 4, 1, 1),
        (3, 4, 7, 1, 3, 1),
    ]:
        for transposed in (False, True) if outputs % groups == 0 else (False,):
            plain = convolution(
                TensorType.contiguous((n, c, *[size] * dims), dtype),
                outputs,
                window,
                groups=groups,
                padding=window // 2,
                transposed=transposed,
                bias=False,
            )
            for x in layouts(torch.randn(plain.x.shape, dtype=dtype)):
                for weight in layouts(torch.randn(plain.weight.shape, dtype=dtype))[:2]:
                    spec = replace(plain, x=TensorType.of(x), weight=TensorType.of(weight))
                    y = torch.ops.aten.convolution(
                        x,
                        weight,
                        None,
                        spec.stride,
                        spec.padding,
                        spec.dilation,
                        transposed,
                        spec.output_padding,
                        groups,
                    )
                    said = TensorType(spec.output_shape, eager_stride(spec), dtype)
                    assert tuple(y.shape) == said.shape and has_stride(said, y.stride()), f"{spec}: {y.stride()}"


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensor contiguous, channels-last, with batch and channels swapped in memory, and with gaps."""
    if tensor.dim() in FORMATS:
        turned = tensor.to(memory_format=FORMATS[tensor.dim()])
    else:
        turned = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    gaps = torch.stack([tensor, tensor], -1)[..., 0]
    return [tensor, turned, tensor.transpose(0, 1).contiguous().transpose(0, 1), gaps]


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 4, 1)])
def test_channels_last_is_recognized_as_in_torch(shape):
    for tensor in layouts(torch.randn(shape)):
        # oneDNN's convolution asks just this question of x and of a weight that can be read both ways.
        assert is_channels_last(TensorType.of(tensor)) == (
            torch._C._conv_determine_backend_memory_format(
                tensor, torch.randn(8, shape[1], 1, 1), torch._C._ConvBackend.Mkldnn
            )
            is torch.channels_last
        )


def test_reason_names_the_activation_that_is_not_fused():
    spec = convolution(f32(1, 4, 5, 5), 4, 3, padding=1, residual=True, activation=Activation("silu"))
    assert why_not(spec) == "after a residual oneDNN's convolution takes relu alone, not silu"


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="stride needs 2 numbers"):
        ConvSpec(f32(1, 4, 5, 5), f32(4, 4, 3, 3), None, None, None, (1,), (0, 0), (1, 1))
    with pytest.raises(ValueError, match=r"expected \[4\]"):
        ConvSpec(f32(1, 4, 5, 5), f32(4, 4, 3, 3), f32(3), None, None, (1, 1), (0, 0), (1, 1))
