"""Classes made inside and outside the function: inheritance, super(), attributes, metaclasses, attribute hooks."""

import abc
import dataclasses
import os
import sys
import threading
import types
import typing

import torch

import burnish
from burnish.capture.python import class_creation

from .call_sequences import Before, ordinary, swing, swinging
from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_object_made_and_used_inside():
    class Affine:
        def __init__(self, scale, shift):
            self.scale, self.shift = scale, shift

        def apply(self, x):
            return x * self.scale + self.shift

    def fn(x):
        return Affine(2.0, x.mean()).apply(x)

    return fn, ordinary


@program
def test_class_defined_inside_the_function():
    def fn(x):
        class Shift:
            amount = 3

            def __init__(self, x):
                self.x = x

            def moved(self):
                return self.x + self.amount

        shift = Shift(x)
        return shift.moved(), Shift.__name__

    return fn, ordinary


@program
def test_object_made_inside_and_returned():
    class Output:
        def __init__(self, loss, logits):
            self.loss, self.logits = loss, logits
            self.extra = {"n": logits.shape[0]}

    def fn(x):
        y = x * 2
        out = Output(y.sum(), y)
        out.again = y
        return out

    return fn, ordinary


@program
def test_method_mutates_its_object():
    class Ema:
        def __init__(self):
            self.value, self.steps = torch.zeros(4), 0

        def update(self, x):
            self.steps += 1
            self.value = self.value * 0.9 + x * 0.1
            return self.value / (1 - 0.9**self.steps)

    ema = Ema()

    def fn(x):
        return ema.update(x)

    return fn, ordinary, ema


@program
def test_method_mutates_its_object_around_a_break():
    class Tracker:
        def __init__(self):
            self.best, self.stale = None, 0

        def update(self, x):
            score = x.sum()
            if self.best is None or score > self.best:
                self.best, self.stale = score, 0
            else:
                self.stale += 1
            return x * (self.stale + 1)

    tracker = Tracker()

    def fn(x):
        return tracker.update(x)

    return fn, lambda i: (torch.full((2,), [1.0, 0.5, 3.0, 2.0][i]),), tracker


@program
def test_bound_method_is_the_compiled_function():
    class Model:
        def __init__(self, scale):
            self.scale, self.calls = scale, 0

        def forward(self, x):
            self.calls += 1
            return x * self.scale + self.calls

    model = Model(2.0)
    x = torch.randn(3)
    return model.forward, [(x,), (x,), (x, Before(lambda: setattr(model, "scale", 5.0))), (x,)], model


@program
def test_object_argument_with_a_changing_attribute():
    class Config:
        def __init__(self, scale, mode):
            self.scale, self.mode = scale, mode

    def fn(x, config):
        x = x * config.scale
        return x.relu() if config.mode == "relu" else x.tanh()

    return fn, [
        (torch.randn(3), Config(2, "relu")),
        (torch.randn(3), Config(2, "tanh")),
        (torch.randn(3), Config(3, "relu")),
        (torch.randn(3), Config(2, "relu")),
    ]


@program
def test_attribute_added_and_deleted_between_calls():
    class Layer:
        pass

    layer = Layer()

    def fn(x):
        if hasattr(layer, "bias"):
            x = x + layer.bias
        return x * 2

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(layer, "bias", torch.ones(3)))),
        (x,),
        (x, Before(lambda: delattr(layer, "bias"))),
    ]


@program
def test_instance_attribute_hides_the_class_attribute_later():
    class Layer:
        scale = 2

    layer = Layer()

    def fn(x):
        return x * layer.scale

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(layer, "scale", 3))),
        (x, Before(lambda: delattr(layer, "scale"))),
        (x, Before(lambda: setattr(Layer, "scale", 4))),
    ]


@program
def test_method_replaced_on_the_class_between_calls():
    class Layer:
        def forward(self, x):
            return x + 1

    layer = Layer()

    def fn(x):
        return layer.forward(x)

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(Layer, "forward", lambda self, x: x - 1))),
        (x,),
        (x, Before(lambda: setattr(layer, "forward", lambda x: x * 10))),
    ]


@program
def test_class_of_an_object_changed_between_calls():
    class Relu:
        def forward(self, x):
            return x.relu()

    class Tanh:
        def forward(self, x):
            return x.tanh()

    layer = Relu()

    def fn(x):
        return layer.forward(x), type(layer).__name__

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: setattr(layer, "__class__", Tanh))), (x,)]


@program(breaks=0)
def test_super_without_arguments_calls_up_the_chain():
    class Base:
        def forward(self, x):
            return x + 1

    class Middle(Base):
        def forward(self, x):
            return super().forward(x) * 2

    class Top(Middle):
        def forward(self, x):
            return super().forward(x) - 3

    top = Top()

    def fn(x):
        return top.forward(x)

    return fn, ordinary


