"""Dictionary views: what is read through one is guarded, including lists in the dictionary, wherever it was made."""

import array
import collections
import types

import pytest
import torch

import burnish

from .harness import program

X = torch.ones(2)


def first_of_largest(x, d):
    return x * max(d.values())[0]


def largest_by_iterator(x, d):
    values = iter(d.values())
    return x * max(values)[0]


def first_of_largest_in_a_fresh_one(x, d):
    fresh = {"k": d["a"], "l": d["b"]}
    return x * max(fresh.values())[0]


def first_of_largest_when_merged(x, d):
    merged = {**{"q": [0]}, **d}
    return x * max(merged.values())[0]


def whether_a_value_is_among_them(x, d):
    return x * (2 if [1, 2] in d.values() else 3)


def whether_an_item_is_among_them(x, d):
    return x * (2 if ("a", [1, 2]) in d.items() else 3)


def whether_items_are_the_same(x, d):
    return x * (2 if d.items() == {"a": [1, 2], "b": [0, 5]}.items() else 3)


def length_of_text(x, d):
    return x * len(repr(d.values()))


def length_of_a_copy_s_text(x, d):
    return x * len(repr(list(dict(d).items())))


def length_of_an_updated_one_s_text(x, d):
    fresh = {}
    fresh.update(d)
    return x * len(str(fresh.values()))


def first_of_all_together(x, d):
    return x * sum(d.values(), [])[0]


def text_of_keywords(x, d):
    def text(**names):
        return len(str(names))

    return x * text(z=1, **d)


CALLS = (
    {"a": [1, 2], "b": [0, 5]},
    {"a": [1, 2], "b": [0, 5]},
    {"a": [3, 2], "b": [0, 5]},
    {"a": [3, 2], "b": [7777, 5]},
    {"a": [1, 2], "b": [9, 5]},
)


@pytest.mark.parametrize(
    "program",
    [
        first_of_largest,
        largest_by_iterator,
        first_of_largest_in_a_fresh_one,
        first_of_largest_when_merged,
        whether_a_value_is_among_them,
        whether_an_item_is_among_them,
        whether_items_are_the_same,
        length_of_text,
        length_of_a_copy_s_text,
        length_of_an_updated_one_s_text,
        first_of_all_together,
        text_of_keywords,
    ],
)
def test_a_change_inside_a_value_is_seen_by_the_next_call(program):
    compiled = burnish.compile(program, backend="eager")
    for d in CALLS:
        assert torch.equal(compiled(X, d), program(X, d))


def length(x, view):
    return x * len(view)


def text(x, view):
    return x, str(view)


def loop(x, view):
    for part in view:
        x = x + len(str(part))
    return x


def choice(x, view):
    return x if view else -x


def negation(x, view):
    return x * (not view)


def comparison(x, view):
    return x * (view == {"a": 1}.keys())


def membership(x, view):
    return x * ("a" in view)


def inner(x, view):
    return x * sum(len(part) for part in view if isinstance(part, list))


def pairs(x, view):
    return x, list(zip(view, range(9), strict=False))


READS = (length, text, loop, choice, negation, comparison, membership, inner, pairs)


def change(table, step):
    if step == 1:
        table["b"] = [2]
    elif step == 2:
        table["b"].append(3)
    elif step == 3:
        table["a"] = table.pop("a")
    elif step == 4:
        table.clear()
    elif step == 5:
        table["c"] = 1


@pytest.mark.parametrize("make", (dict, collections.OrderedDict))
@pytest.mark.parametrize("name", ("keys", "values", "items"))
@pytest.mark.parametrize("read", READS, ids=lambda read: read.__name__)
def test_a_view_from_outside_is_read_through_its_dictionary(make, name, read):
    table = make(a=1)
    view = getattr(table, name)()
    compiled = burnish.compile(read, backend="eager", fullgraph=True)
    for step in range(7):
        change(table, step)
        assert str(compiled(X, view)) == str(read(X, view))
    other = getattr(make(a=1), name)()
    assert str(compiled(X, other)) == str(read(X, other))


def test_a_view_of_a_dictionary_that_the_program_writes():
    def fn(x, table, view):
        before = len(view), bool(view), list(view)
        table["n"] = len(table)
        during = len(view), list(view)
        table.clear()
        return x, before, during, bool(view)

    compiled = burnish.compile(fn, backend="eager")
    for size in (2, 2, 0, 3):
        one, other = ({str(i): i for i in range(size)} for _ in range(2))
        assert str(compiled(X, one, one.items())) == str(fn(X, other, other.items())) and one == other


KINDS = {
    "view": lambda: (table := {}, table.values(), lambda: table.update(a=1), table.clear),
    "proxy": lambda: (table := {}, types.MappingProxyType(table), lambda: table.update(a=1), table.clear),
    "array": lambda: (made := array.array("i"), made, lambda: made.append(1), made.pop),
    "bytearray": lambda: (made := bytearray(), made, lambda: made.append(1), made.clear),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", (choice, negation, lambda x, it: x + bool(it), lambda x, it: x + any([it])))
def test_the_truth_of_a_native_object_is_asked_again(kind, read):
    _, subject, fill, empty = KINDS[kind]()
    compiled = burnish.compile(read, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(X, subject), read(X, subject))
        fill()
        assert torch.equal(compiled(X, subject), read(X, subject))
        empty()


@pytest.mark.parametrize("make", (dict, collections.OrderedDict))
def test_a_view_that_is_returned_shows_plain_numbers(make):
    def fn(x, n):
        return x * n, make(a=n + 1).values()

    compiled = burnish.compile(fn, backend="eager")
    for n in range(1, 4):
        (number,) = compiled(X, n)[1]
        assert type(number) is int and number == n + 1


@program
def test_keys_that_no_table_hashes():
    def fn(x):
        return x + 1, {}.pop([1], None), {1: 2}.items() & [[1], "ab", (1, 2)], {}.pop((1, [2]), 3)

    return fn, [(torch.ones(2),)]
