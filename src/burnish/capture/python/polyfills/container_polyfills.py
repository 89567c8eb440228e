"""Container polyfills: Python versions of building, extending and searching containers.

    list(batches())        # batches() is a generator: a comprehension over it is interpreted

They serve iterables written by the user, and elements with ``__eq__`` in Python.
"""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict, deque
from operator import setitem

from ...interpreter.versions.behavior import BEHAVIOR

SHOWS_ITEM = BEHAVIOR.index_error_shows_item

SEQUENCES = (list, tuple, str, bytes, bytearray, deque)


NOT_INT = (
    "__index__ returned non-int (type {}).  The ability to return an instance of a strict subclass of int is "
    "deprecated, and may be removed in a future version of Python."
)


def index_of_key(container, key, is_write=False):
    """A key of a sequence as an integer, or a slice of integers."""
    if type(key) is not slice:
        value = index_of_part(key)
        return value if issubclass(type(container), range) else place_of(key, value, IndexError)
    if is_write and not hasattr(type(container), "__setitem__"):
        return 0  # which it refuses
    if issubclass(type(container), deque):
        raise TypeError("sequence index must be integer, not 'slice'")
    step = index_of_part(key.step)  # asked in this order
    if step == 0:
        return slice(None, None, 0)
    start = index_of_part(key.start)
    return slice(start, index_of_part(key.stop), step)


def index_of_part(part):
    method = None if issubclass(type(part), int) else getattr(type(part), "__index__", None)
    if method is None:
        return part
    value = method(part)
    if not issubclass(type(value), int):
        raise TypeError(f"__index__ returned non-int (type {type(value).__name__})")
    if type(value) is not int:
        warnings.warn(NOT_INT.format(type(value).__name__), DeprecationWarning)  # noqa: B028  # without our frames
    return int.__index__(value)


def place_of(part, value, error):
    if issubclass(type(value), int) and not -sys.maxsize <= value + 1 <= sys.maxsize + 1:
        raise error(f"cannot fit '{type(part).__name__}' into an index-sized integer")
    return value


def range_of(*args):
    return range(*[index_of_part(part) for part in args])


def repeat(left, right):
    """A sequence, multiplied by an object with its own ``__index__``."""
    if issubclass(type(left), SEQUENCES):
        return left * place_of(right, index_of_part(right), OverflowError)
    return place_of(left, index_of_part(left), OverflowError) * right


def repeat_in_place(left, right):
    left *= place_of(right, index_of_part(right), OverflowError)
    return left


def of_index(function, value):
    return function(index_of_part(value))


def get_by_index(container, key):
    return container[index_of_key(container, key)]


def set_by_index(container, key, value):
    container[index_of_key(container, key, True)] = value


def delete_by_index(container, key):
    del container[index_of_key(container, key, True)]


def default_item(table, key, factory):
    value = table[key] = factory()
    return value


def to_list(items):
    return [value for value in items]  # noqa: C416  # the loop is what gets interpreted


def count_elements(table, items):
    """What a ``Counter`` counts by."""
    iterator, get = iter(items), table.get
    for key in iterator:
        table[key] = get(key, 0) + 1


def take(items, count):
    """What unpacking reads: at most one element more than there are names. The error about that one shows none of them,
    and from 3.14 on it counts the elements of a list: a range has as many, and they are not counted."""
    taken = []
    for value in items:
        taken.append(value)
        if len(taken) == count:
            return range(count)
    return taken


def to_tuple(items=()):
    return tuple([value for value in items])  # noqa: C409,C416


def to_set(items=()):
    return {value for value in items}  # noqa: C416


def to_frozenset(items=()):
    return frozenset({value for value in items})  # noqa: C416


def to_dict(items=(), /, **kwargs):
    made = {}
    dict_update(made, items)
    made.update(kwargs)
    return made