@program(breaks=0)
def test_refusals_of_super_are_the_programs_errors():
    class Base:
        def kind(self, cls):
            return super(cls, self).__repr__

    def fn(x):
        seen = []
        for cls in (1, int, type(x)):
            try:
                Base().kind(cls)
            except TypeError as error:
                seen.append(str(error))
        return x + len(seen), seen

    return fn, [(swing(i),) for i in range(3)]


@program(breaks=0)
def test_super_in_init_and_with_arguments():
    class Base:
        def __init__(self, scale):
            self.scale = scale

    class Scaled(Base):
        def __init__(self, scale, shift):
            super(Scaled, self).__init__(scale * 2)
            self.shift = shift

    def fn(x):
        s = Scaled(3, x.sin())
        return x * s.scale + s.shift

    return fn, ordinary


@program(breaks=0)
def test_multiple_inheritance_follows_the_resolution_order():
    class Base:
        def trace(self, x):
            return x + 1

    class Left(Base):
        def trace(self, x):
            return super().trace(x * 2)

    class Right(Base):
        def trace(self, x):
            return super().trace(x - 3)

    class Both(Left, Right):
        def trace(self, x):
            return super().trace(x / 5)

    def fn(x):
        return Both().trace(x), [c.__name__ for c in Both.__mro__]

    return fn, ordinary


@program(breaks=0)
def test_mixin_without_a_base_of_its_own():
    class Logged:
        def forward(self, x):
            y = super().forward(x)
            self.last = y
            return y

    class Plain:
        def forward(self, x):
            return x * 2

    class Layer(Logged, Plain):
        pass

    def fn(x):
        layer = Layer()
        layer.forward(x)
        return layer.last + 1

    return fn, ordinary


@program(breaks=0)
def test_classmethod_and_staticmethod():
    class Scale:
        factor = 2

        def __init__(self, amount):
            self.amount = amount

        @classmethod
        def from_tensor(cls, x):
            return cls(x.abs().mean() * cls.factor)

        @staticmethod
        def clip(x):
            return x.clamp(-1, 1)

    class Triple(Scale):
        factor = 3

    def fn(x):
        return Scale.clip(x * Scale.from_tensor(x).amount), Triple.from_tensor(x).clip(x)

    return fn, ordinary


@program
def test_class_attribute_counts_instances():
    class Layer:
        made = 0

        def __init__(self):
            Layer.made += 1
            self.number = Layer.made

    def fn(x):
        return x * Layer().number + Layer().number

    return fn, ordinary


@program
def test_callable_object():
    class Dropout:
        def __init__(self, p):
            self.p, self.training = p, True

        def __call__(self, x):
            return x * (1 - self.p) if self.training else x

    drop = Dropout(0.25)

    def fn(x):
        return drop(x)

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(drop, "training", False))),
        (x, Before(lambda: setattr(drop, "training", True))),
    ]


@program
def test_callable_object_is_the_compiled_function():
    class Model:
        def __init__(self):
            self.seen = []

        def __call__(self, x, *, scale=1.0):
            self.seen.append(x.shape[0])
            return x * scale * len(self.seen)

    model = Model()
    return model, ordinary, model


@program(breaks=0)
def test_new_chooses_the_class():
    class Norm:
        def __new__(cls, x):
            return super().__new__(Wide if x.shape[-1] > 2 else Narrow)

        def __init__(self, x):
            self.x = x

    class Wide(Norm):
        def apply(self):
            return self.x / self.x.shape[-1]

    class Narrow(Norm):
        def apply(self):
            return self.x * 2

    def fn(x):
        return Norm(x).apply()

    return fn, [(torch.randn(2),), (torch.randn(4),), (torch.randn(2),)]


@program
def test_getattr_is_called_only_for_missing_names():
    class Wrapper:
        def __init__(self, inner):
            self.inner, self.asked = inner, []

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            self.asked.append(name)
            return self.inner[name]

    wrapper = Wrapper({"weight": torch.ones(3), "scale": 2.0})

    def fn(x):
        return x * wrapper.scale + wrapper.weight, len(wrapper.asked), hasattr(wrapper, "_none")

    x = torch.randn(3)
    return fn, [(x,), (x,), (x, Before(lambda: wrapper.inner.update(scale=7.0))), (x,)]


@program
def test_getattribute_sees_every_read():
    reads = []

    class Spy:
        def __init__(self):
            self.scale = 3.0

        def __getattribute__(self, name):
            reads.append(name)
            return object.__getattribute__(self, name)

    spy = Spy()

    def fn(x):
        return x * spy.scale + spy.scale

    return fn, ordinary, reads


