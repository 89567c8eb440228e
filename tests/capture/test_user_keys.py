"""Keys of dictionaries and sets whose class hashes and compares in Python."""

import collections
import contextlib
import dataclasses
import enum
import os
from unittest import mock

import pytest
import torch

import burnish

from .caller_programs import program_with_caller
from .harness import program


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    layer: int
    kind: str = "a"


class Name:
    def __init__(self, text, payload=1.0):
        self.text, self.payload = text, payload

    def key(self):
        return self.text.lower()

    def __hash__(self):
        return hash(self.key())

    def __eq__(self, other):
        return isinstance(other, Name) and self.key() == other.key()


@program(breaks=0)
def test_keys_made_in_the_function():
    def fn(x, n):
        table = {Place(1): x, Place(n): x + 1, Place(1, "b"): x + 2}
        table[Place(1)] = x * 3
        seen = {Place(2), Place(n), Place(2)}
        del table[Place(1, "b")]
        return (
            list(table.values()),
            Place(n) in table,
            Place(9) in table,
            table.get(Place(8), n),
            len(seen),
            Place(2) in seen,
            hash(Place(1)) == hash(Place(1)),
            table.pop(Place(1)),
            table.setdefault(Place(7), x),
        )

    return fn, [(torch.randn(2), n) for n in (1, 2, 3, 1, 4)]


@program(breaks=0)
def test_tables_from_outside_are_asked():
    table = {Name("a"): 2.0, Name("B"): 3.0, "a": 4.0}

    def fn(x, name):
        return x * table[name] + table.get(Name("A"), 0.0), Name("b") in table, name in table, len(table)

    return fn, [(torch.randn(2), Name(text)) for text in ("a", "A", "b", "a", "B")]


@program_with_caller
def test_changes_of_keys_and_tables_are_seen():
    table = {Name("a"): 2.0, Name("b"): 3.0}

    def fn(x, name):
        return x * table.get(name, 7.0), [key.payload for key in table]

    def caller(fn, x, step):
        if step == 2:
            table[Name("c")] = 5.0
        if step == 3:
            next(iter(table)).payload = 10.0
        if step == 4:
            table[Name("A")] = 6.0
        if step == 5:
            del table[Name("a")]
        return fn(x, Name("c" if step == 2 else "a"))

    return fn, caller, [(torch.randn(2), step) for step in range(6)]


@program
def test_a_cache_with_such_keys_grows():
    cache = {}

    def fn(x, layer):
        key = Place(layer)
        if key not in cache:
            cache[key] = torch.ones(2) * layer
        return x * cache[key], len(cache), [key.layer for key in cache]

    return fn, [(torch.randn(2), layer) for layer in (1, 2, 1, 3, 1, 2)]


@program
def test_methods_that_write_print_or_raise_run_as_they_do():
    asked = []

    class Counted(Name):
        def __hash__(self):
            asked.append(self.text)
            return 1

    class Loud(Name):
        def __hash__(self):
            print("hash", self.text)
            return 2

    class Bad(Name):
        def __hash__(self):
            raise ValueError(self.text)

    class Lazy(Name):
        number = None

        def __hash__(self):
            if self.number is None:
                self.number = 5
            return self.number

    def fn(x):
        first = {Counted("a"): x, Counted("b"): x + 1}[Counted("a")]
        second = {Loud("a"): x}[Loud("a")]
        third = {Lazy("a"): x * 2}[Lazy("A")]
        try:
            {Bad("a"): 1}
        except ValueError as error:
            return first, second, third, str(error), len(asked)

    return fn, lambda i: (torch.randn(2),), asked


@program
def test_keys_in_sets_from_outside():
    names = {Name("a", 2.0), Name("b", 3.0)}

    def fn(x, name):
        return x + 1, name in names, sorted(each.payload for each in names)

    return fn, [(torch.randn(2), Name(text)) for text in ("a", "c", "B")]


@program_with_caller(breaks=0)
def test_results_hold_such_keys():
    def fn(x):
        table = {Place(1): x, Name("q"): x + 1}
        return {key: value * 2 for key, value in table.items()}, table[Name("Q")]

    def caller(fn, x):
        made, value = fn(x)
        return made[Place(1)], made[Name("Q")], value, len(made), [type(key).__name__ for key in made]

    return fn, caller, lambda i: (torch.randn(2),)


@program(breaks=0)
def test_hash_that_raises_an_error_is_the_errors_of_the_lookup():
    class Key:
        fails = False

        def __hash__(self):
            if self.fails:
                raise ValueError("no hash")
            return 42

    def fn(x):
        key = Key()
        table = {key: x}
        key.fails = True
        found = []
        for call in (table.get, table.pop, table.__contains__, lambda k: table[k], lambda k: {k}, lambda k: {k: 1}):
            try:
                call(key)
            except ValueError as error:
                found.append(str(error))
        return x, found, len(table)

    return fn, lambda i: (torch.randn(3),)


