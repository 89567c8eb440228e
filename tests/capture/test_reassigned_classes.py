"""State of classes, functions and modules that a program may assign between two calls: names, metaclasses, bases."""

import functools
import gc
import importlib
import importlib.util
import inspect
import sys
import tempfile
import threading
import types
import typing

import pytest
import torch

import burnish


def answers(make, compiled):
    """``make`` returns a function and what is called before each call of it, with the number of the call."""
    ask, change = make()
    function = burnish.compile(ask, backend="eager") if compiled else ask
    found = []
    for k in range(4):
        change(k)
        found.append(function(torch.ones(2) * k)[1:])
    return found


def check(make):
    assert answers(make, compiled=True) == answers(make, compiled=False)


def test_subclasses_that_come_and_go():
    class Base:
        pass

    class Child(Base):
        pass

    kept = []

    def change(k):
        if k in (1, 3):
            kept.append(type("Other", (Base,), {}))
        else:
            kept.clear()
            gc.collect()

    compiled = burnish.compile(lambda x: (x + 1, len(Base.__subclasses__()), len(type.__subclasses__(Base))))
    for k in range(6):
        change(k % 4)
        assert compiled(torch.ones(2))[1:] == (2, 2) if k % 4 in (1, 3) else (1, 1)
    assert Child.__base__ is Base


@pytest.mark.parametrize("name", ["__name__", "__qualname__", "__module__", "__doc__"])
def test_a_class_that_is_renamed(name):
    def make():
        class Model:
            pass

        def change(k):
            setattr(Model, name, f"name{k // 2}")

        def ask(x):
            return x + 1, getattr(Model, name), getattr(type(Model()), name), repr(Model), f"{Model}", str([Model])

        return ask, change

    check(make)


def test_a_metaclass_that_is_replaced():
    def make():
        class First(type):
            tag = "first"

            def __len__(cls):
                return 1

        class Second(First):
            tag = "second"

            def __len__(cls):
                return 2

            def __repr__(cls):
                return "the second"

            @property
            def __name__(cls):
                return "named by its metaclass"

            def __instancecheck__(cls, value):
                return True

        class Model(metaclass=First):
            pass

        def change(k):
            Model.__class__ = Second if k == 2 else First

        def ask(x):
            return x + 1, Model.tag, len(Model), repr(Model) == "the second", Model.__name__, isinstance(3, Model)

        return ask, change

    check(make)


def test_a_property_of_the_metaclass_comes_before_the_class():
    def make():
        class Meta(type):
            @property
            def size(cls):
                return 3

        class Model(metaclass=Meta):
            size = 5

        return (lambda x: (x * Model.size, Model.size, Model().size)), (lambda k: None)

    check(make)


def test_a_metaclass_call_happens_once():
    def make():
        made = []

        class Meta(type):
            def __call__(cls, *args):
                made.append(cls.__name__)
                return type.__call__(cls, *args)

        class Model(metaclass=Meta):
            pass

        return (lambda x: (x + 1, type(Model()).__name__, len(made))), (lambda k: None)

    check(make)


class First:
    def __get__(self, obj, kind=None):
        return 1

    def __call__(self):
        return 3


class Second:
    def __get__(self, obj, kind=None):
        return 2

    def __set__(self, obj, value):
        pass

    def __call__(self):
        return 4


def test_a_descriptor_whose_class_is_replaced():
    def make():
        class Model:
            part = First()

        def change(k):
            vars(Model)["part"].__class__ = Second if k == 2 else First

        return (lambda x: (x + 1, Model().part, Model.part)), change

    check(make)


def test_a_module_whose_class_is_replaced():
    class Virtual(types.ModuleType):
        @property
        def virtual(self):
            return 5

    def make():
        module = types.ModuleType("module_of_a_test")

        def change(k):
            module.__class__ = Virtual if k == 2 else types.ModuleType

        return (lambda x: (x + 1, getattr(module, "virtual", 0), type(module).__name__)), change

    check(make)


def test_a_module_that_is_replaced(monkeypatch):
    def make():
        def change(k):
            module = types.ModuleType("module_of_a_test")
            module.value = k // 2
            monkeypatch.setitem(sys.modules, "module_of_a_test", module)

        def ask(x):
            import module_of_a_test

            return x + 1, module_of_a_test.value, importlib.import_module("module_of_a_test").value

        return ask, change

    check(make)


