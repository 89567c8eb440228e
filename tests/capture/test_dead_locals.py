"""Locals that are not read again end at a break only if nothing can notice it."""

import collections
import gc
import io
import os
import sys
import weakref

import numpy
import pytest
import torch

import burnish
from burnish.capture.engine import object_lifetimes
from burnish.capture.interpreter.frames_to_slots import SlotLayout


@pytest.fixture(autouse=True)
def without_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Noted(io.RawIOBase):
    """A file that notes when it is closed."""

    def __init__(self, notes):
        self.notes = notes

    def writable(self):
        return True

    def close(self):
        if not self.closed:
            self.notes.append("closed")
        super().close()


class Holder:
    pass


def suspended(notes):
    try:
        yield 1
    finally:
        notes.append("closed")


def held_by_attribute(notes):
    holder = Holder()
    holder.file = Noted(notes)
    return holder


def held_by_closure(notes):
    file = Noted(notes)
    return lambda: file


def started(generator):
    next(generator)
    return generator


class Block(torch.nn.Module):
    def __del__(self):
        self.notes.append("closed")


class Text(str):
    def __del__(self):
        self.notes.append("closed")


class Marked(torch.Tensor):
    def __del__(self):
        self.notes.append("closed")


def with_notes(made, notes):
    made.notes = notes
    return made


def array_of(held):
    array = numpy.empty(1, object)
    array[0] = held
    return array


HOLDERS = {
    "a text file": lambda notes: io.TextIOWrapper(Noted(notes), write_through=True),
    "a buffered file": lambda notes: io.BufferedWriter(Noted(notes)),
    "a list": lambda notes: [Noted(notes)],
    "a dictionary in a tuple": lambda notes: ({"file": Noted(notes)}, 1),
    "an attribute": held_by_attribute,
    "a closure": held_by_closure,
    "a method": lambda notes: Noted(notes).readable,
    "an iterator": lambda notes: iter([Noted(notes)]),
    "a suspended generator": lambda notes: [started(suspended(notes))],
    "an outside generator": lambda notes: started(suspended(notes)),
    "a module": lambda notes: with_notes(Block(), notes),
    "a text": lambda notes: with_notes(Text("a"), notes),
    "a tensor": lambda notes: with_notes(torch.ones(2).as_subclass(Marked), notes),
    "tensors": lambda notes: [with_notes(torch.ones(2).as_subclass(Marked), notes)],
    "an array": lambda notes: array_of(Noted(notes)),
    "a long list": lambda notes: [*range(2000), Noted(notes)],
    "a list of many objects": lambda notes: [[Noted(notes)], *([] for _ in range(200))],
}


FILES = "|text file|buffered file" if sys.version_info >= (3, 12) else ""  # their `__del__` is not run by the trace


@pytest.mark.falls_back("refused", only=f"a (module|text|tensor{FILES})")  # where the finalizer runs
@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_a_dead_local_is_kept_if_its_end_has_an_effect(make):
    def fn(x, make, notes):
        held = make(notes)
        notes.append(held is not None)
        if x.sum() > 0:
            x = x + 1
        notes.append("after the first break")
        if x.sum() > 0:
            x = x * 2
        notes.append("at the end")
        return x

    make = burnish.disable(make)
    want, got = [], []
    compiled = burnish.compile(fn, backend="eager")
    for k in range(4):
        x = torch.ones(2) * k
        assert torch.equal(fn(x, make, want), compiled(x, make, got))
    gc.collect()
    assert got == want


@pytest.mark.falls_back("refused")  # the view cannot be made again
def test_a_view_of_memory_is_kept():
    def fn(x):
        data = bytearray(b"abc")
        views = [memoryview(data)]
        x = x + len(views)
        if x.sum() > 0:
            x = x + 1
        try:
            data.append(1)
        except BufferError:
            return x, "shown"
        return x, "free"

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["shown"] * 3


@pytest.mark.falls_back("refused")  # where the finalizer runs
def test_a_finalizer_registered_at_a_break_runs_at_the_end():
    def fn(x, notes):
        held = Holder()
        weakref.finalize(held, notes.append, "finalized")
        if x.sum() > 0:
            x = x + 1
        notes.append("at the end")
        return x

    want, got = [], []
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        fn(torch.ones(2), want)
        compiled(torch.ones(2), got)
    assert got == want == ["at the end", "finalized"] * 3


@pytest.mark.falls_back("refused")  # where the finalizer runs
@pytest.mark.parametrize("make", [lambda: lambda: 0, set, collections.deque, collections.OrderedDict])
def test_a_finalizer_of_a_builtin_object_runs_at_the_end(make):
    def fn(x, notes):
        held = make()
        weakref.finalize(held, notes.append, "finalized")
        if x.sum() > 0:
            x = x + 1
        notes.append("at the end")
        return x

    notes = []
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2), notes)
    assert notes == ["at the end", "finalized"] * 3


