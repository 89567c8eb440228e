"""Native code that reads through a dictionary view: the contents are guarded, including lists inside the dictionary."""

import array
import types

import pytest
import torch

import burnish

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


def choice(x, view):
    return x if view else -x


def negation(x, view):
    return x * (not view)


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
