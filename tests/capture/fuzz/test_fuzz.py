"""A few dozen generated programs, always the same ones; ``run.py`` is the long run."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .check import check
from .generate import generate
from .random_choices import from_hypothesis, from_seed
from .run import own_part
from .shrink import shrink

passed: set[str] = set()


@st.composite
def programs(draw):
    return generate(from_hypothesis(draw))


# Hypothesis would shrink the decisions, which changes the whole program; our own shrinker deletes statements instead.
@pytest.mark.falls_back("refused")
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_generated_programs_run_as_eager(source):
    if source not in passed:  # other decisions may write the same program
        compare(source)
        passed.add(source)


@pytest.mark.parametrize("seed", range(0, 40))
def test_program_of_seed_runs_as_eager(seed):
    compare(generate(from_seed(seed)))


def test_same_seed_writes_the_same_program():
    assert generate(from_seed(3)) == generate(from_seed(3))


def test_check_detects_a_different_function(monkeypatch):
    import burnish

    monkeypatch.setattr(burnish, "compile", lambda fn, **_: lambda x, *rest: fn(x + 1, *rest))
    source = generate(from_seed(3))
    failure, _ = check(source)
    assert failure is not None
    small = shrink(source, failure, seconds=5)
    assert check(small)[0].signature == failure.signature
    assert len(own_part(small)) < len(own_part(source))


def compare(source: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            failure, _ = check(source)
            if failure is not None:
                pytest.fail(f"{failure.message}\n{own_part(shrink(source, failure, seconds=8))}", pytrace=False)
    finally:
        torch.set_num_threads(threads)