@program
def test_hash_that_changes_what_its_function_closes_over_runs_once():
    def fn(x):
        seen = []

        class Key:
            count = []

            def __hash__(self):
                seen.append(len(seen))
                self.count.append(0)
                return 1

        table = {Key(): x}
        return table.popitem()[1] + 1, list(seen), len(Key.count), len(frozenset({Key(), Key()})), len(seen)

    return fn, lambda i: (torch.randn(3),)


@program
def test_keys_whose_hash_counts_are_copied_without_it():
    class Key:
        hashed = 0

        def __hash__(self):
            self.hashed += 1
            return 1

    def fn(x):
        table = {Key(): x, Key(): x + 1}
        kept = frozenset(table)
        if x.sum() > 0:
            x = x + 1
        return x, sum(key.hashed for key in table), len(kept), len(dict.fromkeys(kept))

    return fn, lambda i: (torch.full((3,), 1.0 - i),)


@program(breaks=0)
def test_containers_of_objects_with_equality_are_compared():
    def fn(x, n):
        one, two = Name("A", x), Name("a", n)
        return (
            [one, n] == [two, n],
            [one] != [two],
            (one, 1) < (two, 2),
            {"k": one, "n": [two]} == {"k": two, "n": [one]},
            {"k": one} != {"k": Name("b")},
            [one] == (one,),
            {one, n} == {two, n},
            ("k", one) in {"k": two}.items(),
            ("k", Name("b")) not in {"k": two}.items(),
            x + 1,
        )

    return fn, lambda i: (torch.randn(3), i)


class Colour(enum.Enum):
    RED = 1


class Label(str):
    pass


class Record:
    pass


@program
def test_names_of_attributes_that_are_no_plain_text():
    def fn(x):
        record = Record()
        record.__dict__[Colour.RED] = 1
        record.__dict__[Label("label")] = 2
        record.__dict__[Record] = 3
        os.getpid()
        return x + 1, [(type(key).__name__, value) for key, value in record.__dict__.items()], record.label

    return fn, lambda i: (torch.ones(2),)


@program
def test_attribute_of_a_class_of_the_run_that_looks_like_a_key():
    def fn(x):
        class Same:
            def __hash__(self):
                return hash("attribute")

            def __eq__(self, other):
                if hasattr(Record, "attribute"):
                    del Record.attribute
                return False

        class Record:
            attribute = property(lambda self: 1)

        record = Record()
        record.__dict__[Same()] = 0
        os.getpid()
        return x + 1, record.attribute, hasattr(record, "attribute")

    return fn, lambda i: (torch.ones(2),)


def test_objects_are_not_asked_for_their_class():
    class Shy:
        def __init__(self):
            self.asked = 0

        @property
        def __class__(self):
            self.asked += 1
            return list

        def __index__(self):
            return 1

        def __iter__(self):
            return iter((3, 4))

        def __add__(self, other):
            return "sum"

        __radd__ = __mul__ = __rmul__ = __add__

    def fn(x, shy):
        first, second = shy
        taken = (
            [10, 20][shy],
            {shy: 5}[shy],
            shy in [1, 2],
            list(shy),
            tuple(shy),
            {*shy},
            max(shy),
            shy + 1,
            [1] + [shy],
        )
        print(shy is None, "%s" % [len(taken)], id(shy) == id(shy))
        return x + 1, first, second, bool(shy), [*map(int, [shy, shy])], (lambda *given: given)(*shy)

    expected, found = Shy(), Shy()
    want = [fn(1, expected) for _ in range(3)]
    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(1, found) for _ in range(3)] == want
    assert found.asked == expected.asked


@pytest.mark.falls_back("limit")
def test_a_mock_notes_no_calls_but_the_program_s():
    def fn():
        made = mock.MagicMock()
        made.__len__.return_value = 4
        made.part.method.side_effect = [1, 2]
        return len(made), made.part.method(), made.part.method(3), [str(call) for call in made.mock_calls]

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled() for _ in range(3)] == [fn() for _ in range(3)]


def count_hashes(fn, view):
    HASHED.clear()
    fn(torch.ones(2), view)
    return len(HASHED)


HASHED = []


class Counted(Name):
    def __hash__(self):
        HASHED.append(self)
        return super().__hash__()


@pytest.mark.parametrize("kind", ["keys", "values", "items"])
def test_reading_a_view_of_an_ordered_dictionary_asks_no_key_twice(kind):
    def fn(x, view):
        return x + len(list(view)), sum(1 for _ in view)

    table = collections.OrderedDict((Counted(str(i)), i) for i in range(3))
    view = getattr(table, kind)()
    compiled = burnish.compile(fn, backend="eager")
    for i in range(3):
        assert count_hashes(compiled, view) == count_hashes(fn, view)
        table[Counted(f"more {i}")] = i


