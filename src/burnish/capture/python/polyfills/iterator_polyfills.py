"""Iterator polyfills: Python versions of builtin iterators, for functions or iterables written by the user.

    zip(batches(), labels)           # batches() is a generator: each next() runs user code

Each class has a constructor (``new_zip``), which calls ``iter`` on the iterables as C code does, and a step (``zip_``),
whose parameters are the iterator's state: ``BuiltinIterator``. A step assigns to its parameters where C code changes
the iterator, before or after what may raise. The rules of all polyfills: ``polyfills``.
"""

from __future__ import annotations

import functools
import re
from types import FunctionType

from ...engine.interpreted_or_native import find_on_type
from ...interpreter.frames import BY_CODE, BuiltinIterator
from ...interpreter.versions.behavior import BEHAVIOR
from .. import template_strings

FORGETS_STEPS_INSIDE = BEHAVIOR.reversed_forgets_steps_inside


def iterators_of(iterables):
    ready = []
    for items in iterables:
        ready.append(iter(items))
    return tuple(ready)


def next_of_each(iterators):
    """By number: an iterator of ours would be one more object to stop at."""
    values = []
    while len(values) < len(iterators):
        values.append(next(iterators[len(values)]))
    return values


def map_(function, iterators, strict):
    if len(iterators) == 1:
        yield function(next(iterators[0]))
    elif not strict:
        yield function(*next_of_each(iterators))
    else:
        values = next_of_all(iterators, "map")
        if values is None:
            return
        yield function(*values)


def new_map(function, *iterables, strict=False):
    return map_(function, iterators_of(iterables), bool(strict))


def filter_(function, iterator):
    while True:
        value = next(iterator)
        if value if function is None or function is bool else function(value):
            yield value


def new_filter(function, items):
    return filter_(function, iter(items))


def zip_(iterators, strict):
    if not iterators:
        return
    if not strict:
        yield tuple(next_of_each(iterators))
    else:
        values = next_of_all(iterators, "zip")
        if values is None:
            return
        yield tuple(values)


def next_of_all(iterators, name):
    """None if all of them are at their ends."""
    values = []
    while len(values) < len(iterators):
        try:
            values.append(next(iterators[len(values)]))
        except StopIteration:
            break
    i = len(values)
    if i == len(iterators):
        return values
    if i > 0:
        raise ValueError(f"{name}() argument {i + 1} is shorter than argument{' ' if i == 1 else 's 1-'}{i}")
    j = 1
    while j < len(iterators):
        try:
            next(iterators[j])
        except StopIteration:
            j += 1
            continue
        raise ValueError(f"{name}() argument {j + 1} is longer than argument{' ' if j == 1 else 's 1-'}{j}")
    return None


def new_zip(*iterables, strict=False):
    return zip_(iterators_of(iterables), strict)


def enumerate_(iterator, at):
    value = next(iterator)
    at += 1
    yield at - 1, value


def new_enumerate(iterable, start=0):
    return enumerate_(iter(iterable), start)


class Sequence:
    """A class with only this method is iterated by index."""

    def __getitem__(self, at):
        raise IndexError


def iterate_by_index(sequence, at=0):
    if sequence is None:
        return
    try:
        value = sequence[at]
    except (IndexError, StopIteration):
        sequence = None
        return
    at += 1
    yield value


def sequence_iterator(sequence, at):
    made = iter(() if sequence is None else sequence)
    if sequence is not None:
        made.__setstate__(at)
    return made


def reversed_of(sequence):
    return reversed_(sequence, len(sequence) - 1)


def reversed_(sequence, at):
    if at < 0:
        return
    before = at
    try:
        value = sequence[at]
    except (IndexError, StopIteration):
        return
    at = (before if FORGETS_STEPS_INSIDE else at) - 1
    yield value


def end_reversed(state):
    state[1] = -1