@burnish.disable
def same(held):
    return held


def test_a_dead_local_lives_on_as_the_answer_of_a_break():
    def fn():
        held = Holder()
        again = same(held)
        reference = weakref.ref(again)
        os.getpid()
        del again
        os.getpid()
        return reference() is None

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled() for _ in range(4)] == [fn() for _ in range(4)] == [False] * 4


@pytest.mark.falls_back("refused")  # where the callback runs
def test_the_callback_of_a_dead_weak_reference_runs():
    def fn(notes):
        held = Holder()
        reference = weakref.ref(held, lambda _: notes.append("gone"))  # noqa: F841
        os.getpid()
        del held
        os.getpid()

    notes = []
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        compiled(notes)
    assert notes == ["gone"] * 3


@burnish.disable
def many(references):
    tensors = [torch.ones(2) for _ in range(500)]
    references.append(weakref.ref(tensors[-1]))
    return tensors


def test_a_dead_list_of_tensors_is_freed_at_a_break():
    def fn(x, references):
        tensors = many(references)
        x = x + len(tensors)
        os.getpid()
        return x, references[-1]() is None

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2), [])[1] for _ in range(4)] == [True] * 4


@pytest.mark.parametrize("make", [lambda: [Holder()] * 600, list], ids=["kept", "dropped"])
def test_dead_locals_need_no_frames_at_a_break(make, monkeypatch):
    def fn(x):
        held = make()
        x = x + len(held)
        for _ in range(3):
            os.getpid()
            x = x + 1
        return x

    make = burnish.disable(make)
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    built = []
    build = SlotLayout.build
    monkeypatch.setattr(SlotLayout, "build", lambda self, slots: built.append(self) or build(self, slots))
    compiled(torch.ones(2))
    assert not built


class Noting:
    def __init__(self, notes):
        self.notes = notes

    def __del__(self):
        self.notes.append("gone")


@burnish.disable
def numbers_then_objects(notes, i):
    return [1, 2, 3] if i < 3 else [Noting(notes)]


@pytest.mark.parametrize("wrap", [lambda held: held, lambda held: [held, 1], lambda held: (held, "text")])
def test_a_list_that_later_holds_objects_with_finalizers_stays(wrap):
    def fn(x, notes, i):
        held = numbers_then_objects(notes, i)
        held = wrap(held)
        if x.sum() > 0:
            x = x + 1
        notes.append("at the end")
        return x

    want, got = [], []
    compiled = burnish.compile(fn, backend="eager")
    for i in range(6):
        fn(torch.ones(2), want, i)
        compiled(torch.ones(2), got, i)
    assert got == want


@pytest.mark.parametrize("wrap", [lambda held: held, lambda held: [held, held]], ids=["argument", "container"])
def test_dead_arguments_are_not_looked_into(wrap, monkeypatch):
    def fn(x, held):
        held = wrap(held)
        x = x + len(held)
        held = None  # noqa: F841
        os.getpid()
        return x + 1

    compiled = burnish.compile(fn, backend="eager")
    held = [Holder() for _ in range(60)]
    for _ in range(3):
        compiled(torch.ones(2), held)
    looked = []
    parts_of = object_lifetimes.parts_of
    monkeypatch.setattr(object_lifetimes, "parts_of", lambda held: looked.append(held) or parts_of(held))
    compiled(torch.ones(2), held)
    assert not looked


def test_a_dead_argument_lives_until_the_call_returns():
    def fn(x, held, notes):
        count = len(held)
        os.getpid()
        notes.append("at the end")
        return x + count

    notes = []
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2), [Noting(notes)], notes)
    assert notes == ["at the end", "gone"] * 3


HELD_WEAKLY = {"an object": Holder, "a tensor": lambda: torch.ones(3), "a module": lambda: torch.nn.Linear(2, 2)}


@pytest.mark.parametrize("make", HELD_WEAKLY.values(), ids=HELD_WEAKLY)
@pytest.mark.parametrize("referenced", ["before", "after"])
def test_a_weak_reference_shows_that_an_object_from_a_break_is_gone(make, referenced):
    def before(x):
        held = make()
        reference = weakref.ref(held)
        os.getpid()
        alive = reference() is held
        del held
        return x + 1, alive, reference()

    def after(x):
        held = make()
        os.getpid()
        reference = weakref.ref(held)
        alive = reference() is held
        del held
        return x + 1, alive, reference()

    compiled = burnish.compile(before if referenced == "before" else after, backend="eager")
    for _ in range(4):
        result, *rest = compiled(torch.zeros(2))
        assert torch.equal(result, torch.ones(2)) and rest == [True, None]