@pytest.mark.parametrize(
    "name", "difference issubset issuperset isdisjoint symmetric_difference difference_update update".split()
)
def test_set_methods_over_generators_hash_each_element_once(name):
    log = []

    class Noted:
        def __init__(self, value):
            self.value = value

        def __hash__(self):
            log.append(self.value)
            return hash(self.value)

        def __eq__(self, other):
            return isinstance(other, Noted) and self.value == other.value

    def fn(x, items):
        return getattr(items, name)(Noted(i) for i in range(3)), x + 1

    logs = []
    for function in (fn, burnish.compile(fn, backend="eager")):
        for _ in range(3):
            items = {Noted(i) for i in (0, 1, 7)}
            log.clear()
            function(torch.ones(2), items)
            logs.append([*log])
    assert logs[3:] == logs[:3]


@pytest.mark.parametrize("name", "difference issuperset isdisjoint difference_update intersection".split())
def test_set_methods_over_generators_refuse_sets(name):
    def fn(x, items):
        try:
            return x + 1, getattr(items, name)(part for part in ({1}, 2))
        except TypeError as error:
            return x + 1, str(error)

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2), {frozenset({1})})[1] == fn(torch.ones(2), {frozenset({1})})[1]


def test_a_generator_of_a_hash_that_breaks_is_never_closed():
    """Its ``finally`` block would run twice: when it is freed, and in the call that counts."""
    seen = []

    @contextlib.contextmanager
    def block():
        try:
            yield
        finally:
            seen.append("out")

    class Key:
        def __hash__(self):
            with block():
                burnish.graph_break()
                return 1

    key = Key()
    compiled = burnish.compile(lambda x, table: x * table.get(key, 3))
    for _ in range(3):
        seen.clear()
        compiled(torch.ones(2), {1: 2})
        assert seen == ["out"]


class HashRaises:
    def __hash__(self):
        raise TypeError("no hash")


UNHASHABLE = {
    "key": "d[[1]] = 2",
    "looked up": "return d[[1]]",
    "deleted": "del d[[1]]",
    "get": "return d.get([1])",
    "pop": "return d.pop([1])",
    "membership": "return [1] in d",
    "of a view": "return [1] in d.keys()",
    "and of a view": "return d.keys() & [[1]]",
    "or of a view": "return d.keys() | [[1]]",
    "display of a dictionary": "k = [1]\n    return {k: 1}",
    "comprehension": "return {k: 1 for k in [[1]]}",
    "pairs": "return dict([([1], 2)])",
    "fromkeys": "return dict.fromkeys([[1]])",
    "tuple as key": "return d[([1],)]",
    "element": "s.add([1])",
    "membership of a set": "return [1] in s",
    "set": "return set([[1]])",
    "display of a set": "k = [1]\n    return {k}",
    "comprehension of a set": "return {k for k in [[1]]}",
    "tuple as element": "return {(1, [1])}",
    "union": "return s.union([[1]])",
    "subset": "return s.issubset([[1]])",
    "ordered key": "o[[1]] = 2",
    "ordered lookup": "return o[[1]]",
    "ordered deleted": "del o[[1]]",
    "ordered pop": "return o.pop([1])",
    "own hash as key": "return {HashRaises(): 1}",
    "own hash as element": "return {(HashRaises(),)}",
    "hash": "return hash([1])",
}


@pytest.mark.parametrize("is_outside", [False, True])
@pytest.mark.parametrize("body", UNHASHABLE.values(), ids=UNHASHABLE)
def test_errors_about_unhashable_keys_name_the_container(body, is_outside):
    state = "d, s, o = {1: 2}, {1}, collections.OrderedDict(a=1)\n"
    names = {"collections": collections, "HashRaises": HashRaises}
    exec(state, names)
    exec(f"def fn(x):\n    x = x + 1\n    {'pass' if is_outside else state}\n    {body}", names)
    compiled = burnish.compile(names["fn"], backend="eager")
    for _ in range(3):
        with pytest.raises(TypeError) as wanted:
            names["fn"](torch.ones(2))
        with pytest.raises(TypeError) as found:
            compiled(torch.ones(2))
        assert str(found.value) == str(wanted.value)


@program(breaks=1)
def test_a_key_whose_hash_fails_since_it_was_added():
    class Key:
        fails = False

        def __hash__(self):
            if self.fails:
                raise ValueError("no hash")
            return 42

    def fn(x):
        key = Key()
        table = {key: x}
        key.fails = True
        os.getpid()
        return x + 1, len(table), [found is key for found in table]

    return fn, lambda i: (torch.randn(3 + i),)