class Remaining:
    """What is left of a sequence of the program's, for C code that would ask for its length once more."""

    __slots__ = ("left", "sequence")

    def __init__(self, sequence, left):
        self.sequence, self.left = sequence, left

    def __len__(self):
        left, self.left = self.left, None
        return len(self.sequence) if left is None else left

    def __getitem__(self, at):
        return self.sequence[at]

    def __reduce__(self):
        return max, ((self.sequence,),)  # the sequence itself, by a function that any process has


def reversed_iterator(sequence, at):
    if at < 0:
        return reversed(())
    if isinstance(find_on_type(type(sequence), "__len__"), FunctionType) or len(sequence) <= at:
        return reversed(Remaining(sequence, at + 1))
    made = reversed(sequence)
    made.__setstate__(at)
    return made


def iterate_until(function, sentinel, is_done=False):
    if is_done:
        return
    try:
        value = function()
    except StopIteration:
        is_done = True
        return
    if is_done:  # by a step that the function has made
        return
    if sentinel is value or sentinel == value:
        is_done = True
        return
    yield value


def matches(found, at):
    """What ``finditer`` returns: all matches are found at once, since texts do not change."""
    if at < len(found):
        at += 1
        yield found[at - 1]


def find_matches(pattern, string, flags=0):
    return re.compile(pattern, flags).finditer(string)


def template_parts(parts, at):
    if at < len(parts):
        at += 1
        yield parts[at - 1]


def iterate_template(template):
    """Its texts, but for empty ones, and its interpolations."""
    parts = []
    for at, text in enumerate(template.strings):
        if text:
            parts.append(text)
        if at < len(template.interpolations):
            parts.append(template.interpolations[at])
    return template_parts(tuple(parts), 0)


def iterator_over(found, at):
    return iter(iter(found[at:]).__next__, None)


def iterator_until(function, sentinel, is_done):
    if not is_done:
        return iter(function, sentinel)
    made = iter(int, 0)
    next(made, None)
    return made


def map_of(function, iterators, strict):
    return map(function, *iterators, **({"strict": True} if strict else {}))  # a keyword from 3.14 on


def always(*state):
    return True


def let_go(state):
    """At the iterator's end, and after any error of a step."""
    state[0] = None


def begins_again(value):
    """Whether an iterator may begin again where C code asks it for its iterator once more."""
    asked = find_on_type(type(value), "__iter__")
    return isinstance(asked, FunctionType) and not returns_self(asked.__code__)


def returns_self(code):
    return code.co_argcount == 1 and code.co_code == RETURNS_SELF


RETURNS_SELF = (lambda self: self).__code__.co_code
ADVANCED = frozenset("iterator iterators source active data selectors".split())
"""The parameters of steps that are iterators."""


class HasBegun:
    """An iterator for C code, which asks for its iterator once more."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self.iterator


def begun(value):
    """An iterator, or those in a tuple, so that C code does not let them begin again."""
    if type(value) is tuple:
        return tuple(map(begun, value))
    return HasBegun(value) if begins_again(value) else value


def made_of_begun(places, make, *state):
    return make(*[begun(value) if i in places else value for i, value in enumerate(state)])


def register(steps):
    for step, sample, *made in steps:
        names = step.__code__.co_varnames[: step.__code__.co_argcount]
        places = tuple(i for i, name in enumerate(names) if name in ADVANCED)
        if made and places:
            made[0] = functools.partial(made_of_begun, places, made[0])
        BY_CODE[step.__code__] = BuiltinIterator(type(sample), sample, *made)


register(
    (
        (map_, map(int, ()), map_of),
        (filter_, filter(None, ()), filter),
        (zip_, zip(), lambda iterators, strict: zip(*iterators, strict=strict)),
        (enumerate_, enumerate(()), enumerate),
        (iterate_by_index, iter(Sequence()), sequence_iterator),
        (reversed_, reversed(()), reversed_iterator, always, end_reversed),
        (iterate_until, iter(int, 0), iterator_until),
        (matches, iter(int, 0), iterator_over),
    )
)
for kind in template_strings.ITERATED:
    register(((template_parts, iter(kind()), lambda parts, at, kind=kind: iter(kind(*parts[at:]))),))
