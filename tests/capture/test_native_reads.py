"""What C code reads of objects from outside, or calls on them: texts, conversions, comparisons, contents.

Nothing of it may become a constant."""

import ast
import bisect
import collections
import functools
import heapq
import json
import math
import operator
import re
import string
import types

import pytest
import torch

import burnish

from .harness import program

CALLS = [(torch.randn(3), 2), (torch.randn(3), 3), (torch.randn(4), 2)]


class Thing:
    """Its methods answer by a number that changes between the calls."""

    value = 1

    def __repr__(self):
        return f"<{self.value}>"

    def __index__(self):
        return self.value

    def __float__(self):
        return float(self.value)

    def __eq__(self, other):
        return self.value == getattr(other, "value", other)

    def __hash__(self):
        return hash(self.value)


thing = Thing()
HELD = {
    "texts of a deque": lambda: repr(collections.deque([thing])),
    "texts of an ordered dictionary": lambda: repr(collections.OrderedDict(a=thing)),
    "texts of values": lambda: repr({1: thing}.values()),
    "texts of items": lambda: str({1: thing}.items()),
    "texts of a namespace": lambda: repr(types.SimpleNamespace(a=thing)),
    "texts of a proxy": lambda: f"{types.MappingProxyType({1: thing})}",
    "texts of a bound method": lambda: repr(thing.__float__)[:30],
    "an error": lambda: str(ValueError(thing)),
    "an error with two arguments": lambda: repr(ValueError(thing, 1)),
    "a group of errors": lambda: repr(ExceptionGroup("g", [ValueError(thing)])),
    "ASCII": lambda: ascii([thing]),
    "JSON": lambda: json.dumps({1: thing}, default=repr),
    "a sum": lambda: math.fsum([thing]),
    "a slice": lambda: [1, 2, 3, 4][:thing],
    "indices of a slice": lambda: slice(thing).indices(5),
    "bytes": lambda: bytes([thing]),
    "a repetition": lambda: [0] * thing,
    "an index of a tuple": lambda: (1, 2, 3).index(thing),
    "an element that is taken": lambda: [5, 6, 7, 8].pop(thing),
    "keys in common": lambda: len({1: 1}.keys() & [thing]),
    "a comparison of lists": lambda: operator.eq([thing], [1]),
    "a number of elements": lambda: (thing, 1).count(1),
}


@pytest.mark.parametrize(
    "read",
    [
        # A proxy that the program makes cannot be made again after the break.
        pytest.param(read, marks=pytest.mark.falls_back("refused") if read == "texts of a proxy" else ())
        for read in HELD
    ],
)
def test_object_is_read_again_in_each_call(read):
    def fn(x):
        return x + 1, HELD[read]()

    compiled = burnish.compile(fn, backend="eager")
    for thing.value in (1, 2, 3, 1):
        assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]


class Holder:
    content = None


CONTENTS = {
    "a proxy": ([{"a": 2}, {"a": 3}], types.MappingProxyType, repr),
    "limits of a dtype": ([torch.float32, torch.float64], torch.finfo, lambda v: v.eps),
    "limits of an integer dtype": ([torch.int8, torch.int64], torch.iinfo, lambda v: v.max),
    "memory": ([b"ab", b"cd"], memoryview, lambda v: v.obj),
    "a getter": ([1, 2], operator.itemgetter, lambda v: v((5, 6, 7))),
    "a getter of an attribute": (["real", "imag"], operator.attrgetter, lambda v: v(3)),
    "a caller": (["upper", "title"], operator.methodcaller, lambda v: v("ab c")),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_content_of_an_object_of_c_code_is_guarded(content):
    values, kind, read = CONTENTS[content]

    def fn(x):
        return x + 1, read(Holder.content)

    compiled = burnish.compile(fn, backend="eager")
    for value in (*values, *values):
        Holder.content = kind(value)
        assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]


@pytest.mark.falls_back("refused")  # the iterator before the failed call cannot be made again
@pytest.mark.parametrize(
    "consume",
    [sum, lambda pairs: "".join(pairs), lambda pairs: dict(zip(pairs)), lambda pairs: bytes(pairs)],
    ids=["sum", "join", "dict", "bytes"],
)
def test_failing_call_on_an_iterator_fails_in_each_run(consume):
    def fn(x, n):
        pairs = zip([n, 1], [2, 3])
        x = x + 1
        return x, consume(pairs)

    compiled = burnish.compile(fn, backend="eager")
    for n in (2, 3, 1, 2):
        with pytest.raises((TypeError, ValueError)) as expected:
            fn(torch.ones(2), n)
        with pytest.raises(type(expected.value)) as found:
            compiled(torch.ones(2), n)
        assert str(found.value) == str(expected.value)


