"""``_missing_`` of an enumeration is interpreted: what it reads is guarded, and its errors are eager's."""

import enum

import pytest
import torch

import burnish

chosen = [1]


class ByGlobal(enum.Enum):
    ONE = 1
    TWO = 2

    @classmethod
    def _missing_(cls, value):
        return cls(chosen[0])


class Odd(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value):
        if value == "error":
            raise KeyError(value)
        if value == "bad value":
            raise ValueError("mine")
        return {"one": cls.ONE, "other": 5}.get(value)


def test_what_it_reads_is_guarded():
    compiled = burnish.compile(lambda x: x * ByGlobal("unknown").value, backend="eager", fullgraph=True)
    for value in (1, 2, 1, 2):
        chosen[0] = value
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), float(value)))


@pytest.mark.parametrize("value", ["one", "none", "other", "error", "bad value"])
def test_results_and_errors(value):
    def fn(x, value):
        try:
            return x * 2, Odd(value)
        except (KeyError, TypeError, ValueError) as error:
            return x * 3, type(error), str(error), str(error.__context__)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        found, wanted = compiled(torch.ones(2), value), fn(torch.ones(2), value)
        assert torch.equal(found[0], wanted[0]) and found[1:] == wanted[1:]


@pytest.mark.parametrize("value", ["other", "error", "bad value"])
def test_context_of_an_error_is_what_is_handled(value):
    def fn(x, value):
        try:
            raise OSError("outer")
        except OSError:
            try:
                Odd(value)
            except Exception as error:
                return x + 1, repr(error), repr(error.__context__)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(2), value)[1:] == fn(torch.ones(2), value)[1:]
