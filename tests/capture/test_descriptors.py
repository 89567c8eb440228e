"""Descriptors: properties, hand-written __get__ and __set__, cached values, who wins over whom."""

import collections
import enum
import functools
import inspect
import types
import typing

import torch

from .call_sequences import Before, ordinary, swinging
from .harness import program


@program(breaks=0)
def test_property_computes_from_an_attribute():
    class Layer:
        def __init__(self, weight):
            self.weight = weight

        @property
        def norm(self):
            return self.weight.abs().sum()

    layer = Layer(torch.randn(3))

    def fn(x):
        return x / layer.norm

    return fn, lambda i: (torch.randn(3),)


@program
def test_property_with_setter_and_deleter():
    class Layer:
        def __init__(self):
            self._scale, self.log = 1.0, []

        @property
        def scale(self):
            self.log.append("get")
            return self._scale

        @scale.setter
        def scale(self, value):
            self.log.append("set")
            self._scale = value * 2

        @scale.deleter
        def scale(self):
            self.log.append("del")
            self._scale = 0.5

    layer = Layer()

    def fn(x):
        layer.scale = layer.scale + 1
        y = x * layer.scale
        del layer.scale
        return y + layer.scale

    return fn, ordinary, layer


@program
def test_property_that_reads_data():
    class Stats:
        def __init__(self, x):
            self.x = x

        @property
        def is_positive(self):
            return bool(self.x.sum() > 0)

    def fn(x):
        stats = Stats(x * 2)
        return stats.x + 1 if stats.is_positive else stats.x - 1

    return fn, swinging


@program
def test_property_raising_attribute_error_falls_to_getattr():
    class Layer:
        def __init__(self, fused):
            self.fused = fused

        @property
        def weight(self):
            if self.fused is None:
                raise AttributeError("not fused")
            return self.fused

        def __getattr__(self, name):
            if name == "weight":
                return 3.0
            raise AttributeError(name)

    def fn(x, layer):
        return x * layer.weight

    return fn, [(torch.randn(2), Layer(None)), (torch.randn(2), Layer(2.0)), (torch.randn(2), Layer(None))]


@program
def test_property_without_setter_refuses():
    class Layer:
        @property
        def size(self):
            return 3

    def fn(x):
        layer = Layer()
        try:
            layer.size = 4
        except AttributeError as error:
            return x * layer.size, str(error)

    return fn, ordinary


@program
def test_inherited_property_overridden_with_super():
    class Base:
        @property
        def scale(self):
            return 2.0

    class Bigger(Base):
        @property
        def scale(self):
            return super().scale * 5

    def fn(x, big):
        return x * (Bigger() if big else Base()).scale

    return fn, [(torch.randn(2), True), (torch.randn(2), False), (torch.randn(2), True)]


@program
def test_data_descriptor_validates_and_wins_over_the_instance():
    class Positive:
        def __set_name__(self, owner, name):
            self.name = f"_{name}"

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return getattr(instance, self.name)

        def __set__(self, instance, value):
            if value <= 0:
                raise ValueError(f"{self.name[1:]} must be positive, got {value}")
            setattr(instance, self.name, value)

    class Config:
        width = Positive()

        def __init__(self, width):
            self.width = width

    def fn(x, width):
        try:
            config = Config(width)
        except ValueError as error:
            return x, str(error)
        config.__dict__["width"] = 1000
        return x * config.width, type(Config.width).__name__

    return fn, [(torch.randn(2), 2), (torch.randn(2), -1), (torch.randn(2), 2), (torch.randn(2), 3)]


@program
def test_non_data_descriptor_loses_to_the_instance():
    class Default:
        def __get__(self, instance, owner):
            return 10.0

    class Layer:
        scale = Default()

    layer = Layer()

    def fn(x):
        return x * layer.scale

    x = torch.randn(2)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(layer, "scale", 2.0))),
        (x, Before(lambda: delattr(layer, "scale"))),
        (x, Before(lambda: setattr(Layer, "scale", 7.0))),
    ]


@program
def test_descriptor_counts_its_reads():
    class Counted:
        def __init__(self):
            self.reads = 0

        def __get__(self, instance, owner):
            self.reads += 1
            return self.reads

    class Layer:
        n = Counted()

    layer = Layer()

    def fn(x):
        return x * layer.n + layer.n

    return fn, ordinary, vars(Layer)["n"]


@program
def test_descriptor_on_class_access():
    class Named:
        def __get__(self, instance, owner):
            return (owner.__name__, instance is None)

    class Layer:
        name = Named()

    class Linear(Layer):
        pass

    def fn(x):
        return x + 1, Layer.name, Linear().name

    return fn, ordinary


@program
def test_descriptor_delete():
    class Slot:
        def __get__(self, instance, owner):
            return instance.held

        def __delete__(self, instance):
            instance.held = instance.held * 0

    class Layer:
        value = Slot()

        def __init__(self, held):
            self.held = held

    def fn(x):
        layer = Layer(x)
        before = layer.value + 1
        del layer.value
        return before, layer.value

    return fn, ordinary


