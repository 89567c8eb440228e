"""Dtype and device logic: promotion, casts, comparison of dtypes, and inputs that change their dtype between calls."""

import pytest
import torch
from torch import nn

import burnish

from ..recorded_events import recorded
from .harness import program

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)


@program(breaks=0)
def test_promotion_of_tensors_and_numbers():
    def fn(x, y, k):
        return (x + y).dtype, x * k, y + k, torch.result_type(x, k), torch.promote_types(x.dtype, y.dtype)

    pairs = ((0, 2, 1), (2, 0, 1.5), (3, 2, True), (1, 4, 2), (0, 2, 1))
    return fn, [(torch.ones(2, dtype=DTYPES[a]), torch.ones(1, dtype=DTYPES[b]), k) for a, b, k in pairs]


@program(breaks=0)
def test_zero_dimensional_tensors_promote_less():
    def fn(x, s):
        return x + s, s + x, (x * s).dtype, x - s

    return fn, [
        (torch.ones(2, dtype=a), torch.tensor(2.5, dtype=b))
        for a, b in (
            (torch.float32, torch.float64),
            (torch.int64, torch.float32),
            (torch.float16, torch.float32),
            (torch.float32, torch.float64),
        )
    ]


@program(breaks=0)
def test_casts_by_name_method_and_other():
    def fn(x, other):
        by_name = x.float(), x.double(), x.int(), x.bool()
        return by_name, x.to(other), x.type_as(other), x.type(torch.int16), x.to(torch.int8)

    return fn, [
        (torch.tensor([1.7, -2.2]).to(a), torch.ones(1, dtype=b))
        for a, b in (
            (torch.float32, torch.float64),
            (torch.float64, torch.int64),
            (torch.bfloat16, torch.float32),
            (torch.float32, torch.float64),
        )
    ]


@program(breaks=0)
def test_branches_on_the_dtype():
    sizes = {torch.float32: 4, torch.float64: 8}

    def fn(x):
        if x.dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        if x.dtype.is_floating_point:
            return x.sqrt() * sizes[x.dtype], str(x.dtype)
        if x.dtype == torch.bool:
            return ~x
        return x << 1

    return fn, [(torch.ones(2, dtype=d),) for d in (*DTYPES, torch.float32, torch.bool)]


@program(breaks=0)
def test_input_changes_its_dtype_and_comes_back():
    def fn(x):
        return x * 2 + 1, x.sum(), x.mean() if x.is_floating_point() else x.float().mean()

    return fn, [(torch.arange(3).to(d),) for d in (*DTYPES[:3], torch.float32, torch.float64)]


@program(breaks=0)
def test_integer_division_and_true_division():
    def fn(x, k):
        return x / k, x // k, x % k, torch.div(x, k, rounding_mode="trunc"), -x // k, x.remainder(k), torch.fmod(x, k)

    whole = torch.arange(-3, 3)
    return fn, [(whole, 2), (whole.float(), 2), (whole, 1.5), (whole + 1, 2)]


@program(breaks=0)
def test_overflow_wraps_and_saturates_as_in_eager():
    def fn(x):
        return x + 100, x * 3, -x, x.abs(), x.float() / 7

    return fn, [
        (torch.tensor([100, -128, 127], dtype=torch.int8),),
        (torch.tensor([250, 5, 0], dtype=torch.uint8),),
        (torch.tensor([100, -128, 127], dtype=torch.int8),),
    ]


@program
def test_mixed_dtypes_that_a_product_refuses():
    def fn(x, y):
        try:
            return x @ y
        except RuntimeError as error:
            return str(error), x.double() @ y.double()

    dtypes = (torch.float32, torch.float64, torch.float32, torch.int64)
    return fn, [(torch.ones(2, 2), torch.ones(2, 2, dtype=d)) for d in dtypes]


@program(breaks=0)
def test_input_follows_the_weights():
    layer = nn.Linear(2, 2).double()

    def fn(x):
        x = x.to(layer.weight)
        return layer(x), x.dtype, next(layer.parameters()).device.type

    return fn, [(torch.randn(1, 2).to(d),) for d in (torch.float32, torch.float64, torch.float16, torch.float32)]


@program(breaks=0)
def test_devices_are_compared_and_passed_on():
    def fn(x, device):
        y = torch.zeros(2, device=x.device) + x
        where = torch.device(device)
        return y.to(device), y.device == where, x.is_cuda, where.type, x.get_device(), str(y.device)

    return fn, [(torch.randn(2), d) for d in ("cpu", torch.device("cpu"), "cpu")]


@program
def test_meta_tensors_have_shapes_only():
    def fn(x):
        y = x @ x.T
        return y.shape, y.dtype, y.device.type, y.is_meta, None if y.is_meta else y.sum()

    return fn, [(torch.ones(2, 3, device=d),) for d in ("cpu", "meta", "cpu", "meta")]


@program(breaks=0)
def test_limits_of_a_dtype_as_fill_values():
    def fn(x, mask):
        low = torch.finfo(x.dtype).min if x.is_floating_point() else torch.iinfo(x.dtype).min
        return x.masked_fill(mask, low).max(), torch.finfo(torch.float32).eps

    mask = torch.tensor([True, False])
    return fn, [(torch.tensor([5, 1]).to(d), mask) for d in (torch.float32, torch.int32, torch.float64, torch.float32)]


@program(breaks=0)
def test_complex_numbers_meet_real_ones():
    def fn(x, k):
        y = x * k
        return y, y.real, torch.is_complex(y), (x + 1j).abs(), y.dtype.is_complex

    return fn, [(torch.randn(2), k) for k in (2, 1j, 1 + 2j, 2)]


@program(breaks=0)
def test_classes_are_given_as_dtypes():
    def fn(x):
        return (
            (x * 5).to(bool).to(float),
            x.to(dtype=int),
            torch.zeros(2, dtype=complex),
            x.type(torch.HalfTensor),
            torch.tensor(range(x.shape[0])),
        )

    return fn, [(torch.randn(3),), (torch.randn(2),), (torch.randn(3),)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2).type(torch.float64) + x.shape[0],
        lambda x: (x * 2).type(torch.float32).type(dtype=torch.int64).cumsum(0),
        lambda x: (x.t().type(torch.DoubleTensor) * 2, x.type("torch.HalfTensor") + 1),
        lambda x: x * len(x.type()) + (x.type(torch.float32) is x),
    ],
    ids=("number", "twice", "class", "name"),
)
def test_type_serves_all_sizes(fn):
    compiled = burnish.compile(fn, backend="eager")
    with recorded("segment", datum="segment") as segments:
        for size in (3, 5, 6, 4, 9, 17, 8, 12, 33, 40):
            x = torch.randn(size, 4)
            torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0, check_stride=True)
    assert len(segments) == 2