@program
def test_setattr_and_delattr_are_hooked():
    class Registry:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, name, value):
            self.log.append(("set", name))
            object.__setattr__(self, name, value * 2)

        def __delattr__(self, name):
            self.log.append(("del", name))
            object.__delattr__(self, name)

    registry = Registry()

    def fn(x):
        registry.last = x
        y = registry.last + 1
        del registry.last
        return y, hasattr(registry, "last")

    return fn, ordinary, registry


@program
def test_slots_hold_tensors_and_refuse_others():
    class Point:
        __slots__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    point = Point(torch.zeros(2), 0)

    def fn(x):
        point.x = point.x + x
        point.y += 1
        try:
            point.z = x
        except AttributeError as error:
            return point.x * point.y, type(error).__name__

    return fn, lambda i: (torch.randn(2),)


@program
def test_slot_without_value_and_deleted_slot():
    class Cell:
        __slots__ = ("value",)

    def fn(x):
        cell = Cell()
        empty = hasattr(cell, "value")
        cell.value = x * 2
        y = cell.value
        del cell.value
        return y, empty, getattr(cell, "value", None) is None

    return fn, ordinary


@program
def test_metaclass_keeps_a_registry():
    class Meta(type):
        registry = {}

        def __new__(mcs, name, bases, body, **options):
            cls = super().__new__(mcs, name, bases, body)
            mcs.registry[options.get("key", name.lower())] = cls
            return cls

        def __init__(cls, name, bases, body, **options):
            super().__init__(name, bases, body)

        def __len__(cls):
            return len(cls.__name__)

    class Relu(metaclass=Meta):
        def forward(self, x):
            return x.relu()

    class Tanh(metaclass=Meta, key="hyper"):
        def forward(self, x):
            return x.tanh()

    def fn(x, name):
        return Meta.registry[name]().forward(x) * len(Relu)

    return fn, [(torch.randn(3), "relu"), (torch.randn(3), "hyper"), (torch.randn(3), "relu")]


@program
def test_metaclass_call_makes_a_singleton():
    class Single(type):
        held = None

        def __call__(cls, *args):
            if cls.held is None:
                cls.held = super().__call__(*args)
            return cls.held

    class State(metaclass=Single):
        def __init__(self, x):
            self.x, self.uses = x, 0

    def fn(x):
        state = State(x)
        state.uses += 1
        return state.x * state.uses, State(x) is state

    return fn, ordinary


@program
def test_init_subclass_and_class_keywords():
    class Plugin:
        plugins = []

        def __init_subclass__(cls, *, scale=1, **rest):
            super().__init_subclass__(**rest)
            cls.scale = scale
            Plugin.plugins.append(cls.__name__)

    def fn(x):
        class Double(Plugin, scale=2):
            pass

        return x * Double.scale, list(Plugin.plugins)

    return fn, ordinary


@program
def test_abstract_class_cannot_be_made():
    class Layer(abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Good(Layer):
        def forward(self, x):
            return x + 1

    def fn(x, good):
        try:
            return (Good if good else Layer)().forward(x)
        except TypeError:
            return x - 1

    return fn, [(torch.randn(2), True), (torch.randn(2), False), (torch.randn(2), True)]


@program
def test_isinstance_and_issubclass_decide():
    class Base: ...

    class Wide(Base): ...

    def fn(x, thing):
        if isinstance(thing, Base):
            return x * (2 if issubclass(type(thing), Wide) else 3)
        if isinstance(thing, (list, tuple)):
            return x + len(thing)
        return x - 1 if isinstance(thing, int | float) else x

    return fn, [(torch.randn(2), t) for t in (Wide(), Base(), [1], (1, 2), 3, True, None, "a", Wide())]


@program
def test_instance_check_hook():
    class Shaped(type):
        def __instancecheck__(cls, thing):
            return hasattr(thing, "shape") and len(thing.shape) == cls.rank

    class Matrix(metaclass=Shaped):
        rank = 2

    def fn(x):
        return x.sum(0) if isinstance(x, Matrix) else x * 2

    return fn, [(torch.randn(2, 2),), (torch.randn(3),), (torch.randn(2, 2),)]


@program
def test_dict_of_an_object_is_read_and_written():
    class State:
        def __init__(self, x):
            self.x = x

    def fn(state, x):
        state.__dict__["y"] = state.x * 2
        vars(state).update(z=x)
        return state.y + state.z, list(vars(state)), "x" in state.__dict__

    return fn, lambda i: (State(torch.randn(2)), torch.randn(2))


@program
def test_getattr_setattr_delattr_with_names_from_data():
    class Bag:
        pass

    def fn(bag, x, name):
        setattr(bag, name, x)
        setattr(bag, f"{name}_2", getattr(bag, name) * getattr(bag, "missing", 3))
        delattr(bag, name)
        return getattr(bag, f"{name}_2"), hasattr(bag, name)

    return fn, [(Bag(), torch.randn(2), "a"), (Bag(), torch.randn(2), "b"), (Bag(), torch.randn(2), "a")]


@program
def test_missing_attribute_text():
    class Bag:
        pass

    def fn(x):
        y = x * 2
        return y + Bag().weight

    return fn, ordinary


@program
def test_methods_as_values_keep_their_object():
    class Layer:
        def __init__(self, scale):
            self.scale = scale

        def forward(self, x):
            return x * self.scale

    layers = [Layer(2), Layer(3)]

    def fn(x):
        steps = [layer.forward for layer in layers]
        for step in steps:
            x = step(x)
        return x, steps[0].__self__ is layers[0], layers[0].forward == steps[0]

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(layers[1], "scale", 9))), (x, Before(layers.reverse)), (x,)]