@program
def test_cached_property_is_computed_once_per_object():
    computed = []

    class Batch:
        def __init__(self, x):
            self.x = x

        @functools.cached_property
        def mean(self):
            computed.append(self.x.shape[0])
            return self.x.mean()

    kept = Batch(torch.arange(4.0))

    def fn(x):
        batch = Batch(x)
        return x - batch.mean - batch.mean + kept.mean, "mean" in vars(batch)

    return fn, ordinary, computed


@program
def test_cached_property_dropped_between_calls():
    class Model:
        def __init__(self):
            self.scale = 2.0

        @functools.cached_property
        def factor(self):
            return self.scale * 10

    model = Model()

    def fn(x):
        return x * model.factor

    x = torch.randn(2)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(model, "scale", 3.0))),
        (x, Before(lambda: delattr(model, "factor"))),
        (x,),
    ]


@program
def test_function_descriptor_bound_by_hand():
    class Layer:
        scale = 3

    def scaled(self, x):
        return x * self.scale

    def fn(x):
        method = scaled.__get__(Layer())
        return method(x) + Layer.__dict__["scale"]

    return fn, ordinary


@program
def test_decorator_class_used_as_a_method_descriptor():
    class counted:  # noqa: N801
        def __init__(self, f):
            self.f, self.calls = f, 0

        def __get__(self, instance, owner):
            def bound(*args):
                self.calls += 1
                return self.f(instance, *args)

            return bound

    class Layer:
        scale = 2

        @counted
        def forward(self, x):
            return x * self.scale

    layer = Layer()

    def fn(x):
        return layer.forward(x) + layer.forward(x + 1)

    return fn, ordinary, vars(Layer)["forward"].__dict__


@program
def test_property_replaced_on_the_class_between_calls():
    class Layer:
        scale = property(lambda self: 2.0)

    layer = Layer()

    def fn(x):
        return x * layer.scale

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(Layer, "scale", property(lambda self: 3.0)))), (x,)]


class Frozen:
    """Like what attrs generates: its own ``__setattr__`` refuses, so ``__init__`` goes past it."""

    set_past_it = object.__setattr__.__get__

    def __init__(self, value, count=1):
        set_attribute = Frozen.set_past_it(self)
        set_attribute("value", value)
        set_attribute("count", count)

    def __setattr__(self, name, value):
        raise AttributeError(name)


@program(breaks=0)
def test_method_of_c_code_is_bound_by_hand():
    def fn(x, frozen):
        made = Frozen(x * frozen.value, 3)
        try:
            made.count = 4
        except AttributeError as error:
            return made.value + made.count, str(error), str.join.__get__(", ")(["a", "b"])
        return x

    return fn, lambda i: (torch.randn(2), Frozen(2.0 + i % 2))


class Noted:
    """Notes each attribute that is read, whoever reads it."""

    def __init__(self):
        object.__setattr__(self, "read", [])

    def __getattribute__(self, name):
        object.__getattribute__(self, "read").append(name)
        return object.__getattribute__(self, name)


@program
def test_only_the_program_calls_a_getattribute():
    def fn(x, k):
        noted = Noted()
        noted.scale = k
        y = x * noted.scale
        held = [noted, (noted, 1), {1: noted}]
        same = noted in held, bool(noted), noted == 3, noted is None, f"{isinstance(noted, int)}"
        try:
            _ = noted.missing
        except AttributeError as error:
            same += (str(error),)
        return y, same, object.__getattribute__(noted, "read")

    return fn, lambda i: (torch.ones(2), i)


@program
def test_a_getattribute_of_an_outside_object_is_not_asked_by_guards():
    noted = Noted()
    object.__setattr__(noted, "scale", 2)

    def fn(x):
        return x * noted.scale, list(object.__getattribute__(noted, "read"))

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_class_property_is_not_asked_by_the_tracer():
    asked = []

    class Posing:
        @property
        def __class__(self):
            asked.append(1)
            return int

    def fn(x):
        posing = Posing()
        held = [posing]
        return x * 2, posing in held, bool(posing), isinstance(posing, int), len(asked)

    return fn, lambda i: (torch.ones(2),), asked


@program
def test_a_module_with_rules_for_attributes():
    class Rules(types.ModuleType):
        def __getattribute__(self, name):
            log.append(("get", name))
            return types.ModuleType.__getattribute__(self, name)

        def __setattr__(self, name, value):
            log.append(("set", name))
            types.ModuleType.__setattr__(self, name, value)

        def __delattr__(self, name):
            log.append(("delete", name))
            types.ModuleType.__delattr__(self, name)

    log = []
    module = Rules("module")

    def fn(x):
        module.scale = 2
        y = x * module.scale
        del module.scale
        return y, list(log)

    return fn, lambda i: (torch.ones(2),), log


