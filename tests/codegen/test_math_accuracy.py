"""Accuracy of the expansions of transcendental functions over the whole range."""

import numpy as np
import pytest
from mpmath import mp

from burnish.codegen.math.expand_operations import BASE, EXPANSIONS, expand, why_not_expandable
from burnish.ops.scalar_ir import Access, binary, cast, load, unary, walk

from .exact_functions import EXACT, exact, exact_in_f64, last_places
from .minimax_fit import FITS, coefficients
from .plain_llvm_evaluator import compiled

LIMIT = 2.0
"""Units in the last place."""

REACHED = {
    "exp": 0.8, "log": 0.8, "exp2": 0.95, "tanh": 1.0, "log1p": 1.3, "erf": 1.4, "expm1": 1.1, "sin": 1.25, "cos": 1.25,
    "sigmoid": 1.8,
}  # fmt: skip
"""Smaller limits for f32: a sum of many results, as in softmax and losses, adds up all their errors."""

UNARY = sorted(EXACT)
UNARY_F64 = [op for op in UNARY if why_not_expandable(op, "f64") is None]

# Where functions of f64 are looked at, besides random bit patterns.
RANGES = {
    "exp": (-746, 710), "exp2": (-1075, 1024), "expm1": (-40, 710), "sigmoid": (-746, 40), "sinh": (-711, 711),
    "cosh": (-711, 711), "tanh": (-20, 20), "erf": (-6, 6), "asin": (-1, 1), "acos": (-1, 1), "log1p": (-1, 4),
    "log": (0, 4), "log2": (0, 4), "log10": (0, 4), "rsqrt": (0, 4),
}  # fmt: skip

each_function = pytest.mark.parametrize("op", UNARY)


def operand(dtype, number=0):
    return load(dtype, Access(number, 0, (1,)))


def function(op, dtype):
    return compiled(expand(unary(op, operand(dtype))))


def patterns(start, stop, step):
    """The f32 of every `step`th bit pattern."""
    return np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def worst(op, x, run):
    """The largest error, and where."""
    found = run(x)
    errors = last_places(found, exact(op, x), "f32")
    place = int(errors.argmax())
    return errors[place], f"{op}({x[place]!r}) is {found[place]!r}, {errors[place]:.2f} units off"


@each_function
def test_f32_is_accurate_on_a_sweep_of_all_bit_patterns(op):
    error, text = worst(op, patterns(0, 1 << 32, 4093), function(op, "f32"))
    assert error <= REACHED.get(op, LIMIT), text


@pytest.mark.slow
@each_function
def test_f32_is_accurate_on_a_fine_sweep_of_all_bit_patterns(op):
    run = function(op, "f32")
    for part in range(64):
        error, text = worst(op, patterns(part << 26, (part + 1) << 26, 17), run)
        assert error <= REACHED.get(op, LIMIT), text


@each_function
def test_f32_is_accurate_where_the_method_changes(op):
    """Around every constant that the expansion compares with, and the multiples of log(2) / 2 and of pi / 4, where
    the reduced argument jumps."""
    expansion = expand(unary(op, operand("f32")))
    compared = [a.payload for x in walk(expansion) if x.op in ("lt", "gt", "eq") for a in x.args if a.op == "const"]
    multiples = np.arange(-320, 321)
    places = np.concatenate([compared, multiples * (np.log(2) / 2), multiples * (np.pi / 4), 2.0 ** multiples[192:448]])
    with np.errstate(over="ignore"):
        places = np.unique(np.concatenate([places, -places]).astype(np.float32))
    around = places.view(np.int32)[:, None] + np.arange(-40, 41, dtype=np.int32)
    error, text = worst(op, around.ravel().view(np.float32), compiled(expansion))
    assert error <= REACHED.get(op, LIMIT), text


def test_erf_is_accurate_to_a_rounding_for_most_arguments_of_gelu():
    """An addition to an erf or a subtraction from it exposes its last place."""
    run = function("erf", "f32")
    for start, stop, limit in ((2.0**-20, 0.7, 0.75), (0.7, 1.0, 1.0), (1.0, 1.1, 1.4)):
        x = np.random.default_rng(0).uniform(start, stop, 20000).astype(np.float32)
        error, text = worst("erf", x, run)
        assert error <= limit, text


