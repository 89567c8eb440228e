"""Builtin iterators around a graph break: their bound methods, copies and steps inside of steps."""

import copy
import inspect
import itertools
import operator
import os
import pickle
import sys

import pytest
import torch

import burnish

from ..forked_programs import run_program
from .harness import program

CALLS = [(torch.ones(3),), (torch.ones(3),), (torch.ones(4),)]


@program
def test_bound_methods_of_an_iterator_over_a_break():
    def fn(x):
        made = map(lambda v: v + 1, [1, 2, 3])
        pull, reduced = made.__next__, zip([1], [2], strict=True).__reduce__
        os.getpid()
        return x + 1, pull(), next(made), pull.__self__ is made, pull.__name__, reduced()[2:], [*iter(pull, None)][:1]

    return fn, CALLS


class Kept:
    made = None


@program
def test_iterator_of_a_loop_is_kept_in_an_attribute():
    kept = Kept()

    def fn(x):
        made, found = map(lambda v: v + 1, [1, 2, 3, 4, 5]), []
        for value in made:
            found.append(value)
            if value == 3:
                kept.made = made
                os.getpid()
            if value == 4:
                found.append((type(kept.made) is map, next(kept.made)))
        return x + 1, found, kept.made is made

    return fn, CALLS


COPIED = {
    "chain": lambda: itertools.chain([1, 2], [3]),
    "islice": lambda: itertools.islice([1, 2, 3], 3),
    "strict zip": lambda: zip([1, 2], (3, 4), strict=True),
    "map": lambda: map(str, [1, 2, 3]),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
}


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="iterators of itertools have no copies")
@pytest.mark.filterwarnings("ignore:Pickle, copy")
@pytest.mark.parametrize("make", COPIED.values(), ids=COPIED)
@pytest.mark.parametrize("breaks", [False, True])
def test_copies_of_iterators(make, breaks):
    def fn(x):
        made = make()
        first = next(made)
        if breaks:
            os.getpid()
        copied = copy.copy(made)
        return x + 1, first, type(copied), type(made), next(copied), len(made.__reduce__()), len(made.__reduce_ex__(2))

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:]


@program
def test_reduction_of_a_generator_is_refused():
    def fn(x):
        try:
            (k for k in [1]).__reduce__()
        except TypeError as error:
            return x + 1, str(error)

    return fn, CALLS


STEPS = {
    "islice": lambda source: itertools.islice(source, 1, None, 2),
    "accumulate": itertools.accumulate,
    "pairwise": itertools.pairwise,
    "zip_longest": lambda source: itertools.zip_longest(source, range(3)),
    "chain": lambda source: itertools.chain.from_iterable(map(lambda v: [v, v], source)),
}


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("when", [1, 2])
def test_step_inside_of_a_step(make, breaks, when):
    def fn(x):
        made, seen, at = None, [], 0

        class Source:
            def __iter__(self):
                return self

            def __next__(self):
                nonlocal at
                at += 1
                if at > 9:
                    raise StopIteration
                if at == when:
                    if breaks:
                        os.getpid()
                    seen.append(next(made, "ended"))
                return at

        made = make(Source())
        return x + 1, [*made], seen, [*made]

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:]


@program
def test_attributes_that_an_iterator_has():
    def fn(x):
        class Items:
            def __len__(self):
                return 3

            def __getitem__(self, at):
                return range(3)[at]

        names = "__length_hint__", "__setstate__", "__reduce__", "__copy__", "__next__", "send"
        made = reversed(Items()), iter(Items()), itertools.tee(x)[0], map(str, Items())
        return x + 1, [[name for name in names if hasattr(each, name)] for each in made], made[0].__length_hint__()

    return fn, CALLS


@program
def test_reversed_sequence_advanced_by_its_elements():
    def fn(x):
        made, seen = None, []

        class Items:
            def __len__(self):
                return 5

            def __getitem__(self, at):
                if at == 3 and not seen:
                    seen.append(None)
                    seen.append(next(made, "ended"))
                return at

        made = reversed(Items())
        return x + 1, [*made], seen

    return fn, CALLS


def test_count_at_the_largest_size_cannot_be_copied():
    def fn(x, counted):
        return x + 1, next(counted)

    counted, other = (itertools.count(sys.maxsize - 1) for _ in range(2))
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(4):
        assert compiled(torch.ones(2), counted)[1] == fn(torch.ones(2), other)[1]