@program
def test_what_a_module_may_not_be_given():
    def fn(x):
        module = types.ModuleType("module")
        try:
            module.__dict__ = {}
        except AttributeError as error:
            return x * 2, str(error)

    return fn, lambda i: (torch.ones(2),)


@program
def test_setattr_of_type_and_of_object():
    def fn(x):
        class A:
            def __add__(self, other):
                return 1

        def refused(setter, *args):
            try:
                setter(*args)
            except TypeError as error:
                return str(error)

        type.__setattr__(A, "__add__", lambda self, other: x * 2)
        return A() + 1, refused(object.__setattr__, A, "y", 1), refused(type.__setattr__, A, b"y", 1)

    return fn, lambda i: (torch.ones(2),)


@program
def test_super_without_what_it_needs():
    def make():
        class A:
            def empty(self):
                nonlocal __class__
                del __class__
                return super()

            def plain(self):
                return super()

        return A

    def asked(function, *args):
        try:
            function(*args)
        except (RuntimeError, TypeError) as error:
            return str(error)

    def fn(x):
        cell = (lambda: x).__closure__[0]
        return x * 2, asked(make().plain, cell).replace(hex(id(cell)), ""), asked(make()().empty)

    return fn, lambda i: (torch.ones(2),)


@program
def test_classes_are_named_after_the_module_that_makes_them():
    def fn(x):
        made = type("T", (), {}), collections.namedtuple("P", "a b"), enum.Enum("E", "a b"), typing.NewType("N", int)
        return x * 2, [each.__module__ for each in made]

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_property_hides_the_dictionary_of_instances():
    class Hidden:
        def __init__(self):
            self.count = 1

        __dict__ = property(lambda self: {"count": 7})

    class Module(types.ModuleType):
        __dict__ = property(lambda self: "no dictionary")

    kept = Hidden()

    def fn(x):
        kept.count += 1
        made, module = Hidden(), Module("module")
        made.other = module.other = 4
        before = made.other, module.other, module.__dict__
        del made.other
        return x * kept.count, vars(kept), before, hasattr(made, "other")

    return fn, lambda i: (torch.ones(2),)


@program
def test_super_takes_no_keywords():
    class Base:
        def inside(self):
            return super(x=1)

    def asked(function):
        try:
            function()
        except TypeError as error:
            return str(error)

    def fn(x):
        return x * 2, asked(lambda: super(Base, x=1)), asked(Base().inside)

    return fn, lambda i: (torch.ones(2),)


@program
def test_calls_of_classes_by_other_callables_than_functions():
    class Meta(type):
        __call__ = types.MethodType(lambda self, value: (self, value), 1)

    class OfClass(type):
        @classmethod
        def __call__(cls, value):
            return cls.__name__, value

    class Static(type):
        @staticmethod
        def __call__(value):
            return value

    made = [kind("Made", (), {}) for kind in (Meta, OfClass, Static)]

    def fn(x):
        return x * 2, [each(3) for each in made]

    return fn, lambda i: (torch.ones(2),)


@program
def test_special_methods_by_descriptors_in_python():
    class Sized:
        __len__ = property(lambda self: lambda: self.length)
        __call__ = functools.partialmethod(lambda self, one, two: (self.length, one, two), 1)

        def __init__(self, length):
            self.length = length

    def fn(x, length):
        made = Sized(length)
        return x * 2, len(made), made(2)

    return fn, lambda i: (torch.ones(2), i)


@program
def test_a_parameterized_callable_makes_objects():
    class Called(typing.Callable):
        def __call__(self):
            return 3

    def fn(x):
        made = Called[[int], str]()
        return x * 2, type(made).__name__, made(), made.__orig_class__ == Called[[int], str]

    return fn, lambda i: (torch.ones(2),)


@program
def test_type_variables_are_named_after_the_module_that_makes_them():
    def fn(x):
        made = typing.TypeVar("T"), typing.ParamSpec("P"), typing.TypeVarTuple("Ts")
        return x * 2, [each.__module__ for each in made]

    return fn, lambda i: (torch.ones(2),)


asked: list[str] = []


class Masked:
    """Says that it is a number, and notes each time that it is asked."""

    value = 1

    @property
    def __class__(self):
        asked.append("__class__")
        return int

    def __get__(self, owner, kind=None):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class Holder:
    masked = Masked()


masks = {"one": Masked()}


@program
def test_objects_are_not_asked_for_their_class():
    def fn(x, given):
        asked.clear()
        given.value += 1
        masks["two"] = given
        with Masked() as own:
            y = x + own.value
        found = [(y > 0).tolist(), Holder().masked.value, masks.get("one").value, masks["two"] is given]
        return y * given.value, found, inspect.getattr_static(own, "value", None), list(asked)

    return fn, [(torch.ones(2), Masked()) for _ in range(4)], asked