def test_a_package_that_is_installed_later(monkeypatch, tmp_path):
    def make():
        monkeypatch.syspath_prepend(tmp_path)

        def change(k):
            path = tmp_path / "installed_by_a_test.py"
            path.write_text("") if k == 2 else path.unlink(missing_ok=True)
            importlib.invalidate_caches()

        return (lambda x: (x + 1, importlib.util.find_spec("installed_by_a_test") is None)), change

    check(make)


def test_settings_of_the_standard_library(monkeypatch):
    def make():
        def change(k):
            monkeypatch.setattr(tempfile, "tempdir", f"/{k // 2}")
            monkeypatch.setattr(sys, "excepthook", print if k == 2 else sys.__excepthook__)
            monkeypatch.setattr(threading, "excepthook", print if k == 2 else threading.__excepthook__)

        def ask(x):
            own = sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__
            return x + 1, tempfile.tempdir, own

        return ask, change

    check(make)


def test_a_function_that_gets_other_parts():
    def make():
        class Model:
            def forward(self, a=1, *, b=2) -> int:
                """First."""

        def other(z):
            """Second."""

        def change(k):
            if k == 2:
                function = Model.forward
                function.__code__, function.__defaults__, function.__kwdefaults__ = other.__code__, (4,), None
                function.__doc__, function.__annotations__ = other.__doc__, {"z": str}

        def ask(x):
            function = Model.forward
            code = function.__code__.co_name, function.__code__.co_argcount
            parts = function.__defaults__, function.__kwdefaults__, dict(function.__annotations__)
            return x + 1, code, parts, function.__doc__, Model().forward.__doc__, str(inspect.signature(function))

        return ask, change

    check(make)


def test_reflection_sees_what_was_assigned():
    def make():
        class Model:
            """First."""

            def __init__(self, a):
                pass

        def change(k):
            if k == 2:
                Model.__doc__, Model.__init__, Model.late = "Second.", lambda self, b, c: None, 5
                Model.__annotations__ = {"late": int}

        def ask(x):
            members = [name for name, _ in inspect.getmembers(Model) if not name.startswith("_")]
            return x + 1, inspect.getdoc(Model), str(inspect.signature(Model)), members, typing.get_type_hints(Model)

        return ask, change

    check(make)


def test_the_offset_of_a_view_from_outside():
    def fn(x):
        return x + 1, x.storage_offset(), x[1:].storage_offset()

    compiled = burnish.compile(fn)
    for k in (0, 1, 2, 0):
        x = torch.arange(8.0)[k : k + 4]
        assert compiled(x)[1:] == fn(x)[1:]


def test_attributes_of_a_partial():
    def make():
        import functools

        partial = functools.partial(dict, a=1)

        def change(k):
            partial.mark = k // 2

        return (lambda x: (x + 1, partial.mark, partial.func is dict, partial())), change

    check(make)


class Showing:
    def __init__(self):
        self.real = 3
        self.asked = []

    @property
    def __dict__(self):
        object.__getattribute__(self, "asked").append(1)
        return {"real": 77, "virtual": 1}


class Marked(type):
    @property
    def __dict__(cls):
        return {"value": 77}


class Model(metaclass=Marked):
    value = 2


def test_a_property_named_dict_is_not_the_dictionary():
    def make():
        outside = Showing()

        def change(k):
            outside.real = k // 2

        def ask(x):
            made = Showing()
            made.new = 4
            outside.new = x.shape[0]
            read = outside.real, made.real, hasattr(outside, "virtual"), made.new, outside.new
            shown = outside.__dict__, vars(outside), vars(made), len(outside.asked), len(made.asked)
            return x + 1, read, shown, Model.value, vars(Model), Model.__dict__

        return ask, change

    check(make)


