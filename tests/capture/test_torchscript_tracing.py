"""Compiled functions under `torch.jit.trace`: it must see every operator, so they run as plain Python."""

import warnings

import pytest
import torch

import burnish


@pytest.mark.parametrize("backend", ["burnish", "eager"])
@pytest.mark.parametrize("calls_before", [0, 4])
def test_torchscript_records_the_operators_of_compiled_code(backend, calls_before):
    def fn(x):
        return torch.sin(x) * x + x.shape[0]

    compiled = burnish.compile(fn, backend=backend)
    for _ in range(calls_before):
        compiled(torch.randn(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about TorchScript
        traced = torch.jit.trace(lambda x: compiled(x), (torch.ones(3),), check_trace=False)
    assert "aten::sin" in {node.kind() for node in traced.graph.nodes()}
    x = torch.randn(3)
    torch.testing.assert_close(traced(x), fn(x))
    torch.testing.assert_close(compiled(x), fn(x))
    assert burnish.was_compiled(compiled)
