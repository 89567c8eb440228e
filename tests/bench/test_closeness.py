"""The accuracy rule: a result must be as close to float64 as eager's."""

import pytest
import torch
from bench.closeness import moved, rounding_unit, why_wrong
from bench.operators import Judge


def off(x, units):
    """Every number, moved by this many rounding units."""
    return (x.double() + units * rounding_unit(x.double(), x.dtype)).to(x.dtype)


def judged(fn, inputs, change):
    eager = fn(*inputs)
    return Judge(fn, (inputs, {}))(eager, change(eager), "result", 0)


def numbers(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=generator, dtype=torch.float64).mul(4).sub(2).to(dtype)


def test_one_unit_off_the_exact_value_is_near_enough_and_three_are_not():
    truth = numbers(50)
    assert why_wrong(truth, off(truth, 1), truth.double()) is None
    assert "50 of 50 elements" in why_wrong(truth, off(truth, 3), truth.double())


def test_twice_the_error_of_eager_is_near_enough():
    truth = numbers(50)
    assert why_wrong(off(truth, 4), off(truth, -9), truth.double()) is None
    assert why_wrong(off(truth, 4), off(truth, -10), truth.double()) is not None


def test_noise_takes_the_place_of_the_one_unit():
    truth = numbers(50)
    noise = 6 * rounding_unit(truth.double(), torch.float32)
    assert why_wrong(truth, off(truth, 6), truth.double(), noise=lambda _: noise) is None
    assert why_wrong(truth, off(truth, 7), truth.double(), noise=lambda _: noise) is not None
    assert why_wrong(truth, off(truth, 3), truth.double(), noise=lambda _: noise / 6) is not None


@pytest.mark.parametrize("special", [torch.nan, torch.inf])
def test_no_noise_hides_nan_or_infinity(special):
    truth = numbers(50)
    wrong = truth.clone()
    wrong[3] = special
    huge = torch.full((50,), 1e30, dtype=torch.float64)
    assert why_wrong(truth, wrong, truth.double(), noise=lambda _: huge) is not None
    assert why_wrong(wrong, truth, wrong.double(), noise=lambda _: huge) is not None


def test_violation_where_eager_is_lucky_is_judged_on_neighbours():
    # The sum cancels to nothing in eager's order; another order leaves a rounding error.
    x = torch.tensor([1e4, 0.1, -1e4, -0.1])
    lucky = torch.sum(x)
    assert judged(lambda x: x.sum(), (x,), lambda s: lucky + 4e-4) is None
    assert judged(lambda x: x.sum(), (x,), lambda s: lucky + 4e-2) is not None


# A result in float32 of operands in float64 ---------------------------------------------------------------------------


def rounded_then_summed(x):
    return x.float().sum(0)


def test_neighbours_of_a_float64_that_is_rounded_differ_after_rounding():
    """Moved by units of float64, it would nearly always be the same float32, and all neighbours would be equal."""
    x = numbers(200, dtype=torch.float64)
    near = [moved((x,), seed, torch.float32)[0] for seed in range(4)]
    assert all((a.float() != x.float()).float().mean() > 0.8 for a in near)
    own = moved((x,), 0)[0]
    assert (own.float() != x.float()).float().mean() < 0.01


def test_neighbours_by_the_units_of_float32_allow_no_more_than_eager_errs_there():
    """The true result moves with them: they show eager's errors, not their distance from each other."""
    x = numbers(64, 50, dtype=torch.float64)
    assert judged(rounded_then_summed, (x,), lambda s: off(s, 60)) is not None
    assert judged(lambda x: x.float().exp(), (x,), lambda y: off(y, 5)) is not None
    assert judged(lambda x: x.float() * 1.5, (x,), lambda y: off(y, 4)) is not None


def test_float64_results_are_held_to_their_own_units():
    x = numbers(50, dtype=torch.float64) + 4
    assert judged(torch.exp, (x,), lambda y: off(y, 1)) is None
    assert judged(torch.exp, (x,), lambda y: off(y, 40)) is not None


def test_eager_errors_in_another_order_of_addition_count():
    x = torch.tensor([[-7.9506, -3.0337, 4.7744, 4.1631, 8.3972]], dtype=torch.float64).mul(1 / 3).float().t()
    x = x.expand(5, 3).contiguous()
    in_turn = sum(x[1:], start=x[0])
    assert judged(lambda x: x.sum(0), (x,), lambda s: in_turn) is None
    assert judged(lambda x: x.sum(0), (x,), lambda s: off(s, 12)) is not None
