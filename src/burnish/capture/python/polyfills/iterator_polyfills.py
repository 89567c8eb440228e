"""Iterator polyfills: Python versions of iterators, for functions or iterables written by the user.

    zip(batches(), labels)           # batches() is a generator: each next() runs user code

The constructor of such an iterator calls ``iter`` on its iterables at once and rejects non-iterables, as C code does:
``begin``. The rest runs when an element is requested. The rules of all polyfills: ``polyfills``.
"""

from __future__ import annotations

import itertools

from ...interpreter.frames import MADE_BY, STANDS_FOR

MISSING = object()


def begin(polyfill, before, iterables, after, options):
    """An iterator over ``iterables``. ``iter`` is called on each of them now."""
    ready = []
    for items in iterables:
        ready.append(iter(items))
    return polyfill(*before, *ready, *after, **options)


def map_(function, items, *others):
    if not others:
        for value in items:
            yield function(value)
    else:
        for values in zip(items, *others, strict=False):
            yield function(*values)


def filter_(function, items):
    for value in items:
        if value if function is None else function(value):
            yield value


def zip_(*iterables, strict=False):
    iterators = [iter(items) for items in iterables]
    if not iterators:
        return
    while True:
        values = []
        while len(values) < len(iterators):  # by number: an iterator of ours would be one more object to stop at
            i = len(values)
            try:
                value = next(iterators[i])
            except StopIteration:
                if not strict:
                    return
                if i > 0:
                    plural = " " if i == 1 else "s 1-"
                    raise ValueError(f"zip() argument {i + 1} is shorter than argument{plural}{i}") from None
                for j in range(1, len(iterators)):
                    try:
                        next(iterators[j])
                    except StopIteration:
                        continue
                    plural = " " if j == 1 else "s 1-"
                    raise ValueError(f"zip() argument {j + 1} is longer than argument{plural}{j}") from None
                return
            values.append(value)
        yield tuple(values)


def enumerate_(iterable, start=0):
    at = start
    for value in iterable:
        yield at, value
        at += 1


class Sequence:
    """A class with only this method is iterated by index."""

    def __getitem__(self, at):
        raise IndexError


def iterate_by_index(sequence):
    at = 0
    while True:
        try:
            value = sequence[at]
        except (IndexError, StopIteration):
            return
        yield value
        at += 1


def reversed_of(sequence):
    return reversed_(sequence, len(sequence))


def reversed_(sequence, length):
    for at in range(length - 1, -1, -1):
        try:
            value = sequence[at]
        except (IndexError, StopIteration):
            return
        yield value


def reversed_again(sequence, length):
    return reversed(sequence)


def iterate_until(function, sentinel):
    while True:
        try:
            value = function()
        except StopIteration:
            return
        if sentinel is value or sentinel == value:
            return
        yield value


def accumulate(iterable, func=None, *, initial=None):
    iterator = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for value in iterator:
        total = total + value if func is None else func(total, value)
        yield total


def chain(*iterables):
    for items in iterables:
        for value in items:  # noqa: UP028
            yield value


def chain_from_iterable(iterables):
    for items in iterables:
        for value in items:  # noqa: UP028
            yield value


def islice(items, *limits):
    bounds = slice(*limits)
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    if stop is not None and stop <= 0:
        return
    at, wanted = 0, start
    for value in items:
        if at == wanted:
            yield value
            wanted += step
        at += 1  # noqa: SIM113
        if stop is not None and at >= stop:
            return


def starmap(function, items):
    for values in items:
        yield function(*values)


def takewhile(predicate, items):
    for value in items:
        if not predicate(value):
            return
        yield value


def dropwhile(predicate, items):
    iterator = iter(items)
    for value in iterator:
        if not predicate(value):
            yield value
            break
    for value in iterator:  # noqa: UP028
        yield value


def filterfalse(predicate, items):
    for value in items:
        if not (value if predicate is None else predicate(value)):
            yield value


def pairwise(items):
    iterator = iter(items)
    try:
        before = next(iterator)
    except StopIteration:
        return
    for value in iterator:
        yield before, value
        before = value


def zip_longest(*iterables, fillvalue=None):
    iterators = [iter(items) for items in iterables]
    active = len(iterators)
    if not active:
        return
    done = [False] * active
    while True:
        values = []
        while len(values) < len(iterators):
            i = len(values)
            value = fillvalue
            if not done[i]:
                try:
                    value = next(iterators[i])
                except StopIteration:
                    done[i] = True
                    active -= 1
                    if not active:
                        return
            values.append(value)
        yield tuple(values)


def compress(data, selectors):
    for value, selector in zip(data, selectors):  # noqa: B905
        if selector:
            yield value


def groupby(iterable, key=None):
    """Groups are list iterators: a loop over them sees the same elements."""
    group, current = [], MISSING
    for value in iterable:
        value_key = value if key is None else key(value)
        if current is not MISSING and (current is value_key or current == value_key):
            group.append(value)
            continue
        if current is not MISSING:
            yield current, iter(group)
        group, current = [value], value_key
    if current is not MISSING:
        yield current, iter(group)


def tee(items, n=2):
    """Each copy advances by itself. They share the list of values read so far."""
    if n < 0:
        raise ValueError("n must be >= 0")
    iterator = iter(items)
    seen = [iterator, []]
    return tuple([tee_copy(seen) for _ in range(n)])


def tee_copy(seen):
    iterator, values = seen
    at = 0
    while True:
        if at == len(values):
            try:
                values.append(next(iterator))
            except StopIteration:
                return
        yield values[at]
        at += 1


def itertool_of_lists(cls, args, kwargs):
    return cls(*[list(a) if hasattr(a, "__iter__") else a for a in args], **kwargs)


for _polyfill, _kind in (
    (map_, map),
    (filter_, filter),
    (zip_, zip),
    (enumerate_, enumerate),
    (accumulate, itertools.accumulate),
    (chain, itertools.chain),
    (islice, itertools.islice),
    (starmap, itertools.starmap),
    (takewhile, itertools.takewhile),
    (dropwhile, itertools.dropwhile),
    (filterfalse, itertools.filterfalse),
    (pairwise, itertools.pairwise),
    (zip_longest, itertools.zip_longest),
    (groupby, itertools.groupby),
    (compress, itertools.compress),
):
    STANDS_FOR[_polyfill.__code__] = MADE_BY[_polyfill.__code__] = _kind
for _polyfill, _sample in (
    (tee_copy, itertools.tee(())[0]),
    (iterate_by_index, iter(Sequence())),
    (iterate_until, iter(int, 0)),
    (chain_from_iterable, itertools.chain()),
    (reversed_, reversed(())),
):
    STANDS_FOR[_polyfill.__code__] = type(_sample)
MADE_BY[reversed_.__code__] = reversed_again