@pytest.mark.parametrize("op", UNARY_F64)
def test_f64_is_accurate(op):
    random = np.random.default_rng(0)
    low, high = RANGES.get(op, (-30, 30))
    x = np.concatenate(
        [
            random.uniform(low, high, 600),
            random.uniform(max(low, -2), min(high, 2), 600),
            10.0 ** random.uniform(-12, np.log10(high), 300) * random.choice([-1, 1], 300),
            random.integers(0, 1 << 63, 300).view(np.float64) * random.choice([-1, 1], 300),
        ]
    )
    x = x[np.isfinite(x) & np.isfinite(function(op, "f64")(x))]
    with np.errstate(all="ignore"):
        x = x[np.isfinite(EXACT[op](x)) & (EXACT[op](x) != 0)]
    assert len(x) > 900
    found = function(op, "f64")(x)
    right, low = exact_in_f64(op, x)
    errors = last_places(found, right, "f64", low)
    assert errors.max() <= LIMIT, f"{op}({x[errors.argmax()]!r}) is {errors.max():.2f} units off"


def test_powers_of_f32_are_accurate():
    random = np.random.default_rng(0)
    run = compiled(expand(binary("pow", operand("f32"), operand("f32", 1))))
    count = 200_000
    anything = random.integers(0, 0x7F800000, count, dtype=np.uint32).view(np.float32)
    near_one = (1 + random.normal(size=count) * 10.0 ** random.uniform(-7, -1, count)).astype(np.float32)
    for x in (anything, near_one):
        with np.errstate(all="ignore"):
            # So that results are spread evenly from zero to infinity.
            y = (random.uniform(-152, 130, count) / np.log2(x.astype(np.float64))).astype(np.float32)
            right = np.power(x.astype(np.float64), y.astype(np.float64))
        errors = last_places(run(x, y), right, "f32")
        assert errors.max() <= 1, f"{x[errors.argmax()]!r} ** {y[errors.argmax()]!r}"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_angles_of_two_numbers_are_accurate(dtype):
    random = np.random.default_rng(0)
    run = compiled(expand(binary("atan2", operand(dtype), operand(dtype, 1))))
    kind, count = (np.float32, 200_000) if dtype == "f32" else (np.float64, 1500)
    x = random.normal(size=count).astype(kind)
    y = (x * 10.0 ** random.uniform(-6, 6, count) * random.choice([-1, 1], count)).astype(kind)
    if dtype == "f32":
        errors = last_places(run(y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64)), dtype)
    else:
        right, low = exact_in_f64("atan2", y, x)
        errors = last_places(run(y, x), right, dtype, low)
    assert errors.max() <= LIMIT, f"atan2({y[errors.argmax()]!r}, {x[errors.argmax()]!r})"


@pytest.mark.parametrize("op", [op for op in UNARY if op not in ("exp", "rsqrt", "acosh")])
def test_every_f16_is_rounded_right_but_for_one_place(op):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = compiled(expand(unary(op, operand("f16"))))(x)
    with np.errstate(all="ignore"):
        right = EXACT[op](x.astype(np.float64)).astype(np.float16)
    apart = found.view(np.int16).astype(int) - right.view(np.int16)
    assert np.abs(apart[~(np.isnan(found) & np.isnan(right))]).max() <= 1


@pytest.mark.parametrize("op", UNARY)
def test_bf16_is_computed_in_f32(op):
    x = operand("bf16")
    assert expand(unary(op, x)) is cast(expand(unary(op, cast(x, "f32"))), "bf16")


def test_results_that_are_exact_come_out_exact():
    def check(op, arguments, results):
        found = function(op, "f32")(np.array(arguments, np.float32))
        np.testing.assert_array_equal(found, np.array(results, np.float32))

    check("exp", [0, -0.0], [1, 1])
    check("exp2", np.arange(-149, 128), 2.0 ** np.arange(-149, 128))
    check("log2", 2.0 ** np.arange(-149, 128), np.arange(-149, 128))
    check("log", [1], [0])
    check("cos", [0, 1e-5], [1, 1])
    check("cosh", [0], [1])
    check("sigmoid", [0, 100], [0.5, 1])
    check("erf", [5, -5], [1, -1])
    check("tanh", [10, -10], [1, -1])
    check("erfc", [0, -6], [1, 2])


