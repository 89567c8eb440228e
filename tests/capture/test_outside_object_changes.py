"""Outside objects that change between two calls: every read is repeated or guarded."""

import array
import collections
import ctypes
import functools
import itertools
import os
import tempfile
import types

import numpy as np
import pytest
import torch
from torch import nn

import burnish

from .call_sequences import Before
from .harness import program


class Plain:
    """A class that is given attributes."""


def change_bytes(data, i):
    data.append(i)
    data[0] = i + 4


def change_class(cls, i):
    cls.scale = i
    setattr(cls, f"added_{i}", i)


READS = {  # what makes an object, what changes it, and what is read of it
    "length of a bytearray": (lambda: bytearray(b"ab"), change_bytes, len),
    "item of a bytearray": (lambda: bytearray(b"ab"), change_bytes, lambda data: data[0]),
    "items of a bytearray": (lambda: bytearray(b"ab"), change_bytes, lambda data: [*data]),
    "list of a bytearray": (lambda: bytearray(b"ab"), change_bytes, list),
    "byte in a bytearray": (lambda: bytearray(b"ab"), change_bytes, lambda data: 5 in data),
    "text of a bytearray": (lambda: bytearray(b"ab"), change_bytes, lambda data: f"{data}"),
    "length of an array": (lambda: array.array("i", [1, 2]), change_bytes, len),
    "item of a view": (
        lambda: memoryview(bytearray(b"ab")),
        lambda data, i: data.__setitem__(0, i),
        lambda data: data[0],
    ),
    "text of a namespace": (lambda: types.SimpleNamespace(a=1), lambda space, i: setattr(space, "a", i), repr),
    "text of a counter": (itertools.count, lambda count, i: next(count), repr),
    "text of a number of C": (lambda: ctypes.c_int(1), lambda number, i: setattr(number, "value", i), str),
    "shape of a NumPy array": (lambda: np.ones(2), lambda data, i: data.__setitem__(0, i), lambda data: data.shape),
    "buffer that is missing": (
        lambda: nn.Linear(2, 2),
        lambda module, i: module.register_buffer(f"b{i}", None),
        lambda module: (hasattr(module, "b1"), getattr(module, "b2", "missing")),
    ),
    "name in a class": (lambda: type("Made", (Plain,), {}), change_class, lambda cls: "added_1" in cls.__dict__),
    "entry of a class": (lambda: type("Made", (Plain,), {"scale": 0}), change_class, lambda cls: vars(cls)["scale"]),
    "names in a class": (
        lambda: type("Made", (Plain,), {}),
        change_class,
        lambda cls: [name for name in vars(cls) if name.startswith("added")],
    ),
    "how many names in a class": (lambda: type("Made", (Plain,), {}), change_class, lambda cls: len(cls.__dict__)),
    "name of a function": (
        lambda: lambda x: x,
        lambda function, i: setattr(function, "__name__", f"f{i}"),
        lambda function: function.__name__,
    ),
}


@pytest.mark.parametrize("what", READS)
def test_reads_of_an_object_give_its_current_state(what):
    make, change, read = READS[what]

    @program
    def reads():
        thing = make()

        def fn(x):
            return x + 1, read(thing)

        return fn, lambda i: (torch.ones(2), Before(lambda: change(thing, i) if i else None))

    reads()


@program(breaks=0)
def test_wrappers_of_one_code_have_names_of_their_own():
    def counted(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x)

        return wrapper

    @counted
    def first(x):
        """One."""
        return x + 1

    @counted
    def second(x):
        """Another."""
        return x + 1

    def fn(x, function):
        return x * len(function.__name__), function.__qualname__, function.__doc__

    return fn, [(torch.ones(2), function) for function in (first, second, first, second)]


@program
def test_files_and_environment_are_read_on_every_run():
    folder = tempfile.mkdtemp()
    flag = os.path.join(folder, "flag")

    def fn(x):
        return x + (1 if os.path.exists(flag) else 2), os.path.isfile(flag), os.path.expandvars("$OF_THIS_TEST")

    def change(i):
        os.environ["OF_THIS_TEST"] = str(i)
        if i % 2:
            os.symlink(__file__, flag)  # a new file each time would have other numbers, which are guarded
        elif i:
            os.remove(flag)

    return fn, [(torch.ones(2), Before(functools.partial(change, i))) for i in range(4)]


@program
def test_length_of_a_list_is_read_where_the_program_reads_it():
    """What is stored is the length before the appends, which take effect after the graph."""
    seen, table = [], {}

    def fn(x):
        table["before"] = len(seen)
        seen.append(x)
        table["between"] = len(seen)
        seen.append(1)
        return x * len(seen)

    return fn, [(torch.ones(2),)] * 5, seen, table


Scaled = collections.namedtuple("Scaled", "tensor factor")


@program
def test_number_in_a_named_tuple_is_no_constant():
    def fn(scaled):
        return scaled.tensor * scaled.factor, scaled, scaled._replace(factor=1), type(scaled)

    return fn, [(Scaled(torch.ones(2), factor),) for factor in (1, 2, 3, 4, 2.5)]


class Slots:
    __slots__ = ("first", "second")


def asks_with_hasattr(x, slots):
    return x + (slots.second if hasattr(slots, "second") else 0)


def asks_with_getattr(x, slots):
    return x + getattr(slots, "second", 0)


def asks_with_try(x, slots):
    try:
        return x + slots.second
    except AttributeError:
        return x


@pytest.mark.parametrize("fn", [asks_with_hasattr, asks_with_getattr, asks_with_try])
def test_slot_that_has_no_value_at_first(fn):
    @program
    def reads():
        slots = Slots()

        def change(i):
            if i == 2:
                slots.second = 4.0
            elif i == 4:
                del slots.second

        return lambda x: fn(x, slots), [(torch.ones(2), Before(functools.partial(change, i))) for i in range(6)]

    reads()


def test_code_that_a_program_gives_the_compiled_function_is_seen():
    def fn(x, by=2):
        return x * by

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    first = fn.__code__
    others = (lambda x, by: x + by).__code__, (lambda x, other, *rest: (x - other, rest)).__code__
    for fn.__code__ in (first, first, *others, first):
        for args in ((), (3,)):
            assert str(compiled(torch.ones(2), *args)) == str(fn(torch.ones(2), *args))


def test_code_that_a_program_gives_a_function_is_seen():
    def helper(x):
        return x + 1

    class Model:
        def step(self, x):
            return x + 1

        @classmethod
        def made(cls, x):
            return x + 1

        value = property(lambda self: 1)

    model, helpers = Model(), [helper]
    programs = [
        (helper, lambda x: helper(x)),
        (helper, lambda x: helpers[0](x)),
        (Model.step, lambda x: model.step(x)),
        (Model.made.__func__, lambda x: Model.made(x)),
        (Model.value.fget, lambda x: x + model.value),
    ]
    replacements = [lambda x: x * 3, lambda x: x * 3, lambda self, x: x * 3, lambda cls, x: x * 3, lambda self: 5]
    for (changed, caller), replacement in zip(programs, replacements, strict=True):
        fn = burnish.compile(caller, fullgraph=True, backend="eager")
        code = changed.__code__
        for new in (code, code, replacement.__code__, replacement.__code__, code):
            changed.__code__ = new
            x = torch.arange(3.0)
            assert torch.equal(fn(x), caller(x))
