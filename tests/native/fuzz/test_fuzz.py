"""A few random graphs on every run, and a check that the fuzzer detects errors. The long run is `run.py`."""

import pytest
import torch

import burnish

from .check import check, silence
from .generate import generate
from .shrink import shrink

FEW = 60
MANY = 5000


@pytest.fixture(autouse=True, scope="module")
def quiet():
    silence()


def differing(seeds):
    found = []
    for seed in seeds:
        program = generate(seed)
        failure = check(program).failure
        if failure is not None:
            found.append(f"seed {seed}: {failure.message}\n{program}")
    return found


@pytest.mark.falls_back("refused", "numbers", "sizes")
def test_random_graphs_equal_eager():
    assert not differing(range(FEW))


@pytest.mark.slow
@pytest.mark.falls_back("refused", "numbers", "sizes")
def test_many_random_graphs_equal_eager():
    assert not differing(range(FEW, MANY))


def test_a_seed_gives_one_program_for_every_random_state():
    torch.manual_seed(1)
    first = str(generate(7))
    torch.manual_seed(2)
    assert str(generate(7)) == first


def test_most_programs_have_kernels_of_their_own():
    ways = [check(generate(seed)).way for seed in range(1000, 1030)]
    assert ways.count("native") > 20


def spoilt(fn):
    """Wrong wherever a result has more than one element."""

    def run(*args):
        return tuple(x + 1 if x.is_floating_point() and x.numel() > 1 else x for x in fn(*args))

    return run


def test_a_wrong_compiler_is_detected_and_shrunk(monkeypatch):
    monkeypatch.setattr(burnish, "compile", lambda fn, **_: spoilt(fn))
    verdicts = {seed: check(generate(seed)) for seed in range(40)}
    seed = max(
        (seed for seed, verdict in verdicts.items() if verdict.failure is not None),
        key=lambda seed: len(generate(seed).lines),
    )
    program, failure = generate(seed), verdicts[seed].failure
    small = shrink(program, failure.kind, 20.0)
    assert len(small.lines) <= 2 < len(program.lines)
    assert check(small).failure is not None
