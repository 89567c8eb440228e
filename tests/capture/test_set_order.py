"""The order of sets: it comes from what was done to a set, and is as in plain Python for sets that are made again."""

import weakref

import pytest
import torch

import burnish

COLLIDING = (7, 15, 23)  # they want the same place in a small table


def shown(value):
    if isinstance(value, (set, frozenset)):
        return type(value), list(value)
    return [shown(part) for part in value] if isinstance(value, tuple) else value


def made_in_the_trace(x, seen, n):
    made, other = {15, 7, 3}, set(COLLIDING)
    other.discard(15)
    return made, other, frozenset((23, 15, 7)), made | other, other.copy(), {n + 8 * i for i in range(7)}, made ^ {n}


def popped(x, seen, n):
    made = {n + 8 * i for i in range(7)}
    while len(made) > 3:
        made.pop()
    made.add(n) if float(x.sum()) > 0 else None
    return made, made.pop(), made.pop()


def over_a_break(x, seen, n):
    made = {15, 7}
    made.discard(15)
    bool(x.sum() > 0)
    made.add(23)
    return list(made), made


def added_one_by_one(x, seen, n):
    for i in range(3):
        seen.add(n + 8 * i)
    seen.discard(n)
    return list(seen), seen | {n + 9}


def added_and_removed(x, seen, n):
    seen.add(n)
    seen.discard(n)
    return seen & {n, 7}


def changed_by_sets(x, seen, n):
    seen |= {n + 8, n}
    seen -= {n + 16, 3}
    seen.symmetric_difference_update({5, 13})
    seen.intersection_update([n, n + 8, 3, 5, 13, 7, 15])
    return list(seen), dict.fromkeys(seen)


def removed_from(x, seen, n):
    if len(seen) > 2:
        first = seen.pop()
        return first, str(seen), [*seen]
    try:
        seen.remove(1000)
    except KeyError:
        seen.update(COLLIDING)
    return None


class Marked(set):
    pass


def of_a_class(x, seen, n):
    made = Marked(COLLIDING)
    made.discard(15)
    made.add(n)
    return list(made), list(seen), made


PROGRAMS = (
    made_in_the_trace,
    popped,
    over_a_break,
    added_one_by_one,
    added_and_removed,
    changed_by_sets,
    removed_from,
    of_a_class,
)


@pytest.mark.parametrize("start", [(), COLLIDING, (15, 7), (31, 3, 11, 19, 7)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_sets_keep_the_order_of_python(program, start):
    def found(function):
        seen, results = set(start), []
        seen.discard(3)
        for i, n in enumerate((7, 7, 7, 15, 7, 3)):
            if i == 4:
                seen = set(reversed(start))  # perhaps in another order
            results.append((shown(function(torch.ones(2), seen, n)), list(seen)))
        seen.update((47, 55, 63))
        return results, list(seen)

    assert found(burnish.compile(program, backend="eager", dynamic=False)) == found(program)


class Thing:
    pass


@pytest.mark.parametrize("make", [Thing, lambda: torch.ones(1)])
def test_a_set_of_new_objects_is_read_in_one_order(make):
    """The order comes from addresses, which differ from call to call."""

    def fn():
        made = {make() for _ in range(6)}
        return made, list(made)

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(20):
        made, listed = compiled()
        assert all(a is b for a, b in zip(made, listed, strict=True))


def test_an_equal_set_in_another_order_is_another_set():
    def fn(x, names):
        return x + 1, [*names]

    compiled = burnish.compile(fn, backend="eager")
    for kind in (set, frozenset):
        for names in (kind((7, 15)), kind((15, 7)), kind((7, 15))):
            assert compiled(torch.ones(2), names)[1] == list(names)


def test_a_set_that_only_gets_elements_is_not_guarded_by_its_order():
    seen = set()

    def fn(x):
        seen.add("now")
        y = x * 2
        seen.discard("now")
        return y

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(12):  # more than there are variants of a segment: it would run eagerly then
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert not seen


@pytest.mark.parametrize("remove", [lambda seen, value: seen.discard(value), lambda seen, value: seen.clear()])
def test_what_leaves_a_set_from_outside_ends_at_once(remove):
    def fn(x, seen, notes):
        made = Thing()
        reference = weakref.ref(made)
        seen.add(made)
        remove(seen, made)
        del made
        notes.append(reference() is None)
        return x + 1

    notes, compiled = [], burnish.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2), set(), notes)
    assert notes == [True] * 3