@program
def test_private_names_are_mangled():
    class Layer:
        def __init__(self):
            self.__scale = 2

        def grow(self):
            self.__scale += 1
            return self.__scale

    layer = Layer()

    def fn(x):
        return x * layer.grow(), sorted(vars(layer))

    return fn, ordinary


@program
def test_linked_objects_form_a_cycle():
    class Node:
        def __init__(self, x):
            self.x, self.next = x, None

    def fn(x):
        a, b = Node(x), Node(x * 2)
        a.next, b.next = b, a
        total, node = torch.zeros_like(x), a
        for n in range(5):
            total, node = total + node.x * n, node.next
        return total, a

    return fn, swinging


@program
def test_list_subclass_with_a_method():
    class Batch(list):
        def mean(self):
            return sum(self) / len(self)

        def append(self, item):
            super().append(item * 2)

    def fn(x, batch):
        batch.append(x)
        return batch.mean(), len(batch)

    return fn, lambda i: (swing(i), Batch([torch.ones(4)] * (1 + i % 2)))


@program
def test_dict_subclass_with_missing():
    class Lazy(dict):
        def __missing__(self, key):
            self[key] = value = torch.full((2,), float(key))
            return value

    lazy = Lazy()

    def fn(x, key):
        return x + lazy[key] + lazy[key + 1], sorted(lazy)

    return fn, [(torch.randn(2), 1), (torch.randn(2), 2), (torch.randn(2), 1)]


@program
def test_del_method_runs_when_the_object_goes():
    log = []

    class Guarded:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            log.append(self.n)

    def fn(x):
        g = Guarded(x.shape[0])
        y = x * g.n
        del g
        log.append("after")
        return y

    return fn, ordinary, log


@program
def test_super_without_arguments_in_a_static_method_is_refused_in_pythons_words():
    class Static:
        @staticmethod
        def make():
            return super().__init__()

    def fn(x):
        try:
            Static.make()
        except RuntimeError as error:
            return x + 1, str(error)
        return x, ""

    return fn, ordinary


@program
def test_class_methods_of_other_kinds_through_super():
    class Base:
        wide = property(lambda self: 3)

        @abc.abstractclassmethod
        def named(cls):
            return cls.__name__

    class Derived(Base):
        @classmethod
        def named(cls):
            return super().named()

        @classmethod
        def look(cls):
            return super().wide is Base.wide

    class Noting:
        def __get__(self, obj, kind=None):
            return obj is kind, kind.__name__

    class Holder:
        noted = classmethod(Noting())

    def fn(x):
        return x, Derived.named(), Derived.look(), super(Derived).__thisclass__.__name__

    def fn_of_older_python(x):
        return *fn(x), Holder.noted, Holder().noted

    return fn if sys.version_info >= (3, 13) else fn_of_older_python, [(torch.ones(2),)]


@program
def test_list_whose_class_has_its_own_new_is_filled():
    class Named(list):
        def __new__(cls, items):
            made = super().__new__(cls, items)
            made.name = "named"
            return made

    class Table(dict):
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls)

    class Chosen:
        def __new__(cls, at):
            return object.__new__(Other)

    class Other(Chosen):
        def __init__(self, at):
            self.at = at * 2

    def fn(x):
        return x, Named([1, 2]), Named((3,)).name, Table(a=1), Chosen(4).at

    return fn, [(torch.ones(2),)]


@program(breaks=0)
def test_object_that_has_every_attribute_is_called_by_its_class():
    class Anything:
        def __init__(self):
            self.asked = []

        def __getattr__(self, name):
            self.asked.append(name)
            return len(name)

        def __call__(self, x):
            return x * self.four

    def fn(x, thing):
        return thing(x), thing.asked

    return fn, lambda i: (torch.ones(2), Anything())


