"""Builtin iterators over the user's code: after errors, after their end, copied, handed out, delegated to."""

import collections
import copy
import itertools
import operator
import os
import sys
import types
from collections.abc import Iterator

import pytest
import torch

import burnish

from .harness import program

CALLS = [(torch.randn(3),), (torch.randn(3),), (torch.randn(4),)]


class Uneven:
    """Counts to ``count``. Some steps raise an error instead, and the end carries a value."""

    def __init__(self, count, *bad):
        self.count, self.bad, self.at = count, bad, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at in self.bad:
            raise ValueError(f"step {self.at}")
        if self.at > self.count:
            raise StopIteration(self.at)
        return self.at


class ByIndex:
    def __init__(self, bad=None):
        self.bad = bad

    def __len__(self):
        return 4

    def __getitem__(self, at):
        if at == self.bad:
            self.bad = None
            raise ValueError(at)
        if at >= 4:
            raise IndexError
        return at * 10


def picky(*values):
    if sum(values) % 3 == 0:
        raise KeyError(values)
    return values


def odd(value):
    return value % 2 if value != 3 else 1 // 0


KINDS = {
    "map": lambda: map(picky, Uneven(6, 2)),
    "map of two": lambda: map(picky, Uneven(6, 2), Uneven(4, 3)),
    "filter": lambda: filter(odd, Uneven(7, 5)),
    "filter by truth": lambda: filter(None, Uneven(4, 2)),
    "zip": lambda: zip(Uneven(5, 2), Uneven(4, 3)),
    "strict zip": lambda: zip(Uneven(3, 2), Uneven(4), Uneven(6), strict=True),
    "enumerate": lambda: enumerate(Uneven(5, 2), 7),
    "accumulate": lambda: itertools.accumulate(Uneven(6, 2, 4)),
    "accumulate by a function": lambda: itertools.accumulate(Uneven(6, 2), lambda a, b: a * b if b != 3 else {}[b]),
    "accumulate from a start": lambda: itertools.accumulate(Uneven(6, 1, 4), operator.add, initial=100),
    "chain": lambda: itertools.chain(Uneven(2), Uneven(3, 2), 5, [1]),
    "chain of an iterator": lambda: itertools.chain.from_iterable(Uneven(3, 1)),
    "islice": lambda: itertools.islice(Uneven(9, 8), 1, 9, 3),
    "islice without end": lambda: itertools.islice(Uneven(9, 3), 1, None, 2),
    "starmap": lambda: itertools.starmap(picky, map(lambda v: (v,) if v != 4 else v, Uneven(6, 2))),
    "takewhile": lambda: itertools.takewhile(lambda v: v < 4, Uneven(9, 2)),
    "takewhile with errors": lambda: itertools.takewhile(odd, Uneven(9, 2)),
    "dropwhile": lambda: itertools.dropwhile(lambda v: odd(v) or v < 4, Uneven(7, 2, 5)),
    "filterfalse": lambda: itertools.filterfalse(odd, Uneven(7, 5)),
    "pairwise": lambda: itertools.pairwise(Uneven(6, 4)),
    "zip_longest": lambda: itertools.zip_longest(Uneven(2), Uneven(4), fillvalue=0),
    "zip_longest with errors": lambda: itertools.zip_longest(Uneven(2), Uneven(4, 3), fillvalue=0),
    "compress": lambda: itertools.compress(Uneven(6, 2), Uneven(7, 5)),
    "cycle": lambda: itertools.cycle(Uneven(3, 2)),
    "until": lambda: iter(lambda steps=Uneven(9, 2): next(steps), 5),
    "by index": lambda: iter(ByIndex(2)),
    "reversed": lambda: reversed(ByIndex(2)),
    "reversed to its end": lambda: reversed(ByIndex()),
    "tee": lambda: itertools.tee(Uneven(5, 2))[1],
}


def step(iterator, count=9):
    """What ``count`` steps give, errors included."""
    found = []
    while len(found) < count:
        try:
            found.append(next(iterator))
        except StopIteration as end:
            found.append(("end", end.args))
        except (ValueError, TypeError, LookupError, ZeroDivisionError) as error:
            found.append((type(error).__name__, str(error)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_iterator_goes_on_after_errors_and_its_end(kind):
    def make():
        return lambda x: (x + 1, step(KINDS[kind]())), CALLS

    program(make, breaks=0)()


@pytest.mark.parametrize("kind", KINDS)
def test_iterator_goes_on_after_a_break(kind):
    def make():
        def fn(x):
            made, found = KINDS[kind](), []
            for _ in range(7):
                found += step(made, 1)
                if x.sum() > 1000:
                    x = x - 1
            return x, found

        return fn, CALLS

    program(make)()


@pytest.mark.parametrize("kind", KINDS)
def test_iterator_has_the_class_of_python(kind):
    def make():
        def fn(x):
            made = KINDS[kind]()
            facts = type(made).__name__, isinstance(made, Iterator), isinstance(made, types.GeneratorType)
            return x + 1, facts, iter(made) is made, hasattr(made, "send"), hasattr(made, "close")

        return fn, CALLS

    program(make, breaks=0)()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("cycle",)])
