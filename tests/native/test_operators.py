"""Every operator that torch has samples for, compiled: results, mutated inputs, aliasing and errors are eager's.

One sample of each here; all samples in all dtypes take minutes and are marked slow. `bench/operators.py` prints more.
"""

import pytest
import torch
from bench.operators import check_operator, operators, quiet

PARTS = 16
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


@pytest.fixture(scope="module")
def op_db():
    with quiet():
        yield operators()


def wrong(ops, dtype, samples):
    outcomes = [check_operator(op, samples, "burnish", dtype) for op in ops if dtype in op.dtypes]
    assert sum(outcome.samples for outcome in outcomes), "nothing could be compared"
    return [f"{o.verdict} {o.name}: {o.detail}" for o in outcomes if o.verdict in ("different", "crashed")]


@pytest.mark.falls_back("refused", only=r"0|1|2|4|5|7|10|11|14|15")
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_are_right_on_a_sample(op_db, part):
    assert not wrong(op_db[part::PARTS], torch.float32, 1)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operators_are_right_on_all_samples(op_db, dtype, part):
    assert not wrong(op_db[part::PARTS], dtype, None)


def test_check_detects_another_rounding(op_db, monkeypatch):
    import burnish

    monkeypatch.setattr(burnish, "compile", lambda fn, **_: lambda *args, **kwargs: fn(*args, **kwargs) * (1 + 1e-6))
    by_name = {op.name: op for op in op_db}
    assert check_operator(by_name["exp"], 2, "burnish", torch.float32).verdict == "different"
