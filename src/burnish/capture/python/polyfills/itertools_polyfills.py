"""Polyfills of ``itertools``: Python versions of its iterators, for functions or iterables written by the user.

    itertools.accumulate(batches(), merge)

They follow the rules of ``iterator_polyfills``.
"""

from __future__ import annotations

import functools
import itertools
from types import FunctionType

from .iterator_polyfills import always, begins_again, iterators_of, let_go, register


def filterfalse(predicate, iterator):
    while True:
        value = next(iterator)
        if not (value if predicate is None or predicate is bool else predicate(value)):
            yield value


def new_filterfalse(predicate, items):
    return filterfalse(predicate, iter(items))


def accumulate(iterator, func, initial, total):
    """``total`` is empty or holds one value."""
    if initial is not None:
        total, initial = (initial,), None
    else:
        value = next(iterator)  # which may advance this one
        total = (value if not total else total[0] + value if func is None else func(total[0], value),)
    yield total[0]


def new_accumulate(iterable, func=None, *, initial=None):
    return accumulate(iter(iterable), func, initial, ())


def accumulated(iterator, func, initial, total):
    if not total or initial is not None:
        return itertools.accumulate(iterator, func, initial=initial)
    made = itertools.accumulate(itertools.chain(total, iterator), func)
    next(made)
    return made


def chain(source, active=None):
    """``source`` gives the iterables."""
    while source is not None:
        if active is None:
            active = iter(next(source))
        try:
            value = next(active)
        except StopIteration:
            active = None
            continue
        yield value


def end_chain(state):
    """``source`` is dropped at its end, and after any error of it."""
    if state[1] is None:
        state[0] = None


def new_chain(*iterables):
    return chain(iter(iterables))


def chain_from_iterable(iterables):
    return chain(iter(iterables))


def chained(source, active):
    if source is None:
        return itertools.chain()
    if active is None:
        return itertools.chain.from_iterable(source)
    return itertools.chain.from_iterable(itertools.chain((active,), source))


def islice(iterator, at, upcoming, stop, step):
    source = iterator
    if source is None:
        return
    while at < upcoming:
        next(source)
        at += 1
    if stop is not None and at >= stop:
        return
    value = next(source)
    at += 1
    upcoming += step
    if stop is not None and upcoming > stop:
        upcoming = stop
    yield value


def new_islice(items, *limits):
    bounds = slice(*limits)
    return islice(iter(items), 0, bounds.start or 0, bounds.stop, bounds.step or 1)


def sliced(iterator, at, upcoming, stop, step):
    if iterator is None:
        return itertools.islice((), 0)
    return itertools.islice(iterator, upcoming - at, None if stop is None else max(stop - at, 0), step)


def starmap(function, iterator):
    yield function(*tuple(next(iterator)))


def new_starmap(function, items):
    return starmap(function, iter(items))


def takewhile(predicate, iterator, is_done):
    if is_done:
        return
    value = next(iterator)
    if predicate(value):
        yield value
    else:
        is_done = True


def new_takewhile(predicate, items):
    return takewhile(predicate, iter(items), False)


def taken_while(predicate, iterator, is_done):
    return itertools.takewhile(predicate, () if is_done else iterator)


def dropwhile(predicate, iterator, has_begun):
    while True:
        value = next(iterator)
        if has_begun or not predicate(value):
            has_begun = True
            yield value


def new_dropwhile(predicate, items):
    return dropwhile(predicate, iter(items), False)


def dropped_while(predicate, iterator, has_begun):
    if not has_begun:
        return itertools.dropwhile(predicate, iterator)
    made = itertools.dropwhile(bool, itertools.chain((False,), iterator))
    next(made)
    return made


def pairwise(iterator, before):
    """``before`` is empty or holds one value."""
    source = iterator
    if source is None:
        return
    if not before:
        before = (next(source),)
    first, before = before[0], (next(source),)
    yield first, before[0]


def new_pairwise(items):
    return pairwise(iter(items), ())


def paired(iterator, before):
    return itertools.pairwise(() if iterator is None else itertools.chain(before, iterator) if before else iterator)


def zip_longest(iterators, fillvalue):
    """An iterator that has ended is None. An error ends all."""
    count = len(iterators)
    if not count:
        return
    values = []
    while len(values) < count:
        i = len(values)
        value = fillvalue
        if iterators and iterators[i] is not None:  # a step inside of this one may have ended all
            try:
                value = next(iterators[i])
            except StopIteration:
                iterators = (*iterators[:i], None, *iterators[i + 1 :])
                if all([other is None for other in iterators]):
                    return
        values.append(value)
    yield tuple(values)


def end_zip_longest(state):
    state[0] = ()


def new_zip_longest(*iterables, fillvalue=None):
    return zip_longest(iterators_of(iterables), fillvalue)


def zipped_longest(iterators, fillvalue):
    return itertools.zip_longest(*[() if it is None else it for it in iterators], fillvalue=fillvalue)


def compress(data, selectors):
    while True:
        value = next(data)
        if next(selectors):
            yield value