@program(breaks=0)
def test_generic_class_is_made_through_its_alias():
    made = []
    Item = typing.TypeVar("Item")

    class Box(typing.Generic[Item]):
        def __init__(self, item):
            made.append(self)
            self.item = item

    def fn(x):
        box = Box[int](x)
        return box.item + len(made), box.__orig_class__ == Box[int]

    return fn, ordinary


@program(breaks=0)
def test_containers_made_by_the_names_of_their_elements():
    def fn(x):
        seen, found = dict[str, list[int]](a=[1]), list[int]((2, 3))
        found.append(len(set[str]("aab")))
        return x * sum(found), seen, found, frozenset[int](found), tuple[int, ...](found)

    return fn, lambda i: (torch.randn(3),)


def with_bases(fn, x, cls, bases):
    cls.__bases__ = bases
    return fn(x)


@program_with_caller(breaks=0)
def test_a_class_is_given_other_bases_between_calls():
    class First:
        scale = 2.0

        def step(self, x):
            return x + 1

    class Second:
        scale = 3.0

        def step(self, x):
            return x - 1

    class Middle(First):
        pass

    class Last(Middle):
        def step(self, x):
            return super().step(x) * 10

    last = Last()

    def fn(x):
        return last.step(x) * last.scale, Last.scale, isinstance(last, First), issubclass(Middle, Second)

    calls = ((First,), (Second,), (First,), (Second, First))
    return fn, with_bases, [(torch.ones(2), Middle, bases) for bases in calls]


@program_with_caller(breaks=0)
def test_bases_are_looked_at():
    class First:
        scale = 2.0

    class Second:
        scale = 3.0

    class Last(First):
        pass

    def fn(x):
        return x * Last.__bases__[0].scale, len(Last.__mro__)

    return fn, with_bases, [(torch.ones(2), Last, bases) for bases in ((First,), (Second,), (Second, First))]


def telling(table, asked):
    """A metaclass that reads what it tells from a table, by the method ``asked``."""
    if asked == "__getattr__":

        class Telling(type):
            def __getattr__(cls, name):
                if name in table:
                    return table[name]
                raise AttributeError(name)
    else:

        class Telling(type):
            def __getattribute__(cls, name):
                return table[name] if name in table else super().__getattribute__(name)

    return Telling


def told_by(asked):
    table = {}

    class Told(metaclass=telling(table, asked)):
        own = 2

        def __init__(self, value):
            self.value = value

    def fn(x):
        return Told(x).value * Told.scale + Told.own, hasattr(Told, "nothing")

    def caller(fn, x, scale):
        table["scale"] = scale
        return fn(x)

    return fn, caller, [(torch.ones(2), scale) for scale in (2, 3, 4, 2)]


@program_with_caller(breaks=0)
def test_a_metaclass_computes_missing_attributes():
    return told_by("__getattr__")


@program_with_caller(breaks=0)
def test_a_metaclass_computes_every_attribute():
    return told_by("__getattribute__")


@program_with_caller(breaks=0)
def test_a_class_is_subscripted_by_a_method_of_its_own():
    table = []

    class Subscripted:
        def __class_getitem__(cls, key):
            return key * len(table)

    def fn(x):
        return x * Subscripted[3]

    def caller(fn, x):
        table.append(x)
        return fn(x)

    return fn, caller, [(torch.ones(2),)] * 4


@program_with_caller(breaks=0)
def test_a_class_is_registered_with_an_abstract_one_between_calls():
    class Abstract(abc.ABC):
        pass

    class Plain:
        pass

    plain = Plain()

    def fn(x):
        return x + (1 if isinstance(plain, (list, Abstract)) else 2), issubclass(Plain, Abstract)

    def caller(fn, x, registers):
        if registers:
            Abstract.register(Plain)
        return fn(x)

    return fn, caller, [(torch.ones(2), registers) for registers in (False, True, False)]


@program_with_caller(breaks=0)
def test_an_object_comes_to_follow_a_protocol_between_calls():
    @typing.runtime_checkable
    class Runs(typing.Protocol):
        def run(self): ...

    class Plain:
        pass

    plain = Plain()

    def fn(x):
        return x + (1 if isinstance(plain, Runs) else 2), isinstance(plain, typing.Iterable)

    def caller(fn, x, changes):
        changes()
        return fn(x)

    return (
        fn,
        caller,
        [
            (torch.ones(2), changes)
            for changes in (int, lambda: setattr(plain, "run", int), lambda: setattr(Plain, "__iter__", int))
        ],
    )


# ---- assignment to attributes of classes