@pytest.mark.parametrize("op", ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "expm1", "log1p"])
def test_denormals_are_returned_by_functions_that_are_x_near_zero(op):
    tiny = np.array([1, 2, 3, 1000, 0x7FFFFF], np.int32).view(np.float32)
    x = np.concatenate([tiny, -tiny])
    np.testing.assert_array_equal(function(op, "f32")(x), x)


# The number of base operations, without loads, constants and rare branches. A longer expansion is slower.
LENGTHS = {
    "exp": 18, "exp2": 14, "expm1": 28, "sigmoid": 22, "log": 22, "log2": 26, "log10": 30, "log1p": 28, "tanh": 30,
    "erf": 31, "asin": 18, "acos": 21, "atan": 19, "sinh": 27, "cosh": 24, "sin": 29, "cos": 28, "rsqrt": 2,
    "reciprocal": 1, "fmod": 16,
}  # fmt: skip


@pytest.mark.parametrize("op,length", LENGTHS.items())
def test_f32_takes_few_operations(op, length):
    x, y = operand("f32"), operand("f32", 1)
    wanted, stack = set(), [expand(binary(op, x, y) if op == "fmod" else unary(op, x))]
    while stack:
        x = stack.pop()
        wanted.add(x)
        stack += (x.args[0], x.args[2]) if x.payload == "rare" else x.args
    assert sum(x.op not in ("const", "load", "bitcast") for x in wanted) <= length


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("op", sorted(EXPANSIONS))
def test_expandable_operations_expand_to_base_operations(op, dtype):
    x, y = operand(dtype), operand(dtype, 1)
    node = binary(op, x, y) if op in ("pow", "atan2", "copysign", "fmod", "remainder", "floor_div") else unary(op, x)
    left = {x.op for x in walk(expand(node))} - BASE
    assert left == set() if why_not_expandable(op, dtype) is None else left == {op}


def test_operands_of_an_expansion_are_expanded_too_and_shared():
    x = operand("f32")
    once = list(walk(expand(x.exp())))
    both = list(walk(expand(x.exp() + x.exp() * x.exp().log())))
    assert {x.op for x in both} <= BASE
    assert len(both) < 2 * len(once) + 40
    assert expand(x * 2.0 + 1.0) is x * 2.0 + 1.0


@pytest.mark.parametrize("name", [name for name, what in FITS.items() if what.count <= 6])
def test_polynomials_are_those_that_the_fit_gives(name):
    assert table(name) == coefficients(FITS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, what in FITS.items() if what.count > 6])
def test_long_polynomials_are_those_that_the_fit_gives(name):
    assert table(name) == coefficients(FITS[name])


def table(name):
    """`exponentials.TABLES.f32.exp` of burnish.codegen.math."""
    from burnish.codegen import math

    found = math
    for part in name.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def test_constants_of_several_words_are_exact_enough():
    from burnish.codegen.math import exponentials, inverse_trigonometry, logarithms, trigonometry

    def error(words, value):
        return abs(sum(map(mp.mpf, words)) / value - 1)

    with mp.workprec(400):
        assert error(trigonometry.TURNS, 1 / (2 * mp.pi)) < mp.mpf(2) ** -190
        assert error(trigonometry.HALF_PI_F32, mp.pi / 2) < mp.mpf(2) ** -72
        assert error(trigonometry.HALF_PI_F64, mp.pi / 2) < mp.mpf(2) ** -104
        for dtype, digits in (("f32", 24), ("f64", 53)):
            more = mp.mpf(2) ** (-1.3 * digits)
            assert error(exponentials.TABLES[dtype].log2, mp.log(2)) < more
            assert error(logarithms.TABLES[dtype].log10_2, mp.log10(2)) < more
            assert error(logarithms.TABLES[dtype].log10_e, mp.log10(mp.e)) < more
            first, second = map(mp.mpf, inverse_trigonometry.TABLES[dtype].half_pi)
            assert abs(first * second - mp.pi / 2) < more