def new_compress(data, selectors):
    return compress(iter(data), iter(selectors))


def batched(iterator, n, strict):
    source = iterator
    if source is None:
        return
    values = []
    while len(values) < n:
        try:
            value = next(source)
        except StopIteration:
            break
        values.append(value)
    if strict and values and len(values) < n:
        raise ValueError("batched(): incomplete batch")
    if values:
        yield tuple(values)


def new_batched(iterable, n, **options):
    return batched(iter(iterable), n, options.get("strict", False))


def batches(iterator, n, strict):
    return itertools.batched(() if iterator is None else iterator, n, **{"strict": True} if strict else {})


def cycle(iterator, saved, at):
    if iterator is not None:
        try:
            value = next(iterator)
        except StopIteration:
            iterator = None
        else:
            saved = (*saved, value)
            yield value
    if saved:
        value = saved[at]
        at = (at + 1) % len(saved)
        yield value


def new_cycle(items):
    return cycle(iter(items), (), 0)


def cycled(iterator, saved, at):
    made = itertools.cycle(saved if iterator is None else itertools.chain(saved, iterator))
    # Two rounds, so that it has come to the end of `saved`, and a copy shares no iterator with it.
    for _ in range(len(saved) if iterator is not None else len(saved) + (at or len(saved))):
        next(made)
    return made


def groupby(shared):
    """``shared`` is the state that all groups share: the iterator, the key function, the key of the current group, the
    key of the next element and the element (each empty or with one value), and the number of the current group."""
    shared[5] += 1
    while not shared[3] or shared[2] and is_same(shared[2][0], shared[3][0]):
        read_element(shared)
    shared[2] = shared[3]
    yield shared[2][0], group(shared, shared[5], shared[2][0])


def read_element(shared):
    value = next(shared[0])
    key = value if shared[1] is None else shared[1](value)
    shared[3], shared[4] = (key,), (value,)


def is_same(one, other):
    return True if one is other or one == other else False  # noqa: SIM210


def group(shared, number, key):
    if shared[5] == number:
        if not shared[4]:
            read_element(shared)
        if is_same(key, shared[3][0]):
            value = shared[4][0]
            shared[3] = shared[4] = ()
            yield value


def new_groupby(iterable, key=None):
    return groupby([iter(iterable), key, (), (), (), 0])


def tee(items, n=2):
    """Each copy advances by itself. They share the list of values read so far."""
    if n < 0:
        raise ValueError("n must be >= 0")
    seen = [iter(items), []]
    return tuple([tee_copy(seen, 0) for _ in range(n)])


def tee_copy(seen, at):
    iterator, values = seen
    if at == len(values):
        try:
            value = next(iterator)
        except StopIteration:
            return
        values.append(value)
    at += 1
    yield values[at - 1]


def combine(results, at, pools, options):
    """``results``: those that are left. They go when a segment has ended: ``at`` counts them."""
    value = next(results)
    at += 1
    yield value


def combinations_left(kind, results, at, pools, options):
    made = kind(*pools, **options)
    for _ in range(at):
        next(made)
    return made


def itertool_of_lists(cls, args, kwargs):
    """Only the number of elements may be no iterable: the second argument of all but ``product``."""
    return cls(*[a if at and cls is not itertools.product else list(a) for at, a in enumerate(args)], **kwargs)


register(
    (
        (accumulate, itertools.accumulate(()), accumulated),
        (chain, itertools.chain(), chained, always, end_chain),
        (islice, itertools.islice((), 0), sliced, always, let_go),
        (starmap, itertools.starmap(int, ()), itertools.starmap),
        (takewhile, itertools.takewhile(int, ()), taken_while),
        (dropwhile, itertools.dropwhile(int, ()), dropped_while),
        (filterfalse, itertools.filterfalse(int, ()), itertools.filterfalse),
        (pairwise, itertools.pairwise(()), paired, always, let_go),
        (zip_longest, itertools.zip_longest(), zipped_longest, always, end_zip_longest),
        (compress, itertools.compress((), ()), itertools.compress),
        (cycle, itertools.cycle(()), cycled),
        (
            groupby,
            itertools.groupby(()),
            lambda shared: itertools.groupby(*shared[:2]),
            lambda shared: not shared[5] and not begins_again(shared[0]),
        ),
        (group, next(itertools.groupby("a"))[1]),
        (tee_copy, itertools.tee(())[0]),
    )
)
if hasattr(itertools, "batched"):
    register(((batched, itertools.batched((), 1), batches, always, let_go),))

COMBINED = {
    type(sample): FunctionType(combine.__code__.replace(co_name=type(sample).__name__), globals())
    for sample in (
        itertools.product(),
        itertools.permutations(()),
        itertools.combinations((), 0),
        itertools.combinations_with_replacement((), 0),
    )
}
"""By kind. The iterators of a kind are known by the code of its function."""
register(
    (step, kind() if kind is itertools.product else kind((), 0), functools.partial(combinations_left, kind))
    for kind, step in COMBINED.items()
)