class Flag:
    """A switch that is a class attribute, as libraries have them for their settings."""

    on = False
    level = 1

    def __init__(self, on=True):
        self.on_before, self.wanted = Flag.on, on

    @classmethod
    def set_to(cls, on):
        cls.on = on

    def __enter__(self):
        self.set_to(self.wanted)

    def __exit__(self, *error):
        self.set_to(self.on_before)
        return False


class Louder(Flag):
    pass


def flag_calls(i):
    def reset(on=i == 1, level=1 + i % 2):
        Flag.on, Flag.level = on, level

    return (torch.randn(2), Before(reset))


@program(breaks=0)
def test_switch_of_a_class_is_set_and_set_back():
    def fn(x):
        seen = [Flag.on]
        with Flag():
            y, inside = (x * 2 if Flag.on else x), Louder.on
            with Flag(False):
                seen += [Flag.on, Louder(False).on, getattr(Louder, "on")]
            seen.append(Flag.on)
        return y, inside, seen, Flag.on

    return fn, flag_calls


def and_the_class(fn, *args, **kwargs):
    """The result or the error, and what the class is left with."""
    args[-1].action()
    try:
        result = fn(*args[:-1])
    except RuntimeError as error:
        result = str(error)
    return result, Flag.on, Flag.level


@program_with_caller(breaks=0)
def test_assignment_to_a_class_attribute_lasts():
    def fn(x):
        made = Louder()
        type(made).__mro__[1].level = Flag.level + 10
        Flag.on = x * Flag.level
        return made.level, super(Louder, made).level, Flag.on + 1

    return fn, and_the_class, flag_calls


@program_with_caller
def test_break_while_the_switch_of_a_class_is_set():
    def fn(x):
        with Flag():
            y = x * Flag.level
            burnish.graph_break()
            if y.sum() > 0:
                Flag.level = 7
            return y + Flag.level, Flag.on, vars(Flag)["level"]

    return fn, and_the_class, lambda i: (swing(i), flag_calls(i)[1])


@program_with_caller
def test_error_while_the_switch_of_a_class_is_set():
    def fn(x, divisor):
        with Flag():
            return x, 10 // divisor

    return fn, and_the_class, lambda i: (torch.randn(2), torch.tensor([3, 2, 0, 5][i % 4]), flag_calls(1)[1])


@program
def test_class_attributes_that_are_more_than_data():
    class Meta(type):
        def __setattr__(cls, name, value):
            super().__setattr__(name, value * 2)

    class Doubled(metaclass=Meta):
        k = 1

    class Changing:
        scale = property(lambda self: 2)
        count = 0

        def double(self):
            return 2

    def fn(x):
        Doubled.k = 4
        Changing.double = lambda self: 3
        Changing.scale = 5
        Changing.fresh = 1
        Changing.count += 1
        return x * Doubled.k * Changing().double() * Changing().scale + Changing.count

    return fn, ordinary


@program_with_caller(breaks=0)
def test_counters_of_classes():
    class Counter:
        calls, total, names = 0, 0.5, ("a",)

        @classmethod
        def count(cls):
            cls.calls += 1
            return cls.calls

    def fn(x):
        Counter.total += x.shape[0]
        return x * Counter.count() + Counter.total, (Counter.calls, Counter.total, Counter.names)

    def caller(fn, x):
        result = fn(x)
        return result, type(Counter.calls), type(Counter.total), Counter.calls, Counter.total

    return fn, caller, [(torch.randn(2),) for _ in range(5)]


@program(breaks=0)
def test_class_statement_is_part_of_the_graph():
    def fn(x):
        amount = x.shape[0]

        class Shift:
            scale: int = 2
            twice = scale * amount
            names = [str(n) for n in range(amount)]
            del scale

            def __init__(self, x):
                self.x = x

            def moved(self):
                return self.x * self.twice + amount

        class Twice(Shift):
            """Twice as far."""

            def moved(self):
                return super().moved() * 2

            @property
            def start(self):
                return self.x

            @staticmethod
            def name(text):
                return text + __class__.__name__

        shift = Twice(x)
        assert isinstance(shift, Shift) and not hasattr(Twice, "scale")
        return shift.moved() + shift.start, Twice.name("a "), Twice.__doc__, Twice.__mro__[1].__qualname__, Shift.names

    return fn, [(torch.ones(2),), (torch.zeros(3),), (torch.ones(2),)]