def test_iterator_is_read_by_loops_and_unpacking(kind):
    def make():
        def fn(x):
            found = []
            for read in (list, lambda made: 4 in made, lambda made: (lambda a, b: (a, b))(*made), sorted):
                made = KINDS[kind]()
                try:
                    found.append(read(made))
                except (ValueError, TypeError, LookupError, ZeroDivisionError):
                    found.append("error")
                found += step(made, 2)
            return x, found

        return fn, CALLS

    program(make, same_text=False)()


@pytest.mark.parametrize("kind", KINDS)
def test_delegation_to_an_iterator(kind):
    def make():
        def fn(x):
            made = KINDS[kind]()

            def delegating():
                result = yield from made
                yield "result", result

            return x, step(delegating(), 5), step(made, 3)

        return fn, CALLS

    program(make, breaks=0)()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tee"])
@pytest.mark.parametrize("count", range(4))
def test_iterator_is_handed_out_as_pythons_own(kind, count):
    def fn(x):
        made = KINDS[kind]()
        return x * 2, step(made, count), made

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        want, got = fn(torch.ones(2)), compiled(torch.ones(2))
        assert type(want[2]) is type(got[2])
        for i in (1, 2):
            expected, found = (step(r[i], 6) if i == 2 else r[i] for r in (want, got))
            assert [e if e[:1] != ("end",) else "end" for e in map(tuple_of, expected)] == [
                f if f[:1] != ("end",) else "end" for f in map(tuple_of, found)
            ]


def tuple_of(value):
    return value if isinstance(value, tuple) else (value,)


@program(breaks=0)
def test_copies_share_what_is_below_them():
    def fn(x):
        found = []
        for make in (
            lambda: map(str, [1, 2, 3]),
            lambda: enumerate(Uneven(4)),
            lambda: zip(Uneven(3), [1, 2, 3]),
            lambda: itertools.starmap(pow, [(1, 2), (2, 2), (3, 2)]),
        ):
            made = make()
            found.append(next(made))
            copied = copy.copy(made)
            found += [next(copied), next(made), type(copied).__name__]
        return x * 2, found

    return fn, CALLS


@program(breaks=0)
def test_groups_end_when_the_next_one_begins():
    def fn(x):
        asked = []

        def key(value):
            asked.append(value)
            return value // 3

        late = [(k, list(group)) for k, group in list(itertools.groupby(range(8), key))]
        firsts = [(k, next(group), len(asked)) for k, group in itertools.groupby(range(8), key)]
        return x + len(asked), late, firsts

    return fn, CALLS


@program(breaks=0)
def test_stop_iteration_of_a_function_ends_a_map():
    def fn(x):
        def stop_at_two(value):
            if value == 2:
                raise StopIteration
            return value

        return x + 1, list(map(stop_at_two, [1, 2, 3])), list(filter(stop_at_two, [5, 2, 3]))

    return fn, CALLS


@program(breaks=0)
def test_cycle_of_an_endless_generator():
    def fn(x):
        endless = (x * n for n in itertools.count(1))
        cycled = itertools.cycle(endless)
        return [next(cycled) for _ in range(3)], [a for a, _ in zip(itertools.cycle(map(str, [1, 2])), range(5))]

    return fn, CALLS


@program
def test_an_error_thrown_into_a_delegating_generator_passes_the_iterator():
    def fn(x):
        def delegating():
            try:
                yield from map(abs, Uneven(3))
            except KeyError as error:
                yield "caught", str(error)
            yield 9

        made, closed = delegating(), delegating()
        found = [next(made), made.throw(KeyError("k")), next(made), next(closed)]
        closed.close()
        return x + 1, found, list(closed)

    return fn, CALLS


@program
def test_iterator_kept_in_an_object_goes_on_in_the_next_call():
    class Holder:
        made = None

    holder = Holder()

    def fn(x):
        if holder.made is None:
            holder.made = enumerate(Uneven(9, 2))
        return x, step(holder.made, 1)

    return fn, [*CALLS, *CALLS]


@program
def test_iterator_over_a_list_filled_in_the_same_segment_keeps_its_position():
    turns = iter([[[5], [7], [5]], [[5, 7], [5]], [[7], [5], [7]], [[5], [5, 7]]] * 2)

    def fn(x):
        batches, taken = iter(next(turns)), []
        while len(taken) < 3:
            ready = []
            os.getpid()
            ready.extend(next(batches))
            for key in ready:
                os.getpid()
                taken.append(key)
        return x + 1, taken

    return fn, [*CALLS, *CALLS]


