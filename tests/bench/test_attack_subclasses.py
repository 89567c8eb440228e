"""The attack with overridden methods of containers finds nothing in a few programs, and a defect that is put in."""

import random

import pytest
from bench.attack import subclasses
from bench.attack.subclasses import Program

import burnish
from burnish.capture.segments import rebuild_functions


def is_same(program):
    burnish.reset()
    with burnish.settings.patch(never_slower=False, cache=False):
        return subclasses.observed(program, lambda fn: fn) == subclasses.observed(program, burnish.compile)


@pytest.mark.filterwarnings("ignore")
def test_forty_programs_are_as_in_eager():
    programs = [Program.drawn(random.Random(f"5 {number}")) for number in range(40)]
    assert [program.text for program in programs if not is_same(program)] == []


def test_method_rebuilt_from_the_subclass_is_found(monkeypatch):
    (kind,) = (kind for kind in subclasses.KINDS if kind.base is set)
    program = Program(kind, ["remove"], False, "def fn(x, c):\n    c.remove(9)\n    return x\n")
    assert is_same(program)
    monkeypatch.setattr(rebuild_functions, "class_of_method", lambda value, owner: type(owner))
    assert not is_same(program)
