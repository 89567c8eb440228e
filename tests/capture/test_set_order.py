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


class Listed(set):
    """Its table is read, and not its iterator."""

    __slots__ = tuple(f"attribute_{i}" for i in range(40))

    def __iter__(self):
        return iter((99,))


def begun_again(seen, n):
    seen.__init__([5])
    seen.add(n)


def with_itself(seen, n):
    seen.discard(8)
    seen &= seen
    seen.update(seen, (n, 23, 15))


def by_a_class(seen, n):
    seen.update(Listed((n, n + 8)))
    seen.symmetric_difference_update(Listed((23,)))


def by_live_keys(seen, n):
    seen.update(dict.fromkeys((8, n, 31)))


def by_a_generator(seen, n):
    made = seen.symmetric_difference(i for i in (24, 23, 0, 7, 15))
    seen.clear()
    seen.update([*made])


def many_times(seen, n):
    for i in range(400):
        seen.add(i * 7)


@pytest.mark.parametrize("start", [("k", 31), (24, 16, 7, 31, "k"), ("k", 0, 16, 8, 40, -1, 15)])
@pytest.mark.parametrize("kind", [set, Listed])
@pytest.mark.parametrize("change", [begun_again, with_itself, by_a_class, by_live_keys, by_a_generator, many_times])
def test_a_set_from_outside_is_changed_as_in_python(change, kind, start):
    def fn(x, seen, n):
        change(seen, n)
        return x + 1

    def found(function):
        orders = []
        for n in (1, 1, 2, 15):
            seen = kind(start)
            seen.discard("k")
            function(torch.ones(2), seen, n)
            orders.append(list(set.__iter__(seen)))
        return orders

    assert found(burnish.compile(fn, backend="eager")) == found(fn)


def test_a_set_with_more_changes_than_are_recorded_keeps_its_elements():
    def fn(x, seen):
        for i in range(1500):
            seen.add(i)
            seen.discard(i - 1)
        return x + 1

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        seen = {-5}
        compiled(torch.ones(2), seen)
        assert seen == {-5, 1499}


def test_the_table_of_a_copied_set_is_guarded():
    """Equal sets in one order. The second has a larger table."""

    def fn(x, seen):
        copied = set(seen)
        copied.add(33)
        return x + 1, copied

    compiled = burnish.compile(fn, backend="eager")
    large = set(range(40))
    for i in range(3, 40):
        large.discard(i)
    for seen in ({0, 1, 2}, large, {0, 1, 2}, set((0, 1, 2))):
        assert list(compiled(torch.ones(2), seen)[1]) == list(fn(torch.ones(2), seen)[1])
