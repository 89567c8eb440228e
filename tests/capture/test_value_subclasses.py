"""Subclasses of numbers, texts, bytes and frozen sets: guarded by value, computed with, handed out.

Other objects of C code that hold values, too."""

import collections
import math
import operator
import re

import pytest
import torch

import burnish

from .harness import program

CALLS = [(torch.randn(3), 2), (torch.randn(3), 3), (torch.randn(4), 2)]


class Metres(int):
    def to_feet(self):
        return self * 3.28

    def __add__(self, other):
        return Metres(int(self) + int(other))

    def __repr__(self):
        return f"{int(self)}m"


class Degrees(float):
    def __str__(self):
        return f"{float(self):.1f}°"


class Path(str):
    def __new__(cls, text, separator="."):
        made = super().__new__(cls, text)
        made.separator = separator
        return made

    def __truediv__(self, other):
        return Path(f"{self}{self.separator}{other}", self.separator)


class Blob(bytes):
    def checksum(self):
        return sum(self) % 251


class Names(frozenset):
    pass


class Phase(complex):
    pass


class Vector(tuple):
    def __mul__(self, factor):
        return Vector([part * factor for part in self])

    __rmul__ = __mul__


READS = {
    "a method in C": (Blob, [b"\2a", b"\3a"], lambda v: v.hex()),
    "an item": (Blob, [b"\2a", b"\3a"], lambda v: v[0]),
    "a sum": (Blob, [b"\2a", b"\3a"], lambda v: v.checksum()),
    "an upper case": (Path, ["2a", "3b"], lambda v: v.upper()),
    "a key": (Path, ["2a", "3b"], lambda v: {"2a": 1}.get(v)),
    "a comparison": (Path, ["2a", "3b"], lambda v: v == "2a"),
    "a text in a container": (Path, ["2a", "3b"], lambda v: [v] == ["2a"]),
    "a count": (Metres, [2, 3], lambda v: [0] * v),
    "a size": (Metres, [2, 3], lambda v: torch.ones(v)),
    "a factor": (Metres, [2, 3], lambda v: torch.ones(2) * v),
    "a slice": (Metres, [2, 3], lambda v: (1, 2, 3, 4)[:v]),
    "a number in a text": (Metres, [2, 3], lambda v: f"{v}{v:03d}{v!r}"),
    "a membership": (Metres, [2, 3], lambda v: v in (2,)),
    "a negated number": (Degrees, [2.0, 3.0], lambda v: -v),
    "a sign": (Degrees, [0.0, -0.0], lambda v: math.copysign(1, v)),
    "an absolute value": (Phase, [2 + 1j, 3 + 1j], lambda v: abs(v)),
    "a set": (Names, [{"a"}, {"b"}], lambda v: "a" in v),
}


class Holder:
    value = None


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("place", ["argument", "attribute", "element", "after a break"])
def test_value_of_a_subclass_is_guarded(read, place):
    def make():
        kind, values, function = READS[read]
        holder = Holder()

        def fn(x, value):
            if place == "after a break" and x.sum() > 1000:
                x = x + 1
            if place == "attribute":
                value = holder.value
            if place == "element":
                value = value[0]
            return x + 1, function(value)

        def call(x, value):
            holder.value = value = kind(value)
            return compiled[0](x, [value] if place == "element" else value)

        compiled = [fn]
        return (lambda x, value: call(x, value)), [(torch.ones(2), values[i % 2]) for i in range(4)], compiled

    def run(wrap):
        fn, calls, compiled = make()
        compiled[0] = wrap(compiled[0])
        return [repr(fn(*args)) for args in calls]

    assert run(lambda fn: burnish.compile(fn, backend="eager")) == run(lambda fn: fn)


@program(breaks=0)
def test_integers_with_methods():
    def fn(x, n):
        length = Metres(n)
        more = length + 3
        return x * length.to_feet(), more, repr(more), f"{more:05d}", more == n + 3, hash(more) == hash(n + 3), -more

    return fn, CALLS


@program(breaks=0)
def test_floats_with_a_text():
    def fn(x, n):
        warm = Degrees(n * 10.5)
        return x * warm, warm, str(warm), f"{warm:.3f}", warm > n, round(warm), Degrees(warm / 2) > 1

    return fn, CALLS


@program(breaks=0)
def test_texts_with_attributes():
    def fn(x, n):
        path = Path("a") / "b" / str(n)
        return x, path, path.separator, path.upper(), path == "a.b.2", {"a.b.3": 1}.get(path), len(path)

    return fn, CALLS


@program(breaks=0)
def test_bytes_and_frozen_sets_of_classes():
    def fn(x, n):
        blob, names = Blob(bytes([n, 2])), Names(["a", str(n)])
        return x * blob.checksum(), blob, blob + b"x", names, {names: 1}[Names([str(n), "a"])], sorted(names | {"z"})

    return fn, CALLS


@program(breaks=0)
def test_tuple_with_its_own_reflected_product():
    def fn(x, n):
        return 2 * Vector([x, n]), Vector([n, 1]) * 3

    return fn, CALLS


@program
def test_matches_are_read_after_a_break():
    def fn(x, n):
        found = []
        for match in re.finditer(r"(\w)=(\d)", f"a=1,b={n}"):
            found.append(match.group(1) + match[2])
            if x.sum() > 1000:
                x = x + 1
        return x, found

    return fn, CALLS


@program
def test_getters_from_outside_are_guarded():
    def fn(x, n):
        return x + 1, holder.value((5, 6, 7, 8))

    class Calls:
        def __init__(self):
            self.count = 0

        def __getattr__(self, name):
            if name != "value":
                raise AttributeError(name)
            self.count += 1
            return operator.itemgetter(self.count % 3)

    holder = Calls()
    return fn, [*CALLS, *CALLS]


@program
def test_method_of_c_code_that_is_told_its_class_is_handed_out():
    def fn(x, pattern):
        return x + 1, pattern.finditer

    def read(x, text):
        return compiled_parts(fn, x, re.compile(text))

    return read, [(torch.ones(2), "a"), (torch.ones(2), "b"), (torch.ones(2), "a")]


def compiled_parts(fn, x, pattern):
    value, method = fn(x, pattern)
    return value, [match.group() for match in method("xaxb")]


@program(breaks=0)
def test_list_changed_by_its_own_sort_key():
    def fn(x, n):
        changed, looked_at, failing = [3, 1, 2], [3, 1, 2], [3, n]
        seen = []

        def append(value):
            changed.append(9)
            return value

        def look(value):
            seen.append(len(looked_at))
            return value

        for target, key in ((changed, append), (looked_at, look), (failing, {3: 1}.__getitem__)):
            try:
                target.sort(key=key)
            except (ValueError, KeyError) as error:
                seen.append(repr(error))
        return x + 1, changed, looked_at, failing, seen

    return fn, CALLS


def posing(base):
    """A class of containers that say they are numbers, and note that they were asked."""

    class Posing(base):
        @property
        def __class__(self):
            asked.append(base)
            return int

    return Posing


asked: list[type] = []
CONTAINERS = [list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict]


@pytest.mark.parametrize("base", CONTAINERS)
def test_containers_are_not_asked_for_their_class(base):
    def fn(x, given):
        return x + len(given), list(given), {1: given}, f"{(given,)}", 1 in given

    kind, compiled = posing(base), burnish.compile(fn, backend="eager")
    for _ in range(3):
        given = kind({1: 2} if issubclass(base, dict) else [1, 2])
        counts = []
        for function in (fn, compiled):
            asked.clear()
            function(torch.ones(2), given)
            counts.append(len(asked))
        assert counts[0] == counts[1]
