"""Classes made inside the function: hooks, metaclasses and abstract bases that change or that C code would call."""

import abc
import collections
import functools
import sys
import threading
import typing

import pytest
import torch

import burnish
from burnish.capture.engine.tracer import Tracer

from .call_sequences import Before
from .harness import program


def before_the_third(action):
    """Four calls; the action comes before the third."""
    x = torch.ones(2)
    return [(x,), (x,), (x, Before(action)), (x,)]


def thrice():
    return [(torch.ones(2),)] * 3


@program
def test_a_namespace_from_outside_changes():
    names = {"k": 2}

    def fn(x):
        made = type("Made", (), names)
        return x * made.k, made.__module__

    return fn, before_the_third(lambda: names.update(k=3))


@program
def test_properties_of_a_metaclass_are_set_and_deleted():
    class Meta(type):
        @property
        def p(cls):
            return cls._p

        @p.setter
        def p(cls, value):
            cls._p = value

        @p.deleter
        def p(cls):
            cls._p = 0

        def __setattr__(cls, name, value):
            super().__setattr__(name, value)

        def __delattr__(cls, name):
            super().__delattr__(name)

    def fn(x):
        class Made(metaclass=Meta):
            _p = 1

        Made.p = Made.p + 1
        first = Made.p
        type.__setattr__(Made, "p", 4)
        second = Made.p
        del Made.p
        third = Made.p
        type.__delattr__(Made, "p")
        return x * first, second, third, Made.p

    return fn, thrice()


@program
def test_a_base_is_given_a_hook():
    log = []

    class Root:
        pass

    class Base(Root):
        pass

    def hook(cls, **given):
        log.append(cls.__name__)
        cls.k = 5

    def fn(x):
        class Made(Base):
            k = 2

        return x * Made.k, list(log)

    return fn, before_the_third(lambda: setattr(Root, "__init_subclass__", classmethod(hook)))


@program
def test_a_class_of_values_is_given_set_name():
    log = []

    class Value:
        pass

    def fn(x):
        class Made:
            value = Value()

        return x * 2, list(log)

    return fn, before_the_third(lambda: setattr(Value, "__set_name__", lambda *args: log.append(args[2])))


@program
def test_a_metaclass_is_given_prepare():
    log = []

    class Meta(type):
        pass

    class Names(dict):
        def __setitem__(self, key, value):
            log.append(key)
            dict.__setitem__(self, key, value)

    def fn(x):
        class Made(metaclass=Meta):
            k = 2

        return x * Made.k, [name for name in log if name == "k"]

    return fn, before_the_third(lambda: setattr(Meta, "__prepare__", classmethod(lambda *args: Names())))


@program
def test_a_base_is_given_other_bases():
    class One:
        def k(self):
            return 1

    class Two:
        def k(self):
            return 2

    class Base(One):
        pass

    def fn(x):
        class Made(Base):
            pass

        return x * Made().k()

    return fn, before_the_third(lambda: setattr(Base, "__bases__", (Two,)))


@program
def test_a_base_is_no_longer_abstract():
    class Base(abc.ABC):
        @abc.abstractmethod
        def k(self): ...

    def fn(x):
        class Made(Base):
            pass

        try:
            Made()
        except TypeError:
            return x * 0
        return x * 2

    return fn, before_the_third(lambda: setattr(Base, "__abstractmethods__", frozenset()))


@program
def test_an_attribute_from_outside_becomes_abstract():
    class Base(abc.ABC):
        @abc.abstractmethod
        def k(self): ...

    class Plain:
        k = 2

    def fn(x):
        class Made(Plain, Base):
            pass

        try:
            return x * Made().k
        except TypeError:
            return x * 0

    return fn, before_the_third(lambda: setattr(Plain, "k", Base.k))


@program
def test_abstract_methods_are_inherited_and_defined():
    class Base(abc.ABC):
        @abc.abstractmethod
        def k(self): ...

    def fn(x):
        class Half(Base):
            pass

        class Made(Half):
            def k(self):
                return 2

        try:
            Half()
        except TypeError:
            return x * Made().k(), sorted(Half.__abstractmethods__)

    return fn, thrice()