def pair_of(item, at):
    """A key and its value, from what a dictionary is made of."""
    if issubclass(type(item), (tuple, list)) and len(item) == 2:
        return item
    try:
        pair = tuple(item)
    except TypeError:
        pair = None
    if pair is None:
        raise TypeError(f"cannot convert dictionary update sequence element #{at} to a sequence")
    if len(pair) != 2:
        raise ValueError(f"dictionary update sequence element #{at} has length {len(pair)}; 2 is required")
    return pair


def dict_of_keys(kind, keys, value=None):
    made = kind()
    for key in keys:
        made[key] = value
    return made


def to_deque(kind, items, maxlen=None):
    return kind([value for value in items], maxlen)  # noqa: C416


def made_of(kind, items):
    return kind([value for value in items])  # noqa: C416


def base_of(items):
    """The class of C code whose methods C code calls, whatever a subclass defines."""
    return list if isinstance(items, list) else tuple if isinstance(items, tuple) else deque


def list_extend(target, items):
    base = base_of(target)
    for value in items:
        base.append(target, value)


def list_extended(target, items):
    """``target.__iadd__(items)``."""
    list_extend(target, items)
    return target


def deque_extendleft(target, items):
    for value in items:
        deque.appendleft(target, value)


def dict_update(target, items=(), /, **kwargs):
    is_ordered = isinstance(target, OrderedDict)
    store = setitem if is_ordered else dict.__setitem__
    if hasattr(items, "keys"):
        keys = items.keys()
        for key in keys if is_ordered else [*keys]:  # an ordered dictionary asks for each item once it has its key
            store(target, key, items[key])
    else:
        for at, item in enumerate(items):
            key, value = pair_of(item, at)
            store(target, key, value)
    for key, value in kwargs.items():
        store(target, key, value)


def dict_updated(target, items):
    """``target.__ior__(items)``."""
    dict_update(target, items)
    return target


def dict_copy(table):
    """``table.copy()`` of a class with its own ``__iter__``: C code asks for the keys if there are any."""
    return to_dict(table) if dict.__len__(table) else {}


def store_slice(target, at, items):
    list.__setitem__(target, at, [value for value in items])  # noqa: C416


def index_of(sequence, item, start=0, stop=sys.maxsize):
    base = base_of(sequence)
    for part in (start, stop):
        if not hasattr(type(part), "__index__"):
            raise TypeError("slice indices must be integers or have an __index__ method")
    start, stop, _ = slice(start, stop).indices(base.__len__(sequence))
    for at in range(start, stop):
        if at >= base.__len__(sequence):
            break  # it shrinks while its elements are compared
        value = base.__getitem__(sequence, at)
        if value is item or value == item:
            return at
    raise missing_item(base, item, "index")


def missing_item(base, item, method):
    kind = "deque" if base is deque else base.__name__
    if SHOWS_ITEM and (base is deque or base is list and method == "index"):
        return ValueError(f"{item!r} is not in {kind}")
    return ValueError(f"{kind}.{method}(x): x not in {kind}")


def count_of(sequence, item):
    return sum([1 for value in base_of(sequence).__iter__(sequence) if value is item or value == item])


def count_in(items, item):
    """``operator.countOf``."""
    count = 0
    for value in items:
        if value is item or value == item:
            count += 1
    return count


def index_in(items, item):
    """``operator.indexOf``."""
    for at, value in enumerate(items):
        if value is item or value == item:
            return at
    raise ValueError("sequence.index(x): x not in sequence")


def remove(target, item):
    base = base_of(target)
    for at, value in enumerate(base.__iter__(target)):
        if value is item or value == item:
            base.__delitem__(target, at)
            return
    raise missing_item(base, item, "remove")


def to_dict_like(cls, args, kwargs):
    """OrderedDict(items), defaultdict(factory, items) of user iterables."""
    if cls is OrderedDict and len(args) == 1:
        made = cls()
        dict_update(made, *args, **kwargs)
        return made
    plain = [to_dict(a) if hasattr(a, "__iter__") or hasattr(a, "keys") else a for a in args]
    return cls(*plain, **kwargs)
