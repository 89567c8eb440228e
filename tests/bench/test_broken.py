"""The programs of `bench.broken` have graph breaks and give eager's results."""

import pytest
import torch
from bench.broken import PROGRAMS

import burnish


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_has_breaks(name):
    fn, shape = PROGRAMS[name]
    compiled, x = burnish.compile(fn, backend="eager"), torch.rand(shape)
    with torch.no_grad():
        assert burnish.explain(fn)(x).graph_break_count
        for _ in range(3):
            torch.testing.assert_close(compiled(x), fn(x))
