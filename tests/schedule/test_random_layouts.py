"""A few programs of `bench.attack.layouts`: operands in every layout, any candidate, by itself and in a program."""

import torch
from bench.attack.layouts import run

import burnish

COUNT = 40


def test_every_candidate_computes_operands_in_every_layout():
    said = []
    with torch.random.fork_rng():
        wrong = run(seed=4, count=COUNT, say=said.append)
    burnish.reset()
    assert not wrong, "\n".join(wrong)
    assert f"{COUNT} ran compiled" in said[-2], said[-2]
    assert "own by itself" in said[-1] and "onednn" in said[-1], said[-1]
