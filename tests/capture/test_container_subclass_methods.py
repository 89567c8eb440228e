"""C code that reads a container by the methods of its subclass: they run in each call, as often as in plain Python."""

import collections
import copy
import types

import pytest
import torch

import burnish

from .harness import program

CONTENT = {list: [1, 2], tuple: (1, 2), collections.deque: [1, 2], set: {1, 2}, frozenset: {1, 2}}
DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
NAMES = {"collections": collections, "copy": copy, "types": types, "torch": torch}


def noting(base, names, log):
    """A subclass whose methods of these names note that they are called."""

    def override(name):
        def method(self, *args, **kwargs):
            log.append(name)
            if name == "__new__":
                return base.__new__(self)
            return getattr(super(made, self), name)(*args, **kwargs)

        return method

    made = type(f"Noting{base.__name__.title()}", (base,), {name: override(name) for name in names})
    return made


def filled(kind, base, is_empty):
    if base not in DICTIONARIES:
        return kind([] if is_empty else CONTENT[base])
    made = kind(int) if base is collections.defaultdict else kind()
    if not is_empty:
        base.__setitem__(made, "a", 1)
    return made


def shown(value):
    """The content of a value, read past the methods of subclasses."""
    if isinstance(value, dict):
        return type(value), [(key, shown(part)) for key, part in dict.items(value)]
    for base in CONTENT:
        if isinstance(value, base):
            return type(value).__name__, [shown(part) for part in base.__iter__(value)]
    return type(value), value


def observed(base, names, statements, compiler):
    log, namespace = [], dict(NAMES)
    kind = noting(base, names, log)
    exec(f"def fn(x, c):\n    d = None\n    {statements}\n    return x * 2, d\n", namespace)
    run, seen = compiler(namespace["fn"]), []
    for is_empty in (False, False, True, True, False):
        container = filled(kind, base, is_empty)
        log.clear()
        try:
            result = shown(run(torch.ones(2), container)[1])
        except Exception as error:
            result = type(error), str(error)
        seen.append((result, [name for name in log if name != "__len__"], shown(container)))
    return [(str(result).replace(str(kind), "kind"), notes, str(after)) for result, notes, after in seen]


def is_as_in_python(base, names, statements):
    wanted = observed(base, names, statements, lambda fn: fn)
    assert observed(base, names, statements, burnish.compile) == wanted
    assert wanted


READS = (
    "d = c.copy()",
    "d = dict.copy(c)",
    "d = c.__or__({'z': 1})",
    "d = dict.__ror__(c, {'z': 1})",
    "d = c; c |= c",
    "d = {'s': 1}; d.update(c)",
    "d = {'s': 1}; d |= c",
    "d = dict(c)",
    "d = type(c)(c)",
    "d = collections.OrderedDict(c)",
    "d = collections.Counter(c)",
    "d = collections.OrderedDict(s=1); d.update(c)",
    "d = copy.copy(c)",
    "d = repr(c)",
    "d = '%s' % c",
    "d = '%(a)s' % c",
    "d = '{a}'.format_map(c)",
)


@pytest.mark.parametrize("statements", READS)
def test_dictionaries_are_read_by_the_methods_that_python_calls(statements):
    for base in DICTIONARIES:
        for names in (("__iter__", "keys"), ("keys", "__getitem__"), ("items",)):
            is_as_in_python(base, names, statements)


@pytest.mark.falls_back("refused")  # plain Python makes a view of what reads by methods, and it stays there
@pytest.mark.parametrize("statements", ["d = types.MappingProxyType(c)['a']", "d = 'a' in types.MappingProxyType(c)"])
def test_views_of_subclasses_read_by_their_methods(statements):
    for base in DICTIONARIES:
        is_as_in_python(base, ("__contains__", "__getitem__"), statements)


@pytest.mark.parametrize("operation", ["c | {'z': 1}", "{'z': 1} | c", "c | c", "type(c)() | c"])
def test_unions_call_the_methods_that_python_calls(operation):
    for base in DICTIONARIES[:3]:
        is_as_in_python(base, ("__iter__", "keys", "copy"), f"d = {operation}")


