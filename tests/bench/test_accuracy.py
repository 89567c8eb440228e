"""Errors against float64, as multiples of eager's error."""

import math

import pytest
import torch
from bench.accuracy import differ, doubled, error_ratio, relative_error, typical_error


def test_error_is_the_largest_difference_over_the_largest_entry():
    truth = {"result": torch.tensor([1.0, -4.0], dtype=torch.float64)}
    assert relative_error(truth, {"result": torch.tensor([1.5, -4.0])}) == pytest.approx(0.125)


def test_tensors_of_different_magnitude_count_equally():
    truth = {"loss": torch.tensor([1000.0]), "gradient of w": torch.tensor([0.001])}
    got = {"loss": torch.tensor([1000.0]), "gradient of w": torch.tensor([0.0011])}
    assert relative_error(truth, got) == pytest.approx(0.1, rel=1e-3)


def test_gradient_that_is_nothing_but_rounding_is_measured_against_its_kind():
    truth = {"gradient of weight": torch.tensor([1.0]), "gradient of bias": torch.tensor([1e-17])}
    got = {"gradient of weight": torch.tensor([1.0]), "gradient of bias": torch.tensor([1e-8])}
    assert relative_error(truth, got) == pytest.approx(1e-6)


@pytest.mark.parametrize(
    "got",
    [
        {},
        {"result": torch.ones(3)},
        {"result": torch.tensor([1.0, math.nan])},
        {"result": torch.tensor([1.0, math.inf])},
    ],
)
def test_missing_misshapen_and_undefined_results_are_infinitely_wrong(got):
    assert relative_error({"result": torch.ones(2)}, got) == math.inf


def test_same_infinities_and_nan_are_right():
    truth = {"result": torch.tensor([math.inf, math.nan, 2.0])}
    assert relative_error(truth, {"result": torch.tensor([math.inf, math.nan, 2.0])}) == 0.0


def test_results_that_are_all_zero_are_compared_absolutely():
    assert relative_error({"result": torch.zeros(2)}, {"result": torch.tensor([0.0, 0.5])}) == 0.5


def test_less_than_one_rounding_counts_as_one():
    assert error_ratio(1e-9, 0.0) == 1.0
    assert error_ratio(4e-7, 2e-7) == pytest.approx(2.0)
    assert error_ratio(math.inf, 2e-7) == math.inf


def test_doubling_keeps_whole_numbers_structure_and_gradients():
    ids, x = torch.tensor([1]), torch.ones(2, requires_grad=True)
    made = doubled({"ids": ids, "pair": (x, 3)})
    assert made["ids"] is ids and made["pair"][1] == 3
    assert made["pair"][0].dtype == torch.float64 and made["pair"][0].requires_grad


def test_results_differ_in_names_or_values():
    one = {"loss": torch.tensor(1.0)}
    assert not differ(one, {"loss": torch.tensor(1.0)})
    assert differ(one, {"loss": torch.tensor(2.0)}) and differ(one, {})


def test_a_jump_of_one_entry_is_little_of_all_of_them():
    truth = {"gradient of a": torch.ones(100), "gradient of b": torch.ones(4)}
    got = {name: part.clone() for name, part in truth.items()}
    got["gradient of a"][3] += 0.1
    assert relative_error(truth, got) == pytest.approx(0.1)
    assert typical_error(truth, got) == pytest.approx(0.01 / 2**0.5, rel=1e-3)
    assert typical_error(truth, {}) == math.inf