def filled_after_a_break(holder, kind):
    def fn(count):
        ready = holder()
        os.getpid()
        ready.extend(range(count))
        iterator = kind(ready)
        first = next(iterator)
        os.getpid()
        return first, list(iterator)

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(n) for n in (2, 4, 3, 2, 4)] == [fn(n) for n in (2, 4, 3, 2, 4)]


@pytest.mark.parametrize("kind", [iter, reversed, enumerate], ids=lambda kind: kind.__name__)
def test_iterator_over_an_outside_list_filled_before_it(kind):
    filled_after_a_break(list, kind)


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("kind", [iter, reversed], ids=lambda kind: kind.__name__)
def test_iterator_over_an_outside_deque_filled_before_it(kind):
    filled_after_a_break(collections.deque, kind)


@program(breaks=0)
def test_a_copied_tee_iterator_shares_what_was_read():
    def fn(x):
        first, second = itertools.tee(iter([1, 2, 3]))
        head = next(first)
        copied = copy.copy(first)
        kinds = type(copied) is type(first), type(copied).__name__, isinstance(copied, type(second))
        return x + head, kinds, list(copied), list(first), list(second)

    return fn, CALLS


class Kept:
    """What a program keeps its iterators in."""


@burnish.disable
def shown(*made):
    return [(type(each).__name__, type(each) in (map, zip, enumerate), isinstance(each, Iterator)) for each in made]


KEEPERS = {
    "in an outside list": lambda kept, made: kept.list.append(made),
    "in an attribute": lambda kept, made: setattr(kept, "made", (made, [made])),
    "in a tuple that is a local": lambda kept, made: (made,),
    "by the call at the break": lambda kept, made: shown(made),
}


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
@pytest.mark.parametrize("begins", [False, True])
def test_kept_builtin_iterator_is_of_its_class(keep, begins):
    def fn(x, kept):
        made = [map(str, Uneven(9)), zip(Uneven(5), "abcdef"), enumerate(map(abs, Uneven(9)))]
        for each in made if begins else ():
            next(each)
        local = [keep(kept, each) for each in made]
        os.getpid()
        texts = [repr(each).split(" at 0x")[0] for each in made]
        return x + 1, made, local, texts, [next(each) for each in made], shown(*made)

    def seen(found):
        _, made, local, texts, values, kinds = found
        holders = [each is holder[0] for each, holder in zip(made, local, strict=True) if type(holder) is tuple]
        return [type(each) for each in made], holders, texts, values, kinds, [[*each] for each in made]

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        kept, other = Kept(), Kept()
        kept.list, other.list = [], []
        expected, found = fn(torch.ones(2), kept), compiled(torch.ones(2), other)
        if kept.list:
            assert all(a is b for a, b in zip(other.list, found[1], strict=True))
        if hasattr(other, "made"):
            assert other.made[0] is other.made[1][0] is found[1][2]
        assert seen(found) == seen(expected)


@program
def test_function_advances_the_iterator_that_calls_it():
    def fn(x):
        iterator, seen = None, []

        def value():
            if len(seen) < 3:
                seen.append(len(seen))
                os.getpid()
                return next(iterator, "ended")
            return 7

        iterator = iter(value, 7)
        found = [*iterator, "then", *iterator]

        def doubled(v):
            return (v, next(iterator)) if v == 2 else v

        iterator = map(doubled, [1, 2, 3, 4])
        return x + 1, found, [*iterator], seen

    return fn, CALLS


def strict_zip(*counts):
    return zip(*map(Uneven, counts), strict=True)


def strict_map(*counts):
    return map(lambda *values: values, *map(Uneven, counts), strict=True)


def context(error):
    return type(error).__name__, str(error), repr(error.__context__), error.__suppress_context__


@pytest.mark.parametrize("counts", [(3, 3), (3, 2), (2, 3), (3, 3, 2), (2, 2, 3), (1,)], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        strict_zip,
        pytest.param(strict_map, marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="map is never strict")),
    ],
)
def test_strict_iterators_compare_lengths(make, counts):
    def fn(x):
        made = make(*counts)
        first = next(made)
        if x.sum() > 0:
            x = x + 1
        try:
            return x, first, list(copy.copy(made)), list(made)
        except ValueError as error:
            return x, first, context(error)

    compiled = burnish.compile(fn, backend="eager")
    for k in (1, -1, 1, 1):
        assert repr(compiled(torch.full((2,), k))) == repr(fn(torch.full((2,), k)))
