"""`burnish bench --limits`: shares of the machine's limits, what loses most first."""

import torch
from bench.limits import Limits, Step, share, steps_of, tables

LIMITS = Limits({"read (sum)": 10e9, "copy": 20e9}, {"eager's product": 1e12})


def test_time_at_the_limit_is_that_of_what_takes_longer():
    assert LIMITS.seconds(10**9, 0) == 1e-3 and LIMITS.seconds(0, 20 * 10**6) == 1e-3
    assert LIMITS.seconds(10**9, 40 * 10**6) == 2e-3


def test_what_loses_most_time_comes_first():
    near, far = Step("a", "mm", "x.py:1", 2e-3, 1.9e-3), Step("b", "exp", "x.py:2", 1e-3, 1e-4)
    machine, models, farthest = tables(LIMITS, {"a": [near], "b": [far]})
    assert [row[0] for row in models.rows] == ["b", "a"] and models.rows[0][-1] == "10%"
    assert [row[1] for row in farthest.rows] == ["exp", "mm"]
    assert machine.rows[1] == ["copy", "20.0 GB/s"]


def test_steps_of_a_model_are_its_kernels_and_calls_with_their_bytes():
    torch.manual_seed(0)
    steps = steps_of("pointwise", None, LIMITS)
    assert steps and all(step.measured > 0 and step.at_limit > 0 for step in steps)
    assert 0 < share(steps) and "models.py" in steps[0].line
