"""Objects from outside that C code compares or hashes by their address: another object gets another answer."""

import array
import collections

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

import burnish


class Thing:
    pass


class Slotted:
    __slots__ = ("a",)


HOLDERS = {
    "list": lambda thing: [thing, 3],
    "tuple": lambda thing: (thing, 3),
    "nested": lambda thing: [[thing], 3],
    "deque": lambda thing: collections.deque([thing]),
    "set": lambda thing: {thing, 3},
    "frozenset": lambda thing: frozenset([thing, 3]),
    "dict": lambda thing: {thing: 1},
    "values": lambda thing: {1: thing}.values(),
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("kind", [Thing, Slotted])
@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_membership(make, kind, is_global, first):
    known = kind()
    held = make(known)

    def fn(x, thing, things):
        items = held if is_global else things
        return thing in items, [thing] in items if type(items) is list else None, x + 1

    compiled = burnish.compile(fn, backend="eager")
    for call in range(first, first + 4):
        thing = known if call % 2 else kind()
        assert compiled(torch.ones(1), thing, held)[:2] == fn(torch.ones(1), thing, held)[:2]


OPERATIONS = {
    "count": lambda thing, things: things.count(thing),
    "index": lambda thing, things: things.index(thing) if things.count(thing) else None,
    "==": lambda thing, things: ([thing] == things, things != [thing]),
    "remove": lambda thing, things: [*things].remove(thing) if thing in things else 5,
    "discard": lambda thing, things: (some := set(things), some.discard(thing), len(some))[2],
    "|": lambda thing, things: (len({*things} | {thing}), {*things} <= {thing}, len({*things} & {thing})),
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_methods_and_operators(operation, first):
    known = Thing()
    compiled = burnish.compile(lambda x, thing, things: (operation(thing, things), x + 1), backend="eager")
    for call in range(first, first + 4):
        thing = known if call % 2 else Thing()
        assert compiled(torch.ones(1), thing, [known])[0] == operation(thing, [known])


def test_tensors_in_a_set_from_outside():
    known = torch.ones(1)
    some = {known, 3}
    compiled = burnish.compile(lambda x, t: (t in some, x + 1), backend="eager")
    for call in range(4):
        assert compiled(torch.ones(1), known if call % 2 else torch.ones(1))[0] is bool(call % 2)


def test_many_new_objects_need_one_variant():
    things = [Thing() for _ in range(3)]
    compiled = burnish.compile(lambda x, thing: (thing in things, thing in set(things), x + 1), backend="eager")
    for _ in range(20):  # more than there are variants of a segment: it would run eagerly then
        assert compiled(torch.ones(1), Thing())[:2] == (False, False)


OF_C = {
    "member": (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION),
    "array": (array.array("i", [1]), array.array("i", [2])),
    "memory": (memoryview(b"a"), memoryview(b"b")),
    "time": (np.datetime64(1, "D"), np.datetime64(2, "D")),
}


@pytest.mark.parametrize("name", OF_C)
def test_objects_that_methods_of_c_compare(name):
    known, other = OF_C[name]

    def fn(x, value):
        found = known in [value], value in (3, known), [value] == [known], {1: value} == {1: known}
        return *found, [value, known].count(known), [value, known].index(known), x + 1

    compiled = burnish.compile(fn, backend="eager")
    for value in (known, other, other, known):
        assert compiled(torch.ones(1), value)[:-1] == fn(torch.ones(1), value)[:-1]


def test_a_key_of_another_class_that_is_equal_to_the_first_is_seen():
    class Name(str):
        pass

    table = {}

    def fn(x):
        return x + 1, [type(key).__name__ for key in table]

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for key in ("a", "a", Name("a"), Name("a"), "a"):
        table.clear()
        table[key] = 1
        assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]