MADE_OF_ITERATORS = {
    "map": lambda source: map(lambda v, w: (v, w), source, range(9)),
    "filter": lambda source: filter(None, source),
    "zip": lambda source: zip(source, range(9), strict=False),
    "enumerate": enumerate,
    "accumulate": itertools.accumulate,
    "chain": lambda source: itertools.chain([7], source),
    "islice": lambda source: itertools.islice(source, 0, 5, 2),
    "starmap": lambda source: itertools.starmap(max, zip(source, range(9), strict=False)),
    "takewhile": lambda source: itertools.takewhile(lambda v: v < 5, source),
    "dropwhile": lambda source: itertools.dropwhile(lambda v: v < 2, source),
    "filterfalse": lambda source: itertools.filterfalse(lambda v: v == 3, source),
    "pairwise": itertools.pairwise,
    "zip_longest": lambda source: itertools.zip_longest(source, range(9)),
    "compress": lambda source: itertools.compress(source, itertools.cycle([1, 0, 1])),
    "cycle": lambda source: itertools.islice(itertools.cycle(source), 9),
}


@pytest.mark.parametrize("make", MADE_OF_ITERATORS.values(), ids=MADE_OF_ITERATORS)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_iterators_are_asked_for_their_iterators_once(make, steps):
    """Such a class begins again when it is asked."""
    asked, kept = [], []

    class Source:
        def __iter__(self):
            asked.append(None)
            self.at = 0
            return self

        def __next__(self):
            self.at += 1
            if self.at > 6:
                raise StopIteration
            return self.at

    def fn(x, breaks):
        made = make(Source())
        for _ in range(steps):
            next(made)
        if breaks:
            kept[:] = [made]
            os.getpid()
            kept.append(next(made))
        return x + 1, made

    def course(fn, breaks):
        asked.clear()
        made = fn(torch.ones(2), breaks)[1]
        return type(made), list(made), kept[1:], len(asked)

    compiled = burnish.compile(fn, backend="eager")
    for breaks in (False, True, False, True):
        assert course(compiled, breaks) == course(fn, breaks)


def test_length_of_a_reversed_sequence_is_asked_for_once():
    asked = []

    class Items:
        def __len__(self):
            asked.append(None)
            return 4

        def __getitem__(self, at):
            return at

    def fn(x):
        made = reversed(Items())
        next(made)
        return x + 1, made, operator.length_hint(made)

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        found = []
        for call in (fn, compiled):
            asked.clear()
            _, made, hint = call(torch.ones(2))
            found.append((hint, operator.length_hint(made), list(made), len(asked)))
        assert found[0] == found[1]


def test_an_iterator_of_combinations_crosses_breaks():
    def fn(x, n):
        out, left = [], itertools.permutations([1, n, 3], 2)
        out.append(next(left))
        for i, j in itertools.product(range(2), [n, 5]):
            os.getpid()
            out.append((i, j))
        return x * n, out, next(left), left

    compiled = burnish.compile(fn, backend="eager")
    for n in (1, 2, 3, 2):
        (_, *want, left), (_, *got, ours) = fn(torch.ones(2), n), compiled(torch.ones(2), n)
        assert want == got and list(left) == list(ours) and type(left) is type(ours)
    reasons = [str(each.reason) for each in burnish.explain(fn)(torch.ones(2), 2).break_reasons]
    assert reasons and all("getpid" in reason for reason in reasons)


def advanced_inside_a_step():
    class Source:
        def __init__(self):
            self.at = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.at += 1
            if self.at > 7:
                raise StopIteration
            if self.at == 5:
                for _ in range(2):
                    next(shared[0], None)
            return self.at

    shared = [None]

    def fn(x):
        source = Source()
        made = shared[0] = itertools.islice(source, 2, None, 3)
        os.getpid()
        return x + 1, [next(made, "end") for _ in range(4)], source.at

    compiled = burnish.compile(fn, backend="eager")
    return [[each(torch.ones(2))[1:] for each in (fn, compiled)] for _ in range(3)]


def test_islice_is_ended_by_a_step_inside_its_own():
    """In a process of its own: what C code alone held was freed while it was in use."""
    program = f"import itertools, os, torch, burnish\n{inspect.getsource(advanced_inside_a_step)}"
    ran = run_program(f"{program}\nfor want, got in advanced_inside_a_step():\n    assert want == got, (want, got)")
    assert ran.returncode == 0, ran.stderr


def test_pickled_iterators_are_of_the_programs_objects():
    def fn(x):
        source = Counting()
        made = map(abs, source)
        next(made)
        return x + 1, made, source

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(2):
        _, made, source = compiled(torch.ones(2))
        assert type(made) is map and made.__reduce__()[1][1] is source
        assert b"burnish" not in pickle.dumps(made)


class Counting:
    at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        return self.at


@program
def test_product_of_objects_that_are_indexed():
    def fn(x):
        class Items:
            def __getitem__(self, at):
                return range(3)[at]

        return x + 1, [*itertools.product(Items(), repeat=2)], [*itertools.permutations(Items(), 2)]

    return fn, CALLS


@program
def test_module_and_size_of_iterators():
    def fn(x):
        made = itertools.combinations([1, 2, 3], 2)
        return x + 1, getattr(made, "__module__", None), getattr(map(abs, [1]), "__module__", None), made.__sizeof__()

    return fn, CALLS
