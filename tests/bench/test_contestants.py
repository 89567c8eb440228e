"""Names of contestants, and the benchmarks that each one does not take part in."""

import pytest
from bench.contestants import UnknownContestant, contestant_of


def test_variants_are_read_from_the_name():
    contestant = contestant_of("torch.compile:max-autotune+freezing")
    assert contestant.kind == "torch.compile" and contestant.chosen == ("max-autotune", "freezing")
    assert contestant.mode == "max-autotune" and contestant.backend is None
    assert contestant_of("burnish:backend=eager").backend == "eager"


@pytest.mark.parametrize(
    "name,message",
    [
        ("tvm", 'no contestant called "tvm".*onnxruntime'),
        ("torch.compile:fast", 'torch.compile has no variant "fast".*freezing'),
        ("eager:fast", 'eager has no variant "fast". Variants are: none'),
        ("burnish:backend=", "backend=NAME"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(name, message):
    with pytest.raises(UnknownContestant, match=message):
        contestant_of(name)


@pytest.mark.parametrize(
    "name,reason",
    [
        ("eager", None),
        ("burnish", None),
        ("torch.compile:max-autotune", None),
        ("torch.compile:freezing", "freezing is for inference"),
        ("openvino", "runs inference only"),
    ],
)
def test_contestants_that_cannot_train_say_so(name, reason):
    assert contestant_of(name).why_not("inference") is None
    assert contestant_of(name).why_not("train") == reason
