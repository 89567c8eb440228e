"""The tolerance of the fuzzer: it accepts what eager's rounding explains, and no wrong value."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from bench.closeness import rounding_unit

from .check import ProgramJudge
from .program import Input, Line, Program
from .rounding_tolerance import movable_lines, noise


def program(inputs, *lines, exact=()):
    """Its output is what the last line makes."""
    made = [line.partition(" = ")[0] for line in lines]
    uses = [tuple(dict.fromkeys(re.findall(r"\b[xv]\d+\b", line.partition(" = ")[2]))) for line in lines]
    names = [*(f"x{k}" for k in range(len(inputs))), *made]
    return Program(
        tuple(inputs),
        tuple(Line(text, (name,), used) for text, name, used in zip(lines, made, uses, strict=True)),
        (made[-1],),
        frozenset(exact),
        dict.fromkeys(names, "f32"),
    )


def judged(tested, change):
    """The judge's verdict on eager's result with a change made to it, and where."""
    eager = tested.function()(*tested.arguments())[0]
    got = eager.clone()
    change(got)
    assert not torch.equal(got, eager)
    return ProgramJudge(tested, 0)(eager, got, "result", 0)


def off(units, *, of_largest=False, at=None):
    """So many rounding units more; by default at the smallest number, where it matters most."""

    def change(x):
        flat = x.view(-1)
        place = int(flat.abs().argmin()) if at is None else at
        unit = rounding_unit((flat.abs().max() if of_largest else flat[place]).double(), x.dtype)
        flat[place] = flat[place].double() + units * unit

    return change


GROUP_NORM = program([Input((1, 7, 33), "f32", seed=293)], "v0 = F.group_norm(x0, 1, None, None, eps=1e-2)")
SOFTMAX = program([Input((4, 9), "f32", seed=3, limit=12)], "v0 = torch.softmax(x0, 1)")
OF_BOOLEANS = program([Input((7, 7, 9), "b8", seed=927)], "v0 = x0.to(F32).mean((0,))", "v1 = torch.softmax(v0, 1)")
EXP = program([Input((64,), "f32", seed=5)], "v0 = torch.exp(x0)")
MEAN = program(
    [Input((4,), "f32")], "v0 = torch.tensor([1.0, 3.75, -3.5, 0.125])", "v1 = v0.view(2, 2)", "v2 = v1.mean()"
)
SUM = program([Input((5, 60), "f32", seed=8)], "v0 = x0.sum(1)")
CENTRED_EXP = program([Input((4, 9), "f32", seed=5)], "v0 = F.layer_norm(x0, (9,), None, None)", "v1 = torch.exp(v0)")


def test_cancelled_terms_of_a_norm_are_known_to_half_a_unit_of_the_largest():
    assert judged(GROUP_NORM, off(0.4, of_largest=True)) is None


@pytest.mark.parametrize("units", [2, -3, 100])
def test_a_norm_that_is_wrong_near_its_mean_is_detected(units):
    assert judged(GROUP_NORM, off(units, of_largest=True)) is not None


def test_a_small_probability_must_be_right_in_itself():
    assert judged(SOFTMAX, off(0.4, of_largest=True)) is not None
    assert judged(SOFTMAX, off(16)) is not None


def test_eager_errors_beside_values_on_the_way_count():
    assert judged(OF_BOOLEANS, off(2)) is None
    assert judged(OF_BOOLEANS, off(9)) is not None


def test_a_sum_that_is_exact_by_luck_may_be_off_by_half_a_unit_of_each_term():
    terms = (1.0, 3.75, -3.5, 0.125)
    eager = MEAN.function()(*MEAN.arguments())[0]
    halves = sum(2.0**-24 * 2.0 ** math.floor(math.log2(abs(x))) for x in terms) / len(terms)
    where = torch.ones_like(eager, dtype=torch.bool)
    assert torch.equal(noise(MEAN, 0, "v2", where), torch.full_like(eager, halves, dtype=torch.float64))


def test_a_sum_is_given_no_more_than_that():
    assert judged(SUM, off(0.4, of_largest=True)) is None
    assert judged(SUM, off(16, of_largest=True)) is not None


def test_the_logarithm_of_a_sum_is_known_to_half_a_unit_of_its_largest_term():
    tested = program([Input((6,), "f32")], "v0 = torch.tensor([0.0, -12.0, -13.0])", "v1 = torch.log_softmax(v0, -1)")
    found = noise(tested, 0, "v1", torch.ones(3, dtype=torch.bool))
    assert torch.equal(found, torch.full((3,), 2.0**-24, dtype=torch.float64))


def test_eagers_variance_is_not_a_reference_in_float64():
    tested = program([Input((2, 7, 2), "f64", seed=26)], "v0 = torch.stack((x0, x0))", "v1 = v0.var(dim=(0, 1, 2, 3))")
    tested = replace(tested, shortest=dict.fromkeys(tested.shortest, "f64"))
    values = [Fraction(x) for x in tested.arguments()[0].flatten().tolist() * 2]
    average = sum(values) / len(values)
    exact = float(sum((x - average) ** 2 for x in values) / (len(values) - 1))
    assert judged(tested, lambda x: x.fill_(exact)) is None
    assert judged(tested, off(50)) is not None


def test_noise_is_unknown_where_autograd_does_not_follow():
    tested = program([Input((4,), "f32")], "v0 = x0.sum(0, keepdim=True)", "v1 = v0.exp()")
    more = (Line("v1.add_(1)", (), ("v1",)), Line("v2 = v1 * v1", ("v2",), ("v1",)), Line("v1.mul_(2)", (), ("v1",)))
    spoilt = replace(tested, lines=(*tested.lines, *more), outputs=("v2",))
    assert noise(spoilt, 0, "v2", torch.ones(1, dtype=torch.bool)) is None


def test_a_function_is_given_no_noise():
    assert judged(EXP, off(1)) is None
    assert judged(EXP, off(5)) is not None


def test_the_tail_of_a_gelu_is_known_to_half_a_unit_of_its_argument():
    for gelu in ("F.gelu(v0)", "F.gelu(v0 * 1, approximate='tanh')"):
        tested = program([Input((6,), "f32")], "v0 = torch.tensor([-6.0, 1.0])", f"v1 = {gelu}")
        found = noise(tested, 0, "v1", torch.ones(2, dtype=torch.bool))
        assert torch.equal(found, torch.tensor([2.0**-22, 2.0**-24], dtype=torch.float64))
    tested = program([Input((6,), "f32")], "v0 = torch.tensor([-6.0, 1.0])", "v1 = torch.tanh(v0)")
    assert noise(tested, 0, "v1", torch.ones(2, dtype=torch.bool)) is None


def test_noise_of_a_norm_is_propagated_to_later_results():
    assert judged(CENTRED_EXP, off(15)) is not None


def test_two_swapped_elements_are_detected():
    def swap(x):
        x.view(-1)[[0, -1]] = x.view(-1)[[-1, 0]]

    for tested in (GROUP_NORM, SOFTMAX, OF_BOOLEANS, EXP, CENTRED_EXP):
        assert judged(tested, swap) is not None


def test_nothing_is_moved_that_decides():
    tested = program(
        [Input((4, 9), "f32")],
        "v0 = torch.sin(x0)",
        "v1 = v0.view(-1)",
        "v2 = v1 > 0",
        "v3 = torch.where(v2, v1, 2)",
        "v4 = torch.exp(v3)",
    )
    assert movable_lines(tested) & {0, 1} == set()
    assert movable_lines(tested) >= {3, 4}


def test_values_that_share_memory_are_not_perturbed():
    tested = program(
        [Input((4, 9), "f32")], "v0 = x0.view(-1)", "v1 = v0.exp()", "v2 = v1.expand(3, 36)", "v3 = v2.sum()"
    )
    assert movable_lines(tested) == {1, 3}


def test_an_input_that_goes_does_not_leave_its_exactness_to_the_next():
    tested = program([Input((2,), "i64"), Input((2,), "f32")], "v0 = x1 + 1", exact=("x0",))
    assert tested.without(set(), tested.outputs).exact == frozenset()
