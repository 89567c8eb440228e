"""Errors say what happened and what to do, and survive pickling from a worker process."""

import inspect
import pickle
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import burnish
from burnish import errors
from burnish.errors import BackendError, BurnishError, InternalError, Unsupported, UserError, did_you_mean


@dataclass(frozen=True)
class Because:
    text: str

    def render(self):
        return f"Graph break: {self.text}"


EXAMPLES = [
    UserError("Choose another name."),
    BackendError("inductor", "It raised."),
    Unsupported(Because("if on a tensor")),
    InternalError("guards", "no such slot", Path("dump/guards")),
]


def test_every_error_of_the_module_has_an_example_here():
    defined = {c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, BurnishError)}
    assert defined == {BurnishError, *map(type, EXAMPLES)}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_error_is_the_same_after_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_docstring_shows_a_broken_and_a_fixed_example(error):
    assert "Broken" in type(error).__doc__ and "Fixed" in type(error).__doc__


def test_families_can_be_distinguished():
    assert issubclass(BackendError, UserError)
    assert not issubclass(Unsupported, UserError) and not issubclass(InternalError, UserError)


def test_unsupported_prints_the_break_it_carries():
    error = Unsupported(Because("if on a tensor"))
    assert str(error) == "Graph break: if on a tensor" and error.reason.text == "if on a tensor"


def test_internal_error_names_stage_and_dump_and_what_to_do():
    text = str(InternalError("guards", "no such slot", Path("here/guards.py")))
    assert "stage 'guards': no such slot" in text and str(Path("here/guards.py")) in text
    assert "BURNISH_ON_ERROR=fallback" in text


def test_internal_error_without_dump_says_how_to_get_one():
    assert "BURNISH_DUMP=" in str(InternalError("guards", "no such slot"))


def test_near_names_are_offered_and_far_ones_are_not():
    assert did_you_mean("inducter", ["eager", "inductor"]) == ' Did you mean "inductor"?'
    assert did_you_mean("zzz", ["eager", "inductor"]) == ""


def test_traceback_of_a_break_shows_no_frame_of_burnish():
    def branches(x):
        return x if x.sum() > 0 else -x

    def calls(x):
        return branches(x) + 1

    class Calls(torch.nn.Module):
        forward = staticmethod(calls)

    for model in (calls, Calls()):
        compiled = burnish.compile(model, fullgraph=True)
        for _ in range(3):
            with pytest.raises(burnish.Unsupported) as caught:
                compiled(torch.ones(3))
            assert [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)] == [__file__]