@program(breaks=0)
def test_class_made_here_changes_and_is_made_by_metaclasses():
    class Meta(type):
        def __new__(meta, name, bases, body, **given):
            made = super().__new__(meta, name, bases, body)
            made.given = given
            return made

        def __len__(cls):
            return len(cls.given)

    def fn(x):
        class Made(metaclass=Meta, first=1, second=2):
            def get(self):
                return x * 2

        class Abstract(abc.ABC):
            @abc.abstractmethod
            def get(self): ...

        Named = type("Named", (Abstract,), {"get": lambda self: x + 1})
        first = Made().get()
        Made.get = lambda self: x * 3
        Made.new = 5
        found = len(Made), Made.given, Made.new, Named.__name__
        del Made.new
        try:
            Abstract()
        except TypeError as error:
            return first, Made().get(), Named().get(), found, hasattr(Made, "new"), type(error)

    return fn, ordinary


@program
def test_class_made_here_that_leaves_the_graph_is_another_one_in_each_run():
    seen = []

    def fn(x):
        class Box:
            def __init__(self, value):
                self.value = value

        seen.append(Box)
        return Box(x + 1).value * 2, len({*seen})

    return fn, ordinary


@program
def test_break_in_a_class_body_and_behind_it():
    def fn(x):
        class Box:
            sign = 1 if x.sum() > 0 else -1
            if sign > 0:
                name = "positive"

            def times(self, y):
                return y * self.sign

        y = Box().times(x)
        if y.mean() > 0:
            y = Box().times(y) + 1
        return y, getattr(Box, "name", None)

    return fn, swinging


@program
def test_hooks_of_the_user_run_when_a_class_is_made():
    class Named:
        def __set_name__(self, owner, name):
            self.name = owner.__name__ + "." + name

    class Base:
        kinds = 0

        def __init_subclass__(cls, **given):
            Base.kinds += 1
            cls.given = given

    def fn(x):
        class Sub(Base, size=2):
            field = Named()

        return x + Base.kinds, Sub.given, Sub.field.name

    return fn, ordinary


def test_classes_that_other_threads_make_meanwhile_keep_their_hook():
    made = []

    class Base:
        def __init_subclass__(cls, **given):
            made.append((cls.__name__, given))

    Base.__init_subclass__ = class_creation.only_in_other_threads(Base.__dict__["__init_subclass__"])
    type("Here", (Base,), {}, size=1)
    thread = threading.Thread(target=lambda: type("There", (Base,), {}, size=2))
    thread.start()
    thread.join()
    assert made == [("There", {"size": 2})]


class Registered:
    known = {}

    def __init_subclass__(cls, /, key, **kwargs):
        super().__init_subclass__(**kwargs)
        Registered.known[key] = cls.__name__


@program(breaks=0)
def test_hooks_of_a_class_statement():
    def fn(x, k):
        log = []

        class Named:
            def __set_name__(self, owner, name):
                self.name = name
                log.append((owner.__name__, name, list(vars(owner))[-2:]))

        class Base:
            def __init_subclass__(cls, /, scale=1, **kwargs):
                super().__init_subclass__(**kwargs)
                cls.scale = scale
                log.append(cls.__name__)

        class Scaled(Base, scale=k):
            first = Named()
            second = Named()

        class Plain(Scaled):
            pass

        return x * Scaled.scale, Plain.scale, log, Scaled.first.name

    return fn, lambda i: (torch.ones(2), i)


@program(breaks=0)
def test_a_class_registers_itself_outside():
    def fn(x, key):
        Registered.known.clear()

        class Mine(Registered, key=key):
            pass

        return x * 2, dict(Registered.known), Mine.__mro__[1] is Registered

    return fn, [(torch.ones(2), "a"), (torch.ones(2), "a"), (torch.ones(2), "b")]


@program
def test_an_error_in_set_name_is_explained():
    class Bad:
        def __set_name__(self, owner, name):
            raise ValueError("bad")

    def fn(x):
        try:

            class Holder:
                bad = Bad()
        except (ValueError, RuntimeError) as error:
            return x * 2, type(error).__name__, str(error), getattr(error, "__notes__", None)

    return fn, lambda i: (torch.ones(2),)


@program
def test_annotations_are_not_inherited():
    class Outside:
        scale: int = 2

    def fn(x):
        class Inner(Outside):
            pass

        class Further(Inner):
            shift: int = 1

        return x * Outside.scale, Inner.__annotations__, Further.__annotations__, Outside.__annotations__

    return fn, lambda i: (torch.ones(2),)


@program
def test_only_objects_of_the_class_are_initialized():
    class Shape(abc.ABC):
        def __new__(cls, other):
            return Square() if other else super().__new__(cls)

        def __init__(self, other):
            seen.append("shape")

    class Square:
        def __init__(self, *given):
            seen.append("square")

    Shape.register(Square)
    seen = []

    def fn(x, other):
        return x + 1, isinstance(Shape(other), Square), list(seen)

    return fn, lambda i: (torch.ones(2), i % 2 == 0), seen


