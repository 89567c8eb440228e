"""Functions computed by a GPU's own instructions: as accurate as those of a CPU, over the whole range, even if the
instructions have the errors of hardware."""

import numpy as np
import pytest

pytest.importorskip("triton")

from burnish.codegen.triton.fast_math_intrinsics import EXPANSIONS

from ..codegen.exact_functions import exact, last_places
from ..codegen.run_kernel import is_interpreted, run
from ..codegen.triton_interpreter import INSTRUCTIONS
from ..schedule.parse_loops import parse_kernel

each_function = pytest.mark.parametrize("op", sorted(EXPANSIONS))
interpreted = pytest.mark.skipif(not is_interpreted(), reason="no interpreter of Triton")

REACHED = {"exp": 1.1, "exp2": 0.8, "sigmoid": 2.0, "tanh": 1.3, "erf": 1.2, "sin": 0.6, "cos": 0.6}
"""Units in the last place, where instructions are rounded. sin and cos are instructions."""

REACHED_BY_HARDWARE = {"exp": 2.6, "exp2": 2.6, "tanh": 2.1, "erf": 1.4}
"""The limit if each is off by a unit to either side, at random: two units just below a power of two."""


def places():
    """Of f32: every so many of all bit patterns, and numbers of medium size."""
    everything = np.arange(0, 1 << 32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    random = np.random.default_rng(0)
    usual = [random.uniform(-scale, scale, 1 << 15).astype(np.float32) for scale in (1, 10, 100)]
    return np.concatenate([everything, *usual])


def computed(op, x):
    kernel = parse_kernel(
        f"kernel k(b0: f32, b1: f32 out)\n  loop i0 < {len(x)} rows\n    stage\n      b1[i0] = {op}(b0[i0])\n"
    )
    return run(kernel, [x, np.zeros_like(x)], "triton")[1]


@pytest.fixture
def unsteady(monkeypatch):
    """Instructions are off by a unit in the last place, to either side or not at all, and flush denormals."""
    random = np.random.default_rng(1)

    def moved(function):
        def computed(x):
            smallest = np.float32(2.0**-126)
            found = function(np.where(np.abs(x) < smallest, x * 0, x))
            inside = np.isfinite(found) & (np.abs(found) > smallest)
            steps = random.integers(-1, 2, found.shape).astype(np.int32)
            near = np.where(inside, (found.view(np.int32) + steps).view(np.float32), found)
            return np.where(np.abs(near) < smallest, near * 0, near)

        return computed

    for name in ("create_exp2", "create_rsqrt"):
        monkeypatch.setitem(INSTRUCTIONS, name, moved(INSTRUCTIONS[name]))


def worst(op, x):
    found = computed(op, x)
    errors = last_places(found, exact(op, x), "f32")
    place = int(errors.argmax())
    return errors[place], f"{op}({x[place]!r}) is {found[place]!r}, {errors[place]:.2f} units off"


@interpreted
@each_function
def test_it_is_as_near_as_on_a_cpu(op):
    error, text = worst(op, places())
    assert error <= REACHED[op], text


@interpreted
@pytest.mark.parametrize("op", sorted(REACHED_BY_HARDWARE))
def test_it_is_near_where_instructions_are_a_unit_off(op, unsteady):
    error, text = worst(op, places())
    assert error <= REACHED_BY_HARDWARE[op], text


@interpreted
def test_sigmoid_is_as_near_as_eager_s_where_instructions_are_a_unit_off(unsteady):
    """But for half a unit, by which a quotient may be off."""
    x = places()
    with np.errstate(all="ignore"):
        error, text = worst("sigmoid", x)
        eager = np.float32(1) / (np.float32(1) + computed("exp", -x))
    # Below, eager's exp overflows.
    inside = x > -87
    assert error <= last_places(eager, exact("sigmoid", x), "f32")[inside].max() + 0.5, text