@program
def test_an_abstract_descriptor_with_set_name():
    class Field:
        __isabstractmethod__ = True

        def __set_name__(self, owner, name):
            self.name = name

    def fn(x):
        class Made(abc.ABC):
            field = Field()

        Made()
        return x

    return fn, thrice()


@program
def test_a_value_computes_whether_it_is_abstract():
    log = []

    class Field:
        is_abstract = False

        @property
        def __isabstractmethod__(self):
            log.append("asked")
            return Field.is_abstract

    class Open:
        def __getattr__(self, name):
            log.append(name)
            raise AttributeError(name)

    field, other = Field(), Open()

    def fn(x):
        class Further(abc.ABC):
            k = other

        class Made(abc.ABC):
            k = field

        try:
            Made()
        except TypeError:
            return x * 0, len(log)
        return x * 2, len(log)

    return fn, before_the_third(lambda: setattr(Field, "is_abstract", True))


@program
def test_the_metaclass_of_a_base_makes_the_class():
    log = []
    more = {"k": 2}

    class Meta(type):
        def __new__(kind, name, bases, names):
            log.append(name)
            return super().__new__(kind, name, bases, {**names, **more})

    class Base(metaclass=Meta):
        pass

    log.clear()

    def fn(x):
        return x * type("Made", (Base,), {}).k, len(log)

    return fn, before_the_third(lambda: more.update(k=3))


@program
def test_a_metaclass_has_its_own_mro():
    log = []

    class Meta(type):
        def mro(cls):
            log.append(cls.__name__)
            return type.mro(cls)

    def fn(x):
        class Made(metaclass=Meta):
            k = 2

        return x * Made.k, len(log)

    return fn, thrice()


@program
def test_hooks_that_are_no_plain_functions():
    log = []

    class Cached:
        @classmethod
        @functools.lru_cache(maxsize=None)
        def __init_subclass__(cls):
            log.append("cached")

    class Descriptor:
        def __get__(self, obj, kind):
            return lambda **given: log.append("descriptor")

    class Described:
        __init_subclass__ = Descriptor()

    class Callable:
        def __call__(self, *args):
            log.append(len(args))

    class Named:
        __set_name__ = Callable()

    class Bound:
        @classmethod
        def __set_name__(cls, owner, name):
            log.append(cls.__name__ + name)

    def fn(x):
        class One(Cached):
            pass

        class Two(Described):
            pass

        class Three:
            named = Named()

        class Four:
            bound = Bound()

        return x * 2, list(log)

    return fn, thrice()


@program
def test_set_name_comes_before_the_error_of_a_keyword():
    log = []

    class Named:
        def __set_name__(self, owner, name):
            log.append(name)

    def fn(x):
        try:

            class Made(size=1):
                named = Named()
        except TypeError:
            log.append("error")
        return x * 2, list(log)

    return fn, thrice()