def test_an_error_handler_of_a_codec_is_the_users():
    import codecs

    def make():
        def change(k):
            codecs.register_error("burnish.test", lambda error: (str(k // 2), error.end))

        return (lambda x: (x + 1, "é".encode("ascii", "burnish.test"), "é".encode("latin-1"))), change

    check(make)


def test_an_answer_of_reflection_that_the_program_changes():
    class Model:
        size: int = 1

    def ask(x):
        hints = typing.get_type_hints(Model)
        hints["extra"] = str
        return x + 1, len(hints)

    compiled = burnish.compile(ask, fullgraph=True)
    assert [compiled(torch.ones(2))[1] for _ in range(12)] == [2] * 12


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def test_reflection_of_methods():
    def make():
        class Model:
            size: "int" = 1

            @wrapping
            def forward(self, a, mask=None):
                pass

        model = Model()

        def other(self, b: int, c=2):
            pass

        def change(k):
            if k == 1:
                Model.forward.__wrapped__ = other
            if k == 2:
                other.__defaults__, other.__annotations__["b"] = (5,), str
            if k == 3:
                Model.forward, Model.__annotations__ = lambda self, d=1: None, {"size": "str"}

        def ask(x):
            names = str(inspect.signature(model.forward)), inspect.getfullargspec(Model.forward)
            return x + 1, names, inspect.get_annotations(Model, eval_str=True), inspect.getclosurevars(other).nonlocals

        assert burnish.explain(ask)(torch.ones(2)).graph_break_count == 0
        return ask, change

    check(make)


def test_the_signature_of_a_class_that_gets_other_parts():
    def make():
        class Base:
            def __init__(self, a=1):
                pass

        class Model(Base):
            pass

        def change(k):
            if k == 1:
                Base.__init__.__defaults__ = (object,)
            if k == 2:
                Base.__init__ = lambda self, b: None
            if k == 3:
                Model.__new__ = lambda cls, c: None

        return (lambda x: (x + 1, str(inspect.signature(Model)))), change

    check(make)


def test_a_sparse_tensor_is_asked_for_its_memory():
    def ask(x, s):
        return x + 1, s.is_coalesced(), x.is_shared(), s.is_pinned(), x.storage_offset()

    compiled = burnish.compile(ask, fullgraph=True)
    for k in range(3):
        s = (torch.eye(3) * k).to_sparse()
        assert compiled(torch.ones(3)[k:], s)[1:] == ask(torch.ones(3)[k:], s)[1:]


def test_a_package_is_looked_for_past_finders_of_installed_packages(monkeypatch, tmp_path):
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "own_finder.py").write_text("def find_spec(*_):\n    return None\n")
    monkeypatch.syspath_prepend(place)
    own_finder = importlib.import_module("own_finder")
    finder = type("Finder", (), {"__module__": own_finder.__name__, "find_spec": staticmethod(own_finder.find_spec)})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    compiled = burnish.compile(lambda x: (x + 1, importlib.util.find_spec("not_installed") is None), fullgraph=True)
    assert compiled(torch.ones(2))[1] is True
    del sys.modules["own_finder"]


def test_a_docstring_that_is_computed():
    def make():
        log = []

        class Computed:
            def __get__(self, instance, owner):
                log.append(1)
                return f"text {len(log)}"

        class Model:
            __doc__ = Computed()

        return (lambda x: (x + 1, Model.__doc__, inspect.getdoc(Model()), len(log))), lambda k: None

    check(make)


def test_the_text_of_a_class_in_a_container_by_its_metaclass():
    def make():
        names = []

        class Meta(type):
            def __repr__(cls):
                return f"{names}"

        class Model(metaclass=Meta):
            pass

        return (lambda x: (x + 1, repr([Model]), str({1: Model}))), names.append

    check(make)


def test_a_subclass_of_property():
    def make():
        class Own(property):
            pass

        state = [0]

        class Model:
            @Own
            def value(self):
                return state[0]

            @value.setter
            def value(self, new):
                state[0] = new

        class Child(Model):
            @property
            def value(self):
                return super().value + 1

        model = Model()

        def ask(x):
            before = model.value, Child().value
            model.value += 10
            return x + 1, before, model.value

        return ask, lambda k: state.__setitem__(0, k)

    check(make)


def test_sum_asks_for_the_iterator_before_it_refuses_bytes():
    log = []

    class Items:
        def __iter__(self):
            log.append("iter")
            return iter([])

    def ask(x):
        for items in (Items(), 5):
            try:
                sum(items, b"")
            except TypeError as error:
                log.append(str(error))
        return x + 1

    ask(torch.ones(2))
    expected = log[:]
    log.clear()
    burnish.compile(ask)(torch.ones(2))
    assert log == expected


def test_names_of_subclasses_do_not_keep_them_alive():
    def make():
        class Base:
            pass

        kept = []

        def change(k):
            if k % 2:
                kept.append(type(f"Child{k}", (Base,), {}))
            else:
                kept.clear()
                gc.collect()

        return (lambda x: (x + 1, [each.__name__ for each in Base.__subclasses__()])), change

    check(make)