SEQUENCES = (
    "d = [0]; d += c|d = [0, 1]; d[1:] = c|c.extend(c)|d = repr(c)|d = c == c[:1]|d = '%s' % (c,)|d = copy.copy(c)"
).split("|")
QUEUES = (
    "d = collections.deque([0]); d += c|d = 2 * c|d = c + c|d = c.copy()|d = c < collections.deque([3])|c.extend(c)|"
    "d = repr(c)|d = copy.copy(c)"
).split("|")
SETS = "d = {1}.isdisjoint(c)|d = type(c)(c)|d = repr(c)|d = copy.copy(c)".split("|")


@pytest.mark.parametrize(
    ("base", "statements"),
    [
        *((base, text) for base in (list, tuple) for text in SEQUENCES),
        *((collections.deque, text) for text in QUEUES),
        *((base, text) for base in (set, frozenset) for text in SETS),
    ],
)
def test_elements_are_read_by_the_iterator_that_python_asks_for(base, statements):
    is_as_in_python(base, ("__iter__",), statements)
    is_as_in_python(base, ("__repr__",), statements)
    if base is collections.deque:
        is_as_in_python(base, ("__init__",), statements)
        is_as_in_python(base, ("__new__",), statements)


Point = collections.namedtuple("Point", "x y")


@program(breaks=0)
def test_copies_of_named_tuples_and_of_builtin_containers_stay_in_the_graph():
    def fn(x, *values):
        return x * 2, [copy.copy(value) for value in values]

    containers = Point(1, 2), [1], {1}, collections.OrderedDict(a=1), collections.deque([1]), collections.Counter("ab")
    return fn, lambda i: (torch.ones(2), *containers)


def test_keys_of_a_generator_are_all_made_before_an_item_is_read():
    log = []

    class Lazy:
        def keys(self):
            for key in "ab":
                log.append(key)
                yield key

        def __getitem__(self, key):
            log.append(f"read {key}")
            return key

    def plain(x, source):
        return x * 2, dict(source)

    def ordered(x, source):
        return x * 2, collections.OrderedDict(source)

    for fn, wanted in ((plain, ["a", "b", "read a", "read b"]), (ordered, ["a", "read a", "b", "read b"])):
        compiled = burnish.compile(fn)
        for _ in range(3):
            log.clear()
            assert compiled(torch.ones(2), Lazy())[1] == {"a": "a", "b": "b"}
            assert log == wanted


class FromKey(collections.defaultdict):
    def __missing__(self, key):
        return self.default_factory(key)


def test_own_missing_method_of_a_defaultdict_is_called():
    compiled = burnish.compile(lambda x, table, key: (table[key], len(table), x + 1), backend="eager")
    for key in range(4):
        assert compiled(torch.ones(2), FromKey(lambda key: key * 2), key)[:2] == (key * 2, 0)


class Bounded(collections.deque):
    @property
    def maxlen(self):
        raise AssertionError


def test_own_maxlen_of_a_deque_is_not_asked():
    def fn(x, items):
        items.append(7)
        return list(items), items.copy(), x + 1

    compiled = burnish.compile(fn, backend="eager")
    for longest in (3, 3, 2, None, 3):
        found = compiled(torch.ones(2), Bounded([1, 2], longest))[:2]
        assert found == fn(torch.ones(2), Bounded([1, 2], longest))[:2]


EMPTY = types.MappingProxyType({})


@pytest.mark.parametrize("ask", [len, lambda shown: shown | {"b": 5}, lambda shown: shown | EMPTY])
def test_a_proxy_asks_the_methods_of_what_it_shows(ask):
    log = []

    class Ordered(collections.OrderedDict):
        def __len__(self):
            log.append("len")
            return 44

        def keys(self):
            log.append("keys")
            return super().keys()

        def items(self):
            return [1]

    compiled = burnish.compile(lambda x, shown: (ask(shown), x + 1), backend="eager")
    for _ in range(4):
        shown = types.MappingProxyType(Ordered(a=1))
        log.clear()
        expected = ask(shown), [*log]
        log.clear()
        assert (compiled(torch.ones(2), shown)[0], log) == expected
