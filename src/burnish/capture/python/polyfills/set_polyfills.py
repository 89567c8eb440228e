"""Set polyfills: methods of sets over iterables in Python, such as ``names.union(generator())``.

Each step is one of C code, which calls the hash of an element once, and refuses a set (``discard`` takes one), as
``{value}`` does.
``base``: ``set`` or ``frozenset``; the methods of a subclass are not called. ``steps``: whether an iterable is Python.
"""

from __future__ import annotations

_rest = iter("ab")
{"a"}.issubset(_rest)
SUBSETS_READ_ALL = not [*_rest]
"""Older Python makes a set of the iterable first. Newer Python stops at the last element that is needed."""


HASHED_ALONE = (list, dict)
"""Where C code hashes an element before it asks a set: from 3.14 on, the error of a set about it is another one."""


def set_update(base, items, others, steps):
    while others:
        if steps[0]:
            for value in others[0]:
                base.add(items, value)
        else:
            base.update(items, others[0])
        others, steps = others[1:], steps[1:]


def set_init(base, items, others, steps):
    base.clear(items)
    set_update(base, items, others, steps)


def set_union(base, items, others, steps):
    if base is frozenset:
        return base.union(items, *elements_of_each(others, steps))
    made = base.copy(items)
    set_update(base, made, others, steps)
    return made


def set_difference_update(base, items, others, steps):
    while others:
        if steps[0]:
            for value in others[0]:
                if issubclass(type(value), set):
                    {value}  # noqa: B018
                base.discard(items, value)
        base.difference_update(items, () if steps[0] else others[0])  # which may make its table smaller
        others, steps = others[1:], steps[1:]


def elements(items):
    found = []
    for value in items:
        {value}  # noqa: B018
        found.append(value)
    return found


def set_of(items):
    made = set()
    for value in items:
        made.add(value)
    return made


def made_of(kind, items):
    return kind(elements(items))


def elements_of_each(others, steps):
    found = []
    while others:
        found.append(elements(others[0]) if steps[0] else others[0])
        others, steps = others[1:], steps[1:]
    return found


def set_difference(base, items, others, steps):
    if base is frozenset:
        return base.difference(items, *elements_of_each(others, steps))
    made = base.copy(items) if steps[0] else base.difference(items, others[0])
    at = 0 if steps[0] else 1
    set_difference_update(base, made, others[at:], steps[at:])
    return made


def set_intersection(base, items, others, steps):
    while others:
        items = base(common(base, items, others[0])) if steps[0] else base.intersection(items, others[0])
        others, steps = others[1:], steps[1:]
    return items


def set_intersection_update(base, items, others, steps):
    made = set_intersection(base, items, others, steps)
    base.intersection_update(items, [*made])


def common(base, items, others):
    found, distinct = [], set()
    for value in others:
        if issubclass(type(value), set) or type(value) in HASHED_ALONE:
            hash(value)
        if base.__contains__(items, value):
            found.append(value)
            distinct.add(value)
            if len(distinct) >= base.__len__(items):
                break
    return found


def set_symmetric_difference(base, items, others, steps):
    if base is frozenset:
        return base.symmetric_difference(items, elements(others[0]))
    made = set_of(others[0])
    set.symmetric_difference_update(made, items)
    return made


def set_symmetric_difference_update(base, items, others, steps):
    base.symmetric_difference_update(items, set_of(others[0]))


def set_issubset(base, items, others, steps):
    if SUBSETS_READ_ALL:
        return base.issubset(items, set_of(others[0]))
    rest = base.copy(items) if base is set else set(base.copy(items))
    for value in others[0]:
        if issubclass(type(value), set) or type(value) in HASHED_ALONE:
            hash(value)
        before = len(rest)
        rest.discard(value)
        if not rest and before:
            return True
    return not rest


def set_issuperset(base, items, others, steps):
    for value in others[0]:
        if issubclass(type(value), set):
            {value}  # noqa: B018
        if not base.__contains__(items, value):
            return False
    return True


def set_isdisjoint(base, items, others, steps):
    for value in others[0]:
        if issubclass(type(value), set):
            {value}  # noqa: B018
        if base.__contains__(items, value):
            return False
    return True