@pytest.mark.falls_back("raced")  # each appends to a list that the other one may append to
def test_two_threads_trace_classes_of_one_base(monkeypatch):
    made, x = [], torch.ones(2)
    is_making, go_on = threading.Event(), threading.Event()

    class Base:
        def __init_subclass__(cls, **given):
            made.append(cls.__name__)
            cls.k = 3

    def one(x):
        class One(Base):
            pass

        return x * One.k

    def two(x):
        class Two(Base):
            pass

        return x * Two.k

    plainly = Tracer.plainly

    def wait_where_one_is_made(m, function, *args, **kwargs):
        if function is type.__new__ and args[1] == "One" and not is_making.is_set():
            is_making.set()
            go_on.wait(0.5)
        return plainly(m, function, *args, **kwargs)

    def run_two():
        is_making.wait(10)
        found.append(second(x))
        go_on.set()

    monkeypatch.setattr(Tracer, "plainly", wait_where_one_is_made)
    first, second = (burnish.compile(fn, backend="eager") for fn in (one, two))
    hook, found = Base.__dict__["__init_subclass__"], []
    threads = [threading.Thread(target=run_two), threading.Thread(target=lambda: found.append(first(x)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Base.__dict__["__init_subclass__"] is hook
    for _ in range(2):
        assert sorted(made) == ["One", "Two"]
        assert all(torch.equal(each, x * 3) for each in found)
        made.clear()
        found[:] = [second(x), first(x)]


class Prepared(type):
    given = "first"

    @classmethod
    def __prepare__(cls, name, bases, **kwargs):
        return {cls.given: name, "kwargs": sorted(kwargs)}

    def __new__(cls, name, bases, namespace, **kwargs):
        return super().__new__(cls, name, bases, {**namespace, "names": [n for n in namespace if n[0] != "_"]})

    def __init__(cls, name, bases, namespace, **kwargs):
        super().__init__(name, bases, namespace)


@program(breaks=0)
def test_a_metaclass_prepares_the_namespace():
    class Base(metaclass=Prepared):
        pass

    def fn(x, given):
        Prepared.given = given

        class Scale(Base, flag=True):
            factor = kwargs  # noqa: F821

            def named(self):
                return super().names, __class__.__name__, x.shape[0]

        return x + 1, Scale.names, Scale.factor, Scale().named(), type(Scale) is Prepared

    return fn, [(torch.ones(2), given) for given in ("first", "first", "second", "first")]


@program
def test_a_prepared_namespace_that_is_no_new_dictionary():
    shared = {}

    class Ordered(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return collections.OrderedDict(first=1)

    class Shared(type):
        @staticmethod
        def __prepare__(name, bases):
            shared["name"] = name
            return shared

    class Refused(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return 5

    def fn(x, kind):
        shared.clear()
        factor = x.shape[0]
        try:

            class Scale(metaclass=kind):
                own = factor

                def named(self):
                    return super().__doc__ is None, __class__.__name__, factor

        except TypeError as error:
            return x + 1, str(error)
        return x + 1, Scale.own, Scale.__dict__.get("first"), Scale().named(), sorted(shared)

    return fn, [(torch.ones(2), kind) for kind in (Ordered, Ordered, Shared, Refused, Ordered, Shared)]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters")
def test_type_parameters_in_a_class_body():
    """They are a frame of their own, which finds the names of the class around it."""
    names: dict = {}
    exec(
        """
def fn(x, scale):
    class Layer:
        kind = scale
        class Base: pass
        class Child[T](Base): pass
        def scaled[T](self, x: kind, y: T = None): return x * self.kind
    return Layer().scaled(x), str(Layer.scaled.__annotations__), Layer.Child.__mro__[1].__name__
""",
        names,
    )
    fn = names["fn"]
    compiled = burnish.compile(fn, backend="eager")
    for scale in (2, 3, 2):
        found, want = compiled(torch.ones(2), scale), fn(torch.ones(2), scale)
        assert found[0].tolist() == want[0].tolist() and found[1:] == want[1:]


@program
def test_a_class_of_a_protocol_without_arguments():
    """Making its first object gives it another ``__init__``."""

    def fn(x, n):
        class Scaled(typing.Protocol):
            factor = 2

        class Layer(Scaled):
            pass

        found = [Layer().factor]
        for make in (Layer, Scaled):
            try:
                found.append(make(n).factor)
            except TypeError as error:
                found.append(str(error))
        return x * found[0], found

    return fn, [(torch.ones(2), n) for n in range(3)]


@program
def test_a_prepared_namespace_of_another_kind_makes_a_class_in_each_call():
    class Ordered(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return collections.OrderedDict(first=1)

    made = []

    def fn(x):
        factor = x.shape[0]

        class Scale(metaclass=Ordered):
            own = factor

            def named(self):
                return __class__.__name__, factor

        made.append(Scale)
        burnish.graph_break()
        return x + Scale.own, Scale().named(), len(set(made)), type(Scale).__name__

    return fn, [(torch.ones(n),) for n in (2, 2, 3, 2)]
