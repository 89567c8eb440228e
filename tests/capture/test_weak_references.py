"""Weak references over graph breaks."""

import collections
import weakref

import pytest
import torch

import burnish
from burnish.capture.engine import container_changes
from burnish.capture.guards.set_iteration_order import SameObjects, remembered


class Held:
    pass


@pytest.mark.falls_back("refused")  # what calls a function at an object's end is not made again
@pytest.mark.parametrize("keyed", [False, True])
def test_weak_dictionaries_lose_what_goes_over_graph_breaks(keyed):
    def fn(x):
        table = weakref.WeakKeyDictionary() if keyed else weakref.WeakValueDictionary()
        kept = Held()
        for value in (kept, Held(), Held()):
            if keyed:
                table[value] = 1
            else:
                table[len(table)] = value
            if x.sum() > 0:
                x = x + 1
        del value
        before = len(table)
        del kept
        return before, len(table)

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2)) for _ in range(4)] == [fn(torch.ones(2))] * 4


CONTAINERS = {
    "set": lambda held: {held},
    "set of tuples": lambda held: {(held, 2)},
    "frozenset": lambda held: [frozenset([held])],
    "list": lambda held: [held],
    "list of lists": lambda held: [[held]],
    "dict": lambda held: {1: held},
    "key": lambda held: {held: 1},
    "deque": lambda held: collections.deque([held]),
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_object_goes_when_a_container_loses_it_after_a_break(make):
    def fn(x):
        held = Held()
        reference, container = weakref.ref(held), make(held)
        del held
        if x.sum() > 0:
            x = x + 1
        size, before = len(container), reference() is None
        container.clear()
        return size, before, reference() is None, x

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2))[:3] for _ in range(4)] == [(1, False, True)] * 4


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_segments_do_not_keep_what_an_argument_holds(make):
    compiled = burnish.compile(lambda x, container: (x + 1, 3 in container, len(list(container))), backend="eager")
    for _ in range(4):
        held = Held()
        reference, container = weakref.ref(held), make(held)
        del held
        compiled(torch.ones(2), container)
        assert reference() is not None
        container.clear()
        assert reference() is None


def test_guards_are_not_counted_as_weak_references():
    def fn(x):
        held = Held()
        seen = {held}
        if x.sum() > 0:
            x = x + 1
        size = len(seen)
        if x.sum() > 0:
            x = x + 1
        return size, weakref.getweakrefcount(held), weakref.getweakrefs(held)

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2)) for _ in range(4)] == [(1, 0, [])] * 4


HELD_WEAKLY = {"an object": Held, "a tensor": lambda: torch.ones(3), "a module": lambda: torch.nn.Linear(2, 2)}


@pytest.mark.parametrize("make", HELD_WEAKLY.values(), ids=HELD_WEAKLY)
def test_a_weak_reference_shows_that_an_object_was_taken_out(make):
    def from_list(x, holder, held):
        reference = weakref.ref(held[0])
        held.clear()
        return x + 1, reference()

    def from_attribute(x, holder, held):
        reference = weakref.ref(holder.held)
        holder.held = None
        return x + 1, reference()

    for fn in (from_list, from_attribute):
        compiled = burnish.compile(fn, backend="eager")
        for _ in range(4):
            holder = Held()
            holder.held = make()
            result, found = compiled(torch.zeros(2), holder, [make()])
            assert torch.equal(result, torch.ones(2)) and found is None


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("kind", [weakref.WeakSet, weakref.WeakValueDictionary])
def test_weak_containers_lose_what_a_set_held(kind):
    def fn(x):
        weak, held = kind(), Held()
        if kind is weakref.WeakSet:
            weak.add(held)
        else:
            weak[1] = held
        kept = {held}
        del held
        before = len(weak)
        kept.clear()
        return before, len(weak), x + 1

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2))[:2] for _ in range(4)] == [(1, 0)] * 4


def test_a_weak_reference_is_asked_where_others_may_hold_the_object_in_one_call():
    holder = Held()

    def fn(x, reference):
        holder.held = None
        return reference() is None, x + 1

    compiled = burnish.compile(fn, backend="eager")
    for call in range(4):
        holder.held = Held()
        holder.others = [holder.held] if call == 0 else None
        assert compiled(torch.ones(2), weakref.ref(holder.held))[0] is (call > 0)


def test_parameters_in_a_guarded_set_can_be_swapped():
    layer = torch.nn.Linear(2, 2)
    some = set(layer.parameters())
    compiled = burnish.compile(lambda x: layer(x) * (len(list(some)) if layer.bias in some else 0), backend="eager")
    compiled(torch.ones(2))
    assert [weakref.getweakrefcount(p) for p in layer.parameters()] == [0, 0]
    torch.utils.swap_tensors(layer.weight, torch.nn.Parameter(torch.zeros(2, 2)))
    assert torch.equal(compiled(torch.ones(2)), 2 * layer.bias)


def test_guard_on_a_set_of_objects_compares_addresses_at_once():
    elements = [Held() for _ in range(3)]
    some = SameObjects(map(remembered, elements))
    assert some(set(elements)) and not some({*elements[:2], Held()}) and not some(set(elements[:2]))


def test_only_what_leaves_a_container_is_looked_at(monkeypatch):
    def fn(x, items, table, queue):
        for i in range(len(items)):
            items[i] = i
        for key in list(table):
            table[key] = key
        while queue:
            queue.popleft()
        return x + 1

    looked_at = []
    is_missed = container_changes.is_missed
    monkeypatch.setattr(container_changes, "is_missed", lambda value: looked_at.append(1) or is_missed(value))
    objects = [[Held() for _ in range(5)] for _ in range(90)]
    items, table, queue = objects[:30], dict(enumerate(objects[30:60])), collections.deque(objects[60:])
    compiled = burnish.compile(fn, backend="eager")
    compiled(torch.ones(2), items, table, queue)
    assert items == list(range(30)) == list(table.values()) and not queue and len(looked_at) < 500
