"""Another thread changes an object between two reads of a trace: no segment mixes the old and the new state."""

import functools

import pytest
import torch
from torch import nn

import burnish
from burnish.capture.engine.heap import Heap

from ..forked_programs import run_program
from ..recorded_events import recorded

X = torch.ones(3)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.weight, self.parts = 2.0, nn.Parameter(torch.ones(3)), [1.0]

    def forward(self, x):
        return READS[self.kind](self, x)


factor = 2.0

READS = {
    "attribute": lambda self, x: x * self.factor + self.factor,
    "parameter": lambda self, x: x * self.weight + self.weight,
    "global": lambda self, x: x * factor + factor,
    "index": lambda self, x: x * self.parts[0] + self.parts[0],
    "whole": lambda self, x: x * sum(self.parts),
    "closure": None,
}

ALLOWED = {
    "attribute": (5.0,),
    "parameter": (4.0,),
    "global": (5.0,),
    "index": (4.0,),
    "closure": (5.0,),
    "whole": (1.0, 3.0),
}


def closure(model):
    number = 2.0

    def fn(x):
        return x * number + number

    def change():
        nonlocal number
        number = 3.0

    return fn, change


def change(model):
    global factor
    model.factor, model.weight, model.parts[0], factor = 3.0, nn.Parameter(torch.full((3,), 3.0)), 3.0, 3.0


@pytest.fixture
def raced():
    with recorded("guards.raced", datum="text") as found:
        yield found


def program(kind):
    """A function, and another thread's changes to the objects that it reads."""
    global factor
    model, model.kind, factor = (made := Scaled()), kind, 2.0
    return closure(made) if kind == "closure" else (model.forward, functools.partial(change, made))


def change_after_the_first_read(monkeypatch, kind, change):
    """As another thread that takes its turn there does."""
    reads = {"index": "read_index", "closure": "admit", "whole": "complete"}.get(kind, "read_key")
    wanted = {"attribute": "factor", "parameter": "weight", "global": "factor", "index": 0}.get(kind)
    original, done = getattr(Heap, reads), []

    def read(heap, *args, **kwargs):
        value = original(heap, *args, **kwargs)
        is_it = {
            "closure": lambda: type(args[0]) is float and args[0] == 2.0,
            "whole": lambda: type(getattr(args[0], "obj", None)) is list,
        }.get(kind, lambda: args[1] == wanted)
        if not done and is_it() and (kind != "parameter" or isinstance(value, nn.Parameter)):
            done.append(True)
            change()
        return value

    monkeypatch.setattr(Heap, reads, read)


@pytest.mark.falls_back("raced")
@pytest.mark.parametrize("kind", READS)
def test_change_between_two_reads_leaves_no_segment(kind, monkeypatch, raced):
    fn, change = program(kind)
    compiled = burnish.compile(fn)
    with torch.no_grad():
        with monkeypatch.context() as patch:
            change_after_the_first_read(patch, kind, change)
            assert compiled(X)[0] in ALLOWED[kind]  # as in eager, where the thread takes its turn there
        assert len(raced) == 1 and not compiled.__burnish_program__.entry.segments
        for _ in range(2):
            assert torch.equal(compiled(X), fn(X))
    assert burnish.was_compiled(compiled)
    assert len(raced) == 1 and len(compiled.__burnish_program__.entry.segments) == 1


@pytest.mark.falls_back("raced")
def test_more_and_more_calls_go_by_between_traces_that_are_lost(monkeypatch, raced):
    model = Scaled()
    model.kind = "attribute"
    compiled = burnish.compile(model.forward)
    original, traced_in = Heap.read_key, []

    def read(heap, origin, key):
        value = original(heap, origin, key)
        if key == "factor":
            model.factor += 1.0
        return value

    with monkeypatch.context() as patch:
        patch.setattr(Heap, "read_key", read)
        for call in range(20):
            before = len(raced)
            compiled(X)
            traced_in += [call] * (len(raced) > before)
    assert traced_in == [0, 1, 4, 11]  # 0, 2 and 6 calls go by, and 14 the next time
    assert not compiled.__burnish_program__.entry.given_up and not burnish.was_compiled(compiled)
    for _ in range(8):
        assert torch.equal(compiled(X), model.forward(X))
    assert burnish.was_compiled(compiled) and len(raced) == 4


APPENDS = {
    "once": lambda log, x: (log.append("own"), x * factor)[1],
    "twice": lambda log, x: (log.append("own"), x * factor, log.append("own"))[1],
    "extended": lambda log, x: (log.extend(["own", "own"]), x * factor)[1],
}


@pytest.mark.falls_back("raced")
@pytest.mark.parametrize("kind", APPENDS)
def test_values_appended_by_another_thread_are_not_part_of_the_segment(kind, monkeypatch, raced):
    log: list = []
    compiled = burnish.compile(lambda x: APPENDS[kind](log, x))
    with monkeypatch.context() as patch:
        change_after_the_first_read(patch, "global", lambda: log.append("another's"))
        compiled(X)
    assert log.count("another's") == 1 and len(raced) == 1
    for _ in range(2):
        log.clear()
        compiled(X)
        assert log == ["own"] * (1 if kind == "once" else 2)
    assert burnish.was_compiled(compiled) and len(raced) == 1


PROFILED = """
import functools, sys, time
sys.addaudithook(lambda name, args: time.sleep(0) if name == "sys.setprofile" else None)
import torch
import burnish
from tests.runtime.concurrent_threads import at_once
def make(k):
    return burnish.compile(lambda x: torch.relu(x + k) * 3)
x = torch.randn(5, 7)
found = at_once(*(functools.partial(make(k), x) for k in range(8)))
print(all(torch.equal(found[k], torch.relu(x + k) * 3) for k in range(8)))
"""


def test_threads_install_the_tripwire_under_an_audit_hook():
    """Python runs such a hook inside `sys.setprofile`, where another thread takes its turn."""
    assert run_program(PROFILED).stdout == "True\n"