@program
def test_each_call_makes_another_class():
    def fn(x):
        made = types.new_class("Made", (Base,), {})
        os.getpid()
        is_first = not hasattr(made, "mark")
        made.mark = 1
        frozen = dataclasses.make_dataclass("Frozen", ["value"], frozen=True)
        return x + 1, is_first, made.__module__, repr(frozen(3))

    class Base:
        pass

    return fn, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_subclass_checks_in_python_read_state_that_changes():
    state = {"answer": True}

    class Asked(type):
        def __subclasscheck__(cls, other):
            return state["answer"]

        def __instancecheck__(cls, obj):
            return [1] if state["answer"] else []

    class Base(metaclass=Asked):
        pass

    class Asking:
        def __subclasscheck__(self, other):
            return other is int

    def fn(x, answer):
        state["answer"] = answer
        kinds = issubclass(int, Base), issubclass(int, (str, Base)), issubclass(bool, Base | str)
        objects = isinstance(3, Base), isinstance(3, (str, Base)), isinstance(3, str | Base)
        return x + 1, kinds, objects, issubclass(int, Asking()), issubclass(str, (float, Asking()))

    return fn, [(torch.ones(2), answer) for answer in (True, False, True, False)]


@program(breaks=0)
def test_classes_by_their_own_bases():
    class Like:
        def __init__(self, *bases):
            self.bases = bases

        @property
        def __bases__(self):
            return self.bases

    class Refusing:
        @property
        def __bases__(self):
            raise AttributeError

    class Of:
        def __init__(self, kind):
            self.kind = kind

        @property
        def __class__(self):
            return self.kind

    top = Like()

    def outcome(function, *args):
        try:
            return function(*args)
        except TypeError as error:
            return str(error)

    def fn(x, base):
        like = Like(Like(), Like(base))
        asked = (like, top), (like, int), (like, (str, top)), (like, int | str), (Refusing(), int), (int, Refusing())
        found = [outcome(issubclass, *pair) for pair in (*asked, (5, int), (int, Like(int)), (top, top))]
        objects = (Of(like), top), (4, top), (4, Refusing()), (4, (int, Refusing())), (4, (str, Refusing()))
        return x + 1, found, [outcome(isinstance, *pair) for pair in objects]

    return fn, [(torch.ones(2), base) for base in (top, int, top)]


@program(breaks=0)
def test_checks_that_refuse_say_the_same():
    class Unlike:
        __bases__ = (int,)

    class Of:
        @property
        def __class__(self):
            return int

    class Never(type):
        __instancecheck__ = __subclasscheck__ = None

    class Refused(metaclass=Never):
        pass

    def outcome(function, *args):
        try:
            return function(*args)
        except TypeError as error:
            return str(error)

    def fn(x):
        classes = [outcome(issubclass, Unlike(), kind) for kind in (list[int], (bool, list[int]), abc.ABC, int)]
        objects = [outcome(isinstance, Of(), kind) for kind in (3, None, list[int], int)]
        return x + 1, classes, objects, outcome(isinstance, 3, Refused), outcome(issubclass, int, Refused)

    return fn, [(torch.ones(2),)] * 3


class Message(typing.TypedDict, total=False):
    name: str
    value: torch.Tensor


@program_with_caller(breaks=0)
def test_a_class_as_call_of_a_metaclass():
    """It is called without the class that the program calls."""

    class Pair:
        def __init__(self, *items, **named):
            self.items, self.named = items, named

    class Other(Pair):
        pass

    class Makes(type):
        __call__ = Pair

    class Made(metaclass=Makes):
        def __init__(self):
            raise AssertionError

    def fn(x, **more):
        message = Message(name="x", value=x + 1, **more)
        message["value"] = message["value"] * 2
        made = Made(x * 3, at=message["name"])
        kind = type(made)
        items = made.items if kind is Pair else (made,)
        return message, type(message), kind is Pair, kind is list, items, Message()

    def caller(fn, x, call, more):
        Makes.__call__ = call
        return fn(x, **more)

    def listed(cls, *items, **named):
        return [cls is Made, *items, named]

    calls = [(Pair, {}), (Pair, {}), (Pair, {"done": True}), (listed, {}), (Other, {}), (Pair, {})]
    return fn, caller, [(torch.ones(2), *each) for each in calls]


@program(breaks=0)
def test_a_slot_of_a_new_object_is_deleted():
    class Node:
        __slots__ = ("value", "next")

    def fn(x):
        node = Node()
        node.value, node.next = x, 1
        del node.value
        found = []
        for ask in (lambda: node.value, lambda: delattr(node, "value")):
            try:
                ask()
            except AttributeError as error:
                found.append(str(error))
        return x + 1, node, found

    return fn, lambda i: (torch.ones(2),)
