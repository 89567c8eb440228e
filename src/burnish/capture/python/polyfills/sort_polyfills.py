"""`sorted` and `list.sort` as Python code. They compare the same keys in the same order as CPython.

A comparison may be a program's own function (`functools.cmp_to_key`), with effects that show how often and for which
keys it was called. CPython sorts up to 63 elements in two steps, and both are repeated here: it takes the run that the
list starts with, and inserts each further element by binary search. Longer lists are sorted in blocks that are merged:
the result is the same, the comparisons are not.
"""

from __future__ import annotations

from ...interpreter.versions.behavior import BEHAVIOR

HOLDS_EQUAL_KEYS = BEHAVIOR.descending_run_holds_equal_keys
LONGEST_BLOCK = 63


def sorted_(items, /, *, key=None, reverse=False):
    made = [value for value in items]  # noqa: C416
    sort_list(made, key, reverse)
    return made


class ComparedKey:
    """What ``functools.cmp_to_key`` makes of an object: a key that compares by a function."""

    __slots__ = ("compare", "obj")

    def __init__(self, compare, obj):
        self.compare, self.obj = compare, obj

    def __lt__(self, other):
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other):
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other):
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other):
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other):
        return self.compare(self.obj, other.obj) >= 0

    __hash__ = None  # type: ignore[assignment]


def cmp_to_key(mycmp):
    def key(obj):
        return ComparedKey(mycmp, obj)

    return key


def sort_list(target, key=None, reverse=False):
    """The list is empty meanwhile, which a key function can see."""
    values = made = list(target)
    list.clear(target)
    try:
        keys = values if key is None else [key(value) for value in values]
        order = list(range(len(values)))
        if reverse:
            order.reverse()
        order = sort_order(order, keys)
        if reverse:
            order.reverse()
        made = [values[i] for i in order]
    finally:
        is_changed = list.__len__(target) > 0
        list.__setitem__(target, slice(None), made)
    if is_changed:
        raise ValueError("list modified during sort")


def sort_order(order, keys):
    if len(order) > LONGEST_BLOCK:
        half = len(order) // 2
        return merge(sort_order(order[:half], keys), sort_order(order[half:], keys), keys)
    if len(order) > 1:
        insert_from(order, keys, first_run(order, keys))
    return order


def insert_from(order, keys, count):
    """Insert each element from ``count`` on into the sorted ones before it."""
    for end in range(count, len(order)):
        pivot, low, high = order[end], 0, end
        while low < high:
            middle = (low + high) // 2
            if keys[pivot] < keys[order[middle]]:
                high = middle
            else:
                low = middle + 1
        order.insert(low, order.pop(end))


def first_run(order, keys):
    """The length of the run at the start, which is ascending afterwards: a descending one is reversed."""
    if HOLDS_EQUAL_KEYS:
        return first_run_with_equal_keys(order, keys)
    count = 2
    if not keys[order[1]] < keys[order[0]]:
        return extend_ascending(order, keys, count)
    while count < len(order) and keys[order[count]] < keys[order[count - 1]]:
        count += 1
    order[:count] = order[:count][::-1]
    return count


def first_run_with_equal_keys(order, keys):
    """A descending run may hold equal keys since Python 3.13. Those are reversed twice and so keep their order."""
    count = extend_ascending(order, keys, 1)
    if count == len(order):
        return count
    if count > 1:
        if keys[order[0]] < keys[order[count - 1]]:
            return count
        order[:count] = order[:count][::-1]
    count += 1
    equal = count - 1  # where the equal keys at the end of the run start
    while count < len(order):
        if keys[order[count]] < keys[order[count - 1]]:
            order[equal:count] = order[equal:count][::-1]
            equal = count
        elif keys[order[count - 1]] < keys[order[count]]:
            break
        count += 1
    order[equal:count] = order[equal:count][::-1]
    order[:count] = order[:count][::-1]
    return extend_ascending(order, keys, count)


def extend_ascending(order, keys, count):
    while count < len(order) and not keys[order[count]] < keys[order[count - 1]]:
        count += 1
    return count


def merge(left, right, keys):
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if keys[right[j]] < keys[left[i]]:
            merged.append(right[j])
            j += 1
        else:
            merged.append(left[i])
            i += 1
    return merged + left[i:] + right[j:]
