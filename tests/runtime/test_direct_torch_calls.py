"""Operators that a driver calls directly through torch's functions."""

import pytest
import torch

from burnish.runtime.program.unbound_driver import STRAIGHT, called

ARGUMENTS = {
    "addmm": ((5,), (3, 4), (4, 5)),
    "addmv": ((3,), (3, 4), (4,)),
    "baddbmm": ((2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "bmm": ((2, 3, 4), (2, 4, 5)),
    "mm": ((3, 4), (4, 5)),
    "mv": ((3, 4), (4,)),
}


def operator(name):
    _, name, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, name), overload)


@pytest.mark.parametrize("name", STRAIGHT)
def test_direct_calls_equal_the_operator(name):
    made = called({"call": operator(name)})["call"]
    assert made is not operator(name)
    function = name.split(".")[1]
    if function == "cat":
        given = [torch.randn(2, 3), torch.randn(2, 4)], 1
    elif function == "convolution":
        given = torch.randn(1, 4, 5, 5), torch.randn(6, 2, 3, 3), None, [1, 2], [1, 1], [1, 1], False, [0, 0], 2
    else:
        given = tuple(map(torch.randn, ARGUMENTS[function]))
    want = operator(f"aten.{function}.default")(*given)
    keywords = {"out": torch.empty_like(want)} if name.endswith("out") else {}
    assert torch.equal(made(*given, **keywords), want)
    assert all(torch.equal(out, want) for out in keywords.values())


def test_other_operators_are_called_as_they_are():
    for one in (torch.ops.aten.exp.default, torch.ops.aten.sum.dim_IntList, abs):
        assert called({"call": one})["call"] is one
