"""A selection of operators on torch's samples: traced, replayed, equal to eager. `bench/operators.py` runs all."""

from __future__ import annotations

import pytest
import torch
from bench.operators import check_operator, full_name, operators, quiet

import burnish

SAMPLES = 6
CHOSEN = """
add sub mul div.floor_rounding pow exp log sigmoid where clamp
sum mean var std_mean.unbiased amax argmax cumsum logsumexp norm softmax.with_dtype
matmul addmm bmm einsum nn.functional.linear nn.functional.conv2d nn.functional.scaled_dot_product_attention
nn.functional.layer_norm nn.functional.cross_entropy nn.functional.dropout nn.functional.embedding nn.functional.gelu
cat split index_select gather scatter_add index_put masked_fill sort topk unique nonzero
view transpose expand as_strided unbind chunk item __getitem__ bernoulli normal linalg.qr
""".split()


@pytest.fixture(scope="module")
def by_name():
    with quiet():
        yield {full_name(op): op for op in operators()}


@pytest.mark.parametrize("name", CHOSEN)
def test_samples_replay_as_eager(by_name, name):
    outcome = check_operator(by_name[name], SAMPLES)
    assert outcome.samples, "no sample could be compared"
    assert outcome.verdict in ("equal", "break"), outcome.detail


@pytest.mark.parametrize(
    "wrong",
    [
        lambda fn: lambda *args, **kwargs: torch.add(fn(*args, **kwargs), 1e-6),
        lambda fn: lambda *args, **kwargs: fn(*args, **kwargs).clone(),
        lambda fn: lambda *args, **kwargs: fn(args[0].clone(), *args[1:], **kwargs),
        lambda fn: lambda *args, **kwargs: 1 / 0,
    ],
    ids=["another value", "a copy for a view", "a copy for an input", "a crash"],
)
def test_check_detects_wrong_results(by_name, monkeypatch, wrong):
    monkeypatch.setattr(burnish, "compile", lambda fn, **_: wrong(fn))
    assert check_operator(by_name["view"], SAMPLES).verdict in ("different", "crashed")