FIELDS = "msg lineno text errno filename start object code name path".split()


def test_fields_of_builtin_errors_are_handed_out():
    def fn(x, n):
        errors = [
            SyntaxError("m", ("f", n, 1, "t")),
            OSError(n, "m", "name"),
            UnicodeDecodeError("u", bytes([n]), 0, 1, "r"),
            SystemExit(n),
            ImportError("m", name="a", path="b"),
        ]
        return x + 1, errors

    def fields_of(errors):
        return [[getattr(error, name, None) for name in FIELDS] for error in errors]

    compiled = burnish.compile(fn, backend="eager")
    for n in (2, 3, 1, 2):
        assert fields_of(compiled(torch.ones(2), n)[1]) == fields_of(fn(torch.ones(2), n)[1])


@program(breaks=0)
def test_heaps_and_sorted_lists():
    heap = [5, 1]

    def fn(x, n):
        heapq.heappush(heap, n)
        least = heapq.heappushpop(heap, 9)
        made = [(3, "c"), (n, "b"), (1, "a")]
        heapq.heapify(made)
        ordered = [1, 3, 5]
        bisect.insort(ordered, n)
        return x * least, made, heapq.heappop(made), heapq.nlargest(2, ordered), ordered

    return fn, CALLS, [heap]


@program(breaks=0)
def test_functions_of_the_operator_module_that_write():
    kept = [1, 2, 3]

    def fn(x, n):
        table = {"a": 1}
        operator.setitem(kept, 0, n)
        operator.delitem(table, "a")
        longer = operator.iadd(kept, [x.shape[0]])
        return x, table, longer is kept, "abc".translate(str.maketrans("ab", "xy"))

    return fn, CALLS, [kept]


def test_functions_that_a_regular_expression_calls_are_called_on_every_run():
    pattern, box = re.compile("a"), ["0"]

    def fn(x):
        def replacement(match):
            return box[0]

        return x + 1, pattern.sub(replacement, "banana"), pattern.subn(repl=replacement, string="a")

    compiled = burnish.compile(fn, backend="eager")
    for call in range(4):
        box[0] = str(call)
        assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:]


@program(breaks=0)
def test_containers_that_hold_themselves_many_times():
    outside = {}
    outside.update(dict.fromkeys(range(4), outside), n=[outside] * 4)

    def fn(x, n):
        own = [n]
        own += [own, {n: own}, (own, own)]
        return x + n, repr(outside), repr(own)

    return fn, CALLS


@program
def test_a_module_with_another_name():
    module = types.ModuleType("odd")

    def fn(x, n):
        module.__name__ = [n]
        module.factor = n
        return x * module.factor, module.__name__

    return fn, CALLS


def test_functions_that_json_calls_see_what_they_read():
    factor = 1
    hooks = {
        "object_hook": lambda found: factor,
        "object_pairs_hook": functools.partial(lambda first, pairs: factor, 0),
        "parse_float": lambda text: factor,
    }
    for name, hook in hooks.items():

        def fn(x, name=name, hook=hook):
            return x + 1, json.loads('[{"a": 1.5}]', **{name: hook})

        compiled = burnish.compile(fn, backend="eager")
        for factor in (1, 2, 3, 3, 1):
            found, expected = compiled(torch.ones(2)), fn(torch.ones(2))
            assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


def test_methods_that_a_class_of_the_standard_library_calls_see_what_they_read():
    factor = 1

    class Formatter(string.Formatter):
        def get_value(self, key, args, kwargs):
            return args[key] * factor

    class Visitor(ast.NodeVisitor):
        def visit_Name(self, node):
            return factor

    class Table(dict):
        def __missing__(self, name):
            return factor

    def fn(x, text, tree):
        formatted = Formatter().format("{0}", 2), string.Template("$a").safe_substitute(Table(b=1))
        return x + Visitor().visit(tree), formatted

    compiled = burnish.compile(fn, backend="eager")
    for factor in (1, 2, 3, 3, 1):
        given = torch.ones(2), "{0}", ast.parse("name", mode="eval").body
        found, expected = compiled(*given), fn(*given)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
