"""Names of contestants, and the benchmarks that each one does not take part in."""

import pytest
import torch
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


def test_openvino_gets_the_float32_model_of_one_in_bfloat16(monkeypatch):
    exported = []
    monkeypatch.setattr("bench.exported.export", lambda fn, args, kwargs, path: exported.append((fn, args)))
    monkeypatch.setattr("bench.exported.OpenVino.load", lambda self, path: self.precision)
    model, x = torch.nn.Linear(3, 2).bfloat16(), torch.randn(4, 3).bfloat16()
    assert contestant_of("openvino").compile(model, (x, 1), {}) == "bf16"
    (fn, (given, number)), *_ = exported
    assert given.dtype is torch.float32 and torch.equal(given, x.float()) and number == 1
    assert torch.equal(fn.weight, model.weight.float()) and model.weight.dtype is torch.bfloat16
    assert contestant_of("openvino").compile(model.float(), (x.float(),), {}) == "f32"
